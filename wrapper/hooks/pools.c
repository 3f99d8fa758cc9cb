/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/pools.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/ledger/green.h"
#include "common/clock.h"
#include "common/forks.h"
#include "common/gpu.h"
#include "common/uncancelled.h"
#include "vmem/addressing.h"
#include "vmem/context_gone.h"
#include "vmem/translate.h"
#include "vmem/trimming.h"
#include "vmem/vmem.h"
#include "wrapper/hooks/current.h"
#include "wrapper/hooks/fence.h"
#include "wrapper/hooks/memory.h"
#include "wrapper/hooks/pool_lists.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <utlist.h>

#define ASK_AT_MOST 4  /* streams, for one allocation */
#define RECORD_MS   50 /* a thread that called the driver is inside it by then */

/* A pool. Objects are never freed: that of a destroyed pool is used again once it has no blocks. */
struct pool {
	CUmemoryPool handle; /* NULL: destroyed */
	CUdevice dev;
	bool any_stream; /* REUSE_ALLOW_OPPORTUNISTIC */
	cuuint64_t threshold;
	size_t blocks, reserved, used; /* the last two in bytes */
	size_t reserved_high, used_high;
	struct pool_list passed; /* free blocks whose frees have passed */
	struct pool *next;
};

/* The free blocks of one pool that were freed in one stream. */
struct waiting {
	struct pool *pool;
	struct pool_list list;
	struct waiting *next;
};

/* Names a stream. The default streams are those of a context, or of a context and a thread. */
struct key {
	CUstream stream;
	CUcontext ctx;       /* of a default stream, else NULL */
	unsigned int thread; /* of CU_STREAM_PER_THREAD, else 0 */
	unsigned int zero;
};

/*
 * A stream, in which frees and allocations are ordered. Objects are never freed: that of a stream that
 * has ended is used again once it has no blocks.
 */
struct order {
	struct key key;
	CUcontext ctx;
	CUdevice dev;
	bool served;        /* allocations in it, and free blocks */
	bool apart;         /* CU_STREAM_NON_BLOCKING: it waits for no other stream by itself */
	bool gone;          /* the stream has ended; the order is in no table */
	bool ending;        /* no thread may use the stream or the event from now on */
	bool asking;        /* a thread asks the driver about the stream and the event */
	unsigned int users; /* threads that use it without the lock, for a moment */
	CUevent event;      /* of ctx; NULL before the first one */
	CUevent mark;       /* of ctx; what a free records, and nobody asks about; or NULL */
	uint64_t recorded;  /* the frees up to this turn precede the event; 0: it is not recorded */
	uint64_t passed;    /* the frees up to this turn have passed */
	size_t count;       /* free blocks */
	struct waiting *waiting;
	struct order *next;
	UT_hash_handle hh;
};

FORKS_LOCK(lock);
static pthread_cond_t changed =
	PTHREAD_COND_INITIALIZER; /* an order has fewer users, or nobody asks */
/* Under lock: */
static struct pool *pools;
static struct pool_block *blocks;    /* by address */
static struct order *orders, *table; /* all; by key */
static uint64_t turn;                /* of the last free; also read without */
static size_t nfree;                 /* blocks that are free; also read without */
static struct {
	CUmemoryPool pool;
	bool known;
} current[GPU_MAX];          /* the pools of the devices */
static uint64_t changes;     /* of them */
static size_t recording;     /* threads that may record an event in a stream; without lock */
static size_t ends;          /* of captures, that threads are in; without lock */
static unsigned int threads; /* that were given a number; without lock */
static __thread unsigned int thread_self __attribute__((tls_model("initial-exec")));

/* ---- pools and blocks ----------------------------------------------------------------------- */

static struct pool *pool_find(CUmemoryPool handle)
{
	struct pool *p;

	LL_SEARCH_SCALAR(pools, p, handle, handle);
	return handle ? p : NULL;
}

static struct pool *pool_object(void)
{
	struct pool *p;

	LL_FOREACH(pools, p)
	if (!p->handle && !p->blocks) {
		p->reserved_high = 0;
		p->used_high = 0;
		return p;
	}
	p = calloc(1, sizeof(*p));
	if (p)
		LL_PREPEND(pools, p);
	return p;
}

/* With lock held: the pool @handle is one that is served here. No memory: the driver serves it. */
static void pool_add(CUmemoryPool handle, CUdevice dev, cuuint64_t threshold, bool any_stream)
{
	struct pool *p = pool_find(handle);

	/* The end of an earlier one with this handle is not noted yet. */
	if (p)
		p->handle = NULL;
	p = pool_object();
	if (!p)
		return;
	p->handle = handle;
	p->dev = dev;
	p->threshold = threshold;
	p->any_stream = any_stream;
}

