/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_VMEM_H
#define CUDAW_VMEM_H
/*
 * vmem: the process's GPU memory under virtual addresses that never change.
 *
 * One address space of our own, reserved with cuMemAddressReserve in segments from VMEM_BASE up,
 * split into granules of 2 MiB. A direct-indexed table maps a granule to the region that owns it,
 * so one load tells whether a pointer is ours, and its region. A region is a run of granules
 * with one owner (context, device), mapped and unmapped as a whole as the program allocates and frees:
 *
 *	large region   one allocation of 2 MiB or more, rounded up to granules
 *	slab           a granule that suballoc.h cuts into allocations below 2 MiB; up to 32 MiB if
 *	               there are gaps between allocations (vmem_watch())
 *
 *	segment (1 TiB of virtual addresses)
 *	| large region       | slab: a|b|  |c| | free | large region | free ...
 *	| granule | granule  | granule         |      | granule
 *
 * The GPU's MMU translates ("mapped addressing"): a region's memory is cuMemCreate'd in pieces of
 * at most VMEM_PIECE, mapped at the region's address, and the handles released at once, so that
 * the mapping alone keeps the memory. Unmapping a region therefore gives the memory back, and
 * mapping it again puts fresh memory under the same address: pointers held by the program, by
 * captured graphs and inside device memory stay valid. translate.h is the other way, for drivers
 * that cannot map.
 *
 * A region without a live allocation is idle. Idle regions of up to VMEM_CACHE bytes for each device
 * stay mapped for the next allocation of their size; vmem gives the rest back at once.
 *
 * To the pause engine slabs that are neighbours are one region of up to 32 MiB, and a resume maps
 * them at once, in runs, since each mapping takes time. Such a run goes back when no allocation is
 * left in it, and the next pause undoes it. A region of more than VMEM_PIECE is several regions to
 * the engine, one for each piece, so that it can be on the GPU in part.
 *
 * Locking: one mutex for each device serialises alloc, free and the calls that map or unmap its
 * memory, and is held across driver calls (docs/internals/threads.md, "Locks across driver calls");
 * another guards the addresses for a moment. vmem_lookup() and vmem_contains() take no lock: region
 * objects are never returned to the system, and the record of a live allocation does not change
 * until it is freed.
 *
 * vmem never synchronises the GPU (the caller of vmem_free() has), prints nothing in a call that
 * succeeds, and knows neither the gate nor its callers.
 */
#include "vmem/cuda_driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VMEM_GRANULE (2UL << 20)
/*
 * The largest piece of physical memory made at once. [H200, a GiB in one piece: map 133 us, unmap
 * 606 us; in pieces of 64 MiB: 1,060 and 1,240 us]
 */
#define VMEM_PIECE (1UL << 30)
#define VMEM_CACHE (256UL << 20) /* idle regions that stay mapped, for each device */
/*
 * No driver or host mapping is here, nor anywhere from 0x1000_0000_0000 to 0x7e00_0000_0000 [H200,
 * driver 580]. The upper half of an address should be a number that programs do not use: otherwise
 * two sizes or strides of 32 bits in a kernel's parameters look like a pointer. From this base on
 * it is no multiple of 128 for 508 GiB (0x6000 is 3 << 13).
 */
#ifndef VMEM_BASE /* sanitizer builds have other uses for it */
#define VMEM_BASE 0x6b8100000000UL
#endif

/* One allocation of the program. */
struct vmem_info {
	CUdeviceptr start; /* the address that the program was given */
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
 * Allocate @size bytes (> 0) of @dev's memory for @ctx, aligned to 512 bytes at least. @ctx, or a
 * green context of it, must be current in the calling thread. vmem gives back the idle memory that it
 * keeps before it returns CUDA_ERROR_OUT_OF_MEMORY. CUDA_ERROR_NOT_SUPPORTED if the driver cannot map
 * @dev's memory in granules, or does not reserve the addresses that we need. *@id (NULL: not asked for) is that of
 * the allocation. Both are untouched on failure.
 */
CUresult vmem_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr,
		    unsigned long long *id);

/*
 * Free the allocation that starts at @ptr. The GPU must be done with it. @id is that of the allocation, if
 * another one may have the address by now, else 0. CUDA_ERROR_INVALID_VALUE if @ptr is not the start of a live
 * allocation of ours, or not of this one. If the driver fails to unmap, its error is returned and the
 * allocation lives on.
 */
CUresult vmem_free(CUdeviceptr ptr, unsigned long long id);

/*
 * Keep the memory of the allocation that starts at @ptr, for later ones or until the GPU is done with it:
 * the program has freed it, vmem_lookup() finds it no more, and a pause does not save it. It stays mapped,
 * and is no cached memory. @id is as in vmem_free(). vmem_reuse() puts a new allocation of @size bytes
 * there, which must not be more than vmem_room() says of an allocation or of kept memory; a new allocation
 * of @size bytes has vmem_room_for() (0: that is too much). vmem_free_kept() frees the memory; the GPU must
 * be done with it, and if the driver fails to unmap, it stays kept. CUDA_ERROR_INVALID_VALUE if @ptr is not
 * the start of a live allocation, or not of kept memory: it may have gone with its context.
 */
CUresult vmem_keep(CUdeviceptr ptr, unsigned long long id);
size_t vmem_room(CUdeviceptr ptr);
size_t vmem_room_for(size_t size);
CUresult vmem_reuse(CUdeviceptr ptr, size_t size);
CUresult vmem_free_kept(CUdeviceptr ptr);

