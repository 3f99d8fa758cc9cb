/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/fence.h"
#include "checkpoint/ledger/captures.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "wrapper/hooks/ordered/entering.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <utlist.h>

#define FENCE_SIZE 512 /* what the driver rounds small allocations to */

/* A context that has an anchor, or in which a thread makes one. */
struct anchor {
	CUcontext ctx;
	struct anchor *next;
};

FORKS_LOCK(lock);
static struct anchor *anchors; /* under lock */
static CUcontext last;         /* one that has an anchor; under lock; also read without */

static bool captured; /* a capture has begun, or is about to begin */

/* False: there may be a capture. */
static bool synchronize(CUresult *result)
{
	struct entering self;
	bool allowed;

	entering_begin(&self);
	allowed = !__atomic_load_n(&captured, __ATOMIC_RELAXED);
	if (allowed)
		*result = real.cuCtxSynchronize();
	entering_end(&self);
	return allowed;
}

CUstreamCaptureMode fence_relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	/* If the mode is relaxed, or the call fails, there is nothing to set back. */
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

	/* In another mode the allocation might break a capture. */
	if (__atomic_load_n(&last, __ATOMIC_RELAXED) == ctx ||
	    real.cuThreadExchangeStreamCaptureMode(&mode))
		return;
	anchor(ctx);
	fence_unrelax(mode);
	remember(ctx);
}

void fence_before_capture(void)
{
	__atomic_store_n(&captured, true, __ATOMIC_RELAXED);
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
}
FORKS_CHILD(forget_in_child);