static void pool_uses(struct pool *p, size_t size)
{
	p->used += size;
	if (p->used_high < p->used)
		p->used_high = p->used;
}

static void pool_reserves(struct pool *p, size_t size)
{
	p->reserved += size;
	if (p->reserved_high < p->reserved)
		p->reserved_high = p->reserved;
}

static size_t pool_keeps(const struct pool *p)
{
	return p->handle ? p->threshold : 0;
}

static bool pool_has_too_much(const struct pool *p)
{
	return p->reserved > p->used && p->reserved > pool_keeps(p);
}

static void count_free(ptrdiff_t more)
{
	__atomic_store_n(&nfree, nfree + (size_t)more, __ATOMIC_RELAXED);
}

static struct pool_block *block_find(CUdeviceptr ptr)
{
	struct pool_block *b;

	HASH_FIND(hh, blocks, &ptr, sizeof(ptr), b);
	return b;
}

/* @b is a block with an allocation. False: no host memory. */
static bool block_add(struct pool_block *b)
{
	HASH_ADD(hh, blocks, ptr, sizeof(b->ptr), b);
	if (!b->hh.tbl)
		return false;
	b->pool->blocks++;
	pool_reserves(b->pool, b->room);
	pool_uses(b->pool, b->room);
	return true;
}

/* @b, in no list, is one no more. */
static void block_remove(struct pool_block *b)
{
	HASH_DELETE(hh, blocks, b);
	b->pool->blocks--;
	b->pool->reserved -= b->room;
}

/* Releases lock meanwhile. False: the driver does not unmap it. */
static bool block_free(struct pool_block *b)
{
	struct pool *p = b->pool;
	CUresult result;

	b->moving = true;
	pool_list_remove(b);
	count_free(-1);
	pthread_mutex_unlock(&lock);
	result = vmem_free_kept(b->ptr);
	pthread_mutex_lock(&lock);
	b->moving = false;
	/* An invalid one has gone with its context. */
	if (result && result != CUDA_ERROR_INVALID_VALUE) {
		pool_list_put(&p->passed, b);
		count_free(1);
		return false;
	}
	block_remove(b);
	free(b);
	return true;
}

/* With lock held; releases it meanwhile. Free blocks until @p has @keep bytes. */
static bool pool_shrink(struct pool *p, size_t keep)
{
	bool freed = false;

	while (p->reserved > keep && p->passed.first && block_free(p->passed.first))
		freed = true;
	return freed;
}

/* ---- orders --------------------------------------------------------------------------------- */

static struct key key_of(CUstream stream, CUcontext ctx)
{
	if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD)
		return (struct key){.stream = stream};
	if (stream != CU_STREAM_PER_THREAD)
		return (struct key){.stream = CU_STREAM_LEGACY, .ctx = ctx};
	if (!thread_self)
		thread_self = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
	return (struct key){.stream = stream, .ctx = ctx, .thread = thread_self};
}

static struct order *order_find(const struct key *key)
{
	struct order *o;

	HASH_FIND(hh, table, key, sizeof(*key), o);
	return o;
}

/* Nobody uses its stream from another thread than this one. */
static bool is_own(const struct order *o)
{
	return !o->key.thread || o->key.thread == thread_self;
}

