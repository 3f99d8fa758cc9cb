/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_POOL_LISTS_H
#define CUDAW_HOOKS_POOL_LISTS_H
/*
 * The memory of pools that is free for later allocations: blocks by size, in the order in which they
 * came. For pools.c, which serialises everything; nothing here calls the driver.
 *
 * A block is memory of vmem that has one allocation after the other. A list has its free blocks in
 * bins by room, as suballoc.h: exact below 16 units of 512 bytes, then 16 bins to a power of two. An
 * allocation looks where a new block for it would be (vmem_room_for()). So the last block that was freed is
 * found at once by an allocation of its size, and a block has at most an eighth more than a new one.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define POOL_BINS 432 /* the last one has all blocks from 256 GiB on */

struct stream;
struct pool;
struct pool_list;

struct pool_block {
	CUdeviceptr ptr;
	size_t room;   /* bytes that an allocation may have */
	size_t size;   /* of its allocation, as the program asked for it */
	CUcontext ctx; /* of its memory */
	struct pool *pool;
	struct pool_list *list;           /* NULL: it has an allocation */
	bool moving;                      /* a thread frees the allocation, without the lock */
	uint64_t serial;                  /* of its last free; 0: that has passed */
	struct stream *from;              /* in which that free was; NULL: it has passed */
	struct pool_block *prev, *next;   /* in the list, by serials */
	struct pool_block *before, *more; /* in its bin, newest first */
	UT_hash_handle hh;
};

/* Zeros are an empty list. */
struct pool_list {
	struct pool_block *first;
	struct pool_block *bins[POOL_BINS];
};

/* Add @b, behind those with its serial or an earlier one. */
void pool_list_put(struct pool_list *list, struct pool_block *b);

void pool_list_remove(struct pool_block *b);

/*
 * A block for an allocation of @size bytes, which stays in the list; NULL if there is none. The second: that
 * was freed by @serial.
 */
struct pool_block *pool_list_find(const struct pool_list *list, size_t size);
struct pool_block *pool_list_find_by(const struct pool_list *list, size_t size, uint64_t serial);

/* The same, however large the block is. */
struct pool_block *pool_list_find_any(const struct pool_list *list, size_t size);

#endif
