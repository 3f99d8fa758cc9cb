/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_MANAGED_H
#define CUDAW_HOOKS_MANAGED_H
/*
 * CUDA's managed memory, served from host memory (CUDAW_MANAGED=host).
 *
 * The driver's checkpoint refuses a process that has managed memory. Page-locked host memory that
 * devices access over the bus (cuMemHostAlloc) can be used in the same way: the host and all devices
 * have it at one address. And it stays valid through every pause. So cuMemAllocManaged() takes such
 * memory, and the allocation shows itself as managed: its attributes are the native ones, and
 * advice, prefetches and attachments succeed. They move nothing; what the program may ask back is
 * remembered.
 *
 *	managed.c	allocating and freeing
 *	managed_table.c	the allocations, and the advice for each of their pages
 *	managed_hints.c	advice, prefetches, discards, attachments
 *
 * All of this concerns the allocations of the table alone. Other managed memory, as the driver has
 * for __managed__ variables, is left to the driver, and so are calls that name it. Without the
 * setting the table is empty, and a look at a count is all that a call costs.
 *
 * Locking: one mutex guards the table, and is not held across driver calls. An allocation ends with
 * its context.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct managed_info {
	CUdeviceptr start;
	size_t size;
	CUcontext ctx;
	CUdevice dev;
};

/* Of a page: advice and the last prefetch. A location of type 0 is none. */
struct managed_hints {
	bool read_mostly;
	CUmemLocation preferred, prefetched;
	uint64_t accessed_by; /* MANAGED_BY_HOST, and a bit for each device */
};

#define MANAGED_BY_HOST        1ULL
#define MANAGED_BY_DEVICE(dev) (2ULL << (dev))
#define MANAGED_DEVICES        63 /* that have a bit */

/* A change of the hints of a page. */
typedef void (*managed_change_fn)(struct managed_hints *hints, const void *arg);

/* Whether the user asks for it. */
bool managed_is_served(void);

/*
 * Note an allocation. It replaces those that were at its addresses, whose end was not seen. False: no
 * host memory.
 */
bool managed_add(const struct managed_info *info);

/*
 * The program has got other host memory there, which it does not know yet: the allocations at its addresses have
 * ended.
 */
void managed_forget(CUdeviceptr start, size_t size);

/*
 * Around the call that frees the allocation which starts at @ptr, and may fail. False: there is none,
 * or another thread frees it.
 */
bool managed_ending(CUdeviceptr ptr);
void managed_ended(CUdeviceptr ptr, bool gone);

/* The allocation that has the byte at @ptr; @info may be NULL. False: none of the table. */
bool managed_lookup(CUdeviceptr ptr, struct managed_info *info);

/*
 * Whether the table's allocations cover the @size bytes from @ptr on. As advice concerns whole
 * pages, the range may end behind an allocation, in its last page.
 */
bool managed_covers(CUdeviceptr ptr, size_t size);

/*
 * Change the hints of all pages of a range, or read those that all its pages have in common.
 * CUDA_ERROR_INVALID_VALUE: the table does not cover it. CUDA_ERROR_OUT_OF_MEMORY: part of the pages
 * may have changed.
 */
CUresult managed_change(CUdeviceptr ptr, size_t size, managed_change_fn change, const void *arg);
CUresult managed_common(CUdeviceptr ptr, size_t size, struct managed_hints *hints);

/*
 * As cuMemFree() and cuMemFreeAsync(), for the table's memory. The driver refuses the latter for managed
 * memory [H200, 580.159].
 */
CUresult managed_free(CUdeviceptr ptr);
CUresult managed_free_ordered(CUstream stream);

#endif
