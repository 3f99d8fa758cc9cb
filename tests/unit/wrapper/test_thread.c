/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread is answered at rest, over a driver that keeps the state of one thread. */
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/queries.h"
#include "vmem/context_gone.h"
#include "wrapper/hooks/thread.h"
#include "wrapper/real.h"

#include "tests/check_suite.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define CONTEXT(n) ((CUcontext)(uintptr_t)(n))

static CUcontext below[64]; /* the stack, without the current context */
static size_t depth;
static CUcontext current;
static CUcontext ended; /* a stack may still have it */

static CUresult get_current(CUcontext *ctx)
{
	*ctx = current;
	return CUDA_SUCCESS;
}

static CUresult pop_current(CUcontext *ctx)
{
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx)
		*ctx = current;
	current = depth ? below[--depth] : NULL;
	return CUDA_SUCCESS;
}

/* To make no context current is to pop. */
static CUresult set_current(CUcontext ctx)
{
	if (ctx == CONTEXT(99))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx && ctx == ended)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (ctx)
		current = ctx;
	else
		pop_current(NULL);
	return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext ctx)
{
	if (ctx == ended)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (current)
		below[depth++] = current;
	current = ctx;
	return CUDA_SUCCESS;
}

/* Context n is of device n. */
static CUresult get_device(CUdevice *dev)
{
	*dev = (CUdevice)(uintptr_t)current;
	return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult get_device_of(CUdevice *dev, CUcontext ctx)
{
	*dev = (CUdevice)(uintptr_t)(ctx ? ctx : current);
	return CUDA_SUCCESS;
}

static void set_up(void)
{
	real.cuCtxGetDevice_v2 = get_device_of;
	real.cuCtxGetCurrent = get_current;
	real.cuCtxSetCurrent = set_current;
	real.cuCtxPushCurrent_v2 = push_current;
	real.cuCtxPopCurrent_v2 = pop_current;
	real.cuCtxGetDevice = get_device;
}

static void ck_context(CUcontext ctx)
{
	CUcontext found = CONTEXT(77);
	CUresult ret = CUDA_ERROR_UNKNOWN;

	ck_assert(rest_cuCtxGetCurrent(&found, &ret));
	ck_assert_int_eq(ret, CUDA_SUCCESS);
	ck_assert_ptr_eq(found, ctx);
	ret = CUDA_ERROR_UNKNOWN;
	ck_assert(rest_cuCtxSetCurrent(ctx, &ret));
	ck_assert_int_eq(ret, CUDA_SUCCESS);
	ck_assert(!rest_cuCtxSetCurrent(CONTEXT(78), &ret));
}

static CUresult no_devices(int *count)
{
	*count = 0;
	return CUDA_SUCCESS;
}

static void ck_no_context(void)
{
	CUcontext ctx;
	CUresult ret;

	ck_assert(!rest_cuCtxGetCurrent(&ctx, &ret));
	ck_assert(!rest_cuCtxSetCurrent(current, &ret));
}

static void ck_device(CUdevice dev)
{
	CUdevice found = -1;
	CUresult ret = CUDA_ERROR_UNKNOWN;

	ck_assert(rest_cuCtxGetDevice(&found, &ret));
	ck_assert_int_eq(ret, CUDA_SUCCESS);
	ck_assert_int_eq(found, dev);
}

static void ck_no_device(void)
{
	CUdevice dev;
	CUresult ret;

	ck_assert(!rest_cuCtxGetDevice(&dev, &ret));
}

static void learn_device(void)
{
	CUdevice dev;

	ck_assert_int_eq(hook_cuCtxGetDevice(&dev), CUDA_SUCCESS);
}

START_TEST(a_thread_knows_what_the_driver_said)
{
	CUcontext ctx;

	set_up();
	ck_no_context();
	ck_no_device();
	hook_cuCtxGetCurrent(&ctx);
	ck_context(NULL);
	hook_cuCtxSetCurrent(CONTEXT(1));
	ck_context(CONTEXT(1));
	ck_no_device();
	learn_device();
	hook_cuCtxSetCurrent(CONTEXT(1));
	hook_cuCtxGetCurrent(&ctx);
	ck_context(CONTEXT(1));
	ck_device(1);
	hook_cuCtxSetCurrent(CONTEXT(2));
	ck_context(CONTEXT(2));
	ck_no_device();
	ck_assert_int_eq(hook_cuCtxSetCurrent(CONTEXT(99)), CUDA_ERROR_INVALID_CONTEXT);
	ck_no_context();
}
END_TEST

/* The driver names the device first: it is that of the context named then. */
START_TEST(a_device_without_a_known_context)
{
	CUcontext ctx;

	set_up();
	current = CONTEXT(3);
	learn_device();
	ck_device(3);
	ck_no_context();
	hook_cuCtxGetCurrent(&ctx);
	ck_context(CONTEXT(3));
	ck_device(3);
}
END_TEST

START_TEST(pushes_and_pops_are_known)
{
	CUcontext ctx;

	set_up();
	hook_cuCtxSetCurrent(CONTEXT(1));
	learn_device();
	hook_cuCtxPushCurrent_v2(CONTEXT(2));
	ck_context(CONTEXT(2));
	ck_no_device();
	hook_cuCtxPopCurrent_v2(&ctx);
	ck_context(CONTEXT(1));
	ck_no_device();
	hook_cuCtxPopCurrent_v2(&ctx);
	ck_no_context();
	hook_cuCtxSetCurrent(CONTEXT(3));
	thread_forget_context();
	ck_no_context();
}
END_TEST

START_TEST(a_pop_that_fails)
{
	CUcontext ctx;

	set_up();
	hook_cuCtxGetCurrent(&ctx);
	ck_assert_int_eq(hook_cuCtxPopCurrent_v2(&ctx), CUDA_ERROR_INVALID_CONTEXT);
	ck_no_context();
}
END_TEST

START_TEST(the_device_of_a_context_that_is_named)
{
	CUresult ret;
	CUdevice dev;

	set_up();
	hook_cuCtxSetCurrent(CONTEXT(1));
	hook_cuCtxGetDevice_v2(&dev, CONTEXT(2));
	ck_no_device();
	hook_cuCtxGetDevice_v2(&dev, CONTEXT(1));
	ck_device(1);
	ck_assert(rest_cuCtxGetDevice_v2(&dev, CONTEXT(1), &ret));
	ck_assert(!rest_cuCtxGetDevice_v2(&dev, CONTEXT(2), &ret));
	hook_cuCtxSetCurrent(CONTEXT(2));
	hook_cuCtxGetDevice_v2(&dev, NULL);
	dev = -1;
	ck_assert(rest_cuCtxGetDevice_v2(&dev, NULL, &ret));
	ck_assert_int_eq(dev, 2);
}
END_TEST

static void begin_rest(void)
{
	static const struct cuda_driver drv = {.cuDeviceGetCount = no_devices};
	static struct context items[] = {{.ctx = CONTEXT(4), .dev = 4},
					 {.ctx = CONTEXT(5), .dev = 5}};
	static const struct context_list contexts = {.items = items, .count = 2};
	const bool cancel = false;

	gate_close();
	gate_shut();
	ck_assert_int_eq(queries_ask(&drv, &contexts, INFINITY, &cancel), 0);
	gate_rest();
}

/* The driver is told by the thread's next call that enters. _i: the context has ended by then. */
START_TEST(a_context_that_is_set_at_rest)
{
	CUresult ret;

	set_up();
	ck_assert_int_eq(gate_init(), 0);
	hook_cuCtxSetCurrent(CONTEXT(4));
	begin_rest();
	ck_assert(!rest_cuCtxSetCurrent(CONTEXT(6), &ret));
	ck_assert(!rest_cuCtxPushCurrent_v2(CONTEXT(6), &ret));
	ck_assert(rest_cuCtxSetCurrent(CONTEXT(5), &ret));
	ck_context(CONTEXT(5));
	ck_device(5);
	ck_assert_ptr_eq(current, CONTEXT(4));
	gate_open();
	if (_i)
		context_gone(CONTEXT(5));
	ck_assert(gate_enter(GATE_HOLD));
	ck_assert_ptr_eq(current, _i ? CONTEXT(4) : CONTEXT(5));
	gate_exit();
}
END_TEST

/*
 * A context that is pushed at rest ends before the driver is told. The thread's pop takes the push
 * back, and no more. _i: cudaw does not see the end, and the driver refuses the push.
 */
START_TEST(a_context_that_is_pushed_at_rest_and_ends)
{
	CUcontext ctx;
	CUresult ret;

	set_up();
	ck_assert_int_eq(gate_init(), 0);
	hook_cuCtxSetCurrent(CONTEXT(4));
	begin_rest();
	ck_assert(rest_cuCtxPushCurrent_v2(CONTEXT(5), &ret));
	gate_open();
	ended = CONTEXT(5);
	if (!_i)
		context_gone(CONTEXT(5));
	ck_assert(gate_enter(GATE_ASK));
	ck_assert_int_eq(hook_cuCtxPopCurrent_v2(&ctx), CUDA_SUCCESS);
	ck_assert_ptr_eq(current, CONTEXT(4));
	hook_cuCtxGetCurrent(&ctx);
	gate_exit();
	begin_rest();
	ck_context(CONTEXT(4));
}
END_TEST

/*
 * Calls at rest, chosen at random, against a stack that makes them at once. Those that are not
 * answered have no effect. The driver has the same stack afterwards. _i chooses the contexts that the
 * thread has before, and how many of them are not known.
 */
START_TEST(any_calls_at_rest)
{
	CUcontext model[64], ctx;
	size_t n = 0;
	CUresult ret;

	set_up();
	srandom(_i);
	ck_assert_int_eq(gate_init(), 0);
	if (_i % 3 == 0)
		hook_cuCtxGetCurrent(&ctx);
	for (; n < (size_t)_i % 10; n++) {
		model[n] = CONTEXT(4 + n % 2);
		if ((int)n < _i % 3)
			push_current(model[n]);
		else
			hook_cuCtxPushCurrent_v2(model[n]);
	}
	begin_rest();
	for (int i = 0; i < 40; i++) {
		CUcontext found = NULL, any = CONTEXT(4 + random() % 2);

		switch (random() % 5) {
		case 0:
			if (rest_cuCtxPushCurrent_v2(any, &ret))
				model[n++] = any;
			break;
		case 1:
			if (rest_cuCtxSetCurrent(any, &ret)) {
				n -= n > 0;
				model[n++] = any;
			}
			break;
		case 2:
			if (rest_cuCtxSetCurrent(NULL, &ret))
				n -= n > 0;
			break;
		case 3:
			if (rest_cuCtxPopCurrent_v2(&found, &ret))
				ck_assert_ptr_eq(found, model[--n]);
			break;
		default:
			if (rest_cuCtxGetCurrent(&found, &ret))
				ck_assert_ptr_eq(found, n ? model[n - 1] : NULL);
			else /* of nine contexts the lowest is not known */
				ck_assert(_i % 3 || _i % 10 == 9);
		}
	}
	gate_open();
	ck_assert(gate_enter(GATE_HOLD));
	gate_exit();
	while (n) {
		ck_assert_ptr_eq(current, model[--n]);
		pop_current(NULL);
	}
	ck_assert_ptr_null(current);
}
END_TEST

START_TEST(no_context_is_current_only_if_the_driver_says_so)
{
	CUcontext ctx;

	set_up();
	push_current(CONTEXT(1));
	hook_cuCtxPushCurrent_v2(CONTEXT(2));
	ck_context(CONTEXT(2));
	learn_device();
	hook_cuCtxSetCurrent(NULL);
	ck_no_context();
	ck_no_device();
	hook_cuCtxGetCurrent(&ctx);
	ck_context(CONTEXT(1));
	hook_cuCtxSetCurrent(NULL);
	ck_no_context();
	hook_cuCtxGetCurrent(&ctx);
	ck_context(NULL);
	hook_cuCtxSetCurrent(NULL);
	ck_context(NULL);
}
END_TEST

/* A new context may have the handle of the old one. */
START_TEST(nothing_is_known_after_the_end_of_a_context)
{
	CUcontext ctx;

	set_up();
	hook_cuCtxSetCurrent(CONTEXT(1));
	learn_device();
	context_gone(CONTEXT(2));
	ck_no_context();
	ck_no_device();
	learn_device();
	ck_no_context();
	current = CONTEXT(2);
	hook_cuCtxGetCurrent(&ctx);
	ck_context(CONTEXT(2));
}
END_TEST

/* _i: whether the context or the device shows it. No thread is answered from then on. */
START_TEST(a_change_that_nobody_saw)
{
	CUcontext ctx;

	set_up();
	hook_cuCtxSetCurrent(CONTEXT(1));
	learn_device();
	current = CONTEXT(2);
	if (_i)
		learn_device();
	else
		hook_cuCtxGetCurrent(&ctx);
	ck_no_context();
	ck_no_device();
	hook_cuCtxSetCurrent(CONTEXT(1));
	ck_no_context();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("thread");
	TCase *tc = tcase_create("thread");

	tcase_add_test(tc, a_thread_knows_what_the_driver_said);
	tcase_add_test(tc, a_device_without_a_known_context);
	tcase_add_test(tc, pushes_and_pops_are_known);
	tcase_add_test(tc, a_pop_that_fails);
	tcase_add_test(tc, the_device_of_a_context_that_is_named);
	tcase_add_loop_test(tc, a_context_that_is_set_at_rest, 0, 2);
	tcase_add_loop_test(tc, a_context_that_is_pushed_at_rest_and_ends, 0, 2);
	tcase_add_loop_test(tc, any_calls_at_rest, 0, 200);
	tcase_add_test(tc, no_context_is_current_only_if_the_driver_says_so);
	tcase_add_test(tc, nothing_is_known_after_the_end_of_a_context);
	tcase_add_loop_test(tc, a_change_that_nobody_saw, 0, 2);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
