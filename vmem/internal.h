/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_VMEM_INTERNAL_H
#define CUDAW_VMEM_INTERNAL_H
/*
 * Shared by the files behind vmem.h: the regions, and the state.
 *
 *	vmem.c		allocations (state.c: the state)	pausing.c	the pause engine's calls
 *	regions.c	regions: mapped, idle, cached, joined	access.c	access of other devices
 *	heaps.c		allocations below a granule	legacy.c	those that other processes may have
 *
 * Locks: that of a device guards its regions, heaps, cache and statistics, and is held across driver
 * calls. vm.lock guards the addresses, the region objects that are not in use, and the record of freed
 * allocations; it is held for a moment, and taken last. Nobody holds the locks of two devices. The
 * functions here are for callers that hold the lock of the device concerned, and not vm.lock.
 */
#include "common/gpu/gpu.h"
#include "vmem/mapping.h"
#include "vmem/objects/objects.h"
#include "vmem/addresses/space.h"
#include "vmem/suballoc.h"

#include <pthread.h>

/*
 * vmem_lookup() reads the members up to `slab` without a lock, so they are written by REGION_WRITE(). A
 * region that is not in use has no slab, and its `asked` is 0, so that a lookup through a stale table entry
 * finds nothing in it.
 */
struct region {
	CUdeviceptr start;
	size_t asked; /* bytes of a large region's allocation; 0 without one, and in a slab */
	unsigned long long id;
	CUcontext ctx;
	CUdevice dev;
	struct slab *slab; /* NULL in a large region */
	/* Nobody reads these while it is not in use (common/reused.h), up to @next: */
	size_t size;
	struct heap *heap; /* of a slab */
	size_t mapped; /* bytes from its start; all or nothing, except in a large region at rest */
	/*
	 * The mapping that it is in: its own, or that of a run of slabs which were mapped at once. A
	 * run that is shared stays one while it is not mapped.
	 */
	CUdeviceptr run;
	size_t run_size;
	size_t left;  /* bytes behind @mapped that a failed map left; they count as not mapped */
	bool idle;    /* it has no live allocation, and no kept memory */
	bool cached;  /* it is in its device's cache */
	bool outside; /* others may have its memory, by a dma-buf */
	/* Other processes may have its memory (legacy.h): the first bytes of the keys of its pieces. */
	bool shared;
	unsigned char key[OBJECT_KEY];
	struct region *prev, *next;
};

/* The slabs of one context. */
struct heap {
	CUcontext ctx;
	CUdevice dev;
	size_t size; /* of all its slabs */
	struct suballoc sa;
	struct heap *next;
};

struct device {
	pthread_mutex_t lock;
	bool probed;
	struct mapping_caps caps;
	uint64_t users;   /* other devices that may access the memory of this one, as bits */
	uint64_t copiers; /* those of them that may because of copies; under the lock of access.c */
	struct vmem_stats stats;
	size_t slabs;         /* bytes of all slabs */
	struct region *cache; /* idle regions that are mapped, oldest first */
	size_t cache_size;
	struct heap *heaps;
};

struct vmem_state {
	pthread_mutex_t lock;
	struct space space;
	struct region *regions; /* objects not in use */
	/* Set before the first allocation: */
	const struct cuda_driver *drv;
	struct freed *freed; /* NULL before vmem_watch() */
	size_t gap;          /* addresses left free behind each region */
	unsigned long long last_id;
	/* So often has memory become free. Each launch reads it, and the locks of devices lie apart. */
	_Alignas(64) unsigned long long given_back;
	_Alignas(64) struct device devices[GPU_MAX];
};
extern struct vmem_state vm;

/* The id of an allocation. */
static inline unsigned long long vmem_new_id(void)
{
	return __atomic_add_fetch(&vm.last_id, 1, __ATOMIC_RELAXED);
}

#define REGION_READ(r, member)         __atomic_load_n(&(r)->member, __ATOMIC_ACQUIRE)
#define REGION_WRITE(r, member, value) __atomic_store_n(&(r)->member, value, __ATOMIC_RELEASE)

void region_set_idle(struct region *r, bool idle);

/* Let @r be no slab any more; its allocations are gone. */
void region_drop_slab(struct region *r);

/* The context of @r is gone, and maybe its memory with it. */
void region_context_gone(struct region *r);

/*
 * Unmap the regions in [@start, @start + @size), which lie side by side and are whole runs, and the
 * rest of a failed map; or map them, slabs in runs. What is unmapped or mapped already stays so. A
 * failed map leaves nothing mapped that the driver unmaps.
 */
CUresult regions_unmap(CUdeviceptr start, size_t size);
CUresult regions_map(CUdeviceptr start, size_t size);

/* All of the region is mapped. */
bool region_is_mapped(const struct region *r);

/*
 * Unmap what lies behind the first @keep bytes of a large region, or map it up to @size bytes. Both
 * numbers are multiples of the device's pieces, or the size of the region. A failed map leaves what
 * was mapped before.
 */
CUresult region_shrink(struct region *r, size_t keep);
CUresult region_extend(struct region *r, size_t size);

/*
 * A mapped region of @size bytes, in granules. The second takes one from the cache, if there is one,
 * and releases idle regions if there is no memory.
 */
CUresult region_new(CUcontext ctx, CUdevice dev, size_t size, struct region **region);
CUresult region_get(CUcontext ctx, CUdevice dev, size_t size, struct region **region);

/* An allocation comes to @r, or the last is gone: then @r is kept for the next, or released. */
void region_use(struct region *r);
void region_put(struct region *r);

/*
 * Unmap the run of @r and forget its regions. On failure nothing changes; CUDA_ERROR_NOT_PERMITTED
 * if one of them has a live allocation.
 */
CUresult region_release(struct region *r);

/* Release the idle regions of @dev; returns their bytes. */
size_t regions_trim(CUdevice dev);

/*
 * The region of @dev, or of any device if that is negative, at or above *@pos, which moves behind
 * it; it may then be released. The second: of any device, whose lock it takes; region_unlock() gives that back.
 */
struct region *region_next(CUdevice dev, CUdeviceptr *pos);
struct region *region_next_locked(CUdeviceptr *pos);
void region_unlock(const struct region *r);

/* Lock the device whose memory is at @ptr; NULL if none is there. */
struct device *device_lock_at(CUdeviceptr ptr);

/* Read the abilities of @dev, once. */
CUresult device_probe(CUdevice dev);

/* Account for @n allocations of @size bytes in total that are gone. */
void device_forget(CUdevice dev, size_t n, size_t size);

/* Allocate from the slabs of a context, and free; the latter as vmem_free(). */
CUresult heap_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr);
CUresult heap_free(struct region *r, CUdeviceptr ptr);

/* Forget the heap of @ctx on @dev, whose slabs have no allocations any more. */
void heap_release_context(CUcontext ctx, CUdevice dev);

#endif
