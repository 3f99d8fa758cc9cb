/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/thread.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/queries.h"
#include "vmem/context_gone.h"
#include "wrapper/hooks/sharing/host_memory.h"
#include "wrapper/real.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LOG_PREFIX "thread: "
#include "common/log.h"

#define STACK 8 /* contexts that are known of a thread's stack */

/* The mode of a new thread is 0, CU_STREAM_CAPTURE_MODE_GLOBAL. */
static __thread struct {
	/* The thread's stack of contexts. The last of @n is current; below the first are others,
	 * unless @bottom. */
	CUcontext stack[STACK];
	unsigned int n;
	bool bottom;
	bool knows_dev;
	CUdevice dev;      /* of the current context */
	unsigned int gone; /* contexts_gone when it became known */

	/* Until the driver is told: it has @same of the stack, and @pops above them. The next is set
	 * in the place of the driver's current context if @sets; all others are pushed. */
	bool owes;
	unsigned int same, pops;
	bool sets;

	CUstreamCaptureMode mode, driver_mode; /* they differ if the driver was not told yet */
} self __attribute__((tls_model("initial-exec")));

static unsigned int contexts_gone; /* a new context may have the handle of an old one */
static bool unseen;                /* a current context has changed without a call that we see */

static void forget(void)
{
	self.n = 0;
	self.bottom = self.knows_dev = self.owes = false;
}

void thread_forget_context(void)
{
	forget();
}

static void context_is_gone(CUcontext ctx)
{
	(void)ctx;
	__atomic_add_fetch(&contexts_gone, 1, __ATOMIC_RELAXED);
}
CONTEXT_GONE(context_is_gone);

/* False: what the driver has to be told was learnt before a context ended. */
static bool is_fresh(void)
{
	unsigned int gone = __atomic_load_n(&contexts_gone, __ATOMIC_RELAXED);

	if (self.gone == gone)
		return true;
	if (self.owes)
		return false;
	forget();
	self.gone = gone;
	return true;
}

/* True if the current context is known, which may be none: *@ctx. */
static bool knows_context(CUcontext *ctx)
{
	*ctx = self.n ? self.stack[self.n - 1] : NULL;
	return self.n || self.bottom;
}

static void push(CUcontext ctx)
{
	if (self.n == STACK) {
		self.bottom = false;
		self.n--;
		memmove(self.stack, self.stack + 1, self.n * sizeof(self.stack[0]));
	}
	self.stack[self.n++] = ctx;
	self.knows_dev = false;
}

static void pop(void)
{
	if (self.n)
		self.n--;
	self.knows_dev = false;
}

/* @ctx takes the place of the current context. */
static void replace(CUcontext ctx)
{
	if (self.n)
		self.n--;
	push(ctx);
}

static void changed_unseen(void)
{
	forget();
	if (!__atomic_exchange_n(&unseen, true, __ATOMIC_RELAXED))
		pr_info("a current context has changed unseen: threads wait while the job is "
			"paused");
}

/* The driver said so. */
static void learn_context(CUcontext ctx)
{
	CUcontext old;

	if (knows_context(&old)) {
		if (old == ctx)
			return;
		changed_unseen();
	}
	if (ctx)
		self.stack[self.n++] = ctx;
	else
		self.bottom = true;
}

static void learn_device(CUdevice dev)
{
	if (self.knows_dev && self.dev != dev)
		changed_unseen();
	self.dev = dev;
	self.knows_dev = true;
}

/*
 * Push @ctx, or set it if @sets. False: another thread has ended it since. Then a push is of the
 * context that is current, so that the thread's pop takes it back and no more.
 */
static bool tell_context(CUcontext ctx, bool sets)
{
	CUcontext current;
	CUdevice dev;

	if (queries_context(ctx, &dev) &&
	    !(sets ? real.cuCtxSetCurrent(ctx) : real.cuCtxPushCurrent_v2(ctx)))
		return true;
	if (!sets && !real.cuCtxGetCurrent(&current) && current)
		real.cuCtxPushCurrent_v2(current);
	return false;
}

static void tell_stack(void)
{
	bool told = true;
	CUcontext ctx;

	for (; self.pops; self.pops--)
		real.cuCtxPopCurrent_v2(&ctx);
	for (unsigned int i = self.same; i < self.n; i++)
		told &= tell_context(self.stack[i], self.sets && i == self.same);
	self.owes = false;
	if (!told)
		forget();
}

/* Tell the driver what the thread has set at rest. */
static void tell_driver(void)
{
	CUstreamCaptureMode mode = self.mode;

	if (self.owes)
		tell_stack();
	if (self.mode != self.driver_mode)
		real.cuThreadExchangeStreamCaptureMode(&mode);
	self.driver_mode = self.mode;
}

/* Before a call that reads or changes the stack. */
static void catch_up(void)
{
	if (self.owes)
		tell_driver();
	is_fresh();
}

CUresult hook_cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult result;

	catch_up();
	result = real.cuCtxGetCurrent(pctx);
	if (!result && pctx)
		learn_context(*pctx);
	return result;
}

