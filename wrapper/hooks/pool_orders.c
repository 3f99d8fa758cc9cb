/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/pool_orders.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/ledger/green.h"
#include "common/clock.h"
#include "common/forks.h"
#include "common/gpu.h"
#include "common/threads.h"
#include "vmem/context_gone.h"
#include "wrapper/hooks/current.h"
#include "wrapper/hooks/fence.h"
#include "wrapper/real.h"

#include <sched.h>
#include <stdlib.h>
#include <utlist.h>

#define ASK_AT_MOST 4  /* streams, for one allocation */
#define RECORD_MS   50 /* a thread that called the driver is inside it by then */

/* The free blocks of one pool that were freed in one stream. */
struct waiting {
	const struct pool *pool;
	struct pool_list list;
	struct waiting *next;
};

static pthread_cond_t changed =
	PTHREAD_COND_INITIALIZER; /* an order has fewer users, or nobody asks */
/* Under pools_lock: */
static struct order *orders, *table; /* all; by key */
static uint64_t turn;                /* of the last free; also read without */
static unsigned int enders;          /* threads in end_users() */
static size_t recording;     /* threads that may record an event in a stream; without lock */
static size_t ends;          /* of captures, that threads are in; without lock */
static uint64_t captures;    /* that have begun; without lock */
static unsigned int threads; /* that were given a number; without lock */
static __thread unsigned int thread_self __attribute__((tls_model("initial-exec")));
bool orders_any;

struct key order_key(CUstream stream, CUcontext ctx)
{
	if (!stream_is_default(stream))
		return (struct key){.stream = stream};
	if (stream != CU_STREAM_PER_THREAD)
		return (struct key){.stream = CU_STREAM_LEGACY, .ctx = ctx};
	if (!thread_self)
		thread_self = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
	return (struct key){.stream = stream, .ctx = ctx, .thread = thread_self};
}

/* Each allocation and each free looks its stream up: uthash would hash byte by byte. */
static unsigned int hash_of(const struct key *key)
{
	uint64_t sum = (uintptr_t)key->stream + 3 * (uintptr_t)key->ctx + 5 * (uint64_t)key->thread;

	return (unsigned int)(sum * 0x9e3779b97f4a7c15 >> 32);
}

struct order *order_find(const struct key *key)
{
	struct order *o;

	HASH_FIND_BYHASHVALUE(hh, table, key, sizeof(*key), hash_of(key), o);
	return o;
}

/* Without host memory it is gone. */
static void table_add(struct order *o)
{
	HASH_ADD_BYHASHVALUE(hh, table, key, sizeof(o->key), hash_of(&o->key), o);
	o->gone = !o->hh.tbl;
}

/*
 * An event may be recorded in its stream at any time, by any thread. In CU_STREAM_PER_THREAD no other
 * thread can. In the legacy stream, and in those that are not apart from it, an event waits for work of
 * the others of that moment, which may need later work of the program. There a free records one: it is an
 * operation of the stream anyway.
 */
static bool is_open(const struct order *o)
{
	return o->apart;
}

/* Memory is left to the driver if its context is one that ends before the device's primary one. */
static bool is_served(CUstream stream, CUcontext ctx)
{
	CUgreenCtx green = NULL;

	if (real.cuStreamGetGreenCtx && !stream_is_default(stream) &&
	    !real.cuStreamGetGreenCtx(stream, &green) && green)
		return false;
	return green_owner(ctx) == ctx && !contexts_created(ctx);
}

static bool device_of(CUcontext ctx, CUdevice *dev)
{
	bool pushed, got = !current_enter(ctx, &pushed) && !real.cuCtxGetDevice(dev);

	current_leave(pushed);
	return got && *dev >= 0 && *dev < GPU_MAX;
}

/*
 * An object with no more than what streams of @ctx may have from one another. An event belongs to its
 * context: that of another one cannot be recorded.
 */