/*
 * Others have a dma-buf of the memory of the allocation @id that starts at @ptr: when its region has no allocation any
 * more, the memory serves no other one.
 */
void vmem_has_dmabuf(CUdeviceptr ptr, unsigned long long id);

/* True if @ptr lies in the address space of vmem, live or not. No lock. */
bool vmem_contains(CUdeviceptr ptr);

/* True if a part of the @size bytes from @ptr lies there. No lock. */
bool vmem_overlaps(CUdeviceptr ptr, size_t size);

/* Describe the live allocation that @ptr points into; false if there is none. */
bool vmem_lookup(CUdeviceptr ptr, struct vmem_info *info);

/*
 * For pointer checks and for translate.h, before the first allocation: from now on remember freed
 * allocations, and leave a gap behind each allocation, so that a pointer to its end does not point
 * into the next. The gap of a region has two granules, with nothing mapped. If host memory is
 * short, nothing is remembered.
 */
void vmem_watch(void);

/* Describe the allocation that @ptr pointed into before it was freed, if that is remembered. */
bool vmem_lookup_freed(CUdeviceptr ptr, struct vmem_info *info);

/*
 * Free everything that belongs to @ctx: the context was destroyed.
 * vmem_trim() tries again to unmap the regions that the driver does not unmap.
 */
void vmem_release_context(CUcontext ctx);

/*
 * Peer access, which the driver keeps for a pair of contexts: allow @ctx, of @dev, access to the
 * memory of @owner, of @owner_dev, later allocations included; or revoke it. Mapped memory is
 * accessible to whole devices: @dev has access to all memory of @owner_dev as long as a context of
 * the one has peer access to a context of the other. The end of either context revokes it. On
 * failure the access is as before. Doing either twice is no error.
 */
CUresult vmem_access_enable(CUcontext ctx, CUdevice dev, CUcontext owner, CUdevice owner_dev);
CUresult vmem_access_disable(CUcontext ctx, CUcontext owner);

/*
 * Allow copies that run on @dev access to all memory of @owner_dev, later allocations included, for
 * good: kernels have the access, too. Doing it twice is no error.
 */
CUresult vmem_copies_enable(CUdevice dev, CUdevice owner_dev);

/* Give back memory that no live allocation uses, and kept memory that is not needed (trimming.h). */
void vmem_trim(void);

/*
 * A number that rises whenever memory has become free, for a later allocation or at the driver. A
 * caller that has given back memory which is not vmem's raises it, too. So a thread that finds no
 * memory sees whether another thread has given some back since it began to look. No lock.
 */
unsigned long long vmem_given_back(void);
void vmem_note_given_back(void);

void vmem_get_stats(struct vmem_stats *stats);
/* The same for one device. */
void vmem_get_device_stats(CUdevice dev, struct vmem_stats *stats);

/*
 * The rest is for the pause engine. Between the first unmap and the last map the caller guarantees that other
 * threads call only vmem_contains(), vmem_lookup() and the statistics.
 */

/*
 * Copy up to @max regions, in address order, and return how many there are. Idle regions are among them, unless
 * vmem_trim() was called before.
 */
size_t vmem_regions(struct vmem_region *regions, size_t max);

/* Whether an allocation has a part in the granule that starts there. */
bool vmem_granule_live(CUdeviceptr granule);

/*
 * vmem_region_unmap() gives the region's memory back; vmem_region_map() puts fresh memory under
 * it. On a region that is unmapped or mapped already they do nothing and succeed. Both return the
 * driver's error. Of an allocation with several regions the last one is unmapped first and mapped
 * last; in another order the calls return CUDA_ERROR_INVALID_VALUE. A failed map leaves the whole
 * region unmapped, unless the driver fails to undo it too: then vmem_has_left() is true, and the
 * next vmem_region_unmap() or vmem_region_map() of the region undoes it first. The region's context
 * must be current in the calling thread.
 */
CUresult vmem_region_unmap(CUdeviceptr start);
CUresult vmem_region_map(CUdeviceptr start);
bool vmem_has_left(void);

/*
 * The program's own objects (objects.h) are regions, too, from vmem_objects_hold() to
 * vmem_objects_let_go(): each of those on @dev, whose bytes are then copied in @ctx, which must be
 * current. The start of an object's region is where it is mapped; an object that is not mapped as a
 * whole, or not accessible there, is mapped at addresses of ours meanwhile. If one cannot be mapped,
 * the driver's error is returned. If vmem_region_unmap() fails, an object may have lost some of its
 * mappings: vmem_region_map() completes it, and vmem_has_left() is true until then.
 */
CUresult vmem_objects_hold(CUcontext ctx, CUdevice dev);
void vmem_objects_let_go(void);
/*
 * After vmem_objects_hold(), the same for those on other devices, on which there is no context: their bytes are
 * copied in @ctx, on @dev, as far as that has access to them. CUDA_ERROR_OUT_OF_MEMORY, or CUDA_SUCCESS.
 */
CUresult vmem_objects_hold_far(CUcontext ctx, CUdevice dev);
/*
 * One that no context has access to is left to the driver from now on: its size, and its handle in
 * *@handle. 0: there is none any more.
 */
size_t vmem_objects_leave_far(CUmemGenericAllocationHandle *handle);

/* A mapping that the program has made of an object. */
struct vmem_mapping {
	CUdeviceptr start;
	size_t size, offset;
};
/*
 * Copy up to @max mappings of the object whose region starts at @start, and return how many there
 * are. SIZE_MAX: the region is no object's.
 */
size_t vmem_object_mappings(CUdeviceptr start, struct vmem_mapping *mappings, size_t max);

#endif
