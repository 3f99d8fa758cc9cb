/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that begin and end contexts, and peer access. Memory belongs to its context, and ends
 * with it.
 */
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/ledger/green.h"
#include "common/system/forks.h"
#include "common/gpu/gpu.h"
#include "vmem/context_gone.h"
#include "vmem/vmem.h"
#include "wrapper/context_lock.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/hooks/sharing/host_memory.h"
#include "wrapper/hooks/thread.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <stddef.h>

/*
 * Serialises the creation and the end of contexts, so that the driver does not give the handle of
 * an ended context to a new one before the modules have forgotten the old one. It is held across
 * the real calls, also while a destroy waits for the GPU, and across the waits for a drain that is
 * inside the context (contexts_ending()) and for threads that give back or keep its memory
 * (pool_givers_wait_of()). That is safe: in these calls the driver calls no function of the program
 * that may make CUDA calls, no other lock is held when this one is taken, and a thread that waits
 * for it is inside the gate like its holder, so a pause waits for both. Primary contexts that the
 * CUDA runtime retains through its own tables are not seen.
 */
FORKS_LOCK(lifetimes);

static bool has_ends; /* under lifetimes: its holder has ends, too */

static void lock(void)
{
	pthread_mutex_lock(&lifetimes);
}

static void lock_ends(void)
{
	context_lock();
	lock();
	has_ends = true;
}

/* Unlocks, as do the other functions that take a result. */
static CUresult unlocked(CUresult result)
{
	bool both = has_ends;

	has_ends = false;
	pthread_mutex_unlock(&lifetimes);
	if (both)
		context_unlock();
	host_memory_context_came();
	return result;
}

/* Lock, until created(). False, and not locked: no host memory for one more context. */
static bool lock_to_create(void)
{
	lock();
	if (contexts_reserve())
		return true;
	unlocked(CUDA_SUCCESS);
	return false;
}

static CUresult created(CUresult result, const CUcontext *ctx, CUdevice dev)
{
	if (!result)
		contexts_add(*ctx, dev);
	thread_forget_context();
	return unlocked(result);
}

CUresult hook_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	if (!lock_to_create())
		return CUDA_ERROR_OUT_OF_MEMORY;
	return created(real.cuCtxCreate(pctx, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	if (!lock_to_create())
		return CUDA_ERROR_OUT_OF_MEMORY;
	return created(real.cuCtxCreate_v2(pctx, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
			     unsigned int flags, CUdevice dev)
{
	if (!lock_to_create())
		return CUDA_ERROR_OUT_OF_MEMORY;
	return created(real.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
			     unsigned int flags, CUdevice dev)
{
	if (!lock_to_create())
		return CUDA_ERROR_OUT_OF_MEMORY;
	return created(real.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev), pctx, dev);
}

static void ending(CUcontext ctx)
{
	contexts_ending(ctx);
	captures_context_ending(ctx);
	streams_context_ending(ctx);
}

static void lock_to_end(CUcontext ctx)
{
	lock_ends();
	ending(ctx);
}

/* Unlocks after ending(): @ctx has not ended. */
static CUresult lives(CUresult result, CUcontext ctx)
{
	captures_context_lives(ctx);
	streams_context_lives(ctx);
	return unlocked(result);
}

static CUresult destroyed(CUresult result, CUcontext ctx)
{
	if (result)
		return lives(result, ctx);
	contexts_remove(ctx);
	context_gone(ctx);
	return unlocked(result);
}

CUresult hook_cuCtxDestroy(CUcontext ctx)
{
	lock_to_end(ctx);
	return destroyed(real.cuCtxDestroy(ctx), ctx);
}

CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
	lock_to_end(ctx);
	return destroyed(real.cuCtxDestroy_v2(ctx), ctx);
}

/* The context lives on if cuCtxAttach() was called for it. */
CUresult hook_cuCtxDetach(CUcontext ctx)
{
	CUresult result, state;
	unsigned int version;

	lock_to_end(ctx);
	result = real.cuCtxDetach(ctx);
	if (result)
		return lives(result, ctx);
	state = real.cuCtxGetApiVersion(ctx, &version);
	if (state == CUDA_ERROR_INVALID_CONTEXT || state == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return destroyed(result, ctx);
	return lives(result, ctx);
}

static bool is_active(CUdevice dev)
{
	unsigned int flags;
	int active = 0;

	return !real.cuDevicePrimaryCtxGetState(dev, &flags, &active) && active;
}

/*
 * How many references to the primary context of @dev the program has, under lifetimes. There may be
 * others, which no hook saw. A context that is not active has none.
 */
static unsigned int *references(CUdevice dev)
{
	static unsigned int counts[GPU_MAX], of_others;
	bool counted = dev >= 0 && dev < GPU_MAX;
	unsigned int *count = counted ? &counts[dev] : &of_others;

	if (!counted || !is_active(dev))
		*count = 0;
	return count;
}

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	unsigned int *count;
	CUresult result;

	lock();
	count = references(dev);
	result = real.cuDevicePrimaryCtxRetain(pctx, dev);
	*count += !result;
	if (!result)
		contexts_set_primary(dev, true);
	return unlocked(result);
}

/*
 * The primary context of @dev; NULL: it is not active, and must not become so here. A kernel's fault
 * does not fail the question [H200, driver 580.159].
 */
static CUcontext primary_context(CUdevice dev)
{
	CUcontext ctx = NULL;

	if (!is_active(dev) || real.cuDevicePrimaryCtxRetain(&ctx, dev))
		return NULL;
	real.cuDevicePrimaryCtxRelease_v2(dev);
	return ctx;
}

static CUresult primary_ended(CUdevice dev, CUcontext ctx)
{
	contexts_set_primary(dev, false);
	context_gone(ctx);
	return unlocked(CUDA_SUCCESS);
}

static CUresult release_primary(CUdevice dev, CUresult (*release)(CUdevice dev))
{
	unsigned int *count;
	CUcontext ctx;
	CUresult result;

	lock_ends();
	ctx = primary_context(dev);
	count = references(dev);
	/* Without cudaw, a release that is not the last one waits for nothing. */
	if (*count < 2)
		ending(ctx);
	result = release(dev);
	*count -= !result && *count;
	if (result || !ctx || primary_context(dev))
		return lives(result, ctx);
	return primary_ended(dev, ctx);
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return release_primary(dev, real.cuDevicePrimaryCtxRelease);
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return release_primary(dev, real.cuDevicePrimaryCtxRelease_v2);
}

static CUresult reset_primary(CUdevice dev, CUresult (*reset)(CUdevice dev))
{
	CUcontext ctx;
	CUresult result;

	lock_ends();
	ctx = primary_context(dev);
	ending(ctx);
	result = reset(dev);
	if (result || !ctx)
		return lives(result, ctx);
	*references(dev) = 0;
	return primary_ended(dev, ctx);
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice dev)
{
	return reset_primary(dev, real.cuDevicePrimaryCtxReset);
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return reset_primary(dev, real.cuDevicePrimaryCtxReset_v2);
}

CUresult hook_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	CUresult result = real.cuCtxFromGreenCtx(pContext, hCtx);

	if (!result)
		green_set_context(hCtx, *pContext);
	return result;
}

/*
 * It retains the primary context of @dev. We ask for its own context at once: the program may get that from a
 * stream, too.
 */
CUresult hook_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			       unsigned int flags)
{
	CUcontext ctx;
	CUresult result;

	lock();
	if (!green_reserve())
		return unlocked(CUDA_ERROR_OUT_OF_MEMORY);
	result = real.cuGreenCtxCreate(phCtx, desc, dev, flags);
	if (!result) {
		green_add(*phCtx, primary_context(dev), dev);
		hook_cuCtxFromGreenCtx(&ctx, *phCtx);
	}
	return unlocked(result);
}