static struct order *order_object(CUcontext ctx)
{
	struct order *o;

	LL_FOREACH(orders, o)
		if (o->gone && !o->count && !o->users && !o->asking && !o->ending &&
		    (o->ctx == ctx || (!o->event && !o->mark))) {
			*o = (struct order){.event = o->event,
					    .mark = o->mark,
					    .waiting = o->waiting,
					    .next = o->next};
			return o;
		}
	o = calloc(1, sizeof(*o));
	if (o)
		LL_PREPEND(orders, o);
	return o;
}

/* With pools_lock held: the streams of threads that have ended. */
static void end_threads(void)
{
	struct order *o;

	LL_FOREACH(orders, o)
		if (o->tid && !o->gone && !o->ending && !o->users && !o->asking &&
		    threads_ended(o->tid)) {
			HASH_DELETE(hh, table, o);
			o->gone = true;
		}
}

/* With pools_lock held: @ctx is that of @key. NULL: no host memory. */
static struct order *order_add(const struct key *key, CUcontext ctx, CUdevice dev, bool served,
			       bool apart)
{
	struct order *o;

	if (key->thread)
		end_threads();
	o = order_object(ctx);
	if (!o)
		return NULL;
	o->key = *key;
	o->tid = key->thread ? gettid() : 0;
	o->ctx = ctx;
	o->dev = dev;
	o->served = served;
	o->apart = apart;
	table_add(o);
	__atomic_store_n(&orders_any, true, __ATOMIC_RELAXED);
	return o;
}

/* NULL: the driver refuses. */
static CUevent event_new(CUcontext ctx)
{
	CUstreamCaptureMode mode = fence_relax();
	CUevent event = NULL;
	bool pushed;

	if (!current_enter(ctx, &pushed))
		real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	current_leave(pushed);
	fence_unrelax(mode);
	return event;
}

/* The event of a stream that is apart is there before it is needed: the GPU may be full by then. */
void order_learn(CUstream stream, const struct key *key, CUcontext ctx)
{
	unsigned int flags = CU_STREAM_DEFAULT;
	struct order *o = NULL;
	CUevent event = NULL;
	CUdevice dev = 0;
	bool served;

	if (!key->ctx &&
	    (real.cuStreamGetCtx(stream, &ctx) || real.cuStreamGetFlags(stream, &flags)))
		return;
	served = device_of(ctx, &dev) && is_served(stream, ctx);
	if (served && flags & CU_STREAM_NON_BLOCKING)
		event = event_new(ctx);
	pthread_mutex_lock(&pools_lock);
	if (!order_find(key))
		o = order_add(key, ctx, dev, served, flags & CU_STREAM_NON_BLOCKING);
	if (o && !o->event) {
		o->event = event;
		event = NULL;
	}
	pthread_mutex_unlock(&pools_lock);
	if (event)
		real.cuEventDestroy_v2(event);
}

static struct waiting *waiting_find(const struct order *o, const struct pool *p)
{
	struct waiting *w;

	LL_SEARCH_SCALAR(o->waiting, w, pool, p);
	return w;
}

struct pool_list *order_list(struct order *o, struct pool *p)
{
	struct waiting *w = waiting_find(o, p);

	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		w->pool = p;
		LL_PREPEND(o->waiting, w);
	}
	return &w->list;
}

static struct pool_block *block_any(const struct order *o, const struct pool *p, size_t size)
{
	const struct waiting *w = o->count ? waiting_find(o, p) : NULL;

	return w ? pool_list_find_any(&w->list, size) : NULL;
}

struct pool_block *order_block_find(const struct order *o, const struct pool *p, size_t size)
{
	const struct waiting *w = o->count ? waiting_find(o, p) : NULL;

	return w ? pool_list_find(&w->list, size) : NULL;
}

/* With pools_lock held: the frees of @o up to @until have passed. */
static void note_passed(struct order *o, uint64_t until)
{
	if (o->passed < until)
		o->passed = until;
	if (o->recorded <= o->passed)
		o->recorded = 0;
}

