/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_POOL_OBJECTS_H
#define CUDAW_HOOKS_POOL_OBJECTS_H
/*
 * The memory pools that are served from vmem's memory (pools.h), and their blocks: which handle is
 * which pool, its attributes, and the amounts of memory that it has.
 *
 * The handle of a pool is that of a real pool of the driver, which serves what is not served here, and
 * answers for the policies. The numbers of a pool's memory are the sum of both.
 *
 * Locking: pools_lock guards pools, blocks, and what pool_streams.h and pools.c have. It is held across
 * no driver call and no call of vmem. Functions whose comment names it are called with it held; the
 * others take it.
 */
#include "wrapper/hooks/ordered/pool_lists.h"

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Objects are never freed: that of a destroyed pool is used again once it has no blocks. */
struct pool {
	CUmemoryPool handle; /* NULL: destroyed */
	uint64_t id;         /* of the pool, which has the object no longer than its blocks */
	CUdevice dev;
	bool events;       /* REUSE_FOLLOW_EVENT_DEPENDENCIES */
	bool any_stream;   /* REUSE_ALLOW_OPPORTUNISTIC */
	bool dependencies; /* REUSE_ALLOW_INTERNAL_DEPENDENCIES */
	cuuint64_t threshold;
	size_t blocks;
	/* Bytes: of the blocks, of those that are free, and of the allocations as they were asked for. */
	size_t reserved, idle, used;
	size_t reserved_high, used_high;
	struct pool_list passed; /* free blocks whose frees have passed */
	struct pool *next;
};

extern pthread_mutex_t pools_lock;
extern struct pool *pools; /* all; under pools_lock */

/*
 * The program made the pool @handle, or imported it (@props is NULL), or set its attribute; or it has set a
 * device's pool. To be called after the driver's own call has succeeded. For pools that are unknown the others do
 * nothing.
 */
void pool_created(CUmemoryPool handle, const CUmemPoolProps *props);
void pool_attribute_set(CUmemoryPool handle, CUmemPool_attribute attr, const void *value);
void pool_device_changed(void);

/* Add to the driver's answer what is served here, if @attr is an amount of memory. */
void pool_attribute_add(CUmemoryPool handle, CUmemPool_attribute attr, void *value);

/* The device of the pool @handle; false: it is not served here. */
bool pool_device(CUmemoryPool handle, CUdevice *dev);

/* The pool of the allocation that starts at @ptr; false: it is of none. */
bool pool_handle_of(CUdeviceptr ptr, CUmemoryPool *handle);

/* Without pools_lock: learn which pools @dev has. The program may have set another one meanwhile. */
void pool_device_learn(CUdevice dev);

/* With pools_lock held: the pool of @dev, which *@known says; NULL: the driver serves it. */
struct pool *pool_of_device(CUdevice dev, bool *known);

/* With pools_lock held: the pools of @dev have gone with its primary context. */
void pool_device_forget(CUdevice dev);

/* With pools_lock held; NULL: the driver serves it. */
struct pool *pool_find(CUmemoryPool handle);

/*
 * The pool @handle, for the time in which the driver may give the handle to another one; 0: it is not
 * served here. And, with pools_lock held, the pool of that id has ended; NULL: its object has gone to
 * another one.
 */
uint64_t pool_id(CUmemoryPool handle);
struct pool *pool_end(uint64_t id);

/* With pools_lock held: how much free memory @p may keep over a synchronisation, and whether it has more. */
size_t pool_keeps(const struct pool *p);
bool pool_has_too_much(const struct pool *p);

/*
 * With pools_lock held; releases it meanwhile. Free blocks whose frees have passed until @p has @keep
 * bytes.
 */
void pool_shrink(struct pool *p, size_t keep);

/*
 * With pools_lock held. Between the first two functions a thread gives back memory without the lock,
 * or asks whether it may, or lets vmem keep it. pool_givers_wait() waits for the threads that have begun by
 * then, and pool_givers_wait_of() for those with memory of @ctx; both release the lock meanwhile. Only one that asks
 * about memory of frees.c without an event may wait for work on the GPU. False: there are none.
 */
struct pool_giver {
	uint64_t number;
	CUcontext ctx; /* of the memory that it gives back or keeps: its end waits; else NULL */
	struct pool_giver *prev, *next;
};
void pool_giver_begins(struct pool_giver *giver, CUcontext ctx);
void pool_giver_ends(struct pool_giver *giver);
bool pool_givers_wait(void);
bool pool_givers_wait_of(CUcontext ctx);

/* With pools_lock held. */
struct pool_block *pool_block_find(CUdeviceptr ptr);

/* With pools_lock held: @b is a block with an allocation of its size. False: no host memory. */
bool pool_block_add(struct pool_block *b);

/* With pools_lock held: @b, in no list, is one no more. */
void pool_block_remove(struct pool_block *b);

/*
 * With pools_lock held: the memory of @ctx has gone with it, and its streams. No thread uses these, nor gives back or
 * keeps memory of @ctx, so no thread has a block that is of @ctx. Behind it none is, and others may get the addresses.
 */
void pool_blocks_forget(CUcontext ctx);

/*
 * With pools_lock held. @b gets an allocation of @size bytes, or has none any more; and it goes into
 * @list or out of its list, as a free block.
 */
void pool_block_use(struct pool_block *b, size_t size);
void pool_block_end_use(struct pool_block *b);
void pool_block_put(struct pool_list *list, struct pool_block *b);
void pool_block_take(struct pool_block *b);

/* Without pools_lock: no block is free, nor being given back. */
bool pool_none_is_free(void);

#endif
