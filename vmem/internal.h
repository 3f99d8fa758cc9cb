/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_VMEM_INTERNAL_H
#define CUDAW_VMEM_INTERNAL_H
/*
 * Shared by the files behind vmem.h: the regions, and the state that one lock guards.
 *
 *	vmem.c		allocations, and the state		pausing.c	the pause engine's calls
 *	regions.c	regions: mapped, idle, cached		peers.c		access of other devices
 *	heaps.c		allocations below a granule	retired.c	freed, perhaps in use
 *
 * The functions here are for callers that hold the lock.
 */
#include "common/gpu.h"
#include "vmem/mapping.h"
#include "vmem/space.h"
#include "vmem/suballoc.h"

#include <pthread.h>

/*
 * The members that vmem_lookup() reads are atomic. A region that is not in use has no slab, and its
 * `asked` is 0, so that a lookup through a stale table entry finds nothing in it.
 */
struct region {
	_Atomic CUdeviceptr start;
	_Atomic size_t
		asked; /* bytes of a large region's allocation; 0 without one, and in a slab */
	_Atomic unsigned long long id;
	_Atomic CUcontext ctx;
	_Atomic CUdevice dev;
	struct slab *_Atomic slab; /* NULL in a large region */
	size_t size;
	struct heap *heap; /* of a slab */
	bool mapped;
	size_t left; /* bytes that a failed map left mapped; the region counts as not mapped */
	bool idle;   /* it has no live allocation */
	bool cached; /* it is in its device's cache */
	struct region *prev, *next;
};

/* The slabs of one context. */
struct heap {
	CUcontext ctx;
	CUdevice dev;
	size_t size; /* of all its slabs */
	/* The slab that became empty last. It is kept, unless it is in use again. */
	struct region *spare;
	struct suballoc sa;
	struct heap *next;
};

struct device {
	bool probed;
	struct mapping_caps caps;
	uint64_t users;   /* other devices that may access the memory of this one, as bits */
	uint64_t copiers; /* those of them that may because of copies */
	struct vmem_stats stats;
	struct region *cache; /* freed large regions, oldest first */
	size_t cache_size;
};

struct vmem_state {
	pthread_mutex_t lock; /* guards all below, with the exceptions in vmem.h */
	const struct cuda_driver *drv;
	struct space space;
	struct device devices[GPU_MAX];
	struct heap *heaps;
	struct region *regions; /* objects not in use */
	struct freed *freed;    /* NULL before vmem_watch() */
	size_t gap;             /* addresses left free behind each region */
	unsigned long long last_id;
};
extern struct vmem_state vm;

void region_set_mapped(struct region *r, bool mapped);
void region_set_idle(struct region *r, bool idle);

/* Map or unmap @r, and unmap the rest of a failed region_map() of it. */
CUresult region_map(struct region *r);
CUresult region_unmap(struct region *r);

/* A mapped region of @size bytes, in granules. The second releases idle regions if need be. */
CUresult region_new(CUcontext ctx, CUdevice dev, size_t size, struct region **region);
CUresult region_new_or_trim(CUcontext ctx, CUdevice dev, size_t size, struct region **region);

/* Unmap @r, which must have no live allocation, and forget it. On failure nothing changes. */
CUresult region_release(struct region *r);

/* Release the idle regions of @dev, or of all devices if that is negative; returns their bytes. */
size_t regions_trim(CUdevice dev);

/* The region at or above *@pos, which moves behind it; it may then be released. */
struct region *region_next(CUdeviceptr *pos);

/* Freed large regions that stay mapped for the next allocation of their size and context. */
void cache_add(struct region *r);
void cache_remove(struct region *r);
struct region *cache_find(CUcontext ctx, CUdevice dev, size_t size);

/* Read the abilities of @dev, once. */
CUresult device_probe(CUdevice dev);

/* Account for @n allocations of @size bytes in total that are gone. */
void device_forget(CUdevice dev, size_t n, size_t size);

/* Allocate from the slabs of a context, and free; the latter as vmem_free(). */
CUresult heap_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr);
CUresult heap_free(struct region *r, CUdeviceptr ptr);

/* Forget the heaps of @ctx, whose slabs have no allocations any more. */
void heaps_release_context(CUcontext ctx);

#endif
