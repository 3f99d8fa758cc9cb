/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/frees.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/green.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "vmem/vmem.h"
#include "wrapper/current.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <utlist.h>

#define PATIENCE 16 /* with frees that are too early, in a collection of FREES_FEW */

/* An allocation that is retired. */
struct retired {
	struct vmem_info info;
	CUcontext ctx; /* whose work must end first, no green one; NULL: it has ended with that */
	CUevent event; /* of ctx, which follows the work; NULL: all work of ctx */
	bool ending;   /* no thread may ask: ctx may end */
	/* The number of the question whether the work has ended, which a thread asks; 0: none does.
	 * Meanwhile it stays in the list. */
	uint64_t asked;
	struct retired *prev, *next;
};

FORKS_LOCK(lock);
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER; /* no thread asks about one any more */
static struct retired *list;                               /* under lock */
static size_t count;                                       /* under lock; also read without */
static uint64_t questions;                                 /* under lock; so many have begun */

static void add(struct retired *r)
{
	pthread_mutex_lock(&lock);
	DL_APPEND(list, r);
	__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

static void remove_locked(struct retired *r)
{
	DL_DELETE(list, r);
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
	free(r);
}

/* With the context of @r current: CUDA_SUCCESS once the work that may use the memory has ended. */
static CUresult work_ended(const struct retired *r)
{
	if (!r->ctx)
		return CUDA_SUCCESS;
	return r->event ? real.cuEventQuery(r->event) : fence_wait(r->ctx);
}

/* False: it is too early, or the driver refuses. */
static bool finish(const struct retired *r)
{
	CUstreamCaptureMode mode = fence_relax();
	bool pushed;
	CUresult result = current_enter(r->ctx, &pushed);

	if (!result)
		result = work_ended(r);
	if (!result) {
		result = vmem_free_retired(&r->info);
		/* An invalid one has gone with its context. */
		if (result == CUDA_ERROR_INVALID_VALUE)
			result = CUDA_SUCCESS;
	}
	if (!result && r->event)
		real.cuEventDestroy_v2(r->event);
	current_leave(pushed);
	fence_unrelax(mode);
	return !result;
}

/* With lock held; releases it meanwhile. True: @r is gone. *@next is the one behind it. */
static bool ask(struct retired *r, struct retired **next)
{
	bool done;

	r->asked = ++questions;
	pthread_mutex_unlock(&lock);
	done = finish(r);
	pthread_mutex_lock(&lock);
	r->asked = 0;
	*next = r->next;
	if (done)
		remove_locked(r);
	pthread_cond_broadcast(&answered);
	return done;
}

/*
 * True if the question whether the work of @r has ended has an answer at once, or may be waited for.
 * Work may wait for a thread, also for the one that has freed, and then that thread must not wait for
 * the work: natively only a free does. @freeing: the caller is about to wait for all work of that
 * context; or NULL.
 */
static bool may_ask(const struct retired *r, enum frees_effort effort, CUcontext freeing)
{
	if (r->ending || r->asked)
		return false;
	return r->event || !r->ctx || r->ctx == freeing || effort == FREES_PASSED;
}

/* With lock held. Gives up after some that are too early; the next call asks about others. */
static void collect_passed(enum frees_effort effort, CUcontext freeing)
{
	size_t patience = effort == FREES_FEW ? PATIENCE : SIZE_MAX;
	struct retired *r = list, *next;

	for (size_t left = count; r && left && patience; left--, r = next) {
		if (!may_ask(r, effort, freeing)) {
			next = r->next;
		} else if (!ask(r, &next)) {
			DL_DELETE(list, r);
			DL_APPEND(list, r);
			patience--;
		}
	}
}

/* With lock held: whether one of the questions up to @last has no answer yet. */
static bool any_asked(uint64_t last)
{
	const struct retired *r;

	DL_FOREACH(list, r)
		if (r->asked && r->asked <= last)
			break;
	return r;
}

static void collect(enum frees_effort effort, CUcontext freeing)
{
	uint64_t last;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	collect_passed(effort, freeing);
	/* Another thread may be giving back what the caller lacks. New questions come all the time. */
	last = questions;
	while (effort == FREES_PASSED && any_asked(last))
		pthread_cond_wait(&answered, &lock);
	pthread_mutex_unlock(&lock);
}

void frees_collect(enum frees_effort effort)
{
	collect(effort, NULL);
}

size_t frees_put_off(CUdevice dev)
{
	const struct retired *r;
	size_t sum = 0;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return 0;
	pthread_mutex_lock(&lock);
	DL_FOREACH(list, r)
		if (r->ctx && !r->event && !r->asked && r->info.dev == dev)
			sum += r->info.size;
	pthread_mutex_unlock(&lock);
	return sum;
}

/* As cudaFree() does: first wait for all work of the context, which may still use the memory. */
static CUresult wait_and_free(const struct vmem_info *info)
{
	CUstreamCaptureMode mode = fence_relax();
	bool pushed;
	CUresult result = current_enter(info->ctx, &pushed);

	if (!result)
		result = fence_wait(info->ctx);
	current_leave(pushed);
	if (!result)
		result = vmem_free(info->start);
	fence_unrelax(mode);
	return result;
}

/* Retire the allocation at @ptr until @r's work has ended; takes @r over. */
static CUresult retire(CUdeviceptr ptr, struct retired *r)
{
	CUresult result = vmem_retire(ptr, &r->info);

	if (result)
		free(r);
	else
		add(r);
	return result;
}

static CUresult free_later(const struct vmem_info *info)
{
	struct retired *r = calloc(1, sizeof(*r));

	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r->ctx = info->ctx;
	return retire(info->start, r);
}

CUresult frees_refuse_captured(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = CUDA_SUCCESS;

	if (captures_open(driver_table()))
		result = real.cuStreamIsCapturing(stream, &status);
	if (!result && status != CU_STREAM_CAPTURE_STATUS_NONE)
		result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

/* With the stream's context current: an event that follows the stream's work. */
static CUresult record(CUstream stream, CUevent *event)
{
	CUresult result = real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);

	if (result)
		return result;
	result = real.cuEventRecord(*event, stream);
	if (result)
		real.cuEventDestroy_v2(*event);
	return result;
}

/* Replace @event by one of @ctx that follows it. On failure there is none. */
static CUresult hand_over(CUevent *event, CUcontext ctx)
{
	CUevent old = *event;
	CUstream stream;
	bool pushed;
	CUresult result = current_enter(ctx, &pushed);

	if (!result)
		result = real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	if (!result) {
		result = real.cuStreamWaitEvent(stream, old, 0);
		if (!result)
			result = record(stream, event);
		/* It ends once it has done its work. */
		real.cuStreamDestroy_v2(stream);
	}
	current_leave(pushed);
	real.cuEventDestroy_v2(old);
	return result;
}

/* With @ctx, that of @stream, current. The event of a green context would end before the memory. */
static CUresult record_for_owner(CUstream stream, CUcontext ctx, CUcontext owner, CUevent *event)
{
	CUresult result = record(stream, event);

	return result || ctx == owner ? result : hand_over(event, owner);
}

/* Free the allocation at @ptr after the work that @stream has; takes @r over. */
static CUresult free_after(CUdeviceptr ptr, CUstream stream, struct retired *r)
{
	CUcontext ctx = NULL;
	CUevent event;
	bool pushed;
	CUresult result;

	real.cuCtxGetCurrent(&ctx);
	if (!stream_is_default(stream))
		real.cuStreamGetCtx(stream, &ctx);
	r->ctx = green_owner(ctx);
	result = current_enter(ctx, &pushed);
	if (!result)
		result = record_for_owner(stream, ctx, r->ctx, &event);
	/* For an event, which the driver does not need: the whole context of the stream is waited for. */
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		result = retire(ptr, r);
	} else if (result) {
		free(r);
	} else {
		r->event = event;
		result = retire(ptr, r);
		if (result)
			real.cuEventDestroy_v2(event);
	}
	current_leave(pushed);
	return result;
}

