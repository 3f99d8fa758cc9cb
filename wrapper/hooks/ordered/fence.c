/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/fence.h"
#include "checkpoint/ledger/captures.h"
#include "common/clock.h"
#include "common/forks.h"
#include "vmem/context_gone.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <utlist.h>

#define FENCE_SIZE 512 /* what the driver rounds small allocations to */
#define ENTER_MS   50  /* a thread that called the driver is inside it by then */

/* A context that has an anchor, or in which a thread makes one. */
struct anchor {
	CUcontext ctx;
	struct anchor *next;
};

FORKS_LOCK(lock);
static struct anchor *anchors; /* under lock */
static CUcontext last;         /* one that has an anchor; under lock; also read without */

static bool captured;              /* a capture has begun, or is about to begin */
static unsigned int synchronizing; /* threads that are about to call cuCtxSynchronize(), or in it */

/* Together with wait_for_entries(): a thread sees `captured`, or is seen in `synchronizing`. */
static bool synchronize(CUresult *result)
{
	bool allowed;

	__atomic_add_fetch(&synchronizing, 1, __ATOMIC_SEQ_CST);
	allowed = !__atomic_load_n(&captured, __ATOMIC_SEQ_CST);
	if (allowed)
		*result = real.cuCtxSynchronize();
	__atomic_sub_fetch(&synchronizing, 1, __ATOMIC_RELEASE);
	return allowed;
}

/*
 * The limit is for threads that are inside, and wait for work that waits for this thread: the
 * driver looks for captures at the begin of the call.
 */
static void wait_for_entries(void)
{
	double until = clock_ms() + ENTER_MS;

	while (__atomic_load_n(&synchronizing, __ATOMIC_SEQ_CST) && clock_ms() < until)
		sched_yield();
}

CUstreamCaptureMode fence_relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	/* If the mode is relaxed, or the call fails, there is nothing to set back. */
	if (__atomic_load_n(&captured, __ATOMIC_RELAXED))
		real.cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

void fence_unrelax(CUstreamCaptureMode mode)
{
	if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		real.cuThreadExchangeStreamCaptureMode(&mode);
}

static void forget(CUcontext ctx)
{
	struct anchor *a, *next;

	pthread_mutex_lock(&lock);
	LL_FOREACH_SAFE(anchors, a, next)
		if (a->ctx == ctx) {
			LL_DELETE(anchors, a);
			free(a);
		}
	if (last == ctx)
		__atomic_store_n(&last, NULL, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

CONTEXT_GONE(forget);

/* False: @ctx has an anchor, another thread makes it, or there is no host memory. */
static bool claim(CUcontext ctx)
{
	struct anchor *a, *fresh = NULL;

	pthread_mutex_lock(&lock);
	LL_SEARCH_SCALAR(anchors, a, ctx, ctx);
	if (!a)
		fresh = malloc(sizeof(*fresh));
	if (fresh) {
		fresh->ctx = ctx;
		LL_PREPEND(anchors, fresh);
	}
	pthread_mutex_unlock(&lock);
	return fresh;
}

/* If @ctx has an anchor, or another thread makes it, it need not be looked for again. */
static void remember(CUcontext ctx)
{
	const struct anchor *a;

	pthread_mutex_lock(&lock);
	LL_SEARCH_SCALAR(anchors, a, ctx, ctx);
	if (a)
		__atomic_store_n(&last, ctx, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

/* Give @ctx, to which new memory belongs, an anchor. The thread is in relaxed mode. */
static void anchor(CUcontext ctx)
{
	CUdeviceptr ptr;

	if (claim(ctx) && real.cuMemAlloc_v2(&ptr, FENCE_SIZE))
		forget(ctx);
}

void fence_reserve(CUcontext ctx)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	/* Not fence_relax(): the first capture may begin now. */
	if (__atomic_load_n(&last, __ATOMIC_RELAXED) == ctx ||
	    real.cuThreadExchangeStreamCaptureMode(&mode))
		return;
	anchor(ctx);
	fence_unrelax(mode);
	remember(ctx);
}

void fence_before_capture(void)
{
	if (!__atomic_exchange_n(&captured, true, __ATOMIC_SEQ_CST))
		wait_for_entries();
}

CUresult fence_wait(CUcontext ctx)
{
	CUstreamCaptureMode mode;
	CUdeviceptr fence;
	CUresult result;

	if (synchronize(&result))
		return result;
	mode = fence_relax();
	anchor(ctx);
	result = real.cuMemAlloc_v2(&fence, FENCE_SIZE);
	if (!result)
		result = real.cuMemFree_v2(fence);
	fence_unrelax(mode);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && !captures_open(driver_table()))
		result = real.cuCtxSynchronize();
	return result;
}

static void forget_in_child(void)
{
	anchors = NULL;
	last = NULL;
	captured = false;
	synchronizing = 0;
}
FORKS_CHILD(forget_in_child);
