/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/pools.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/captures.h"
#include "common/patience.h"
#include "common/protocol/quota.h"
#include "common/size.h"
#include "vmem/addresses/addressing.h"
#include "vmem/addresses/translate.h"
#include "vmem/vmem.h"
#include "wrapper/current.h"
#include "wrapper/hooks/ordered/memory.h"
#include "wrapper/hooks/ordered/pool_objects.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/real.h"

#include <stdlib.h>
#include <time.h>
#include <utlist.h>

#define WAIT_MS 10000 /* work on the GPU may itself wait for the program */

/*
 * With pools_lock held: the pool of an allocation in @s; NULL: the driver has to serve it, or the pools of the
 * device are unknown, which *@known then says.
 */
static struct pool *pool_for(const struct stream *s, const CUmemoryPool *handle, bool *known)
{
	struct pool *p = handle ? pool_find(*handle) : NULL, *usual;

	if (!p) {
		usual = pool_of_device(s->dev, known);
		p = handle ? NULL : usual;
	}
	return p && p->dev == s->dev ? p : NULL;
}

/* The same, in @stream, about which it may have to learn: then it releases the lock meanwhile. */
static struct pool *pool_in(CUstream stream, CUcontext ctx, const CUmemoryPool *handle,
			    struct stream **found, bool *known)
{
	*known = true;
	*found = stream_get(stream, ctx);
	return *found && (*found)->served ? pool_for(*found, handle, known) : NULL;
}

/*
 * Locks, if it succeeds: the stream and the pool of an allocation, both in use, so that the objects stay theirs.
 * CUDA_ERROR_NOT_SUPPORTED: the driver has to serve it.
 */
static CUresult lock_places(CUstream stream, CUcontext ctx, const CUmemoryPool *handle,
			    struct stream **found, struct pool **pool)
{
	bool known;

	pthread_mutex_lock(&pools_lock);
	*pool = pool_in(stream, ctx, handle, found, &known);
	if (!known) {
		CUdevice dev = (*found)->dev;

		pthread_mutex_unlock(&pools_lock);
		pool_device_learn(dev);
		pthread_mutex_lock(&pools_lock);
		*pool = pool_in(stream, ctx, handle, found, &known);
	}
	if (!*pool) {
		pthread_mutex_unlock(&pools_lock);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	(*found)->users++;
	(*pool)->blocks++;
	return CUDA_SUCCESS;
}

/* With pools_lock held; may release it meanwhile. A free block for @size bytes in @s, which is in use. */
static struct pool_block *find_free(const struct stream *s, struct pool *p, size_t size)
{
	struct pool_block *b = stream_block_find(s, p, size);