CUresult frees_ordered(CUdeviceptr ptr, CUstream stream)
{
	CUstreamCaptureMode mode;
	struct vmem_info info;
	struct retired *r;
	CUresult result;

	if (!vmem_lookup(ptr, &info) || info.start != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	result = frees_refuse_captured(stream);
	if (result)
		return result;
	r = calloc(1, sizeof(*r));
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mode = fence_relax();
	result = free_after(ptr, stream, r);
	fence_unrelax(mode);
	return result;
}

CUresult frees_now(CUdeviceptr ptr)
{
	struct vmem_info info;
	CUresult result;

	if (!vmem_lookup(ptr, &info) || info.start != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	collect(FREES_FEW, info.ctx);
	result = wait_and_free(&info);
	return result == CUDA_ERROR_OUT_OF_MEMORY ? free_later(&info) : result;
}

/* With lock held. */
static void set_ending(CUcontext ctx, bool ending)
{
	struct retired *r;

	DL_FOREACH(list, r)
		if (r->ctx == ctx)
			r->ending = ending;
}

/* With lock held: one whose event of @ctx a thread asks about. */
static struct retired *find_asked(CUcontext ctx)
{
	struct retired *r;

	DL_FOREACH(list, r)
		if (r->ctx == ctx && r->asked)
			break;
	return r;
}

/* With lock held; releases it while it waits. */
static void end_questions(CUcontext ctx)
{
	set_ending(ctx, true);
	while (find_asked(ctx))
		pthread_cond_wait(&answered, &lock);
}

void frees_context_ending(CUcontext ctx)
{
	if (!ctx || !__atomic_load_n(&count, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	end_questions(ctx);
	pthread_mutex_unlock(&lock);
}

void frees_context_lives(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	set_ending(ctx, false);
	pthread_mutex_unlock(&lock);
}

/* The context's work has ended with it, and the events are gone. */
static void context_ended(CUcontext ctx)
{
	struct retired *r;

	pthread_mutex_lock(&lock);
	end_questions(ctx);
	set_ending(ctx, false);
	DL_FOREACH(list, r)
		if (r->ctx == ctx) {
			r->ctx = NULL;
			r->event = NULL;
		}
	pthread_mutex_unlock(&lock);
}
CONTEXT_GONE(context_ended);

static void forget_in_child(void)
{
	pthread_cond_init(&answered, NULL);
	list = NULL;
	count = 0;
}
FORKS_CHILD(forget_in_child);
