/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/frees.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/green.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "vmem/trimming.h"
#include "vmem/vmem.h"
#include "wrapper/current.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <utlist.h>

#define PATIENCE 16 /* with frees that are too early, in a collection of FREES_FEW */

/* Memory that the program has freed, while work on the GPU may still use it: vmem keeps it. */
struct waiting_free {
	struct vmem_info info; /* its ctx is NULL: the memory has gone with it */
	CUcontext ctx; /* whose work must end first, no green one; NULL: it has ended with that */
	CUevent event; /* of ctx, which follows the work; NULL: all work of ctx */
	bool asked; /* a thread makes it, or asks whether the work has ended: it stays in the list */
	struct waiting_free *prev, *next;
};

/* Under pools_lock: */
static struct waiting_free *list;
static size_t count; /* also read without */

static void add(struct waiting_free *f)
{
	DL_APPEND(list, f);
	__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
}

static void take_out(struct waiting_free *f)
{
	DL_DELETE(list, f);
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
}

static struct stream *stream_of(CUcontext ctx)
{
	const struct key key = stream_key(CU_STREAM_LEGACY, ctx);

	return stream_find(&key);
}

/*
 * With pools_lock held: as long as its legacy stream, *@held, is in use, @ctx (NULL: none) does not end. False:
 * it is about to, or may be.
 */
static bool hold(CUcontext ctx, struct stream **held)
{
	struct stream *s = ctx ? stream_of(ctx) : NULL;

	*held = s && !s->ending ? s : NULL;
	if (*held)
		s->users++;
	return !ctx || *held;
}

static void let_go(struct stream *held)
{
	if (held)
		stream_end_use(held);
}

/* With the context of @f current: CUDA_SUCCESS once the work that may use the memory has ended. */
static CUresult work_ended(const struct waiting_free *f)
{
	if (!f->ctx)
		return CUDA_SUCCESS;
	return f->event ? real.cuEventQuery(f->event) : fence_wait(f->ctx);
}

/* False: it is too early, or the driver refuses. */
static bool finish(const struct waiting_free *f)
{
	CUstreamCaptureMode mode = fence_relax();
	bool pushed;
	CUresult result = current_enter(f->ctx, &pushed);

	if (!result)
		result = work_ended(f);
	if (!result && f->info.ctx)
		result = vmem_free_kept(f->info.start);
	if (!result && f->event)
		real.cuEventDestroy_v2(f->event);
	current_leave(pushed);
	fence_unrelax(mode);
	return !result;
}

/* The contexts of @f, of its work and of its memory. */
struct held {
	struct stream *work, *memory;
};

/* With pools_lock held; releases it meanwhile, and @held. True: @f is gone. *@next is the one behind it. */
static bool ask(struct waiting_free *f, const struct held *held, struct waiting_free **next)
{
	struct pool_giver giver;
	bool done;

	f->asked = true;
	pool_giver_begins(&giver, NULL);
	pthread_mutex_unlock(&pools_lock);
	done = finish(f);
	pthread_mutex_lock(&pools_lock);
	pool_giver_ends(&giver);
	let_go(held->work);
	let_go(held->memory);
	if (!list) { /* the child of a fork() in a handler has forgotten it */
		*next = NULL;
		return true;
	}
	f->asked = false;
	*next = f->next;
	if (!done)
		return false;
	take_out(f);
	free(f);
	return true;
}

/*
 * True if the question whether the work of @f has ended has an answer at once, or may be waited for.
 * Work may wait for a thread, also for the one that has freed, and then that thread must not wait for
 * the work: natively only a free does. @freeing: the caller is about to wait for all work of that
 * context; or NULL.
 */
static bool may_ask(const struct waiting_free *f, enum frees_effort effort, CUcontext freeing)
{
	if (f->asked)
		return false;
	return f->event || !f->ctx || f->ctx == freeing || effort == FREES_PASSED;
}

/* With pools_lock held: both contexts of @f are held, or none. */
static bool hold_both(const struct waiting_free *f, struct held *held)
{
	if (!hold(f->ctx, &held->work))
		return false;
	if (hold(f->info.ctx, &held->memory))
		return true;
	let_go(held->work);
	return false;
}

