/* SPDX-License-Identifier: Apache-2.0 */
/* Which captures are open, over a driver that is asked for one stream after the other. */
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/green.h"

#include "tests/check_suite.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define STREAMS 2000

/* What the driver says of a stream; streams are numbers from 0x1000. */
static CUresult results[STREAMS];
static bool gone[STREAMS]; /* destroyed: the driver crashes */
static bool slow;          /* it does not answer, except to threads that are in a hurry */
static __thread bool hurry;
static unsigned int questions;
static CUstreamCaptureStatus statuses[STREAMS];

static CUstream stream(unsigned int n)
{
	return (CUstream)(uintptr_t)(0x1000 + n);
}

static CUcontext context(unsigned int n)
{
	return (CUcontext)(uintptr_t)(n + 1);
}

static CUresult is_capturing(CUstream handle, CUstreamCaptureStatus *status)
{
	uintptr_t n = (uintptr_t)handle - 0x1000;

	ck_assert_uint_lt(n, STREAMS);
	ck_assert(!__atomic_load_n(&gone[n], __ATOMIC_ACQUIRE));
	__atomic_add_fetch(&questions, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&slow, __ATOMIC_ACQUIRE) && !hurry)
		usleep(100);
	for (volatile int i = 0; i < 100; i++) /* a moment for the stream to go in */
		;
	ck_assert(!__atomic_load_n(&gone[n], __ATOMIC_ACQUIRE));
	*status = __atomic_load_n(&statuses[n], __ATOMIC_RELAXED);
	return results[n];
}

static CUcontext current;

static CUresult get_current(CUcontext *ctx)
{
	*ctx = current;
	return CUDA_SUCCESS;
}

static const struct cuda_driver drv = {.cuStreamIsCapturing = is_capturing,
				       .cuCtxGetCurrent = get_current};

static void add_into(CUstream s, CUcontext ctx, bool into)
{
	struct capture *c = captures_begin(s, ctx, into);

	ck_assert_ptr_nonnull(c);
	captures_begun(c, true);
}

static void add(CUstream s, CUcontext ctx)
{
	add_into(s, ctx, false);
}

static void begin(unsigned int n, unsigned int ctx)
{
	__atomic_store_n(&statuses[n], CU_STREAM_CAPTURE_STATUS_ACTIVE, __ATOMIC_RELAXED);
	add(stream(n), context(ctx));
}

START_TEST(open_until_all_have_ended)
{
	ck_assert(!captures_open(&drv));
	for (unsigned int n = 0; n < 3; n++)
		begin(n, 0);
	begin(1, 0); /* known already */
	for (unsigned int n = 0; n < 3; n++) {
		ck_assert(captures_open(&drv));
		captures_remove(stream(n), context(0));
		captures_remove(stream(n), context(0));
	}
	ck_assert(!captures_open(&drv));
}
END_TEST

START_TEST(one_that_ended_unseen)
{
	begin(0, 0);
	begin(1, 0);
	begin(2, 0);
	statuses[0] = CU_STREAM_CAPTURE_STATUS_NONE;
	results[1] = CUDA_ERROR_INVALID_HANDLE; /* the stream was destroyed */
	ck_assert(captures_open(&drv));
	/* An invalidated one has yet to be ended by the program. */
	statuses[2] = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	ck_assert(captures_open(&drv));
	results[2] = CUDA_ERROR_INVALID_CONTEXT; /* that of the thread that asks */
	ck_assert(captures_open(&drv));
	results[2] = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	ck_assert(!captures_open(&drv));
	/* All are forgotten, not looked at again. */
	results[1] = results[2] = CUDA_SUCCESS;
	statuses[0] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	ck_assert(!captures_open(&drv));
}
END_TEST

START_TEST(those_of_a_context_that_is_destroyed)
{
	for (unsigned int n = 0; n < 10; n++)
		begin(n, n % 2);
	captures_remove_context(context(1));
	for (unsigned int n = 0; n < 10; n += 2) {
		ck_assert(captures_open(&drv));
		captures_remove(stream(n), context(0));
	}
	ck_assert(!captures_open(&drv));
}
END_TEST

/* They end with the green context, and with the primary one. */
START_TEST(those_of_a_green_context)
{
	ck_assert(green_reserve());
	green_add((CUgreenCtx)1, context(0), 0);
	green_set_context((CUgreenCtx)1, context(1));
	for (unsigned int ctx = 0; ctx < 2; ctx++) {
		begin(0, 1);
		ck_assert(captures_open(&drv));
		captures_context_ending(context(ctx));
		captures_remove_context(context(ctx));
		ck_assert(!captures_open(&drv));
	}
	green_remove((CUgreenCtx)1);
}
END_TEST