void order_let_go(struct pool_block *b)
{
	if (b->from)
		b->from->count--;
	b->from = NULL;
	b->turn = 0;
}

/* Move the blocks of @o and @p whose frees have passed to @p. */
static void settle(struct order *o, struct pool *p)
{
	struct waiting *w = waiting_find(o, p);
	struct pool_block *b;

	while (w && (b = w->list.first) && b->turn <= o->passed) {
		pool_list_remove(b);
		order_let_go(b);
		pool_list_put(&p->passed, b);
	}
}

void orders_settle(struct pool *p)
{
	struct order *o;

	LL_FOREACH(orders, o)
		if (o->count)
			settle(o, p);
}

static bool has_waiting(const struct order *o, const struct pool *p)
{
	const struct waiting *w = o->count ? waiting_find(o, p) : NULL;

	return w && w->list.first;
}

/* A capture that ends is forgotten before the driver has ended it. */
bool orders_capturing(void)
{
	bool open = captures_open(driver_table());

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return open || __atomic_load_n(&ends, __ATOMIC_SEQ_CST);
}

/* Record the event of @o, which is asking. The calling thread is in relaxed mode. */
static bool record_event(struct order *o)
{
	CUevent event = o->event;
	bool done, pushed;

	if (current_enter(o->ctx, &pushed))
		return false;
	done = event || !real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	done = done && !real.cuEventRecord(event, o->key.stream);
	current_leave(pushed);
	o->event = event;
	return done;
}

/*
 * The same. False: the driver refuses, or a capture is open: while the driver is called, another thread
 * may make the stream part of it, and the event with it.
 */
static bool record(struct order *o)
{
	bool done;

	__atomic_add_fetch(&recording, 1, __ATOMIC_SEQ_CST);
	done = !orders_capturing() && record_event(o);
	__atomic_sub_fetch(&recording, 1, __ATOMIC_RELEASE);
	return done;
}

/* The same: whether all work of the stream has ended, but not that of streams it waits for by itself. */
static bool is_idle(const struct order *o)
{
	bool idle, pushed;

	__atomic_add_fetch(&recording, 1, __ATOMIC_SEQ_CST);
	idle = !orders_capturing() && !current_enter(o->ctx, &pushed);
	if (idle) {
		idle = !real.cuStreamQuery(o->key.stream);
		current_leave(pushed);
	}
	__atomic_sub_fetch(&recording, 1, __ATOMIC_RELEASE);
	return idle;
}

/* The event that each free in @o has recorded; NULL: none does. @o may have been another stream before. */
static CUevent mark_of(const struct order *o)
{
	return o->apart ? NULL : __atomic_load_n(&o->mark, __ATOMIC_ACQUIRE);
}

/* The same. Returns the turn up to which they have; *@recorded is that of the event. */
static uint64_t ask_driver(struct order *o, enum order_effort effort, bool usable, uint64_t now,
			   uint64_t *recorded)
{
	CUevent mark = mark_of(o);
	bool look = effort != ORDER_RECORD;
	uint64_t passed = 0;

	if (*recorded && look && !real.cuEventQuery(o->event))
		passed = *recorded;
	if (look && usable && passed < now && passed >= *recorded && o->apart && is_idle(o))
		passed = now;
	if (look && mark && !real.cuEventQuery(mark))
		passed = now;
	/* What was freed after the event needs another one. */
	if (effort != ORDER_LOOK && usable && passed < now && passed >= *recorded && record(o))
		*recorded = now;
	return passed;
}

