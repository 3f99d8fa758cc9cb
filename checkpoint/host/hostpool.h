/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOSTPOOL_H
#define CUDAW_HOSTPOOL_H
/*
 * The host memory that holds a paused job's GPU memory: blocks of 16 MiB, kept from one pause to
 * the next, because getting fresh pages is slower than the bus.
 *
 * After a resume the pages stay, but the kernel may take them back when memory is short
 * (MADV_FREE), so that the pool costs the program and its control group nothing. Blocks that are
 * pinned cannot be taken back; at most CUDAW_HOST_POOL bytes of them are kept (a number with K, M,
 * G or T; by default a quarter of hostmem_limit(); 0 keeps nothing).
 *
 * Pinning takes 20 ms a GiB, whatever the number of threads. Making pages present takes 16 threads
 * 30 ms a GiB in large amounts, and less of them for small ones [H200 machine, 16 cores: 64 MiB by
 * 1 thread 9.6 ms, by 4 threads 2.0 to 4.0 ms, by 16 threads 8.5 ms].
 *
 * Used by the engine's thread, one at a time; the workers of a transfer only read.
 */
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>

#define HOSTPOOL_BLOCK (16UL << 20)

struct hostpool_block {
	char *start;
	bool pinned;
	bool present; /* hostpool_populate() made it so, and hostpool_relax() did not undo it */
};

/* Have address space for @count blocks at least. 0 or a negative errno. */
int hostpool_grow(size_t count);

size_t hostpool_count(void);
const struct hostpool_block *hostpool_block(size_t i);

/* Bytes that the kernel cannot take back: of blocks that are pinned or present. */
size_t hostpool_held(void);

/* Bytes that the pool has, those included that the kernel could take back but has not. */
size_t hostpool_resident(void);

/* Bytes of CUDAW_HOST_POOL: what may stay pinned while the job runs; 0: nothing is kept. */
size_t hostpool_limit(void);

/* Make the pages of the first @count blocks present. 0 or a negative errno. */
int hostpool_populate(size_t count, const bool *cancel);

/*
 * Pin the first @count blocks with @ctx, or unpin those from @first on. No thread of the program
 * may destroy @ctx meanwhile. What the driver does not pin or unpin stays as it is.
 */
void hostpool_pin(const struct cuda_driver *drv, CUcontext ctx, size_t count, const bool *cancel);
void hostpool_unpin(const struct cuda_driver *drv, CUcontext ctx, size_t first);

/*
 * Have the driver unpin what it registered at @start. False, after a warning, where it does not:
 * then it may still copy to those pages, and their addresses must not be given to others. Any
 * thread, with the context current.
 */
bool hostpool_unregister(const struct cuda_driver *drv, void *start);

/* Let the kernel have the pages of unpinned blocks when it needs them. */
void hostpool_relax(void);

/* Give back the unpinned blocks behind the last pinned one. */
void hostpool_drop(void);

#endif
