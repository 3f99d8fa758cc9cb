/* SPDX-License-Identifier: Apache-2.0 */
/* What a pause knows of events and streams, over a driver that has an answer for each handle. */
#include "checkpoint/ledger/queries.h"
#include "common/clock.h"
#include "vmem/context_gone.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>

#define HANDLE(n)  ((void *)(uintptr_t)(n))
#define CONTEXT(n) ((CUcontext)(uintptr_t)(n))

#define MANY 100000

enum { PASSED = 1, RUNNING, CAPTURED, DESTROYED, FIRST_OF_MANY };

static CUcontext current;
static CUcontext refused;           /* this context cannot be made current */
static unsigned int asked, entered; /* calls of the driver */
static unsigned int cancel_at;      /* the question during which the pause is cancelled; 0: none */
static bool cancel;

static CUresult set_current(CUcontext ctx)
{
	if (ctx && ctx == refused)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	current = ctx;
	entered++;
	return CUDA_SUCCESS;
}

static CUresult answer_of(uintptr_t handle)
{
	cancel = ++asked == cancel_at;
	ck_assert_ptr_nonnull(current);
	if (handle >= FIRST_OF_MANY && handle < FIRST_OF_MANY + MANY)
		return CUDA_SUCCESS;
	switch (handle) {
	case PASSED:
		return CUDA_SUCCESS;
	case RUNNING:
		return CUDA_ERROR_NOT_READY;
	case CAPTURED:
		return CUDA_ERROR_CAPTURED_EVENT;
	default:
		ck_abort_msg("the driver is asked for handle %lu", handle);
	}
}

static CUresult query_event(CUevent event)
{
	return answer_of((uintptr_t)event);
}

static CUresult query_stream(CUstream stream)
{
	return answer_of((uintptr_t)stream);
}

static uintptr_t destroyed; /* the sum of the handles */

static CUresult destroy_event(CUevent event)
{
	ck_assert_ptr_nonnull(current);
	destroyed += (uintptr_t)event;
	return CUDA_SUCCESS;
}

static CUresult get_count(int *count)
{
	*count = 3;
	return CUDA_SUCCESS;
}

static CUresult get_state(CUdevice dev, unsigned int *flags, int *active)
{
	*flags = 10 + dev;
	*active = dev == 1;
	return dev < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static const struct cuda_driver drv = {
	.cuDeviceGetCount = get_count,
	.cuDevicePrimaryCtxGetState = get_state,
	.cuCtxSetCurrent = set_current,
	.cuEventDestroy_v2 = destroy_event,
	.cuEventQuery = query_event,
	.cuStreamQuery = query_stream,
};

static struct context items[] = {{.ctx = CONTEXT(1), .dev = 5}, {.ctx = CONTEXT(2), .dev = 6}};
static struct context_list contexts = {.items = items, .count = 2};

static void ask_all(void)
{
	ck_assert_int_eq(queries_ask(&drv, &contexts, INFINITY, &cancel), 0);
}

START_TEST(only_what_is_done_has_an_answer)
{
	for (uintptr_t handle = PASSED; handle <= DESTROYED; handle++)
		queries_add(QUERY_EVENT, HANDLE(handle), CONTEXT(1));
	queries_remove(QUERY_EVENT, HANDLE(DESTROYED));
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(PASSED)));
	ask_all();
	ck_assert_ptr_null(current);
	ck_assert(queries_done(QUERY_EVENT, HANDLE(PASSED)));
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(RUNNING)));
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(CAPTURED)));
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(DESTROYED)));
	ck_assert(!queries_done(QUERY_EVENT, NULL));
}
END_TEST

START_TEST(an_event_is_no_stream)
{
	queries_add(QUERY_EVENT, HANDLE(PASSED), CONTEXT(1));
	ask_all();
	ck_assert(!queries_done(QUERY_STREAM, HANDLE(PASSED)));
	queries_add(QUERY_STREAM, HANDLE(PASSED), CONTEXT(1));
	queries_remove(QUERY_EVENT, HANDLE(PASSED));
	ask_all();
	ck_assert(queries_done(QUERY_STREAM, HANDLE(PASSED)));
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(PASSED)));
}
END_TEST