void order_ask(struct order *o, enum order_effort effort)
{
	uint64_t now = o->last, recorded, passed;
	struct pool_giver giver;
	CUstreamCaptureMode mode;
	bool usable;

	if (o->asking || o->ending)
		return;
	recorded = o->recorded;
	usable = !o->gone && (is_open(o) || effort == ORDER_RECORD);
	o->asking = true;
	pool_giver_begins(&giver);
	pthread_mutex_unlock(&pools_lock);
	mode = fence_relax();
	passed = ask_driver(o, effort, usable, now, &recorded);
	fence_unrelax(mode);
	pthread_mutex_lock(&pools_lock);
	o->recorded = recorded;
	note_passed(o, passed);
	pool_giver_ends(&giver);
	o->asking = false;
	pthread_cond_broadcast(&changed);
}

void order_end_use(struct order *o)
{
	o->users--;
	if (enders)
		pthread_cond_broadcast(&changed);
}

CUresult order_mark_free(struct order *o)
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

void order_put(struct order *o, struct pool_list *list, struct pool_block *b)
{
	order_let_go(b);
	b->turn = turn + 1;
	__atomic_store_n(&turn, b->turn, __ATOMIC_RELEASE);
	b->from = o;
	o->last = b->turn;
	o->count++;
	pool_block_put(list, b);
}

void order_put_back(struct pool_block *b)
{
	struct order *o = b->from;

	if (o && b->turn > o->passed) {
		pool_block_put(&waiting_find(o, b->pool)->list, b);
	} else {
		order_let_go(b);
		pool_block_put(&b->pool->passed, b);
	}
}

void orders_ask(const struct pool *p, enum order_effort effort)
{
	struct order *o;

	LL_FOREACH(orders, o)
		if (p ? has_waiting(o, p) : o->count)
			order_ask(o, effort);
}

void orders_ask_for(struct pool *p, size_t size)
{
	unsigned int left = ASK_AT_MOST;
	struct order *o;

	LL_FOREACH(orders, o) {
		if (!order_block_find(o, p, size))
			continue;
		order_ask(o, ORDER_LOOK_AND_RECORD);
		settle(o, p);
		if (!--left || pool_list_find(&p->passed, size))
			return;
	}
}

/* Without pools_lock: work of the stream of @o waits for @event from now on. */
static bool wait_in(const struct order *o, CUevent event)
{
	bool done, pushed;

	if (current_enter(o->ctx, &pushed))
		return false;
	done = !real.cuStreamWaitEvent(o->key.stream, event, CU_EVENT_WAIT_DEFAULT);
	current_leave(pushed);
	return done;
}

/*
 * With pools_lock held; releases it meanwhile: later work of @o comes after the frees of @from, whose
 * event nobody asks about, up to the turn that is returned. That is @least at least; 0: the driver
 * refuses.
 */
static uint64_t follow(struct order *o, struct order *from, uint64_t least)
{
	bool has_event = from->recorded >= least, usable = !from->gone && is_open(from), done;
	uint64_t until = has_event ? from->recorded : from->last;
	CUevent mark = mark_of(from);
	CUstreamCaptureMode mode;

	from->asking = true;
	pthread_mutex_unlock(&pools_lock);
	mode = fence_relax();
	if (!has_event && mark) {
		done = wait_in(o, mark);
	} else {
		has_event = has_event || (usable && record(from));
		done = has_event && wait_in(o, from->event);
	}
	fence_unrelax(mode);
	pthread_mutex_lock(&pools_lock);
	if (has_event)
		from->recorded = until;
	from->asking = false;
	pthread_cond_broadcast(&changed);
	return done ? until : 0;
}

/* The same, for a block of @from. Other threads may take one meanwhile: then it is NULL. */
static struct pool_block *block_behind(struct order *o, struct order *from, const struct pool *p,
				       size_t size)
{
	struct pool_block *b;
	uint64_t until;

	while (from->asking)
		pthread_cond_wait(&changed, &pools_lock);
	b = from->ending ? NULL : block_any(from, p, size);
	if (!b || o == from)
		return b;
	until = follow(o, from, b->turn);
	b = block_any(from, p, size);
	return b && b->turn <= until ? b : NULL;
}

