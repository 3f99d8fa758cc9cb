/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/pool_streams.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/ledger/green.h"
#include "common/system/forks.h"
#include "common/gpu/gpu.h"
#include "common/system/threads.h"
#include "wrapper/current.h"
#include "wrapper/hooks/ordered/entering.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/real.h"

#include <stdlib.h>
#include <utlist.h>

#define ASK_AT_MOST 4 /* streams, for one allocation */

/* The free blocks of one pool that were freed in one stream. */
struct waiting {
	const struct pool *pool;
	struct pool_list list;
	struct waiting *next;
};

static pthread_cond_t changed =
	PTHREAD_COND_INITIALIZER; /* a stream has fewer users, or nobody asks */
/* Under pools_lock: */
static struct stream *streams, *table; /* all; by key */
static uint64_t serial;                /* of the last free; also read without */
static uint64_t gone;                  /* contexts that have ended */
static unsigned int enders;            /* threads in end_users() */
static size_t ends;                    /* of captures, that threads are in; without lock */
static uint64_t captures;              /* that have begun; without lock */
static unsigned int threads;           /* that were given a number; without lock */
static __thread unsigned int thread_self __attribute__((tls_model("initial-exec")));
bool streams_any;

struct key stream_key(CUstream stream, CUcontext ctx)
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

struct stream *stream_find(const struct key *key)
{
	struct stream *s;

	HASH_FIND_BYHASHVALUE(hh, table, key, sizeof(*key), hash_of(key), s);
	return s;
}

/* Without host memory it is gone. */
static void table_add(struct stream *s)
{
	HASH_ADD_BYHASHVALUE(hh, table, key, sizeof(s->key), hash_of(&s->key), s);
	s->gone = !s->hh.tbl;
}

/*
 * An event may be recorded in its stream at any time, by any thread. In CU_STREAM_PER_THREAD no other
 * thread can. In the legacy stream, and in those that are not apart from it, an event waits for work of
 * the others of that moment, which may need later work of the program. There a free records one: it is an
 * operation of the stream anyway.
 */