/* Only those that were said to be so. */
START_TEST(into_a_graph_that_was_there)
{
	begin(0, 0);
	add_into(stream(1), context(0), true);
	ck_assert(!captures_remove(stream(0), context(0)));
	ck_assert(captures_remove(stream(1), context(0)));
	ck_assert(!captures_remove(stream(1), context(0)));
	/* One that ended unseen says nothing of the next. */
	add_into(stream(1), context(0), true);
	begin(1, 0);
	ck_assert(!captures_remove(stream(1), context(0)));
	ck_assert(!captures_open(&drv));
}
END_TEST

/* None is forgotten, however many are open. */
START_TEST(two_thousand_captures)
{
	for (unsigned int n = 0; n < STREAMS; n++)
		begin(n, 0);
	ck_assert(captures_open(&drv));
	for (unsigned int n = 0; n < STREAMS - 1; n++)
		captures_remove(stream(n), context(0));
	ck_assert(captures_open(&drv));
	captures_remove(stream(STREAMS - 1), context(0));
	ck_assert(!captures_open(&drv));
}
END_TEST

/* It is open before the driver has begun it, and the driver is not asked about it. */
START_TEST(one_that_did_not_begin)
{
	struct capture *c = captures_begin(stream(0), context(0), false);

	ck_assert(captures_open(&drv));
	ck_assert_uint_eq(questions, 0);
	captures_begun(c, false);
	ck_assert(!captures_open(&drv));
	/* A second one on the same stream fails: the first stays. */
	begin(0, 0);
	captures_begun(captures_begin(stream(0), context(0), true), false);
	ck_assert(captures_open(&drv));
	ck_assert(!captures_remove(stream(0), context(0)));
	ck_assert(!captures_open(&drv));
}
END_TEST

static void *end_into(void *arg)
{
	*(bool *)arg = captures_remove(stream(0), context(0));
	return NULL;
}

/* Its end, by a thread that knows that the driver has begun it, comes after its begin. */
START_TEST(one_that_ends_while_it_begins)
{
	struct capture *c = captures_begin(stream(0), context(0), true);
	pthread_t ends_it;
	bool into = false;

	pthread_create(&ends_it, NULL, end_into, &into);
	usleep(20000);
	ck_assert(captures_open(&drv));
	captures_begun(c, true);
	pthread_join(ends_it, NULL);
	ck_assert(into);
	ck_assert(!captures_open(&drv));
}
END_TEST

/* A context that was released, and lives on: its captures are open until it has ended. */
START_TEST(those_of_a_context_that_may_end)
{
	begin(0, 0);
	begin(1, 1);
	captures_context_ending(context(0));
	questions = 0;
	ck_assert(captures_open(&drv));
	ck_assert_uint_eq(questions, 1); /* of stream 1 */
	captures_context_lives(context(0));
	captures_remove(stream(1), context(0));
	ck_assert(captures_open(&drv));
	ck_assert_uint_eq(questions, 2);
	captures_context_ending(context(0));
	captures_remove_context(context(0));
	ck_assert(!captures_open(&drv));
}
END_TEST

static void *ask(void *arg)
{
	(void)arg;
	captures_open(&drv);
	return NULL;
}

static void *end_stream(void *arg)
{
	(void)arg;
	captures_remove(stream(0), context(0));
	__atomic_store_n(&gone[0], true, __ATOMIC_RELEASE);
	return NULL;
}

static void *end_context(void *arg)
{
	(void)arg;
	captures_context_ending(context(0));
	__atomic_store_n(&gone[0], true, __ATOMIC_RELEASE);
	captures_remove_context(context(0));
	return NULL;
}

/* Wait until somebody ends the only one that is open: nobody asks about it any more. */
static void await_end(void)
{
	unsigned int before;

	hurry = true;
	do {
		before = __atomic_load_n(&questions, __ATOMIC_ACQUIRE);
		ck_assert(captures_open(&drv));
	} while (__atomic_load_n(&questions, __ATOMIC_ACQUIRE) != before);
	hurry = false;
}

static void *(*const enders[])(void *) = {end_stream, end_context};

