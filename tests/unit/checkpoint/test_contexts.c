/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for all contexts, over a driver that only keeps the books of primary contexts. */
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/gate/gate.h"

#include "tests/check_suite.h"
#include "common/clock.h"
#include "common/gpu/gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICES 3
#define HANG_MS 20000 /* for a GPU without work, on any machine */

enum call { COUNT, GET_STATE, RETAIN, SET_CURRENT, SYNCHRONIZE, NCALLS };

static const bool never;
static struct {
	bool active[DEVICES];
	int retained[DEVICES];
	unsigned int synchronized[2 * DEVICES]; /* by context, primary ones first */
	enum call fails;
	CUresult error;              /* of the call that fails, if any */
	bool busy;                   /* the GPU: cuCtxSynchronize() does not return */
	bool busy_with[2 * DEVICES]; /* nor in these contexts */
	bool ended[2 * DEVICES];     /* contexts that nothing may use any more */
	int inside[2 * DEVICES];     /* threads that synchronise these contexts */
} gpu;
static __thread CUcontext current;

/* Contexts are numbers from 1; those of the devices come first. */
static CUcontext context(unsigned int n)
{
	return (CUcontext)(uintptr_t)(n + 1);
}

static CUresult result(enum call call)
{
	return call == gpu.fails ? gpu.error : CUDA_SUCCESS;
}

static CUresult get_count(int *count)
{
	*count = DEVICES;
	return result(COUNT);
}

static CUresult get_state(CUdevice dev, unsigned int *flags, int *active)
{
	*flags = 0;
	*active = gpu.active[dev];
	return dev == 1 ? result(GET_STATE) : CUDA_SUCCESS;
}

static CUresult retain(CUcontext *ctx, CUdevice dev)
{
	CUresult error = dev == 1 ? result(RETAIN) : CUDA_SUCCESS;

	ck_assert(gpu.active[dev]);
	if (error)
		return error;
	__atomic_add_fetch(&gpu.retained[dev], 1, __ATOMIC_RELAXED);
	*ctx = context(dev);
	return CUDA_SUCCESS;
}

static CUresult release(CUdevice dev)
{
	ck_assert_int_gt(__atomic_fetch_sub(&gpu.retained[dev], 1, __ATOMIC_RELAXED), 0);
	return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext ctx)
{
	if (ctx)
		ck_assert(!__atomic_load_n(&gpu.ended[(uintptr_t)ctx - 1], __ATOMIC_ACQUIRE));
	current = ctx;
	return ctx == context(1) ? result(SET_CURRENT) : CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
	uintptr_t n = (uintptr_t)current - 1;

	ck_assert_ptr_nonnull(current);
	__atomic_add_fetch(&gpu.inside[n], 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&gpu.busy, __ATOMIC_ACQUIRE) ||
	       __atomic_load_n(&gpu.busy_with[n], __ATOMIC_ACQUIRE))
		usleep(100);
	__atomic_sub_fetch(&gpu.inside[n], 1, __ATOMIC_RELEASE);
	__atomic_add_fetch(&gpu.synchronized[n], 1, __ATOMIC_RELAXED);
	return n == 1 ? result(SYNCHRONIZE) : CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	ck_assert_int_eq(*mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	return CUDA_SUCCESS;
}

static const struct cuda_driver drv = {
	.cuDeviceGetCount = get_count,
	.cuDevicePrimaryCtxGetState = get_state,
	.cuDevicePrimaryCtxRetain = retain,
	.cuDevicePrimaryCtxRelease_v2 = release,
	.cuCtxSetCurrent = set_current,
	.cuCtxSynchronize = synchronize,
	.cuThreadExchangeStreamCaptureMode = exchange_mode,
};

static struct context_list list;
static CUresult error;

static int drain(double ms, const bool *cancel)
{
	error = CUDA_SUCCESS;
	return contexts_drain(&drv, &list, clock_ms() + ms, cancel, &error);
}

/* Give up a drain whose thread is inside @n: it may need longer than the drain has to come there. */
static void give_up_inside(unsigned int n)
{
	do
		ck_assert_int_eq(drain(60, &never), -ETIME);
	while (!__atomic_load_n(&gpu.inside[n], __ATOMIC_ACQUIRE));
}

/* As the program does: on the device of that number. */
static void create(unsigned int n)
{
	ck_assert(contexts_reserve());
	contexts_add(context(n), n % DEVICES);
}

static void none_is_retained(void)
{
	for (int dev = 0; dev < DEVICES; dev++)
		ck_assert_int_eq(__atomic_load_n(&gpu.retained[dev], __ATOMIC_RELAXED), 0);
}

START_TEST(all_contexts_that_live)
{
	gpu.active[0] = gpu.active[2] = true;
	for (unsigned int n = 3; n < 6; n++)
		create(n);
	contexts_remove(context(4));
	contexts_remove(context(9)); /* unknown */
	ck_assert_int_eq(drain(HANG_MS, &never), 0);
	ck_assert_uint_eq(list.count, 4);
	for (unsigned int n = 0; n < 2 * DEVICES; n++)
		ck_assert_uint_eq(gpu.synchronized[n], n != 1 && n != 4);
	for (size_t i = 0; i < list.count; i++)
		ck_assert_int_eq(list.items[i].primary,
				 list.items[i].ctx == context(list.items[i].dev));
	none_is_retained();
}
END_TEST