/* With pools_lock held. Gives up after some that are too early; the next call asks about others. */
static void collect_passed(enum frees_effort effort, CUcontext freeing)
{
	size_t patience = effort == FREES_FEW ? PATIENCE : SIZE_MAX;
	struct waiting_free *f = list, *next;
	struct held held;

	for (size_t left = count; f && left && patience; left--, f = next) {
		if (!may_ask(f, effort, freeing) || !hold_both(f, &held)) {
			next = f->next;
		} else if (!ask(f, &held, &next)) {
			DL_DELETE(list, f);
			DL_APPEND(list, f);
			patience--;
		}
	}
}

static void collect(enum frees_effort effort, CUcontext freeing)
{
	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&pools_lock);
	collect_passed(effort, freeing);
	/* Another thread may be giving back what the caller lacks. */
	if (effort == FREES_PASSED)
		pool_givers_wait();
	pthread_mutex_unlock(&pools_lock);
}

void frees_collect(enum frees_effort effort)
{
	collect(effort, NULL);
}

/* vmem gives back what nobody uses: so do frees. In a pause all work on the GPU has ended. */
static void trimming(void)
{
	collect(FREES_EVENTS, NULL);
}
VMEM_TRIMMING(trimming);

size_t frees_put_off(CUdevice dev)
{
	const struct waiting_free *f;
	size_t sum = 0;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return 0;
	pthread_mutex_lock(&pools_lock);
	DL_FOREACH(list, f)
		if (f->ctx && !f->event && !f->asked && f->info.dev == dev)
			sum += f->info.size;
	pthread_mutex_unlock(&pools_lock);
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
		result = vmem_free(info->start, info->id);
	fence_unrelax(mode);
	return result;
}

/* With pools_lock held: the memory of @b (NULL: of other memory) is no pool's any more. */
static void leave_pool(struct pool_block *b)
{
	if (!b)
		return;
	pool_block_end_use(b);
	stream_let_go(b);
	pool_block_remove(b);
	free(b);
}

/*
 * With pools_lock held; releases it meanwhile. vmem keeps the memory of @f. Until then that is an allocation of a
 * pool, if it is one, and afterwards another thread may give its address to others at any time.
 */
static CUresult keep(struct waiting_free *f)
{
	struct pool_block *b = pool_block_find(f->info.start);
	struct pool_giver giver;
	CUresult result;

	if (b && (b->list || b->moving))
		return CUDA_ERROR_INVALID_VALUE;
	if (b)
		b->moving = true;
	pool_giver_begins(&giver, f->info.ctx);
	pthread_mutex_unlock(&pools_lock);
	result = vmem_keep(f->info.start, f->info.id);
	pthread_mutex_lock(&pools_lock);
	pool_giver_ends(&giver);
	if (!list) /* as in ask() */
		return result;
	if (b)
		b->moving = false;
	if (!result)
		leave_pool(b);
	return result;
}

/*
 * With pools_lock held, which it releases to learn about them: the contexts that @f names are known, by their
 * legacy streams. If there is no host memory for one, the memory of @f is there all the same.
 */
static CUresult know_contexts(const struct waiting_free *f)
{
	struct vmem_info now;

	stream_get(CU_STREAM_LEGACY, f->ctx);
	stream_get(CU_STREAM_LEGACY, f->info.ctx);
	if (stream_of(f->ctx) && stream_of(f->info.ctx))
		return CUDA_SUCCESS;
	return vmem_lookup(f->info.start, &now) && now.id == f->info.id ? CUDA_ERROR_OUT_OF_MEMORY
									: CUDA_ERROR_INVALID_VALUE;
}

/*
 * @f enters the list, before it has its event and vmem keeps its memory. Nobody asks about it yet; but if a context
 * ends meanwhile, it is taken out of @f.
 */
static CUresult free_begins(struct waiting_free *f)
{
	CUresult result;

	pthread_mutex_lock(&pools_lock);
	result = know_contexts(f);
	if (!result) {
		f->asked = true;
		add(f);
	}
	pthread_mutex_unlock(&pools_lock);
	return result;
}