/* The stream goes when the driver has answered two threads, and no third one asks. */
START_TEST(a_question_in_flight)
{
	pthread_t asks[2], ends_it;

	begin(0, 0);
	slow = true;
	for (int i = 0; i < 2; i++)
		pthread_create(&asks[i], NULL, ask, NULL);
	while (__atomic_load_n(&questions, __ATOMIC_ACQUIRE) < 2)
		usleep(100);
	pthread_create(&ends_it, NULL, enders[_i], NULL);
	await_end();
	usleep(20000);
	ck_assert(!__atomic_load_n(&gone[0], __ATOMIC_ACQUIRE));
	__atomic_store_n(&slow, false, __ATOMIC_RELEASE);
	pthread_join(ends_it, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(asks[i], NULL);
	ck_assert(!captures_open(&drv));
}
END_TEST

/* A context that lives on, released by a third thread meanwhile, keeps nobody from ending it. */
START_TEST(a_question_in_flight_while_a_context_lives_on)
{
	pthread_t asks, ends_it;

	begin(0, 0);
	slow = true;
	pthread_create(&asks, NULL, ask, NULL);
	while (__atomic_load_n(&questions, __ATOMIC_ACQUIRE) < 1)
		usleep(100);
	pthread_create(&ends_it, NULL, end_stream, NULL);
	await_end();
	captures_context_lives(context(0));
	__atomic_store_n(&slow, false, __ATOMIC_RELEASE);
	pthread_join(ends_it, NULL);
	pthread_join(asks, NULL);
	ck_assert(!captures_open(&drv));
}
END_TEST

static pthread_barrier_t barrier;

/* Begins a capture of the thread's own stream, ends it where @arg says so, and stays a while. */
static void *per_thread(void *arg)
{
	add(CU_STREAM_PER_THREAD, context(0));
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	if (arg)
		captures_remove(CU_STREAM_PER_THREAD, context(0));
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* One name for the streams of all threads: each ends with its own thread. */
START_TEST(streams_of_threads)
{
	pthread_t ends, stays;

	pthread_barrier_init(&barrier, NULL, 3);
	pthread_create(&ends, NULL, per_thread, &barrier);
	pthread_create(&stays, NULL, per_thread, NULL);
	pthread_barrier_wait(&barrier);
	captures_remove(CU_STREAM_PER_THREAD, context(0)); /* ours: there is none */
	ck_assert(captures_open(&drv));
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	ck_assert(captures_open(&drv));
	pthread_barrier_wait(&barrier);
	pthread_join(ends, NULL);
	pthread_join(stays, NULL);
	/* The one that was left open cannot be ended by anybody now. */
	while (captures_open(&drv))
		usleep(1000);
}
END_TEST

/* A thread has one in each context, and the driver tells of that of the current one. */
START_TEST(a_thread_has_a_stream_in_each_context)
{
	for (unsigned int n = 0; n < 2; n++)
		add_into(CU_STREAM_PER_THREAD, context(n), n);
	ck_assert(captures_remove(CU_STREAM_PER_THREAD, context(1)));
	current = context(1);
	ck_assert(captures_open(&drv));
	ck_assert_uint_eq(questions, 0);
	ck_assert(!captures_remove(CU_STREAM_PER_THREAD, context(1)));
	ck_assert(captures_open(&drv));
	captures_remove(CU_STREAM_PER_THREAD, context(0));
	ck_assert(!captures_open(&drv));
}
END_TEST

static void *churn(void *arg)
{
	unsigned int first = (unsigned int)(uintptr_t)arg;

	for (int i = 0; i < 20000; i++) {
		begin(first + i % 8, first);
		captures_remove(stream(first + i % 8), context(0));
	}
	return NULL;
}

/* While others come and go, one that is open is never missed. */
START_TEST(one_among_many)
{
	pthread_t threads[4];

	begin(0, 99);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, churn, (void *)(8 + 8 * i));
	for (int i = 0; i < 2000; i++)
		ck_assert(captures_open(&drv));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	captures_remove(stream(0), context(0));
	ck_assert(!captures_open(&drv));
}
END_TEST

START_TEST(a_forked_child_has_none)
{
	int status;
	pid_t pid;

	begin(0, 0);
	pid = fork();
	if (!pid)
		_exit(captures_open(&drv));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	captures_remove(stream(0), context(0));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("captures");
	TCase *tc = tcase_create("open");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, open_until_all_have_ended);
	tcase_add_test(tc, one_that_ended_unseen);
	tcase_add_test(tc, those_of_a_context_that_is_destroyed);
	tcase_add_test(tc, those_of_a_green_context);
	tcase_add_test(tc, into_a_graph_that_was_there);
	tcase_add_test(tc, two_thousand_captures);
	tcase_add_test(tc, one_that_did_not_begin);
	tcase_add_test(tc, one_that_ends_while_it_begins);
	tcase_add_test(tc, those_of_a_context_that_may_end);
	tcase_add_loop_test(tc, a_question_in_flight, 0, 2);
	tcase_add_test(tc, a_question_in_flight_while_a_context_lives_on);
	tcase_add_test(tc, streams_of_threads);
	tcase_add_test(tc, a_thread_has_a_stream_in_each_context);
	tcase_add_test(tc, one_among_many);
	tcase_add_test(tc, a_forked_child_has_none);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
