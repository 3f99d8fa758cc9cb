/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOSTPOOL_H
#define CUDAW_HOSTPOOL_H
/*
 * The host memory for a paused job's GPU memory: blocks of 16 MiB, kept from one pause to the next,
 * because new pages cost more time than the transfer over the bus.
 *
 * After a resume the pages stay, but the kernel may take them back when memory is short
 * (MADV_FREE), so that the pool costs the program and its control group nothing; where memory is short already, they
 * go at once. The kernel cannot take pinned blocks back; at most CUDAW_HOST_POOL bytes of them are kept (a number with
 * K, M, G or T; by default a quarter of hostmem_limit(); 0 keeps nothing).
 *
 * Pinning takes 20 ms a GiB, whatever the number of threads, and 2 MiB of the GPU a GiB, for its page tables,
 * until that is unpinned. 16 threads make large amounts of pages
 * present in 30 ms a GiB; fewer threads are faster for small amounts [H200 machine, 16 cores: 64
 * MiB by 1 thread 9.6 ms, by 4 threads 2.0 to 4.0 ms, by 16 threads 8.5 ms; driver 580.159.04].
 * HOSTPOOL_TABLES() is the GPU memory that so many pinned bytes take, at most.
 *
 * One thread of the engine at a time uses it; the workers of a transfer read what blocks there are, and one of them at a
 * time empties blocks that none uses (hostpool_empty()).
 */
#include "vmem/cuda_driver.h"

#include <stdbool.h>
#include <stddef.h>

#define HOSTPOOL_BLOCK         (16UL << 20)
#define HOSTPOOL_TABLES(bytes) (((bytes) >> 9) + (2UL << 20))

struct hostpool_block {
	char *start;
	bool pinned;
	bool present; /* set by hostpool_populate(), until its pages are given back */
	bool filed;   /* its pages are those of a memory file, until they are given back */
};

/* Reserve address space for at least @count blocks. Returns 0 or a negative errno. */
int hostpool_grow(size_t count);

/*
 * Take the memory file @fd, which another process has filled, for the first @count blocks of a pool that has none
 * yet. It has exactly their size, and a seal against shrinking, since to touch a block that is cut off would
 * raise a signal. When a block is not needed any more, its pages leave the file, whoever else has it, and an ordinary
 * block takes its place. Returns 0 or a negative errno. The caller closes @fd.
 */
int hostpool_take(int fd, size_t count);

/*
 * From here to hostpool_end_file(), blocks that a pool without any gets are those of the memory file @fd, which has such
 * a seal, as far as it goes. If the first @count blocks are such, hostpool_leave() drops all, and what is in them stays
 * in the file, for whoever else has it. False, and nothing has changed: they are not, or the driver does not unpin some.
 * hostpool_take_back() gets @count blocks back if @fd is that file. The others return 0 or a negative errno; the caller
 * closes @fd.
 */
int hostpool_begin_file(int fd);
void hostpool_end_file(void);
bool hostpool_leave(size_t count);
int hostpool_take_back(int fd, size_t count);

size_t hostpool_count(void);
const struct hostpool_block *hostpool_block(size_t i);

/* The bytes of pinned or present blocks from @first on, which the kernel cannot take back. */
size_t hostpool_held(size_t first);

/* The bytes of pinned blocks. */
size_t hostpool_pinned(void);

/* The bytes of the pool, including those that the kernel could take back but has not. */
size_t hostpool_resident(void);

/* CUDAW_HOST_POOL in bytes: how much may stay pinned while the job runs; 0: nothing is kept. */
size_t hostpool_limit(void);

/* Make the pages of the first @count blocks present. Returns 0 or a negative errno. */
int hostpool_populate(size_t count, const bool *cancel);

/*
 * Pin the first @count blocks with @ctx, or unpin those from @first on. No thread of the program
 * may destroy @ctx meanwhile. A block that the driver does not pin or unpin stays as it is. The
 * calling thread's capture mode is relaxed then.
 */
void hostpool_pin(const struct cuda_driver *drv, CUcontext ctx, size_t count, const bool *cancel);
void hostpool_unpin(const struct cuda_driver *drv, CUcontext ctx, size_t first, const bool *cancel);

/*
 * Make the driver unpin the memory that it registered at @start. False, after a warning, if it
 * fails: then the driver may still copy to those pages, and nothing else may use their addresses.
 * Any thread, with the context current.
 */
bool hostpool_unregister(const struct cuda_driver *drv, void *start);

/* Give the pages of a block that holds nothing back now. Any thread, for blocks that nobody uses; pinned ones stay. */
void hostpool_empty(size_t i);

/*
 * Let the kernel take the pages of unpinned blocks when it needs them, as far as it is not cancelled (NULL: never).
 * @ready: also of those that hostpool_populate() made present. Those of a memory file go at once, which takes longer.
 */
void hostpool_relax(bool ready, const bool *cancel);

/* Give all unpinned blocks back, as far as it is not cancelled (NULL: never). The pages of pinned blocks stay. */
void hostpool_drop(const bool *cancel);

#endif