static CUresult destroy_green(const struct green *g)
{
	CUcontext primary = primary_context(g->dev);
	CUresult result;

	captures_context_ending(g->ctx);
	/* Its reference to the primary context may be the last one. */
	if (!*references(g->dev))
		ending(primary);
	result = real.cuGreenCtxDestroy(g->handle);
	if (result) {
		captures_context_lives(g->ctx);
		return lives(result, primary);
	}
	green_remove(g->handle);
	captures_remove_context(g->ctx);
	streams_green_ended(g->ctx);
	if (!primary || primary_context(g->dev))
		return lives(result, primary);
	return primary_ended(g->dev, primary);
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct green g;

	lock_ends();
	if (green_get(hCtx, &g))
		return destroy_green(&g);
	return unlocked(real.cuGreenCtxDestroy(hCtx));
}

static CUresult device_of(CUcontext ctx, CUdevice *dev)
{
	CUresult result = real.cuCtxPushCurrent_v2(ctx);

	if (result)
		return result;
	result = real.cuCtxGetDevice(dev);
	real.cuCtxPopCurrent_v2(&ctx);
	return result;
}

/* The driver allowed it. If the memory cannot be made accessible, it does not stay allowed. */
static CUresult peer_enabled(CUcontext peer)
{
	CUcontext ctx = NULL;
	CUdevice dev, owner;
	CUresult result;

	if (!driver_table() || real.cuCtxGetCurrent(&ctx) || real.cuCtxGetDevice(&dev) ||
	    device_of(peer, &owner))
		return CUDA_SUCCESS;
	result = vmem_access_enable(green_owner(ctx), dev, green_owner(peer), owner);
	if (result)
		real.cuCtxDisablePeerAccess(peer);
	return result;
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	CUresult result = real.cuCtxEnablePeerAccess(peerContext, Flags);

	return result ? result : peer_enabled(peerContext);
}

CUresult hook_cuCtxDisablePeerAccess(CUcontext peerContext)
{
	CUresult result = real.cuCtxDisablePeerAccess(peerContext);
	CUcontext ctx = NULL;

	if (result || real.cuCtxGetCurrent(&ctx))
		return result;
	return vmem_access_disable(green_owner(ctx), green_owner(peerContext));
}
