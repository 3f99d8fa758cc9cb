/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/thread.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/queries.h"
#include "vmem/context_gone.h"
#include "wrapper/real.h"

#include <stdbool.h>
#include <stddef.h>

#define LOG_PREFIX "thread: "
#include "common/log.h"

enum known { KNOWS_CONTEXT = 1, KNOWS_DEVICE = 2 };

/* CU_STREAM_CAPTURE_MODE_GLOBAL, the mode of a new thread, is 0. */
static __thread struct {
	CUcontext ctx;
	CUdevice dev;
	unsigned int known;                    /* enum known */
	unsigned int gone;                     /* contexts_gone when it became known */
	bool set_at_rest;                      /* ctx: the driver was not told yet */
	CUstreamCaptureMode mode, driver_mode; /* they differ if the driver was not told yet */
} self __attribute__((tls_model("initial-exec")));

static unsigned int contexts_gone; /* a new context may have the handle of an old one */
static bool unseen;                /* a current context has changed without a call that we see */

void thread_forget_context(void)
{
	self.known = 0;
}

static void context_is_gone(CUcontext ctx)
{
	(void)ctx;
	__atomic_add_fetch(&contexts_gone, 1, __ATOMIC_RELAXED);
}
CONTEXT_GONE(context_is_gone);

static bool knows(enum known what)
{
	return self.known & what && self.gone == __atomic_load_n(&contexts_gone, __ATOMIC_RELAXED);
}

/* @keep: what else is known still holds. */
static void learn(unsigned int what, bool keep)
{
	unsigned int gone = __atomic_load_n(&contexts_gone, __ATOMIC_RELAXED);

	if (!keep || self.gone != gone)
		self.known = 0;
	self.known |= what;
	self.gone = gone;
}

static void changed_unseen(void)
{
	if (!__atomic_exchange_n(&unseen, true, __ATOMIC_RELAXED))
		pr_info("a current context has changed unseen: threads wait while the job is "
			"paused");
}

/* The driver said so. */
static void learn_context(CUcontext ctx)
{
	bool changed = self.ctx != ctx && knows(KNOWS_CONTEXT);

	if (changed)
		changed_unseen();
	self.ctx = ctx;
	learn(KNOWS_CONTEXT, !changed);
}

static void learn_device(CUdevice dev)
{
	if (self.dev != dev && knows(KNOWS_DEVICE))
		changed_unseen();
	self.dev = dev;
	learn(KNOWS_DEVICE, true);
}

CUresult hook_cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult result = real.cuCtxGetCurrent(pctx);

	if (!result && pctx)
		learn_context(*pctx);
	return result;
}

CUresult hook_cuCtxSetCurrent(CUcontext ctx)
{
	CUresult result = real.cuCtxSetCurrent(ctx);
	bool same = knows(KNOWS_CONTEXT) && self.ctx == ctx;

	self.ctx = ctx;
	learn(KNOWS_CONTEXT, same);
	/* NULL pops the current context: the one below is current then. */
	if (result || !ctx)
		thread_forget_context();
	return result;
}

CUresult hook_cuCtxGetDevice(CUdevice *device)
{
	CUresult result = real.cuCtxGetDevice(device);

	if (!result && device)
		learn_device(*device);
	return result;
}

/* @ctx may be any context, or NULL: the current one. */
CUresult hook_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	CUresult result = real.cuCtxGetDevice_v2(device, ctx);

	if (!result && device && (!ctx || (knows(KNOWS_CONTEXT) && self.ctx == ctx)))
		learn_device(*device);
	return result;
}

CUresult hook_cuCtxPushCurrent(CUcontext ctx)
{
	thread_forget_context();
	return real.cuCtxPushCurrent(ctx);
}

CUresult hook_cuCtxPushCurrent_v2(CUcontext ctx)
{
	thread_forget_context();
	return real.cuCtxPushCurrent_v2(ctx);
}

CUresult hook_cuCtxPopCurrent(CUcontext *pctx)
{
	thread_forget_context();
	return real.cuCtxPopCurrent(pctx);
}

CUresult hook_cuCtxPopCurrent_v2(CUcontext *pctx)
{
	thread_forget_context();
	return real.cuCtxPopCurrent_v2(pctx);
}

CUresult hook_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode wanted = mode ? *mode : self.mode;
	CUresult result = real.cuThreadExchangeStreamCaptureMode(mode);

	if (!result)
		self.mode = self.driver_mode = wanted;
	return result;
}

static bool is_known(enum known what)
{
	return knows(what) && !__atomic_load_n(&unseen, __ATOMIC_RELAXED);
}

bool rest_cuCtxGetCurrent(CUcontext *pctx, CUresult *ret)
{
	if (!pctx || !is_known(KNOWS_CONTEXT))
		return false;
	*pctx = self.ctx;
	*ret = CUDA_SUCCESS;
	return true;
}

/* Tell the driver what the thread has set at rest. */
static void tell_driver(void)
{
	CUstreamCaptureMode mode = self.mode;
	CUdevice dev;

	/* Another thread may have ended the context meanwhile. */
	if (self.set_at_rest && queries_context(self.ctx, &dev))
		real.cuCtxSetCurrent(self.ctx);
	self.set_at_rest = false;
	if (self.mode != self.driver_mode)
		real.cuThreadExchangeStreamCaptureMode(&mode);
	self.driver_mode = self.mode;
}

bool rest_cuCtxSetCurrent(CUcontext ctx, CUresult *ret)
{
	bool same = is_known(KNOWS_CONTEXT) && self.ctx == ctx;
	CUdevice dev;

	*ret = CUDA_SUCCESS;
	if (same)
		return true;
	if (__atomic_load_n(&unseen, __ATOMIC_RELAXED) || !queries_context(ctx, &dev))
		return false;
	self.ctx = ctx;
	self.dev = dev;
	learn(KNOWS_CONTEXT | KNOWS_DEVICE, false);
	self.set_at_rest = true;
	gate_call_later(tell_driver);
	return true;
}

bool rest_cuCtxGetDevice(CUdevice *device, CUresult *ret)
{
	if (!device || !is_known(KNOWS_DEVICE))
		return false;
	*device = self.dev;
	*ret = CUDA_SUCCESS;
	return true;
}

bool rest_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx, CUresult *ret)
{
	if (ctx && !(is_known(KNOWS_CONTEXT) && self.ctx == ctx))
		return false;
	return rest_cuCtxGetDevice(device, ret);
}

bool rest_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active, CUresult *ret)
{
	*ret = CUDA_SUCCESS;
	return flags && active && queries_primary(dev, flags, active);
}

bool rest_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode, CUresult *ret)
{
	CUstreamCaptureMode wanted;

	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	wanted = *mode;
	*mode = self.mode;
	self.mode = wanted;
	if (self.mode != self.driver_mode)
		gate_call_later(tell_driver);
	*ret = CUDA_SUCCESS;
	return true;
}