	if (!b)
		b = pool_list_find(&p->passed, size);
	if (b || !p->idle)
		return b;
	streams_settle(p);
	b = pool_list_find(&p->passed, size);
	if (!b && p->events)
		b = stream_block_before(s, p, size);
	if (b || !p->any_stream)
		return b;
	streams_ask_for(p, size);
	return pool_list_find(&p->passed, size);
}

/* With pools_lock held: @b is a block, unless its context, that of @s, has ended, and the memory with it. */
static CUresult add_block(const struct stream *s, struct pool_block *b)
{
	if (!s->ctx)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return pool_block_add(b) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A block of vmem's memory for @p, on the device of @ctx, that of @s, whose object the caller holds. */
static CUresult alloc_block(const struct stream *s, CUcontext ctx, struct pool *p, size_t size,
			    CUdeviceptr *ptr)
{
	struct pool_block *b = calloc(1, sizeof(*b));
	unsigned long long id = 0;
	CUdeviceptr at;
	CUresult result;
	bool pushed;

	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = current_enter(ctx, &pushed);
	if (!result)
		result = memory_alloc(ctx, p->dev, size, &at, &id);
	current_leave(pushed);
	if (result) {
		free(b);
		return result;
	}
	*b = (struct pool_block){
		.ptr = at, .room = vmem_room(at), .size = size, .ctx = ctx, .pool = p};
	pthread_mutex_lock(&pools_lock);
	result = add_block(s, b);
	pthread_mutex_unlock(&pools_lock);
	if (!result) {
		*ptr = at;
		return result;
	}
	free(b);
	vmem_free(at, id); /* unless it has gone with its context */
	return result;
}

/*
 * With pools_lock held; releases it: @b becomes an allocation in @s; NULL: none. Behind it the use of @s ends,
 * with which the memory may go, and that of @p.
 */
static CUresult reuse(struct stream *s, struct pool *p, struct pool_block *b, size_t size,
		      CUdeviceptr *ptr)
{
	CUdeviceptr at = 0;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (b) {
		pool_block_take(b);
		pool_block_use(b, size);
		at = b->ptr;
		pthread_mutex_unlock(&pools_lock);
		result = vmem_reuse(at, size);
		pthread_mutex_lock(&pools_lock);
	}
	stream_end_use(s);
	p->blocks--;
	pthread_mutex_unlock(&pools_lock);
	if (!result)
		*ptr = at;
	return result;
}

/* Memory that is free in @s or its pool, or more of vmem's. */
static CUresult alloc_at_once(CUstream stream, CUcontext ctx, const CUmemoryPool *handle,
			      size_t size, CUdeviceptr *ptr)
{
	struct pool_block *b;
	struct stream *s;
	struct pool *p;
	CUresult result = lock_places(stream, ctx, handle, &s, &p);

	if (result)
		return result;
	b = find_free(s, p, size);
	if (b)
		return reuse(s, p, b, size, ptr);
	ctx = s->ctx;
	s->holds++;
	stream_end_use(s);
	pthread_mutex_unlock(&pools_lock);
	result = alloc_block(s, ctx, p, size, ptr);
	pthread_mutex_lock(&pools_lock);
	s->holds--;
	p->blocks--;
	pthread_mutex_unlock(&pools_lock);
	return result;
}

/* Of an allocation that waits for frees. */
struct frees_wait {
	struct patience patience;
	double limit_ms;
	bool had; /* the pool had free memory at the last look */
};

static bool is_late(struct frees_wait *w)
{
	return patience_ms(&w->patience) >= w->limit_ms;
}

/*
 * A pause that begins keeps others from the calls that the work may wait for, and gives up at its own timeout: this
 * time does not count.
 */
static void nap(struct frees_wait *w)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	nanosleep(&ms, NULL);
	if (gate_is_closed())
		patience_skip(&w->patience);
}

/*
 * With pools_lock held; releases it meanwhile. Whether the free memory of @p, on the device of @ctx, makes
 * @size bytes together with that of the device, of which the job may take as much as its quota leaves.
 */
static bool would_do(const struct pool *p, CUcontext ctx, size_t size)
{
	size_t free = 0, total;
	bool pushed, known;

	pthread_mutex_unlock(&pools_lock);
	known = !current_enter(ctx, &pushed) && !real.cuMemGetInfo_v2(&free, &total);
	current_leave(pushed);
	free = size_min(free, quota_left(p->dev));
	pthread_mutex_lock(&pools_lock);
	return known && size <= free + p->idle;
}

/*
 * With pools_lock held; releases it meanwhile. Wait until frees of @p have passed, whose memory another
 * thread may have given back by then. False: there were none, or it is late.
 */
static bool wait_for_frees(struct pool *p, struct frees_wait *w)
{
	bool had = w->had;

	w->had = p->passed.first || streams_have(p);
	if (is_late(w) || (!had && !w->had))
		return false;
	/* At least once: the driver may refuse again and again to give back what has passed. */
	do {
		pthread_mutex_unlock(&pools_lock);
		nap(w);
		pthread_mutex_lock(&pools_lock);
		streams_ask(p, STREAM_LOOK_AND_RECORD);
		streams_settle(p);
	} while (!is_late(w) && !p->passed.first && streams_have(p));
	return !is_late(w);
}

/*
 * The GPU is full: memory whose free has not passed. If no block is large enough, *@again says that
 * some have passed since, whose memory may do together.
 */
static CUresult alloc_behind(CUstream stream, CUcontext ctx, const CUmemoryPool *handle,
			     size_t size, CUdeviceptr *ptr, struct frees_wait *w, bool *again)
{
	struct pool_block *b;
	struct stream *s;
	struct pool *p;
	CUresult result = lock_places(stream, ctx, handle, &s, &p);

	*again = false;
	if (result)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b = stream_block_behind(s, p, size);
	if (b)
		return reuse(s, p, b, size, ptr);
	ctx = s->ctx;
	stream_end_use(s);
	*again = p->dependencies && would_do(p, ctx, size) && wait_for_frees(p, w);
	p->blocks--;
	pthread_mutex_unlock(&pools_lock);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Without memory the driver makes the pointer 0 [H200: fidelity pool_full frees it then]. */
static CUresult alloc_in(CUstream stream, CUcontext ctx, const CUmemoryPool *handle, size_t size,
			 CUdeviceptr *ptr)
{
	CUresult result = alloc_at_once(stream, ctx, handle, size, ptr);
	struct frees_wait w = {.had = true};
	bool again;

	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	/* Beside a capture no event can be recorded that would show what has passed. */
	w.limit_ms = captures_open(driver_table()) ? 0 : WAIT_MS;
	do {
		result = alloc_behind(stream, ctx, handle, size, ptr, &w, &again);
		if (again)
			result = alloc_at_once(stream, ctx, handle, size, ptr);
	} while (result == CUDA_ERROR_OUT_OF_MEMORY && again);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		*ptr = 0;
		memory_try_begins(); /* what has become free until now was looked at */
	}
	return result;
}

/* The driver answers questions about captures, and refuses what they forbid. */
static bool is_captured(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return captures_open(driver_table()) && (real.cuStreamIsCapturing(stream, &status) ||
						 status != CU_STREAM_CAPTURE_STATUS_NONE);
}

CUresult pools_alloc(CUdeviceptr *ptr, size_t size, const CUmemoryPool *pool, CUstream stream)
{
	CUcontext ctx = NULL;
	CUresult result;

	if (!ptr || !size || !driver_table() || translate_is_on() ||
	    addressing_asked() == ADDRESSING_NATIVE || real.cuCtxGetCurrent(&ctx) || !ctx ||
	    is_captured(stream))
		return CUDA_ERROR_NOT_SUPPORTED;
	result = current_error();
	return result ? result : alloc_in(stream, ctx, pool, size, ptr);
}

/*
 * With pools_lock held; releases it meanwhile. Free the allocation of @b in @s, which is of the same primary
 * context: that does not end while @s is in use. Only this may record an event in a stream that is not apart.
 */
static CUresult free_in(struct stream *s, struct pool_list *list, struct pool_block *b)
{
	CUresult result, marked;

	b->moving = true;
	s->users++;
	pthread_mutex_unlock(&pools_lock);
	marked = stream_mark_free(s);
	result = marked ? marked : vmem_keep(b->ptr, 0);
	pthread_mutex_lock(&pools_lock);
	b->moving = false;
	if (!result) {
		pool_block_end_use(b);
		stream_put(s, list, b);
	}
	if (!result && !s->apart && !s->recorded)
		stream_ask(s, STREAM_RECORD);
	stream_end_use(s);
	return result;
}

/* Locks. The stream of a free of @ptr; NULL: it is unknown, or @ptr is of no pool. */
static struct stream *lock_order(CUstream stream, CUdeviceptr ptr)
{
	CUcontext ctx = current_context();