CUresult hook_cuCtxSetCurrent(CUcontext ctx)
{
	CUcontext old;
	CUresult result;

	catch_up();
	result = real.cuCtxSetCurrent(ctx);
	if (result)
		forget();
	else if (!ctx)
		pop();
	else if (!knows_context(&old) || old != ctx)
		replace(ctx);
	if (!result && ctx)
		host_memory_context_came();
	return result;
}

CUresult hook_cuCtxGetDevice(CUdevice *device)
{
	CUresult result;

	catch_up();
	result = real.cuCtxGetDevice(device);
	if (!result && device)
		learn_device(*device);
	return result;
}

/* @ctx may be any context, or NULL: the current one. */
CUresult hook_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	CUcontext current;
	CUresult result;

	catch_up();
	result = real.cuCtxGetDevice_v2(device, ctx);
	if (!result && device && (!ctx || (knows_context(&current) && current == ctx)))
		learn_device(*device);
	return result;
}

/* The older names have rules of their own. */
CUresult hook_cuCtxPushCurrent(CUcontext ctx)
{
	catch_up();
	forget();
	return real.cuCtxPushCurrent(ctx);
}

CUresult hook_cuCtxPopCurrent(CUcontext *pctx)
{
	catch_up();
	forget();
	return real.cuCtxPopCurrent(pctx);
}

CUresult hook_cuCtxPushCurrent_v2(CUcontext ctx)
{
	CUresult result;

	catch_up();
	result = real.cuCtxPushCurrent_v2(ctx);
	if (result || !ctx)
		forget();
	else
		push(ctx);
	if (!result)
		host_memory_context_came();
	return result;
}

CUresult hook_cuCtxPopCurrent_v2(CUcontext *pctx)
{
	CUcontext top;
	CUresult result;
	bool known;

	catch_up();
	known = knows_context(&top);
	result = real.cuCtxPopCurrent_v2(pctx);
	if (result)
		forget();
	else if (known && pctx && *pctx != top)
		changed_unseen();
	else
		pop();
	return result;
}

CUresult hook_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode wanted = mode ? *mode : self.mode;
	CUresult result = real.cuThreadExchangeStreamCaptureMode(mode);

	if (!result)
		self.mode = self.driver_mode = wanted;
	return result;
}

/* At rest: true if the thread may be answered from here. */
static bool may_answer(void)
{
	return !__atomic_load_n(&unseen, __ATOMIC_RELAXED) && is_fresh();
}

bool rest_cuCtxGetCurrent(CUcontext *pctx, CUresult *ret)
{
	CUcontext ctx;

	if (!pctx || !may_answer() || !knows_context(&ctx))
		return false;
	*pctx = ctx;
	*ret = CUDA_SUCCESS;
	return true;
}

/* Before the stack changes at rest. */
static void owe(void)
{
	if (!self.owes) {
		self.same = self.n;
		self.pops = 0;
		self.sets = false;
		self.owes = true;
	}
	gate_call_later(tell_driver);
}

bool rest_cuCtxPopCurrent_v2(CUcontext *pctx, CUresult *ret)
{
	if (!may_answer() || !self.n)
		return false;
	owe();
	if (pctx)
		*pctx = self.stack[self.n - 1];
	pop();
	if (self.n < self.same) {
		self.same--;
		self.pops++;
	} else if (self.n == self.same && self.sets) {
		self.sets = false;
		self.pops++;
	}
	*ret = CUDA_SUCCESS;
	return true;
}

bool rest_cuCtxPushCurrent_v2(CUcontext ctx, CUresult *ret)
{
	CUdevice dev;

	if (!may_answer() || self.n == STACK || !queries_context(ctx, &dev))
		return false;
	owe();
	push(ctx);
	*ret = CUDA_SUCCESS;
	return true;
}

bool rest_cuCtxSetCurrent(CUcontext ctx, CUresult *ret)
{
	CUcontext old;
	CUdevice dev;
	bool known;

	if (!may_answer())
		return false;
	known = knows_context(&old);
	*ret = CUDA_SUCCESS;
	if (known && old == ctx)
		return true;
	/* NULL pops the current context: the one below is current then. */
	if (!ctx)
		return rest_cuCtxPopCurrent_v2(NULL, ret);
	if (!queries_context(ctx, &dev))
		return false;
	owe();
	/* On an empty stack it is a push. */
	if (self.n == self.same && !(known && !self.n)) {
		self.sets = true;
		self.same -= self.n > 0;
	}
	replace(ctx);
	return true;
}

bool rest_cuCtxGetDevice(CUdevice *device, CUresult *ret)
{
	CUcontext ctx;

	if (!device || !may_answer() ||
	    !(self.knows_dev || (knows_context(&ctx) && queries_context(ctx, &self.dev))))
		return false;
	self.knows_dev = true;
	*device = self.dev;
	*ret = CUDA_SUCCESS;
	return true;
}

bool rest_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx, CUresult *ret)
{
	CUcontext current;

	if (ctx && !(knows_context(&current) && current == ctx))
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