struct pool_block *order_block_behind(struct order *o, struct pool *p, size_t size)
{
	struct pool_block *b = block_behind(o, o, p, size);
	struct order *from;

	for (from = p->dependencies ? orders : NULL; from && !b; from = from->next)
		if (from->count)
			b = block_behind(o, from, p, size);
	return b;
}

/* True if frees of @from up to @until may not have passed. */
static bool is_ahead(const struct order *from, uint64_t until)
{
	return from->count && until > from->passed;
}

/* What finds no room in @clock is not known. */
static void clock_add(struct clock *clock, struct order *from, uint64_t until)
{
	unsigned int at = clock->count;

	if (!is_ahead(from, until))
		return;
	for (unsigned int i = 0; i < clock->count; i++) {
		if (clock->of[i].from == from) {
			at = i;
			until = clock->of[i].turn > until ? clock->of[i].turn : until;
			break;
		}
		if (!is_ahead(clock->of[i].from, clock->of[i].turn))
			at = i;
	}
	if (at == CLOCK_STREAMS)
		return;
	clock->of[at].from = from;
	clock->of[at].turn = until;
	if (at == clock->count)
		clock->count++;
}

void order_follow(struct order *o, const struct clock *clock)
{
	for (unsigned int i = 0; i < clock->count; i++)
		if (clock->of[i].from != o)
			clock_add(&o->clock, clock->of[i].from, clock->of[i].turn);
}

void order_clock(struct order *o, struct clock *clock)
{
	clock->count = 0;
	clock_add(clock, o, o->last);
	for (unsigned int i = 0; i < o->clock.count; i++)
		clock_add(clock, o->clock.of[i].from, o->clock.of[i].turn);
}

struct pool_block *order_block_before(const struct order *o, const struct pool *p, size_t size)
{
	struct pool_block *b = NULL;

	for (unsigned int i = 0; i < o->clock.count && !b; i++) {
		const struct order *from = o->clock.of[i].from;
		const struct waiting *w = from->count ? waiting_find(from, p) : NULL;

		if (w)
			b = pool_list_find_by(&w->list, size, o->clock.of[i].turn);
	}
	return b;
}

bool orders_have(const struct pool *p)
{
	const struct order *o;

	LL_FOREACH(orders, o)
		if (has_waiting(o, p))
			break;
	return o;
}

uint64_t orders_now(void)
{
	return __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
}

void order_passed(const struct key *key, uint64_t until)
{
	struct order *o = order_find(key);

	if (o)
		note_passed(o, until);
}

void orders_context_passed(CUcontext ctx, uint64_t until)
{
	struct order *o;

	LL_FOREACH(orders, o)
		if (o->ctx == ctx)
			note_passed(o, until);
}

/* With pools_lock held; releases it while it waits: until no thread uses @o, which is ending. */
static void end_users(struct order *o)
{
	enders++;
	while (o->users || o->asking)
		pthread_cond_wait(&changed, &pools_lock);
	enders--;
}