START_TEST(gpus_with_contexts)
{
	ck_assert(!contexts_on(0) && !contexts_on(-1) && !contexts_on(GPU_MAX));
	contexts_set_primary(0, true);
	contexts_set_primary(GPU_MAX, true);
	create(DEVICES + 1);
	ck_assert(contexts_on(0) && contexts_on(1) && !contexts_on(2) && !contexts_on(GPU_MAX));
	contexts_set_primary(0, false);
	contexts_remove(context(DEVICES + 1));
	ck_assert(!contexts_on(0) && !contexts_on(1));
}
END_TEST

START_TEST(no_context)
{
	ck_assert_int_eq(drain(HANG_MS, &never), 0);
	ck_assert_uint_eq(list.count, 0);
}
END_TEST

/* None is left out, however many there are. */
START_TEST(a_thousand_contexts)
{
	gpu.active[1] = true;
	for (unsigned int n = 0; n < 1000; n++)
		create(3);
	ck_assert_int_eq(drain(HANG_MS, &never), 0);
	ck_assert_uint_eq(list.count, 1001);
	ck_assert_uint_eq(gpu.synchronized[3], 1000);
	for (unsigned int n = 0; n < 1000; n++)
		contexts_remove(context(3));
	ck_assert_int_eq(drain(HANG_MS, &never), 0);
	ck_assert_uint_eq(list.count, 1);
}
END_TEST

/* Given up, the wait goes on by itself, and the next one begins when it is over. */
START_TEST(kernels_that_do_not_end)
{
	const bool cancel = true;
	double start_ms = clock_ms();

	gpu.active[0] = gpu.active[1] = true;
	gpu.busy = true;
	give_up_inside(0);
	ck_assert_double_ge(clock_ms(), start_ms + 60);
	ck_assert_int_eq(drain(60, &never), -ETIME);
	ck_assert_int_eq(drain(HANG_MS, &cancel), -ECANCELED);
	none_is_retained();
	__atomic_store_n(&gpu.busy, false, __ATOMIC_RELEASE);
	ck_assert_int_eq(drain(HANG_MS, &never), 0);
	ck_assert_uint_eq(list.count, 2);
	/* The drain that was given up begins no second context. */
	ck_assert_uint_eq(gpu.synchronized[0], 2);
	ck_assert_uint_eq(gpu.synchronized[1], 1);
	none_is_retained();
}
END_TEST

static void *end_context(void *arg)
{
	unsigned int n = (unsigned int)(uintptr_t)arg;

	contexts_ending(context(n));
	__atomic_store_n(&gpu.ended[n], true, __ATOMIC_RELEASE);
	contexts_remove(context(n));
	return NULL;
}

/*
 * The program resets its primary contexts, and makes new ones, while another context's kernel keeps
 * the drain: neither waits for it, and the drain comes back to none of them.
 */
START_TEST(a_context_that_a_given_up_drain_has_left)
{
	gpu.active[0] = gpu.active[1] = gpu.active[2] = true;
	gpu.busy_with[1] = true;
	give_up_inside(1);
	none_is_retained();
	end_context((void *)0); /* drained */
	end_context((void *)2); /* not yet */
	__atomic_store_n(&gpu.busy_with[1], false, __ATOMIC_RELEASE);
	gpu.active[0] = gpu.active[2] = false;
	ck_assert_int_eq(drain(HANG_MS, &never), 0);
	ck_assert_uint_eq(list.count, 1);
	none_is_retained();
}
END_TEST

/* The end of the context waits for its own kernel, as it does without a drain. */
START_TEST(a_context_that_a_given_up_drain_is_in)
{
	pthread_t thread;

	create(3);
	create(4);
	gpu.busy_with[3] = true;
	give_up_inside(3);
	ck_assert_int_eq(pthread_create(&thread, NULL, end_context, (void *)3), 0);
	usleep(20000);
	ck_assert(!__atomic_load_n(&gpu.ended[3], __ATOMIC_ACQUIRE));
	__atomic_store_n(&gpu.busy_with[3], false, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ck_assert_int_eq(gpu.inside[3], 0);
	ck_assert_int_eq(drain(HANG_MS, &never), 0);
	ck_assert_uint_eq(list.count, 1);
}
END_TEST

/* One that cannot be asked for might have kernels that run. */
START_TEST(a_call_that_fails)
{
	gpu.active[0] = gpu.active[1] = gpu.active[2] = true;
	gpu.fails = _i;
	gpu.error = CUDA_ERROR_ECC_UNCORRECTABLE;
	ck_assert_int_eq(drain(HANG_MS, &never), -EIO);
	ck_assert_int_eq(error, CUDA_ERROR_ECC_UNCORRECTABLE);
	none_is_retained();
	gpu.error = CUDA_SUCCESS;
	ck_assert_int_eq(drain(HANG_MS, &never), 0);
	ck_assert_uint_eq(list.count, DEVICES);
	none_is_retained();
}
END_TEST

START_TEST(a_forked_child_has_none)
{
	int status;
	pid_t pid;

	create(3);
	pid = fork();
	if (!pid)
		_exit(drain(HANG_MS, &never) || list.count);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("contexts");
	TCase *tc = tcase_create("drain");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, all_contexts_that_live);
	tcase_add_test(tc, gpus_with_contexts);
	tcase_add_test(tc, no_context);
	tcase_add_test(tc, a_thousand_contexts);
	tcase_add_test(tc, kernels_that_do_not_end);
	tcase_add_test(tc, a_context_that_a_given_up_drain_has_left);
	tcase_add_test(tc, a_context_that_a_given_up_drain_is_in);
	tcase_add_loop_test(tc, a_call_that_fails, 0, NCALLS);
	tcase_add_test(tc, a_forked_child_has_none);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