/* Memory is left to the driver if its context is one that ends before the device's primary one. */
static bool is_served(CUstream stream, CUcontext ctx)
{
	CUgreenCtx green = NULL;

	if (real.cuStreamGetGreenCtx && (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD &&
	    !real.cuStreamGetGreenCtx(stream, &green) && green)
		return false;
	return green_owner(ctx) == ctx && !contexts_created(ctx);
}

static bool get_device(CUcontext ctx, CUdevice *dev)
{
	bool pushed, got = !current_enter(ctx, &pushed) && !real.cuCtxGetDevice(dev);

	current_leave(pushed);
	return got && *dev >= 0 && *dev < GPU_MAX;
}

/* An event belongs to its context: that of another one cannot be recorded. */
static struct order *order_object(CUcontext ctx)
{
	struct order *o;

	LL_FOREACH(orders, o)
	if (o->gone && !o->count && !o->users && !o->asking &&
	    (o->ctx == ctx || (!o->event && !o->mark))) {
		o->gone = false;
		o->passed = 0;
		o->recorded = 0;
		return o;
	}
	o = calloc(1, sizeof(*o));
	if (o)
		LL_PREPEND(orders, o);
	return o;
}

/* With lock held: @ctx is that of @key. */
static void order_add(const struct key *key, CUcontext ctx, CUdevice dev, bool served, bool apart)
{
	struct order *o = order_object(ctx);

	if (!o)
		return;
	o->key = *key;
	o->ctx = ctx;
	o->dev = dev;
	o->served = served;
	o->apart = apart;
	HASH_ADD(hh, table, key, sizeof(o->key), o);
	o->gone = !o->hh.tbl;
}

/* Without lock: learn about a stream. */
static void order_learn(CUstream stream, const struct key *key, CUcontext ctx)
{
	unsigned int flags = CU_STREAM_DEFAULT;
	CUdevice dev = 0;
	bool served;

	if (!key->ctx &&
	    (real.cuStreamGetCtx(stream, &ctx) || real.cuStreamGetFlags(stream, &flags)))
		return;
	served = get_device(ctx, &dev) && is_served(stream, ctx);
	pthread_mutex_lock(&lock);
	if (!order_find(key))
		order_add(key, ctx, dev, served, flags & CU_STREAM_NON_BLOCKING);
	pthread_mutex_unlock(&lock);
}

static struct waiting *waiting_find(const struct order *o, const struct pool *p)
{
	struct waiting *w;

	LL_SEARCH_SCALAR(o->waiting, w, pool, p);
	return w;
}

/* The list of @o for @p; NULL: no host memory. */
static struct waiting *waiting_get(struct order *o, struct pool *p)
{
	struct waiting *w = waiting_find(o, p);

	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->pool = p;
	LL_PREPEND(o->waiting, w);
	return w;
}

/* With lock held: the frees of @o up to @until have passed. */
static void order_passed(struct order *o, uint64_t until)
{
	if (o->passed < until)
		o->passed = until;
	if (o->recorded <= o->passed)
		o->recorded = 0;
}

/* Move the blocks of @o and @p whose frees have passed to @p. */
static void settle(struct order *o, struct pool *p)
{
	struct waiting *w = waiting_find(o, p);
	struct pool_block *b;

	while (w && (b = w->list.first) && b->turn <= o->passed) {
		pool_list_remove(b);
		o->count--;
		pool_list_put(&p->passed, b);
	}
}

static void settle_all(struct pool *p)
{
	struct order *o;

	LL_FOREACH(orders, o)
	if (o->count)
		settle(o, p);
}

static bool has_waiting(const struct order *o, const struct pool *p)
{
	const struct waiting *w = waiting_find(o, p);

	return w && w->list.first;
}

/* A capture that ends is forgotten before the driver has ended it. */
static bool capturing(void)
{
	bool open = captures_open(driver_table());

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return open || __atomic_load_n(&ends, __ATOMIC_SEQ_CST);
}

/*
 * Record the event of @o, which is asking or has users. The calling thread is in relaxed mode. False:
 * the driver refuses, or a capture is open: the event would become part of it.
 */
static bool record(struct order *o)
{
	CUevent event = o->event;
	bool done, pushed;

	__atomic_add_fetch(&recording, 1, __ATOMIC_SEQ_CST);
	done = !capturing() && !current_enter(o->ctx, &pushed);
	if (done) {
		done = event || !real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
		done = done && !real.cuEventRecord(event, o->key.stream);
		current_leave(pushed);
	}
	__atomic_sub_fetch(&recording, 1, __ATOMIC_RELEASE);
	o->event = event;
	return done;
}

/* The same: whether all work of the stream has ended, but not that of streams it waits for by itself. */
static bool is_idle(const struct order *o)
{
	bool idle, pushed;

	__atomic_add_fetch(&recording, 1, __ATOMIC_SEQ_CST);
	idle = !capturing() && !current_enter(o->ctx, &pushed);
	if (idle) {
		idle = !real.cuStreamQuery(o->key.stream);
		current_leave(pushed);
	}
	__atomic_sub_fetch(&recording, 1, __ATOMIC_RELEASE);
	return idle;
}

/* Which frees of a stream have passed: look; look, and record an event for later; or only record it. */
enum effort { LOOK, LOOK_AND_RECORD, RECORD };

/* The same. Returns the turn up to which they have; *@recorded is that of the event. */
static uint64_t ask_driver(struct order *o, enum effort effort, bool usable, uint64_t now,
			   uint64_t *recorded)
{
	bool look = effort != RECORD;
	uint64_t passed = 0;

	if (*recorded && look && !real.cuEventQuery(o->event))
		passed = *recorded;
	if (!*recorded && look && usable && o->apart && is_idle(o))
		passed = now;
	/* What was freed after the event needs another one. */
	if (effort != LOOK && usable && passed < now && passed >= *recorded && record(o))
		*recorded = now;
	return passed;
}

/* With lock held; releases it meanwhile. */
static void ask(struct order *o, enum effort effort)
{
	uint64_t now = turn, recorded, passed;
	CUstreamCaptureMode mode;
	bool usable;

	if (o->asking || o->ending)
		return;
	recorded = o->recorded;
	usable = !o->gone && is_own(o);
	o->asking = true;
	pthread_mutex_unlock(&lock);
	mode = fence_relax();
	passed = ask_driver(o, effort, usable, now, &recorded);
	fence_unrelax(mode);
	pthread_mutex_lock(&lock);
	o->recorded = recorded;
	order_passed(o, passed);
	o->asking = false;
	pthread_cond_broadcast(&changed);
}

static void end_use(struct order *o)
{
	o->users--;
	pthread_cond_broadcast(&changed);
}

/* ---- allocations ---------------------------------------------------------------------------- */

/* Without lock: learn which pools @dev has. The program may have set another one meanwhile. */
static void device_learn(CUdevice dev)
{
	cuuint64_t before, threshold = 0;
	CUmemoryPool pool = NULL, usual = NULL;
	int any_stream = 0;

	pthread_mutex_lock(&lock);
	before = changes;
	pthread_mutex_unlock(&lock);
	if (!real.cuDeviceGetMemPool || real.cuDeviceGetMemPool(&pool, dev) ||
	    real.cuDeviceGetDefaultMemPool(&usual, dev)) {
		pool = NULL;
		usual = NULL;
	}
	if (usual) {
		real.cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
		real.cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
					   &any_stream);
	}
	pthread_mutex_lock(&lock);
	if (usual && !pool_find(usual))
		pool_add(usual, dev, threshold, any_stream);
	if (changes == before) {
		current[dev].pool = pool;
		current[dev].known = true;
	}
	pthread_mutex_unlock(&lock);
}