static bool is_open(const struct stream *s)
{
	return s->apart;
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

bool stream_device(CUstream stream, CUdevice *dev)
{
	CUcontext ctx;

	if (stream_is_default(stream))
		return !real.cuCtxGetDevice(dev);
	return !real.cuStreamGetCtx(stream, &ctx) && device_of(ctx, dev);
}

/*
 * An object with no more than what streams of @ctx may have from one another. An event belongs to its
 * context: that of another one cannot be recorded.
 */
static struct stream *stream_object(CUcontext ctx)
{
	struct stream *s;

	LL_FOREACH(streams, s)
		if (s->gone && !s->count && !s->users && !s->holds && !s->asking && !s->ending &&
		    (s->ctx == ctx || (!s->event && !s->mark))) {
			*s = (struct stream){.event = s->event,
					     .mark = s->mark,
					     .waiting = s->waiting,
					     .next = s->next};
			return s;
		}
	s = calloc(1, sizeof(*s));
	if (s)
		LL_PREPEND(streams, s);
	return s;
}

/* Its handle, or its thread, may be another's from now on. */
static void leave_table(struct stream *s)
{
	if (!s->gone)
		HASH_DELETE(hh, table, s);
	s->gone = true;
}

/* With pools_lock held: the streams of threads that have ended. */
static void end_threads(void)
{
	struct stream *s;

	LL_FOREACH(streams, s)
		if (s->tid && !s->gone && !s->ending && !s->users && !s->asking &&
		    threads_ended(s->tid))
			leave_table(s);
}

/* With pools_lock held: @ctx is that of @key. NULL: no host memory. */
static struct stream *stream_add(const struct key *key, CUcontext ctx, CUdevice dev, bool served,
				 bool apart)
{
	struct stream *s;

	if (key->thread)
		end_threads();
	s = stream_object(ctx);
	if (!s)
		return NULL;
	s->key = *key;
	s->tid = key->thread ? gettid() : 0;
	s->ctx = ctx;
	s->owner = green_owner(ctx);
	s->dev = dev;
	s->served = served;
	s->apart = apart;
	table_add(s);
	__atomic_store_n(&streams_any, true, __ATOMIC_RELAXED);
	return s;
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

/*
 * The event of a stream that is apart is there before it is needed: the GPU may be full by then. A default stream
 * is not added if a context has ended since there were @before: it might be the stream's.
 */
static void learn(CUstream stream, const struct key *key, CUcontext ctx, uint64_t before)
{
	unsigned int flags = CU_STREAM_DEFAULT;
	struct stream *s = NULL;
	CUevent event = NULL;
	CUdevice dev = 0;
	bool served;

	if (!key->ctx &&
	    (real.cuStreamGetCtx(stream, &ctx) || real.cuStreamGetFlags(stream, &flags)))
		return;
	if (!device_of(ctx, &dev))
		return;
	served = is_served(stream, ctx);
	if (served && flags & CU_STREAM_NON_BLOCKING)
		event = event_new(ctx);
	pthread_mutex_lock(&pools_lock);
	if (!stream_find(key) && (!key->ctx || gone == before))
		s = stream_add(key, ctx, dev, served, flags & CU_STREAM_NON_BLOCKING);
	if (s && !s->event) {
		s->event = event;
		event = NULL;
	}
	pthread_mutex_unlock(&pools_lock);
	if (event)
		real.cuEventDestroy_v2(event);
}

struct stream *stream_get(CUstream stream, CUcontext ctx)
{
	struct key key = stream_key(stream, ctx);
	struct stream *s = stream_find(&key);
	uint64_t before;

	if (s)
		return s;
	do {
		before = gone;
		pthread_mutex_unlock(&pools_lock);
		learn(stream, &key, ctx, before);
		pthread_mutex_lock(&pools_lock);
		s = stream_find(&key);
	} while (!s && before != gone);
	return s;
}

static struct waiting *waiting_find(const struct stream *s, const struct pool *p)
{
	struct waiting *w;

	LL_SEARCH_SCALAR(s->waiting, w, pool, p);
	return w;
}

struct pool_list *stream_list(struct stream *s, struct pool *p)
{
	struct waiting *w = waiting_find(s, p);

	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		w->pool = p;
		LL_PREPEND(s->waiting, w);
	}
	return &w->list;
}

static struct pool_block *block_any(const struct stream *s, const struct pool *p, size_t size)
{
	const struct waiting *w = s->count ? waiting_find(s, p) : NULL;

	return w ? pool_list_find_any(&w->list, size) : NULL;
}

struct pool_block *stream_block_find(const struct stream *s, const struct pool *p, size_t size)
{
	const struct waiting *w = s->count ? waiting_find(s, p) : NULL;

	return w ? pool_list_find(&w->list, size) : NULL;
}

/* With pools_lock held: the frees of @s up to @until have passed. */
static void note_passed(struct stream *s, uint64_t until)
{
	if (s->passed < until)
		s->passed = until;
	if (s->recorded <= s->passed)
		s->recorded = 0;
}

void stream_let_go(struct pool_block *b)
{
	if (b->from)
		b->from->count--;
	b->from = NULL;
	b->serial = 0;
}

/* Move the blocks of @s and @p whose frees have passed to @p. */
static void settle(struct stream *s, struct pool *p)
{
	struct waiting *w = waiting_find(s, p);
	struct pool_block *b;

	while (w && (b = w->list.first) && b->serial <= s->passed) {
		pool_list_remove(b);
		stream_let_go(b);
		pool_list_put(&p->passed, b);
	}
}

void streams_settle(struct pool *p)
{
	struct stream *s;

	LL_FOREACH(streams, s)
		if (s->count)
			settle(s, p);
}

static bool has_waiting(const struct stream *s, const struct pool *p)
{
	const struct waiting *w = s->count ? waiting_find(s, p) : NULL;

	return w && w->list.first;
}

/* A capture that ends is forgotten before the driver has ended it. */
bool streams_capturing(void)
{
	bool open = captures_open(driver_table());

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return open || __atomic_load_n(&ends, __ATOMIC_SEQ_CST);
}

/* The calling thread is in relaxed mode, and the context of @s current. */
static bool make_event(struct stream *s)
{
	return s->event || !real.cuEventCreate(&s->event, CU_EVENT_DISABLE_TIMING);
}

/*
 * Record the event of @s, which is asking. The calling thread is in relaxed mode. False: the driver refuses,
 * or a capture is open: while the driver is called, another thread may make the stream part of it, and the
 * event with it; unless the stream is this thread's @alone.
 */
static bool record(struct stream *s, bool alone)
{
	struct entering self;
	bool done, pushed;

	if (current_enter(s->ctx, &pushed))
		return false;
	done = make_event(s);
	entering_begin(&self);
	done = done && (alone || !streams_capturing()) &&
	       !real.cuEventRecord(s->event, s->key.stream);
	entering_end(&self);
	current_leave(pushed);
	return done;
}

/* The same: whether all work of the stream has ended, but not that of streams it waits for by itself. */
static bool is_idle(const struct stream *s)
{
	struct entering self;
	bool idle, pushed;

	if (current_enter(s->ctx, &pushed))
		return false;
	entering_begin(&self);
	idle = !streams_capturing() && !real.cuStreamQuery(s->key.stream);
	entering_end(&self);
	current_leave(pushed);
	return idle;
}

/* The event that each free in @s has recorded; NULL: none does. @s may have been another stream before. */
static CUevent mark_of(const struct stream *s)
{
	return s->apart ? NULL : __atomic_load_n(&s->mark, __ATOMIC_ACQUIRE);
}

/* The same. Returns the serial up to which they have; *@recorded is that of the event. */
static uint64_t ask_driver(struct stream *s, enum stream_effort effort, bool usable, uint64_t now,
			   uint64_t *recorded)
{
	CUevent mark = mark_of(s);
	bool look = effort != STREAM_RECORD;
	uint64_t passed = 0;

	if (*recorded && look && !real.cuEventQuery(s->event))
		passed = *recorded;
	if (look && usable && passed < now && passed >= *recorded && s->apart && is_idle(s))
		passed = now;
	if (look && mark && !real.cuEventQuery(mark))
		passed = now;
	/* What was freed after the event needs another one. */
	if (effort != STREAM_LOOK && usable && passed < now && passed >= *recorded &&
	    record(s, false))
		*recorded = now;
	return passed;
}

void stream_ask(struct stream *s, enum stream_effort effort)
{
	uint64_t now = s->last, recorded, passed;
	struct pool_giver giver;
	CUstreamCaptureMode mode;
	bool usable;

	if (s->asking || s->ending)
		return;
	recorded = s->recorded;
	usable = !s->gone && (is_open(s) || effort == STREAM_RECORD);
	s->asking = true;
	pool_giver_begins(&giver, NULL);
	pthread_mutex_unlock(&pools_lock);
	mode = fence_relax();
	passed = ask_driver(s, effort, usable, now, &recorded);
	fence_unrelax(mode);
	pthread_mutex_lock(&pools_lock);
	s->recorded = recorded;
	note_passed(s, passed);
	pool_giver_ends(&giver);
	s->asking = false;
	pthread_cond_broadcast(&changed);
}

void stream_end_use(struct stream *s)
{
	s->users--;
	if (enders)
		pthread_cond_broadcast(&changed);
}

CUresult stream_mark_free(struct stream *s)
{
	CUstreamCaptureMode mode;
	CUevent mark = NULL;
	CUresult result;
	bool pushed;

	if (s->apart)
		return CUDA_SUCCESS;
	mode = fence_relax();
	result = current_enter(s->ctx, &pushed);
	if (!result && !__atomic_load_n(&s->mark, __ATOMIC_ACQUIRE)) {
		CUevent none = NULL;

		result = real.cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING);
		if (!result && !__atomic_compare_exchange_n(&s->mark, &none, mark, false,
							    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			real.cuEventDestroy_v2(mark);
	}
	if (!result)
		result = real.cuEventRecord(s->mark, s->key.stream);
	current_leave(pushed);
	fence_unrelax(mode);
	return result;
}

void stream_put(struct stream *s, struct pool_list *list, struct pool_block *b)
{
	stream_let_go(b);
	b->serial = serial + 1;
	__atomic_store_n(&serial, b->serial, __ATOMIC_RELEASE);
	b->from = s;
	s->last = b->serial;
	s->count++;
	pool_block_put(list, b);
}

void stream_put_back(struct pool_block *b)
{
	struct stream *s = b->from;

	if (s && b->serial > s->passed) {
		pool_block_put(&waiting_find(s, b->pool)->list, b);
	} else {
		stream_let_go(b);
		pool_block_put(&b->pool->passed, b);
	}
}

void streams_ask(const struct pool *p, enum stream_effort effort)
{
	struct stream *s;

	LL_FOREACH(streams, s)
		if (p ? has_waiting(s, p) : s->count)
			stream_ask(s, effort);
}

void streams_ask_for(struct pool *p, size_t size)
{
	unsigned int left = ASK_AT_MOST;
	struct stream *s;

	LL_FOREACH(streams, s) {
		if (!stream_block_find(s, p, size))
			continue;
		stream_ask(s, STREAM_LOOK_AND_RECORD);
		settle(s, p);
		if (!--left || pool_list_find(&p->passed, size))
			return;
	}
}

/* Without pools_lock: work of the stream of @s waits for @event from now on. */
static bool wait_in(const struct stream *s, CUevent event)
{
	bool done, pushed;

	if (current_enter(s->ctx, &pushed))
		return false;
	done = !real.cuStreamWaitEvent(s->key.stream, event, CU_EVENT_WAIT_DEFAULT);
	current_leave(pushed);
	return done;
}

/*
 * With pools_lock held; releases it meanwhile: later work of @s comes after the frees of @from, whose
 * event nobody asks about, up to the serial that is returned. That is @least at least; 0: the driver
 * refuses.
 */
static uint64_t follow(struct stream *s, struct stream *from, uint64_t least)
{
	bool has_event = from->recorded >= least, usable = !from->gone && is_open(from), done;
	uint64_t until = has_event ? from->recorded : from->last;
	CUevent mark = mark_of(from);
	CUstreamCaptureMode mode;

	from->asking = true;
	pthread_mutex_unlock(&pools_lock);
	mode = fence_relax();
	if (!has_event && mark) {
		done = wait_in(s, mark);
	} else {
		has_event = has_event || (usable && record(from, false));
		done = has_event && wait_in(s, from->event);
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
static struct pool_block *block_behind(struct stream *s, struct stream *from, const struct pool *p,
				       size_t size)
{
	struct pool_block *b;
	uint64_t until;

	while (from->asking)
		pthread_cond_wait(&changed, &pools_lock);
	b = from->ending ? NULL : block_any(from, p, size);
	if (!b || s == from)
		return b;
	until = follow(s, from, b->serial);
	b = block_any(from, p, size);
	return b && b->serial <= until ? b : NULL;
}

struct pool_block *stream_block_behind(struct stream *s, struct pool *p, size_t size)
{
	struct pool_block *b = block_behind(s, s, p, size);
	struct stream *from;

	for (from = p->dependencies ? streams : NULL; from && !b; from = from->next)
		if (from->count)
			b = block_behind(s, from, p, size);
	return b;
}

/* True if frees of @from up to @until may not have passed. */
static bool is_ahead(const struct stream *from, uint64_t until)
{
	return from->count && until > from->passed;
}

/* What finds no room in @clock is not known. */
static void clock_add(struct clock *clock, struct stream *from, uint64_t until)
{
	unsigned int at = clock->count;

	if (!is_ahead(from, until))
		return;
	for (unsigned int i = 0; i < clock->count; i++) {
		if (clock->of[i].from == from) {
			at = i;
			until = clock->of[i].serial > until ? clock->of[i].serial : until;
			break;
		}
		if (!is_ahead(clock->of[i].from, clock->of[i].serial))
			at = i;
	}
	if (at == CLOCK_STREAMS)
		return;
	clock->of[at].from = from;
	clock->of[at].serial = until;
	if (at == clock->count)
		clock->count++;
}

void stream_follow(struct stream *s, const struct clock *clock)
{
	for (unsigned int i = 0; i < clock->count; i++)
		if (clock->of[i].from != s)
			clock_add(&s->clock, clock->of[i].from, clock->of[i].serial);
}

void stream_clock(struct stream *s, struct clock *clock)
{
	clock->count = 0;
	clock_add(clock, s, s->last);
	for (unsigned int i = 0; i < s->clock.count; i++)
		clock_add(clock, s->clock.of[i].from, s->clock.of[i].serial);
}

struct pool_block *stream_block_before(const struct stream *s, const struct pool *p, size_t size)
{
	struct pool_block *b = NULL;

	for (unsigned int i = 0; i < s->clock.count && !b; i++) {
		const struct stream *from = s->clock.of[i].from;
		const struct waiting *w = from->count ? waiting_find(from, p) : NULL;

		if (w)
			b = pool_list_find_by(&w->list, size, s->clock.of[i].serial);
	}
	return b;
}

bool streams_have(const struct pool *p)
{
	const struct stream *s;

	LL_FOREACH(streams, s)
		if (has_waiting(s, p))
			break;
	return s;
}

uint64_t streams_now(void)
{
	return __atomic_load_n(&serial, __ATOMIC_ACQUIRE);
}

void stream_passed(const struct key *key, uint64_t until)
{
	struct stream *s = stream_find(key);

	if (s)
		note_passed(s, until);
}

void streams_context_passed(CUcontext ctx, uint64_t until)
{
	struct stream *s;

	LL_FOREACH(streams, s)
		if (s->ctx == ctx)
			note_passed(s, until);
}

/*
 * With pools_lock held; releases it while it waits: until no thread uses @s, which is ending. False: it had not to
 * wait.
 */
static bool end_users(struct stream *s)
{
	bool any = s->users || s->asking;

	enders++;
	while (s->users || s->asking)
		pthread_cond_wait(&changed, &pools_lock);
	enders--;
	return any;
}

static bool is_capturing(CUstream stream)
{
	CUstreamCaptureStatus status;

	return real.cuStreamIsCapturing(stream, &status) || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/*
 * With pools_lock held; releases it meanwhile: an event for the last frees of @s, whose event nobody
 * asks about, unless they have passed. No other thread may use the stream, so none makes it part of an
 * open capture.
 */
static void record_last(struct stream *s)
{
	bool recorded = false, passed = false;
	uint64_t last = s->last;
	struct pool_giver giver;
	CUstreamCaptureMode mode;

	if (!s->count || s->recorded >= last || s->passed >= last)
		return;
	s->asking = true;
	pool_giver_begins(&giver, NULL);
	pthread_mutex_unlock(&pools_lock);
	mode = fence_relax();
	if (!is_capturing(s->key.stream)) {
		passed = s->apart && is_idle(s);
		recorded = !passed && record(s, true);
	}
	fence_unrelax(mode);
	pthread_mutex_lock(&pools_lock);
	if (recorded)
		s->recorded = last;
	if (passed)
		note_passed(s, last);
	pool_giver_ends(&giver);
	s->asking = false;
	pthread_cond_broadcast(&changed);
}

struct stream *streams_ending(CUstream stream)
{
	struct key key = stream_key(stream, NULL);
	struct stream *s;

	/* The default streams end with their context, or with their thread. */
	if (key.stream != stream || key.thread)
		return NULL;
	pthread_mutex_lock(&pools_lock);
	s = stream_find(&key);
	if (s) {
		s->ending = true;
		end_users(s);
		record_last(s);
		leave_table(s); /* another thread may have taken it out meanwhile */
		s->ending = false;
		s->users++; /* the object stays that of this stream */
	}
	pthread_mutex_unlock(&pools_lock);
	return s;
}

void streams_ended(struct stream *s, bool lives)
{
	if (!s)
		return;
	pthread_mutex_lock(&pools_lock);
	stream_end_use(s);
	if (lives && s->ctx && !stream_find(&s->key))
		table_add(s);
	pthread_mutex_unlock(&pools_lock);
}

void streams_forget(CUstream stream)
{
	struct key key = stream_key(stream, NULL);
	struct stream *s;

	if (!__atomic_load_n(&streams_any, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&pools_lock);
	s = stream_find(&key);
	if (s)
		leave_table(s);
	pthread_mutex_unlock(&pools_lock);
}

/* In other streams each free has recorded an event. */
static void record_before_capture(CUstream stream)
{
	struct key key = stream_key(stream, NULL);
	struct stream *s;

	pthread_mutex_lock(&pools_lock);
	s = stream_find(&key);
	if (s && s->apart) {
		while (s->asking)
			pthread_cond_wait(&changed, &pools_lock);
		if (!s->ending && !s->gone)
			record_last(s);
	}
	pthread_mutex_unlock(&pools_lock);
}

/* With pools_lock held. */
static void set_ending(CUcontext ctx, bool ending)
{
	struct stream *s;

	LL_FOREACH(streams, s)
		if (s->ctx == ctx)
			s->ending = ending;
}

/*
 * With pools_lock held; releases it while it waits for the threads that use streams of @ctx. False: there are none;
 * else others may have begun meanwhile, as allocations do.
 */
static bool end_uses(CUcontext ctx)
{
	struct stream *s;
	bool any = false;

	set_ending(ctx, true);
	LL_FOREACH(streams, s)
		if (s->ctx == ctx)
			any = end_users(s) || any;
	return any;
}

void streams_context_ending(CUcontext ctx)
{
	if (!ctx)
		return;
	pthread_mutex_lock(&pools_lock);
	end_uses(ctx);
	pthread_mutex_unlock(&pools_lock);
}

void streams_context_lives(CUcontext ctx)
{
	pthread_mutex_lock(&pools_lock);
	set_ending(ctx, false);
	pthread_mutex_unlock(&pools_lock);
}

/* With pools_lock held: the streams and events of @ctx have gone with it. */
static void forget_streams(CUcontext ctx)
{
	struct stream *s;

	gone++;
	LL_FOREACH(streams, s) {
		if (s->ctx != ctx && s->owner != ctx)
			continue;
		if (s->served)
			pool_device_forget(s->dev);
		leave_table(s);
		s->ending = false;
		s->event = NULL;
		s->mark = NULL;
		s->recorded = 0;
		s->count = 0;
		s->ctx = NULL;
		s->owner = NULL;
	}
}

void streams_green_ended(CUcontext ctx)
{
	pthread_mutex_lock(&pools_lock);
	forget_streams(ctx);
	pthread_mutex_unlock(&pools_lock);
}

void streams_context_ended(CUcontext ctx)
{
	/* It may have ended unexpectedly, and allocations begin all the time. */
	while (end_uses(ctx) || pool_givers_wait_of(ctx))
		;
	pool_blocks_forget(ctx);
	forget_streams(ctx);
}

uint64_t streams_captures(void)
{
	return __atomic_load_n(&captures, __ATOMIC_SEQ_CST);
}

void streams_before_capture(CUstream stream)
{
	__atomic_add_fetch(&captures, 1, __ATOMIC_SEQ_CST);
	if (!pool_none_is_free())
		record_before_capture(stream);
}

void streams_capture_ending(void)
{
	__atomic_add_fetch(&ends, 1, __ATOMIC_SEQ_CST);
}

void streams_capture_ended(void)
{
	__atomic_sub_fetch(&ends, 1, __ATOMIC_SEQ_CST);
}

static void forget_in_child(void)
{
	pthread_cond_init(&changed, NULL);
	streams = NULL;
	table = NULL;
	enders = 0;
	ends = 0;
}
FORKS_CHILD(forget_in_child);
