/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOSTPOOL_H
#define CUDAW_HOSTPOOL_H
/*
 * The host memory that holds a paused job's GPU memory: one range of addresses in blocks, kept
 * from one pause to the next, because getting fresh pages is slower than the bus.
 *
 * After a resume the pages stay, but the kernel may take them back when memory is short
 * (MADV_FREE), so that the pool costs the program and its control group nothing. Blocks that were
 * pinned (transfer.h) cannot be taken back; at most CUDAW_HOST_POOL bytes of them are kept (a
 * number with K, M, G or T; by default a quarter of hostmem_limit(); 0 keeps nothing).
 *
 * Used by the engine's thread; the workers of a transfer write the pins of their own blocks.
 */
#include <stdbool.h>
#include <stddef.h>

#define HOSTPOOL_BLOCK (64UL << 20)

/*
 * A range of at least @size bytes, what was there before included. NULL with errno where there
 * are no addresses; a larger range than before is a new one, for which nothing may be pinned.
 */
char *hostpool_get(size_t size);

/* The pin of the block that @host is in. */
bool *hostpool_pin(const char *host);

/* The blocks: how many, where one starts. */
size_t hostpool_blocks(void);
char *hostpool_block(size_t i);

/* Blocks from this number on are not to stay pinned while the job runs. */
size_t hostpool_keep_blocks(void);

/* Let the kernel have the pages of unpinned blocks when it needs them. */
void hostpool_relax(void);

/* Give everything back. Nothing may be pinned. */
void hostpool_drop(void);

#endif
