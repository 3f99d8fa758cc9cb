/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SPACE_H
#define CUDAW_SPACE_H
/*
 * space: the virtual address space of vmem, and who owns which part of it.
 *
 * Addresses come from the driver in segments, from VMEM_BASE up, each right behind the last. A
 * segment is reserved for the first allocation, and when addresses run out. It has 1 TiB, or less
 * (down to 64 GiB) if the driver or RLIMIT_AS does not allow that much. Addresses are never given
 * back to the driver.
 *
 * The table has one pointer for each granule of the largest possible space; only the part in use
 * takes memory. Free runs of granules are an array sorted by address: best fit looks at all of
 * them, which is cheap beside the driver calls that follow. Single granules come from the end, so
 * that they are neighbours.
 *
 * translate.h and the pointer checks recognise pointers by their value alone. A word of a kernel's
 * parameters may have a number in its lower half and the rest of an old pointer in its upper half;
 * it must not look like a pointer [PyTorch 2.11, H200: a stride of 0 became another, in a struct
 * that is not wholly set]. For these two, space is scattered. An allocation of up to 752 MiB has
 * addresses whose lower halves are neither integers near zero nor usual floats. A larger one lies
 * in a segment for large ones, begins 512 MiB behind a multiple of 4 GiB, and shares its upper
 * halves with no other. If a segment is too small, or cannot be reserved, both kinds share
 * segments; if that is not enough, they take any addresses.
 *
 * Locking: the caller serialises everything except space_find() and space_contains().
 */
#include "vmem/vmem.h"

#define SPACE_SEGMENT     (1UL << 40)
#define SPACE_SEGMENT_MIN (64UL << 30)
#define SPACE_MAX_SEGMENT 16
#define SPACE_SIZE        (SPACE_MAX_SEGMENT * SPACE_SEGMENT)

struct space_run {
	CUdeviceptr start;
	size_t size;
};

struct space {
	void **owners;   /* by granule, NULL if free */
	size_t reserved; /* bytes of address space from VMEM_BASE up */
	CUdeviceptr segments[SPACE_MAX_SEGMENT];
	/* If space is scattered: which segments are for allocations of more than 752 MiB */
	bool for_large[SPACE_MAX_SEGMENT];
	bool tight; /* there are too few addresses for that: both kinds share */
	bool full;  /* no further segment can be reserved */
	size_t nsegments;
	bool refused;   /* the driver does not give the addresses that we need */
	bool scattered; /* to be set before the first allocation */
	struct space_run *runs;
	size_t nruns, max_runs;
	size_t nowned; /* runs that have an owner */
};

/* Returns 0 or -ENOMEM. Makes no driver call. */
int space_init(struct space *space);

/*
 * Find @size bytes (a multiple of the granule) for @owner, which must not be NULL. Returns
 * CUDA_ERROR_OUT_OF_MEMORY if there are no more addresses; the driver's error if it refuses a
 * further segment; CUDA_ERROR_NOT_SUPPORTED, then and in all later calls, if it refuses the first
 * segment, or gives it at another address.
 */
CUresult space_alloc(struct space *space, const struct cuda_driver *drv, size_t size, void *owner,
		     CUdeviceptr *start);

/* Give back addresses that space_alloc() found. Cannot fail. */
void space_free(struct space *space, CUdeviceptr start, size_t size);

/* The owner of the first granule at or above @from that has one, or NULL. */
void *space_next(const struct space *space, CUdeviceptr from);

static inline bool space_contains(const struct space *space, CUdeviceptr ptr)
{
	return ptr - VMEM_BASE < __atomic_load_n(&space->reserved, __ATOMIC_ACQUIRE);
}

/* The owner of the granule that @ptr lies in, or NULL. */
static inline void *space_find(const struct space *space, CUdeviceptr ptr)
{
	if (!space_contains(space, ptr))
		return NULL;
	return __atomic_load_n(&space->owners[(ptr - VMEM_BASE) / VMEM_GRANULE], __ATOMIC_ACQUIRE);
}

#endif