/* The driver may give the handle of a destroyed event again, also if nobody saw the end. */
START_TEST(a_handle_that_comes_again_is_new)
{
	queries_add(QUERY_EVENT, HANDLE(PASSED), CONTEXT(1));
	ask_all();
	queries_add(QUERY_EVENT, HANDLE(PASSED), CONTEXT(2));
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(PASSED)));
	queries_remove(QUERY_EVENT, HANDLE(PASSED));
	asked = 0;
	ask_all();
	ck_assert_uint_eq(asked, 0);
}
END_TEST

START_TEST(what_a_context_had_goes_with_it)
{
	queries_add(QUERY_EVENT, HANDLE(DESTROYED), CONTEXT(1));
	queries_add(QUERY_STREAM, HANDLE(DESTROYED), CONTEXT(1));
	queries_add(QUERY_EVENT, HANDLE(PASSED), CONTEXT(2));
	context_gone(CONTEXT(1));
	ask_all();
	ck_assert(queries_done(QUERY_EVENT, HANDLE(PASSED)));
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(DESTROYED)));
	ck_assert(!queries_done(QUERY_STREAM, HANDLE(DESTROYED)));
}
END_TEST

/* It does not keep the answer of the pause before. */
START_TEST(a_context_that_cannot_be_entered)
{
	queries_add(QUERY_EVENT, HANDLE(PASSED), CONTEXT(1));
	ask_all();
	refused = CONTEXT(1);
	ask_all();
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(PASSED)));
}
END_TEST

START_TEST(what_is_destroyed_at_rest_goes_once)
{
	ask_all();
	queries_add(QUERY_EVENT, HANDLE(4), CONTEXT(1));
	queries_add(QUERY_EVENT, HANDLE(8), CONTEXT(2));
	queries_add(QUERY_EVENT, HANDLE(16), CONTEXT(1));
	queries_add(QUERY_STREAM, HANDLE(32), CONTEXT(1));
	ck_assert(queries_destroy((CUevent)HANDLE(4)));
	ck_assert(queries_destroy((CUevent)HANDLE(8)));
	ck_assert(!queries_destroy((CUevent)HANDLE(8)));
	ck_assert(!queries_destroy((CUevent)HANDLE(32)));
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(4)));
	ck_assert_uint_eq(destroyed, 0);
	queries_settle(&drv);
	ck_assert_uint_eq(destroyed, 4 + 8);
	ck_assert_ptr_null(current);
	queries_settle(&drv);
	ck_assert_uint_eq(destroyed, 4 + 8);
}
END_TEST

START_TEST(a_destroyed_event_goes_with_its_context)
{
	ask_all();
	queries_add(QUERY_EVENT, HANDLE(4), CONTEXT(1));
	queries_add(QUERY_EVENT, HANDLE(8), CONTEXT(2));
	queries_destroy((CUevent)HANDLE(4));
	queries_destroy((CUevent)HANDLE(8));
	context_gone(CONTEXT(1));
	queries_settle(&drv);
	ck_assert_uint_eq(destroyed, 8);
}
END_TEST

START_TEST(the_contexts_of_the_latest_rest)
{
	CUdevice dev;

	ck_assert(!queries_context(CONTEXT(1), &dev));
	ask_all();
	ck_assert(queries_context(CONTEXT(1), &dev));
	ck_assert_int_eq(dev, 5);
	ck_assert(queries_context(CONTEXT(2), &dev));
	ck_assert_int_eq(dev, 6);
	ck_assert(!queries_context(CONTEXT(3), &dev));
	ck_assert(!queries_context(NULL, &dev));
	context_gone(CONTEXT(1));
	ck_assert(!queries_context(CONTEXT(1), &dev));
	ck_assert(queries_context(CONTEXT(2), &dev));
	contexts.count = 1;
	ask_all();
	ck_assert(!queries_context(CONTEXT(2), &dev));
	contexts.count = 0;
	ask_all();
	ck_assert(!queries_context(CONTEXT(1), &dev));
}
END_TEST