static bool is_capturing(CUstream stream)
{
	CUstreamCaptureStatus status;

	return real.cuStreamIsCapturing(stream, &status) || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/*
 * With pools_lock held; releases it meanwhile: an event for the last frees of @o, whose event nobody
 * asks about, unless they have passed. No other thread may use the stream, so none makes it part of an
 * open capture.
 */
static void record_last(struct order *o)
{
	bool recorded = false, passed = false;
	uint64_t last = o->last;
	struct pool_giver giver;
	CUstreamCaptureMode mode;

	if (!o->count || o->recorded >= last || o->passed >= last)
		return;
	o->asking = true;
	pool_giver_begins(&giver);
	pthread_mutex_unlock(&pools_lock);
	mode = fence_relax();
	if (!is_capturing(o->key.stream)) {
		passed = o->apart && is_idle(o);
		recorded = !passed && record_event(o);
	}
	fence_unrelax(mode);
	pthread_mutex_lock(&pools_lock);
	if (recorded)
		o->recorded = last;
	if (passed)
		note_passed(o, last);
	pool_giver_ends(&giver);
	o->asking = false;
	pthread_cond_broadcast(&changed);
}

struct order *orders_stream_ending(CUstream stream)
{
	struct key key = order_key(stream, NULL);
	struct order *o;

	/* The default streams end with their context, or with their thread. */
	if (key.stream != stream || key.thread)
		return NULL;
	pthread_mutex_lock(&pools_lock);
	o = order_find(&key);
	if (o) {
		o->ending = true;
		end_users(o);
		record_last(o);
		HASH_DELETE(hh, table, o);
		o->gone = true;
		o->ending = false;
		o->users++; /* the object stays that of this stream */
	}
	pthread_mutex_unlock(&pools_lock);
	return o;
}

void orders_stream_ended(struct order *o, bool lives)
{
	if (!o)
		return;
	pthread_mutex_lock(&pools_lock);
	order_end_use(o);
	if (lives && o->ctx && !order_find(&o->key))
		table_add(o);
	pthread_mutex_unlock(&pools_lock);
}

/* In other streams each free has recorded an event. */
static void record_before_capture(CUstream stream)
{
	struct key key = order_key(stream, NULL);
	struct order *o;

	pthread_mutex_lock(&pools_lock);
	o = order_find(&key);
	if (o && o->apart) {
		while (o->asking)
			pthread_cond_wait(&changed, &pools_lock);
		if (!o->ending && !o->gone)
			record_last(o);
	}
	pthread_mutex_unlock(&pools_lock);
}

/* With pools_lock held. */
static void set_ending(CUcontext ctx, bool ending)
{
	struct order *o;

	LL_FOREACH(orders, o)
		if (o->ctx == ctx)
			o->ending = ending;
}

void orders_context_ending(CUcontext ctx)
{
	struct order *o;

	if (!ctx)
		return;
	pthread_mutex_lock(&pools_lock);
	set_ending(ctx, true);
	LL_FOREACH(orders, o)
		if (o->ctx == ctx)
			end_users(o);
	pthread_mutex_unlock(&pools_lock);
}

void orders_context_lives(CUcontext ctx)
{
	pthread_mutex_lock(&pools_lock);
	set_ending(ctx, false);
	pthread_mutex_unlock(&pools_lock);
}

/* Its memory has gone with it, and its streams and events. */
static void context_ended(CUcontext ctx)
{
	struct order *o;

	pthread_mutex_lock(&pools_lock);
	pool_blocks_forget(ctx);
	LL_FOREACH(orders, o) {
		if (o->ctx != ctx)
			continue;
		if (o->served)
			pool_device_forget(o->dev);
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
	pthread_mutex_unlock(&pools_lock);
}

CONTEXT_GONE(context_ended);

uint64_t orders_captures(void)
{
	return __atomic_load_n(&captures, __ATOMIC_SEQ_CST);
}

void orders_before_capture(CUstream stream)
{
	double until;

	__atomic_add_fetch(&captures, 1, __ATOMIC_SEQ_CST);
	if (!pool_none_is_free())
		record_before_capture(stream);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&recording, __ATOMIC_SEQ_CST))
		return;
	until = clock_ms() + RECORD_MS;
	while (__atomic_load_n(&recording, __ATOMIC_SEQ_CST) && clock_ms() < until)
		sched_yield();
}

void orders_capture_ending(void)
{
	__atomic_add_fetch(&ends, 1, __ATOMIC_SEQ_CST);
}

void orders_capture_ended(void)
{
	__atomic_sub_fetch(&ends, 1, __ATOMIC_SEQ_CST);
}

static void forget_in_child(void)
{
	pthread_cond_init(&changed, NULL);
	orders = NULL;
	table = NULL;
	enders = 0;
	recording = 0;
	ends = 0;
}
FORKS_CHILD(forget_in_child);