	pthread_mutex_lock(&pools_lock);
	return pool_block_find(ptr) ? stream_get(stream, ctx) : NULL;
}

CUresult pools_free_ordered(CUdeviceptr ptr, CUstream stream)
{
	struct pool_list *list = NULL;
	struct pool_block *b;
	struct stream *s;
	CUresult result = current_error();
	bool apart;

	if (!result)
		result = frees_refuse_captured(stream);
	if (result)
		return result;
	s = lock_order(stream, ptr);
	b = pool_block_find(ptr);
	if (b && (b->list || b->moving)) {
		pthread_mutex_unlock(&pools_lock);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (b && b->pool->handle && s && s->served && !s->ending && s->dev == b->pool->dev)
		list = stream_list(s, b->pool);
	if (list)
		result = free_in(s, list, b);
	/* The pool needs an event for the free, and the GPU may have no memory for one. */
	apart = !list || result == CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&pools_lock);
	return apart ? frees_ordered(ptr, stream) : result;
}

/* With pools_lock held; releases it meanwhile. Free the allocation of @b, with which all work has ended. */
static CUresult free_ended(struct pool_block *b)
{
	struct pool *p = b->pool;
	struct pool_giver giver;
	CUresult result;

	b->moving = true;
	pool_giver_begins(&giver, b->ctx);
	pthread_mutex_unlock(&pools_lock);
	result = vmem_keep(b->ptr, 0);
	pthread_mutex_lock(&pools_lock);
	pool_giver_ends(&giver);
	b->moving = false;
	if (result)
		return result;
	pool_block_end_use(b);
	stream_put_back(b);
	if (!p->handle)
		pool_shrink(p, 0);
	return CUDA_SUCCESS;
}

CUresult pools_free_now(CUdeviceptr ptr)
{
	struct pool_block *b;
	CUresult result;

	pthread_mutex_lock(&pools_lock);
	b = pool_block_find(ptr);
	pthread_mutex_unlock(&pools_lock);
	if (!b)
		return frees_now(ptr);
	result = current_error();
	if (result)
		return result;
	pthread_mutex_lock(&pools_lock);
	b = pool_block_find(ptr);
	result = b && !b->list && !b->moving ? free_ended(b) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&pools_lock);
	return result;
}
