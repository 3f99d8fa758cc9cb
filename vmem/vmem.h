/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_VMEM_H
#define CUDAW_VMEM_H
/*
 * vmem: the process's GPU memory under virtual addresses that never change.
 *
 * One address space of our own, reserved with cuMemAddressReserve in segments from VMEM_BASE up,
 * split into granules of 2 MiB. A direct-indexed table maps a granule to the region that owns it,
 * so "is this pointer ours, and what is it part of" is one load. A region is a run of granules
 * with one owner (context, device) that is mapped and unmapped as a whole:
 *
 *	large region   one allocation of 2 MiB or more, rounded up to granules
 *	slab           2 to 32 MiB that suballoc.h cuts into allocations below 2 MiB
 *
 *	segment (1 TiB of virtual addresses)
 *	| large region       | slab: a|b|  |c| | free | large region | free ...
 *	| granule | granule  | granule         |      | granule
 *
 * The GPU's MMU translates ("mapped addressing"): a region's memory is cuMemCreate'd in pieces of
 * at most VMEM_PIECE, mapped at the region's address, and the handles released at once, so that
 * the mapping alone keeps the memory. Unmapping a region therefore gives the memory back, and
 * mapping it anew puts fresh memory under the same address: pointers held by the program, by
 * captured graphs and inside device memory stay valid. translate.h is the other way, where the
 * driver cannot map.
 *
 * A region that no allocation uses any more is idle. One empty slab for each context and device,
 * and freed large regions of up to VMEM_CACHE bytes for each device, stay mapped for the next
 * allocation of their kind; the rest is given back at once.
 *
 * Locking: one mutex serialises alloc, free and the calls that map or unmap, and is held across
 * driver calls (docs/architecture.md, "Locks across driver calls"). vmem_lookup() and
 * vmem_contains() take no lock: region objects are never returned to the system, and what belongs
 * to a live allocation does not change until it is freed.
 *
 * vmem never synchronises the GPU (the caller of vmem_free has), never prints on the way of a
 * call that succeeds, and knows nothing of the gate or of who calls it.
 */
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VMEM_GRANULE (2UL << 20)
/*
 * The largest piece of physical memory made at once. [H200, a GiB in one piece: map 133 us, unmap
 * 606 us; in pieces of 64 MiB: 1,060 and 1,240 us]
 */
#define VMEM_PIECE (1UL << 30)
#define VMEM_CACHE (256UL << 20) /* freed large regions that stay mapped, for each device */
/*
 * Free of driver and host mappings, as is all from 0x1000_0000_0000 to 0x7e00_0000_0000 [H200,
 * driver 580]. The upper half of an address, as a number, should be none that programs use: a word
 * of two sizes or strides of 32 bits in a kernel's parameters looks like a pointer else. From this
 * base on it is no multiple of 128 for 508 GiB (0x6000 is 3 << 13).
 */
#ifndef VMEM_BASE /* sanitizer builds have other uses for it */
#define VMEM_BASE 0x6b8100000000UL
#endif

/* What vmem knows about one allocation of the program. */
struct vmem_info {
	CUdeviceptr start; /* what the program was given */
	size_t size;       /* bytes that the program asked for */
	CUcontext ctx;     /* context current at the allocation */
	CUdevice dev;
	unsigned long long id; /* unique for the life of the process, from 1 */
};

struct vmem_stats {
	size_t carried; /* bytes of live allocations, as asked for */
	size_t mapped;  /* bytes of GPU memory held for them, rounding and slabs included */
	size_t cached;  /* part of mapped that vmem_trim() would give back */
	size_t nalloc;  /* live allocations */
};

/* A region as the pause engine sees it. */
struct vmem_region {
	CUdeviceptr start;
	size_t size; /* a multiple of VMEM_GRANULE */
	CUcontext ctx;
	CUdevice dev;
	bool mapped;
};

/*
 * Prepare vmem for the process; no driver call is made before the first allocation. @drv must
 * outlive every other call. Returns 0 or -ENOMEM. Calling it again replaces nothing.
 */
int vmem_init(const struct cuda_driver *drv);

/*
 * Allocate @size bytes (> 0) of @dev's memory for @ctx, aligned to 512 bytes at least. @ctx must
 * be current in the calling thread. Memory that vmem keeps but no allocation uses is given back
 * before CUDA_ERROR_OUT_OF_MEMORY is returned; CUDA_ERROR_NOT_SUPPORTED if the driver cannot map
 * @dev's memory in granules, or does not reserve the addresses that we need. *@ptr is untouched on
 * failure.
 */
CUresult vmem_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr);

/*
 * Free the allocation that starts at @ptr. The GPU must be done with it. CUDA_ERROR_INVALID_VALUE
 * where @ptr is not the start of a live allocation of ours. Where the driver fails to unmap, its
 * error is returned and the allocation lives on.
 */
CUresult vmem_free(CUdeviceptr ptr);

/* True where @ptr lies in the address space of vmem, live or not. No lock. */
bool vmem_contains(CUdeviceptr ptr);

/* Describe the live allocation that @ptr points into; false where there is none. No lock. */
bool vmem_lookup(CUdeviceptr ptr, struct vmem_info *info);

/*
 * For checks of pointers and for translate.h, before the first allocation: from now on remember the
 * allocations that are freed, and leave a gap behind each one, so that a pointer to an allocation's
 * end does not point into the next. In the gap of a region, of two granules, no memory is mapped.
 * Without host memory for it nothing is remembered.
 */
void vmem_watch(void);

/* Describe the allocation that @ptr pointed into before it was freed, if that is remembered. */
bool vmem_lookup_freed(CUdeviceptr ptr, struct vmem_info *info);

/*
 * Free everything that belongs to @ctx: the context is about to be destroyed, or just was. What
 * the driver does not unmap is tried again by vmem_trim().
 */
void vmem_release_context(CUcontext ctx);

/*
 * From now on @peer may access all memory of @dev, what is allocated later included; or no more.
 * On failure the access is as it was before.
 */
CUresult vmem_peer_enable(CUdevice dev, CUdevice peer);
CUresult vmem_peer_disable(CUdevice dev, CUdevice peer);

/* Give back memory that no live allocation uses. */
void vmem_trim(void);

void vmem_get_stats(struct vmem_stats *stats);
/* The same for one device. */
void vmem_get_device_stats(CUdevice dev, struct vmem_stats *stats);

/*
 * For the pause engine. Between the first unmap and the last map the caller guarantees that no
 * other thread calls anything here but vmem_contains, vmem_lookup and the statistics.
 *
 * vmem_regions() copies up to @max regions, in address order, and returns how many there are; idle
 * ones are among them, unless vmem_trim() was called before.
 * vmem_granule_live() tells whether an allocation has a part in the granule that starts there.
 * vmem_region_unmap() gives the region's memory back; vmem_region_map() puts fresh memory under
 * it. A region that is as it should be is left alone, and succeeds. Both return the driver's error;
 * a failed map leaves the region unmapped as a whole, unless the driver fails to undo it too: then
 * vmem_has_left(), and the next vmem_region_unmap() or vmem_region_map() of the region undoes it
 * first. The region's context must be current in the calling thread.
 */
size_t vmem_regions(struct vmem_region *regions, size_t max);
bool vmem_granule_live(CUdeviceptr granule);
bool vmem_has_left(void);
CUresult vmem_region_unmap(CUdeviceptr start);
CUresult vmem_region_map(CUdeviceptr start);

#endif