START_TEST(the_states_of_primary_contexts)
{
	unsigned int flags;
	int active;

	ck_assert(!queries_primary(0, &flags, &active));
	ask_all();
	for (CUdevice dev = 0; dev < 2; dev++) {
		ck_assert(queries_primary(dev, &flags, &active));
		ck_assert_uint_eq(flags, 10 + dev);
		ck_assert_int_eq(active, dev);
	}
	ck_assert(!queries_primary(2, &flags, &active)); /* the driver failed */
	ck_assert(!queries_primary(3, &flags, &active));
	ck_assert(!queries_primary(-1, &flags, &active));
	ck_assert(!queries_primary(1 << 30, &flags, &active));
}
END_TEST

/* A thread that found the process at rest, and was suspended until the program ran again. */
START_TEST(no_answer_is_given_after_the_rest)
{
	unsigned int flags;
	int active;

	queries_add(QUERY_EVENT, HANDLE(PASSED), CONTEXT(1));
	ask_all();
	queries_settle(&drv);
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(PASSED)));
	ck_assert(!queries_destroy((CUevent)HANDLE(PASSED)));
	ck_assert(!queries_primary(0, &flags, &active));
	ask_all();
	ck_assert(queries_done(QUERY_EVENT, HANDLE(PASSED)));
	ck_assert(queries_destroy((CUevent)HANDLE(PASSED)));
	ck_assert(queries_primary(0, &flags, &active));
}
END_TEST

static void add_many(void)
{
	for (uintptr_t i = 0; i < MANY; i++)
		queries_add(QUERY_EVENT, HANDLE(FIRST_OF_MANY + i), CONTEXT(1 + i * 2 / MANY));
}

START_TEST(each_is_asked_for_once)
{
	add_many();
	ask_all();
	ck_assert_uint_eq(asked, MANY);
	ck_assert_uint_eq(entered, 3); /* two contexts, and none at the end */
	for (uintptr_t i = 0; i < MANY; i++)
		ck_assert(queries_done(QUERY_EVENT, HANDLE(FIRST_OF_MANY + i)));
}
END_TEST

START_TEST(a_cancellation_ends_the_questions)
{
	unsigned int flags;
	int active;

	add_many();
	cancel_at = 1000;
	ck_assert_int_eq(queries_ask(&drv, &contexts, INFINITY, &cancel), -ECANCELED);
	ck_assert_uint_eq(asked, cancel_at);
	ck_assert_ptr_null(current);
	ck_assert(!queries_done(QUERY_EVENT, HANDLE(FIRST_OF_MANY)));
	ck_assert(!queries_primary(0, &flags, &active));
	cancel = false;
	ask_all();
	ck_assert(queries_done(QUERY_EVENT, HANDLE(FIRST_OF_MANY)));
}
END_TEST

START_TEST(so_does_the_time_limit)
{
	add_many();
	ck_assert_int_eq(queries_ask(&drv, &contexts, clock_ms() - 1, &cancel), -ETIME);
	ck_assert_uint_eq(asked, 0);
	ck_assert_ptr_null(current);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("queries");
	TCase *tc = tcase_create("queries");

	tcase_add_test(tc, only_what_is_done_has_an_answer);
	tcase_add_test(tc, an_event_is_no_stream);
	tcase_add_test(tc, a_handle_that_comes_again_is_new);
	tcase_add_test(tc, what_a_context_had_goes_with_it);
	tcase_add_test(tc, a_context_that_cannot_be_entered);
	tcase_add_test(tc, what_is_destroyed_at_rest_goes_once);
	tcase_add_test(tc, a_destroyed_event_goes_with_its_context);
	tcase_add_test(tc, the_contexts_of_the_latest_rest);
	tcase_add_test(tc, the_states_of_primary_contexts);
	tcase_add_test(tc, no_answer_is_given_after_the_rest);
	tcase_add_test(tc, each_is_asked_for_once);
	tcase_add_test(tc, a_cancellation_ends_the_questions);
	tcase_add_test(tc, so_does_the_time_limit);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