/*
 * The memory of @f is free for the program, and waits for @event (NULL: all work) of f->ctx, unless that has ended,
 * and @event with it. On failure @f is in no list, nor if @result is one.
 */
static CUresult free_ends(struct waiting_free *f, CUevent event, CUresult result)
{
	pthread_mutex_lock(&pools_lock);
	if (f->ctx)
		f->event = event;
	if (!result)
		result = keep(f);
	f->asked = false;
	if (result && list)
		take_out(f);
	pthread_mutex_unlock(&pools_lock);
	return result;
}

static CUresult free_later(const struct vmem_info *info)
{
	struct waiting_free *f = calloc(1, sizeof(*f));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (f) {
		*f = (struct waiting_free){.info = *info, .ctx = info->ctx};
		result = free_begins(f);
		if (!result)
			result = free_ends(f, NULL, CUDA_SUCCESS);
	}
	if (result)
		free(f);
	return result;
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

/* With the stream's context current: an event that follows the stream's work. On failure it is NULL. */
static CUresult record(CUstream stream, CUevent *event)
{
	CUresult result = real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);

	if (result) {
		*event = NULL;
		return result;
	}
	result = real.cuEventRecord(*event, stream);
	if (result) {
		real.cuEventDestroy_v2(*event);
		*event = NULL;
	}
	return result;
}

/* Replace @event by one of @ctx that follows it. On failure it is NULL. */
static CUresult hand_over(CUevent *event, CUcontext ctx)
{
	CUevent old = *event;
	CUstream stream;
	bool pushed;
	CUresult result = current_enter(ctx, &pushed);

	*event = NULL;
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

/* The same. Free the memory of @f after the work that @stream has. */
static CUresult record_and_keep(CUstream stream, CUcontext ctx, struct waiting_free *f)
{
	CUcontext owner = f->ctx;
	CUevent event = NULL;
	CUresult result = free_begins(f);

	if (result)
		return result;
	result = record_for_owner(stream, ctx, owner, &event);
	/* For an event, which the driver does not need: the whole context of the stream is waited for. */
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		result = CUDA_SUCCESS;
	result = free_ends(f, event, result);
	if (result && f->event)
		real.cuEventDestroy_v2(f->event);
	return result;
}

static CUresult free_after(CUstream stream, struct waiting_free *f)
{
	CUcontext ctx = NULL;
	bool pushed;
	CUresult result;

	real.cuCtxGetCurrent(&ctx);
	if (!stream_is_default(stream))
		real.cuStreamGetCtx(stream, &ctx);
	f->ctx = green_owner(ctx);
	result = current_enter(ctx, &pushed);
	if (!result)
		result = record_and_keep(stream, ctx, f);
	current_leave(pushed);
	return result;
}

CUresult frees_ordered(CUdeviceptr ptr, CUstream stream)
{
	CUstreamCaptureMode mode;
	struct waiting_free *f;
	struct vmem_info info;
	CUresult result;

	if (!vmem_lookup(ptr, &info) || info.start != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	result = frees_refuse_captured(stream);
	if (result)
		return result;
	f = calloc(1, sizeof(*f));
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f->info = info;
	mode = fence_relax();
	result = free_after(stream, f);
	fence_unrelax(mode);
	if (result)
		free(f);
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

/*
 * Its work has ended with it, and its events and its memory are gone. No thread asks about them. Who finds the context
 * by its streams, and adds a free under the same lock, is before this.
 */
static void context_ended(CUcontext ctx)
{
	struct waiting_free *f;

	pthread_mutex_lock(&pools_lock);
	streams_context_ended(ctx);
	DL_FOREACH(list, f) {
		if (f->ctx == ctx) {
			f->ctx = NULL;
			f->event = NULL;
		}
		if (f->info.ctx == ctx)
			f->info.ctx = NULL;
	}
	pthread_mutex_unlock(&pools_lock);
}
CONTEXT_GONE(context_ended);

static void forget_in_child(void)
{
	list = NULL;
	count = 0;
}
FORKS_CHILD(forget_in_child);
