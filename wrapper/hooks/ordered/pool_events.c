/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/pool_events.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "wrapper/current.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/real.h"

#include <stdlib.h>

/* An event that was recorded since there are streams, or that is not followed. */
struct event {
	CUevent handle;
	bool left;              /* it is recorded in other ways, too */
	uint64_t record;        /* the number of the latest one; it is none twice */
	unsigned int recording; /* threads that record it now */
	struct clock clock;
	UT_hash_handle hh;
};

/* Under pools_lock: */
static struct event *events; /* by handle */
static uint64_t records;     /* numbers given */
static size_t known;         /* events; also read without */
static bool lost; /* an event is not in the table, for want of host memory: none is followed */

static struct event *event_find(CUevent handle)
{
	struct event *e;

	HASH_FIND_PTR(events, &handle, e);
	return e;
}

/* NULL: no host memory. */
static struct event *event_get(CUevent handle)
{
	struct event *e = event_find(handle);

	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (e) {
		e->handle = handle;
		HASH_ADD_PTR(events, handle, e);
	}
	if (e && !e->hh.tbl) {
		free(e);
		e = NULL;
	}
	if (e)
		__atomic_add_fetch(&known, 1, __ATOMIC_RELAXED);
	else
		lost = true;
	return e;
}

void pool_events_leave(CUevent handle)
{
	struct event *e;

	pthread_mutex_lock(&pools_lock);
	e = event_get(handle);
	if (e) {
		e->left = true;
		e->clock.count = 0;
	}
	pthread_mutex_unlock(&pools_lock);
}

void pool_events_leave_node(const CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
		pool_events_leave(params->eventRecord.event);
}

void pool_events_leave_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	if (!value)
		return;
	if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
		pool_events_leave(value->programmaticEvent.event);
	else if (id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
		pool_events_leave(value->launchCompletionEvent.event);
}

void pool_events_forget(CUevent handle)
{
	struct event *e;

	if (!__atomic_load_n(&known, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&pools_lock);
	e = event_find(handle);
	if (e) {
		HASH_DEL(events, e);
		free(e);
		__atomic_sub_fetch(&known, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&pools_lock);
}

static bool streams_are_known(void)
{
	return __builtin_expect(__atomic_load_n(&streams_any, __ATOMIC_RELAXED), 0);
}

/* True if no capture has been open since @captures have begun, so that a call had its effect on the stream. */
static bool uncaptured(uint64_t captures)
{
	return !streams_capturing() && streams_captures() == captures;
}

/* A call of cuEventRecord(). */
struct record {
	uint64_t number; /* 0: it is of no interest */
	uint64_t captures;
	bool alone;         /* no other record of the event was under way */
	struct clock clock; /* of the stream, before the call */
};

static void record_begins(struct record *r, CUevent handle, CUstream stream)
{
	struct event *e;
	struct stream *s;
	struct key key;

	r->number = 0;
	if (!streams_are_known())
		return;
	key = stream_key(stream, stream_is_default(stream) ? current_context() : NULL);
	r->captures = streams_captures();
	r->clock.count = 0;
	pthread_mutex_lock(&pools_lock);
	e = event_get(handle);
	r->number = ++records;
	r->alone = e && !e->recording;
	if (e) {
		e->record = r->number;
		e->recording++;
		e->clock.count = 0;
	}
	s = stream_find(&key);
	if (s)
		stream_clock(s, &r->clock);
	pthread_mutex_unlock(&pools_lock);
}

/* If two threads have recorded it, nobody knows which of the two was the last. */
static CUresult record_ended(const struct record *r, CUevent handle, CUresult result)
{
	bool valid;
	struct event *e;

	if (!r->number)
		return result;
	valid = !result && r->alone && uncaptured(r->captures);
	pthread_mutex_lock(&pools_lock);
	e = event_find(handle);
	if (e && e->recording)
		e->recording--;
	if (valid && e && e->record == r->number && !e->left)
		e->clock = r->clock;
	pthread_mutex_unlock(&pools_lock);
	return result;
}

/* A call of cuStreamWaitEvent(). */
struct wait {
	uint64_t record; /* of the event; 0: it is of no interest */
	uint64_t captures;
	struct clock clock; /* of the event */
};

static void wait_begins(struct wait *w, CUevent handle)
{
	const struct event *e;

	w->record = 0;
	if (!streams_are_known())
		return;
	w->captures = streams_captures();
	pthread_mutex_lock(&pools_lock);
	e = lost ? NULL : event_find(handle);
	if (e && e->clock.count) {
		w->clock = e->clock;
		w->record = e->record;
	}
	pthread_mutex_unlock(&pools_lock);
}

/*
 * If the event was recorded meanwhile, the stream may wait for that. A stream of which nothing was freed so
 * far is learnt, as others may wait for it in turn.
 */
static CUresult wait_ended(const struct wait *w, CUevent handle, CUstream stream, CUresult result)
{
	const struct event *e;
	CUcontext ctx;
	struct stream *s;

	if (!w->record || result || !uncaptured(w->captures))
		return result;
	ctx = current_context();
	pthread_mutex_lock(&pools_lock);
	s = stream_get(stream, ctx);
	e = event_find(handle);
	if (s && e && e->record == w->record && !e->left)
		stream_follow(s, &w->clock);
	pthread_mutex_unlock(&pools_lock);
	return result;
}

CUresult hook_cuEventRecord(CUevent hEvent, CUstream hStream)
{
	struct record record;

	record_begins(&record, hEvent, hStream);
	return record_ended(&record, hEvent, real.cuEventRecord(hEvent, hStream));
}

CUresult hook_cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
	struct record record;

	record_begins(&record, hEvent, per_thread(hStream));
	return record_ended(&record, hEvent, real.cuEventRecord_ptsz(hEvent, hStream));
}

/* CU_EVENT_RECORD_EXTERNAL makes a node of a graph. */
CUresult hook_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	struct record record;

	if (flags)
		pool_events_leave(hEvent);
	record_begins(&record, hEvent, hStream);
	return record_ended(&record, hEvent, real.cuEventRecordWithFlags(hEvent, hStream, flags));
}

CUresult hook_cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	struct record record;

	if (flags)
		pool_events_leave(hEvent);
	record_begins(&record, hEvent, per_thread(hStream));
	return record_ended(&record, hEvent,
			    real.cuEventRecordWithFlags_ptsz(hEvent, hStream, flags));
}

CUresult hook_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	struct wait wait;

	wait_begins(&wait, hEvent);
	return wait_ended(&wait, hEvent, hStream, real.cuStreamWaitEvent(hStream, hEvent, Flags));
}

CUresult hook_cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	struct wait wait;

	wait_begins(&wait, hEvent);
	return wait_ended(&wait, hEvent, per_thread(hStream),
			  real.cuStreamWaitEvent_ptsz(hStream, hEvent, Flags));
}

/* Its events have ended with it, and others may get their handles. */
static void context_ended(CUcontext ctx)
{
	struct event *e, *next;

	(void)ctx;
	pthread_mutex_lock(&pools_lock);
	HASH_ITER(hh, events, e, next)
		e->clock.count = 0;
	pthread_mutex_unlock(&pools_lock);
}
CONTEXT_GONE(context_ended);

static void forget_in_child(void)
{
	events = NULL;
	known = 0;
}
FORKS_CHILD(forget_in_child);