/*
 * Locks, if it succeeds: the stream and the pool of an allocation. CUDA_ERROR_NOT_SUPPORTED: the
 * driver has to serve it.
 */
static CUresult lock_places(CUstream stream, CUcontext ctx, const CUmemoryPool *handle,
			    struct order **order, struct pool **pool)
{
	struct key key = key_of(stream, ctx);
	bool asked_stream = false, asked_device = false;

	for (;;) {
		struct order *o;
		struct pool *p;
		CUdevice dev;

		pthread_mutex_lock(&lock);
		o = order_find(&key);
		if (!o && !asked_stream) {
			pthread_mutex_unlock(&lock);
			order_learn(stream, &key, ctx);
			asked_stream = true;
			continue;
		}
		if (o && o->served && !current[o->dev].known && !asked_device &&
		    !(handle && pool_find(*handle))) {
			dev = o->dev;
			pthread_mutex_unlock(&lock);
			device_learn(dev);
			asked_device = true;
			continue;
		}
		p = o && o->served ? pool_find(handle ? *handle : current[o->dev].pool) : NULL;
		if (p && p->dev == o->dev) {
			*order = o;
			*pool = p;
			return CUDA_SUCCESS;
		}
		pthread_mutex_unlock(&lock);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* With lock held; releases it meanwhile. Ask about streams that have a block for @size bytes. */
static void ask_others(struct pool *p, size_t size)
{
	unsigned int left = ASK_AT_MOST;
	struct order *o;

	LL_FOREACH(orders, o)
	{
		const struct waiting *w = o->count ? waiting_find(o, p) : NULL;

		if (!w || !pool_list_find(&w->list, size))
			continue;
		ask(o, LOOK_AND_RECORD);
		settle(o, p);
		if (!--left || pool_list_find(&p->passed, size))
			return;
	}
}

/* With lock held; may release it meanwhile. A free block for @size bytes in @o, which is in use. */
static struct pool_block *find_free(const struct order *o, struct pool *p, size_t size)
{
	const struct waiting *w = waiting_find(o, p);
	struct pool_block *b = w ? pool_list_find(&w->list, size) : NULL;

	if (!b)
		b = pool_list_find(&p->passed, size);
	if (b || p->reserved == p->used)
		return b;
	settle_all(p);
	b = pool_list_find(&p->passed, size);
	if (b || !p->any_stream)
		return b;
	ask_others(p, size);
	return pool_list_find(&p->passed, size);
}

/* With lock held: take @b, of a list of @o or of its pool, for an allocation. */
static void take(struct order *o, struct pool_block *b)
{
	if (b->list != &b->pool->passed)
		o->count--;
	pool_list_remove(b);
	count_free(-1);
	pool_uses(b->pool, b->room);
}

/* A block of vmem's memory for @p, on the device of @ctx. */
static CUresult alloc_block(CUcontext ctx, struct pool *p, size_t size, CUdeviceptr *ptr)
{
	struct pool_block *b = calloc(1, sizeof(*b));
	CUdeviceptr at;
	CUresult result;
	bool added, pushed;

	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = current_enter(ctx, &pushed);
	if (!result)
		result = memory_alloc(ctx, p->dev, size, &at);
	current_leave(pushed);
	if (result) {
		free(b);
		return result;
	}
	*b = (struct pool_block){.ptr = at, .room = vmem_room(at), .ctx = ctx, .pool = p};
	pthread_mutex_lock(&lock);
	added = block_add(b);
	pthread_mutex_unlock(&lock);
	if (!added) {
		free(b);
		vmem_free(at);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ptr = at;
	return CUDA_SUCCESS;
}

static CUresult alloc_in(CUstream stream, CUcontext ctx, const CUmemoryPool *handle, size_t size,
			 CUdeviceptr *ptr)
{
	CUdeviceptr at = 0;
	struct pool_block *b;
	struct order *o;
	struct pool *p;
	CUresult result = lock_places(stream, ctx, handle, &o, &p);

	if (result)
		return result;
	o->users++;
	p->blocks++; /* the object stays that of this pool */
	b = find_free(o, p, size);
	if (b) {
		take(o, b);
		at = b->ptr;
	}
	ctx = o->ctx;
	end_use(o);
	p->blocks -= b != NULL;
	pthread_mutex_unlock(&lock);
	if (b) {
		result = vmem_reuse(at, size);
		if (!result)
			*ptr = at;
		return result;
	}
	result = alloc_block(ctx, p, size, ptr);
	pthread_mutex_lock(&lock);
	p->blocks--;
	pthread_mutex_unlock(&lock);
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
	result = memory_sticky_error();
	return result ? result : alloc_in(stream, ctx, pool, size, ptr);
}

/* ---- frees ---------------------------------------------------------------------------------- */

/*
 * With lock held: the allocation at @ptr becomes that of vmem alone. NULL: it is of no pool. Until
 * withdrawn() the object of the pool stays that of this pool.
 */
static struct pool_block *withdraw(CUdeviceptr ptr)
{
	struct pool_block *b = block_find(ptr);

	if (!b || b->list || b->moving)
		return NULL;
	b->pool->used -= b->room;
	b->pool->blocks++;
	block_remove(b);
	return b;
}

/* The free of @b (NULL: of other memory) by vmem alone had @result; if it failed, @b lives on. */
static CUresult withdrawn(struct pool_block *b, CUresult result)
{
	bool back;

	if (!b)
		return result;
	pthread_mutex_lock(&lock);
	b->pool->blocks--;
	/* Without host memory it is of no pool any more. */
	back = result && block_add(b);
	pthread_mutex_unlock(&lock);
	if (!back)
		free(b);
	return result;
}

/* With lock held: @b, freed in @o. */
static void put(struct order *o, struct waiting *w, struct pool_block *b)
{
	b->turn = turn + 1;
	__atomic_store_n(&turn, b->turn, __ATOMIC_RELEASE);
	b->pool->used -= b->room;
	pool_list_put(&w->list, b);
	o->count++;
	count_free(1);
}

/*
 * Without lock, in a stream in use: make a free an operation of the stream. The legacy stream and the
 * streams that are not apart from it wait for each other's operations. So a free in the one is ordered
 * after earlier work of the others, and their later work after the free, only if there is one.
 */
static CUresult mark_free(struct order *o)
{
	CUstreamCaptureMode mode;
	CUevent mark = NULL;
	CUresult result;
	bool pushed;

	if (o->apart)
		return CUDA_SUCCESS;
	mode = fence_relax();
	result = current_enter(o->ctx, &pushed);
	if (!result && !__atomic_load_n(&o->mark, __ATOMIC_ACQUIRE)) {
		CUevent none = NULL;

		result = real.cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING);
		if (!result && !__atomic_compare_exchange_n(&o->mark, &none, mark, false,
							    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			real.cuEventDestroy_v2(mark);
	}
	if (!result)
		result = real.cuEventRecord(o->mark, o->key.stream);
	current_leave(pushed);
	fence_unrelax(mode);
	return result;
}

/*
 * With lock held; releases it meanwhile. Free the allocation of @b in @o. No other thread can record
 * an event in the default stream of this one, so it does that itself.
 */
static CUresult free_in(struct order *o, struct waiting *w, struct pool_block *b)
{
	CUresult result;

	CUresult marked;

	b->moving = true;
	o->users++;
	pthread_mutex_unlock(&lock);
	marked = mark_free(o);
	result = marked ? marked : vmem_keep(b->ptr);
	pthread_mutex_lock(&lock);
	b->moving = false;
	if (!result) {
		put(o, w, b);
	} else if (!marked) { /* it has gone with its context */
		b->pool->used -= b->room;
		block_remove(b);
		free(b);
	}
	if (!result && o->key.thread && !o->recorded)
		ask(o, RECORD);
	end_use(o);
	return result;
}

/* Locks. The stream of a free; NULL: it is unknown. */
static struct order *lock_order(CUstream stream, CUdeviceptr ptr)
{
	CUcontext ctx = NULL;
	struct order *o;
	struct key key;

	real.cuCtxGetCurrent(&ctx);
	key = key_of(stream, ctx);
	pthread_mutex_lock(&lock);
	o = order_find(&key);
	if (o || !block_find(ptr))
		return o;
	pthread_mutex_unlock(&lock);
	order_learn(stream, &key, ctx);
	pthread_mutex_lock(&lock);
	return order_find(&key);
}

CUresult pools_free_ordered(CUdeviceptr ptr, CUstream stream)
{
	struct waiting *w = NULL;
	struct pool_block *b;
	struct order *o;
	CUresult result = memory_sticky_error();

	if (!result)
		result = frees_refuse_captured(stream);
	if (result)
		return result;
	o = lock_order(stream, ptr);
	b = block_find(ptr);
	if (b && (b->list || b->moving)) {
		pthread_mutex_unlock(&lock);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (b && b->pool->handle && o && o->served && !o->ending && o->dev == b->pool->dev)
		w = waiting_get(o, b->pool);
	if (w)
		result = free_in(o, w, b);
	else
		b = withdraw(ptr);
	pthread_mutex_unlock(&lock);
	return w ? result : withdrawn(b, frees_ordered(ptr, stream));
}

/* With lock held; releases it meanwhile. Free the allocation of @b, with which all work has ended. */
static CUresult free_ended(struct pool_block *b)
{
	struct pool *p = b->pool;
	CUresult result;

	b->moving = true;
	pthread_mutex_unlock(&lock);
	result = vmem_keep(b->ptr);
	pthread_mutex_lock(&lock);
	b->moving = false;
	p->used -= b->room;
	if (result) { /* it has gone with its context */
		block_remove(b);
		free(b);
		return result;
	}
	pool_list_put(&p->passed, b);
	count_free(1);
	if (!p->handle)
		pool_shrink(p, 0);
	return CUDA_SUCCESS;
}

CUresult pools_free_now(CUdeviceptr ptr)
{
	struct pool_block *b;
	CUresult result;

	pthread_mutex_lock(&lock);
	b = block_find(ptr);
	pthread_mutex_unlock(&lock);
	if (!b)
		return frees_now(ptr);
	result = memory_sticky_error();
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	b = block_find(ptr);
	result = b && !b->list && !b->moving ? free_ended(b) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	return result;
}

/* ---- synchronisations ----------------------------------------------------------------------- */

uint64_t pools_now(void)
{
	return __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
}

static bool none_is_free(void)
{
	return !__atomic_load_n(&nfree, __ATOMIC_RELAXED);
}

/* With lock held; releases it meanwhile. Pools that have too much free what has passed; @look: ask. */
static void shrink_all(bool look)
{
	struct order *o;
	struct pool *p;

	LL_FOREACH(pools, p)
	{
		if (!pool_has_too_much(p))
			continue;
		LL_FOREACH(orders, o)
		if (look && o->count && has_waiting(o, p))
			ask(o, LOOK);
		settle_all(p);
		pool_shrink(p, pool_keeps(p));
	}
}

void pools_stream_passed(CUstream stream, uint64_t until)
{
	CUcontext ctx = NULL;
	struct order *o;
	struct key key;

	if (none_is_free())
		return;
	real.cuCtxGetCurrent(&ctx);
	key = key_of(stream, ctx);
	pthread_mutex_lock(&lock);
	o = order_find(&key);
	if (o) {
		order_passed(o, until);
		shrink_all(false);
	}
	pthread_mutex_unlock(&lock);
}

void pools_context_passed(CUcontext ctx, uint64_t until)
{
	struct order *o;

	if (none_is_free() || (!ctx && real.cuCtxGetCurrent(&ctx)))
		return;
	pthread_mutex_lock(&lock);
	LL_FOREACH(orders, o)
	if (o->ctx == ctx)
		order_passed(o, until);
	shrink_all(false);
	pthread_mutex_unlock(&lock);
}

void pools_some_passed(void)
{
	if (none_is_free())
		return;
	pthread_mutex_lock(&lock);
	shrink_all(true);
	pthread_mutex_unlock(&lock);
}

/* With lock held; releases it meanwhile. False: there was none. */
static bool free_passed(void)
{
	bool freed = false;
	struct pool *p;

	LL_FOREACH(pools, p)
	{
		settle_all(p);
		freed |= pool_shrink(p, 0);
	}
	return freed;
}

bool pools_collect(enum frees_effort effort)
{
	struct order *o;
	bool freed;

	if (effort == FREES_FEW || none_is_free())
		return false;
	pthread_mutex_lock(&lock);
	LL_FOREACH(orders, o)
	if (o->count)
		ask(o, LOOK_AND_RECORD);
	freed = free_passed();
	pthread_mutex_unlock(&lock);
	return freed;
}

/* vmem gives back what nobody uses: so do pools, as far as it is known. */
static void trimming(void)
{
	if (none_is_free())
		return;
	pthread_mutex_lock(&lock);
	free_passed();
	pthread_mutex_unlock(&lock);
}
VMEM_TRIMMING(trimming);

/* ---- what the program does with pools ------------------------------------------------------- */

static bool is_plain(const CUmemPoolProps *props)
{
	return props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !props->handleTypes &&
	       !props->maxSize && !props->usage;
}

void pools_created(CUmemoryPool handle, const CUmemPoolProps *props)
{
	if (!is_plain(props))
		return;
	pthread_mutex_lock(&lock);
	pool_add(handle, props->location.id, 0, true);
	pthread_mutex_unlock(&lock);
}

void pools_destroyed(CUmemoryPool handle)
{
	struct pool *p;

	pthread_mutex_lock(&lock);
	p = pool_find(handle);
	if (p) {
		p->handle = NULL;
		settle_all(p);
		pool_shrink(p, 0);
	}
	pthread_mutex_unlock(&lock);
	pools_device_changed();
}

void pools_device_changed(void)
{
	pthread_mutex_lock(&lock);
	for (CUdevice dev = 0; dev < GPU_MAX; dev++)
		current[dev].known = false;
	changes++;
	pthread_mutex_unlock(&lock);
}

void pools_attribute_set(CUmemoryPool handle, CUmemPool_attribute attr, const void *value)
{
	struct pool *p;

	pthread_mutex_lock(&lock);
	p = pool_find(handle);
	if (p && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		p->threshold = *(const cuuint64_t *)value;
	else if (p && attr == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)
		p->any_stream = *(const int *)value;
	else if (p && attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		p->reserved_high = p->reserved;
	else if (p && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		p->used_high = p->used;
	pthread_mutex_unlock(&lock);
}

static size_t amount(const struct pool *p, CUmemPool_attribute attr)
{
	switch (attr) {
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return p->reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return p->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return p->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return p->used_high;
	default:
		return 0;
	}
}

void pools_add_to_attribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	const struct pool *p;
	size_t size;

	pthread_mutex_lock(&lock);
	p = pool_find(handle);
	size = p ? amount(p, attr) : 0;
	pthread_mutex_unlock(&lock);
	if (size)
		*(cuuint64_t *)value += size;
}

void pools_trim_to(CUmemoryPool handle, size_t keep)
{
	struct order *o;
	struct pool *p;

	pthread_mutex_lock(&lock);
	p = pool_find(handle);
	if (p && p->reserved > keep) {
		LL_FOREACH(orders, o)
		if (o->count && has_waiting(o, p))
			ask(o, LOOK);
		settle_all(p);
		pool_shrink(p, keep);
	}
	pthread_mutex_unlock(&lock);
}

static bool find_device(CUmemoryPool handle, CUdevice *dev)
{
	const struct pool *p;

	pthread_mutex_lock(&lock);
	p = pool_find(handle);
	if (p)
		*dev = p->dev;
	pthread_mutex_unlock(&lock);
	return p;
}

/* A default pool is unknown before the first allocation on its device. */
bool pools_device(CUmemoryPool handle, CUdevice *dev)
{
	CUmemoryPool usual;

	if (find_device(handle, dev))
		return true;
	if (!driver_table())
		return false;
	for (CUdevice d = 0; d < GPU_MAX && !real.cuDeviceGetDefaultMemPool(&usual, d); d++)
		if (usual == handle)
			device_learn(d);
	return find_device(handle, dev);
}

bool pools_handle_of(CUdeviceptr ptr, CUmemoryPool *handle)
{
	const struct pool_block *b;

	pthread_mutex_lock(&lock);
	b = block_find(ptr);
	if (b)
		*handle = b->pool->handle;
	pthread_mutex_unlock(&lock);
	return b;
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* With lock held; releases it while it waits: until no thread uses @o, which is ending. */
static void end_users(struct order *o)
{
	while (o->users || o->asking)
		uncancelled_wait(&changed, &lock);
}

void pools_stream_ending(CUstream stream)
{
	struct key key = key_of(stream, NULL);
	CUstreamCaptureMode mode;
	struct order *o;
	uint64_t now;
	bool recorded;

	/* The default streams end with their context, or with their thread. */
	if (key.stream != stream || key.thread)
		return;
	pthread_mutex_lock(&lock);
	o = order_find(&key);
	if (o) {
		o->ending = true;
		end_users(o);
		HASH_DELETE(hh, table, o);
		now = turn;
		if (o->count && o->recorded < now && o->passed < now) {
			o->users++;
			pthread_mutex_unlock(&lock);
			mode = fence_relax();
			recorded = record(o);
			fence_unrelax(mode);
			pthread_mutex_lock(&lock);
			o->users--;
			o->recorded = recorded ? now : o->recorded;
		}
		o->gone = true;
		o->ending = false;
	}
	pthread_mutex_unlock(&lock);
}

/* With lock held. */
static void set_ending(CUcontext ctx, bool ending)
{
	struct order *o;

	LL_FOREACH(orders, o)
	if (o->ctx == ctx)
		o->ending = ending;
}

void pools_context_ending(CUcontext ctx)
{
	struct order *o;

	if (!ctx)
		return;
	pthread_mutex_lock(&lock);
	set_ending(ctx, true);
	LL_FOREACH(orders, o)
	if (o->ctx == ctx)
		end_users(o);
	pthread_mutex_unlock(&lock);
}

void pools_context_lives(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	set_ending(ctx, false);
	pthread_mutex_unlock(&lock);
}

/* Its memory has gone with it, and its streams and events. */
static void context_ended(CUcontext ctx)
{
	struct pool_block *b, *next;
	struct order *o;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, blocks, b, next)
	{
		/* The thread that moves one finds that its memory has gone. */
		if (b->ctx != ctx || b->moving)
			continue;
		if (b->list) {
			pool_list_remove(b);
			count_free(-1);
		} else {
			b->pool->used -= b->room;
		}
		block_remove(b);
		free(b);
	}
	LL_FOREACH(orders, o)
	{
		if (o->ctx != ctx)
			continue;
		if (o->served)
			current[o->dev].known = false;
		if (!o->gone)
			HASH_DELETE(hh, table, o);
		o->gone = true;
		o->ending = false;
		o->event = NULL;
		o->mark = NULL;
		o->recorded = 0;
		o->count = 0;
		o->ctx = NULL;
	}
	pthread_mutex_unlock(&lock);
}
CONTEXT_GONE(context_ended);

void pools_before_capture(void)
{
	double until;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&recording, __ATOMIC_SEQ_CST))
		return;
	until = clock_ms() + RECORD_MS;
	while (__atomic_load_n(&recording, __ATOMIC_SEQ_CST) && clock_ms() < until)
		sched_yield();
}

void pools_capture_ending(void)
{
	__atomic_add_fetch(&ends, 1, __ATOMIC_SEQ_CST);
}

void pools_capture_ended(void)
{
	__atomic_sub_fetch(&ends, 1, __ATOMIC_SEQ_CST);
}

static void forget_in_child(void)
{
	pthread_cond_init(&changed, NULL);
	pools = NULL;
	blocks = NULL;
	orders = NULL;
	table = NULL;
	nfree = 0;
	recording = 0;
	ends = 0;
}
FORKS_CHILD(forget_in_child);
