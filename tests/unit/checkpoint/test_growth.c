/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that wait for room: the table of waits, and threads that leave it in all ways. */
#include "checkpoint/gate/growth.h"
#include "checkpoint/control/wake.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 300 /* more slots than there are at first */
#define TOLD    4   /* of them, others are told at once */

static unsigned int wakes;

static void wake(void)
{
	__atomic_add_fetch(&wakes, 1, __ATOMIC_RELAXED);
}

/* A wait is in the table before the control thread is woken for it. */
static void await_wakes(unsigned int count)
{
	while (__atomic_load_n(&wakes, __ATOMIC_RELAXED) < count)
		usleep(100);
}

static struct growth next(void)
{
	struct growth growth;

	while (!growth_next(&growth))
		usleep(100);
	return growth;
}

/* True: it may wait again. */
static bool wait_once(void)
{
	struct growth_try try = GROWTH_TRY;

	growth_wait(&try);
	return try.more;
}

static void *wait_for(void *bytes)
{
	return (void *)(size_t)(growth_ask(3, (size_t)bytes, false) ? 1 + wait_once() : 0);
}

static pthread_t begin(size_t bytes)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for, (void *)bytes), 0);
	return thread;
}

/* 0: it did not wait; 1: the try that follows is its last; 2: it may wait again. */
static int end(pthread_t thread)
{
	void *result;

	pthread_join(thread, &result);
	return (int)(size_t)result;
}

START_TEST(nobody_waits_unless_it_is_on)
{
	ck_assert(!growth_is_on());
	ck_assert(!growth_ask(0, 1, false));
	growth_begin(wake);
	ck_assert(growth_is_on());
	ck_assert(!growth_waits());
	growth_end();
	ck_assert(!growth_ask(0, 1, false));
}
END_TEST

START_TEST(answers_reach_those_that_asked)
{
	pthread_t threads[3];
	struct growth g[3];

	growth_begin(wake);
	for (int i = 0; i < 3; i++) {
		threads[i] = begin(10 + i);
		g[i] = next();
		ck_assert_int_eq(g[i].dev, 3);
		ck_assert_uint_eq(g[i].bytes, 10 + i);
	}
	await_wakes(3);
	ck_assert_uint_eq(__atomic_load_n(&wakes, __ATOMIC_RELAXED), 3);
	ck_assert(!growth_next(&g[0]) && growth_waits());
	growth_answer(g[1].serial, false);
	ck_assert_int_eq(end(threads[1]), 1);
	growth_answer(g[0].serial + 1000, true);
	growth_answer(0, true);
	growth_answer(g[2].serial, true);
	ck_assert_int_eq(end(threads[2]), 2);
	ck_assert(growth_waits());
	growth_end();
	ck_assert_int_eq(end(threads[0]), 1);
	ck_assert(!growth_waits());
}
END_TEST

/* One that was answered before it waits, too. */
START_TEST(the_wait_may_be_over_before_it_begins)
{
	growth_begin(wake);
	ck_assert(growth_ask(0, 1, false));
	growth_answer(next().serial, true);
	ck_assert(wait_once());
	ck_assert(growth_ask(0, 1, false));
	growth_end();
	ck_assert(!wait_once());
}
END_TEST

static void *ask_alone(void *arg)
{
	ck_assert(growth_ask(0, 1, false));
	return arg;
}

/* Threads that end without waiting leave slots to others. */
START_TEST(slots_of_ended_threads)
{
	growth_begin(wake);
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, ask_alone, NULL);
		pthread_join(thread, NULL);
	}
	/* The kernel may say for a moment that a thread is still there after it was joined. */
	while (growth_waits())
		usleep(1000);
}
END_TEST

START_TEST(what_was_told_still_waits)
{
	struct growth growth;
	pthread_t thread;

	growth_begin(wake);
	ck_assert(growth_ask(0, 1, false));
	growth = next();
	ck_assert(growth_is_told(growth.serial) && !growth_is_told(growth.serial + 1));
	growth_untold();
	ck_assert(!growth_is_told(growth.serial));
	growth = next();
	growth_refuse_all();
	ck_assert(!growth_is_told(growth.serial));
	ck_assert(!wait_once());
	pthread_create(&thread, NULL, ask_alone, NULL);
	growth = next();
	pthread_join(thread, NULL);
	while (growth_is_told(growth.serial))
		usleep(1000);
}
END_TEST

/* Others are told of a few at a time, in the order of their beginning. */
START_TEST(many_wait)
{
	pthread_t threads[THREADS];
	struct growth g[THREADS], more;

	growth_begin(wake);
	for (int i = 0; i < THREADS; i++) {
		threads[i] = begin(i);
		await_wakes(i + 1);
	}
	for (int i = 0; i < TOLD; i++)
		g[i] = next();
	ck_assert(!growth_next(&more));
	/* It is of another kind. */
	ck_assert(growth_ask(3, THREADS, true));
	more = next();
	ck_assert_uint_eq(more.bytes, THREADS);
	growth_answer(more.serial, true);
	ck_assert(wait_once());
	for (int i = TOLD; i < THREADS; i++) {
		growth_answer(g[i - TOLD].serial, true);
		ck_assert(growth_next(&g[i]));
		ck_assert_uint_eq(g[i].bytes, i);
		ck_assert(!growth_next(&more));
	}
	growth_end();
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(end(threads[i]), i < THREADS - TOLD ? 2 : 1);
}
END_TEST

/* Those who were told have ended. */
START_TEST(others_are_told_anew)
{
	pthread_t threads[2];
	struct growth g[2], again[2];

	growth_begin(wake);
	for (int i = 0; i < 2; i++) {
		threads[i] = begin(10 + i);
		g[i] = next();
	}
	growth_answer(g[0].serial, true);
	ck_assert_int_eq(end(threads[0]), 2);
	growth_untold();
	ck_assert(growth_next(&again[0]) && !growth_next(&again[1]));
	ck_assert_uint_eq(again[0].serial, g[1].serial);
	growth_answer(g[1].serial, true);
	ck_assert_int_eq(end(threads[1]), 2);
}
END_TEST

static void *ask_when_cancelled(void *arg)
{
	/* Check's own functions are cancellation points. */
	pthread_cancel(pthread_self());
	if (growth_ask(0, 1, false))
		wait_once();
	return arg;
}

/* No driver call is a cancellation point: nor is the call that wakes the control thread. */
START_TEST(a_thread_that_is_cancelled)
{
	pthread_t thread;
	void *result;

	ck_assert_int_eq(wake_open(), 0);
	growth_begin(wake_up);
	pthread_create(&thread, NULL, ask_when_cancelled, &wakes);
	growth_answer(next().serial, false);
	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, &wakes);
}
END_TEST

/* The program may close one end of the pipe: SIGPIPE would end it. */
START_TEST(a_wake_without_a_reader_is_no_signal)
{
	ck_assert_int_eq(wake_open(), 0);
	ck_assert_int_eq(close(wake_reader()), 0);
	wake_up();
	ck_assert(wake_is_lost());
}
END_TEST

static sigjmp_buf away;
static pthread_t waiting;
static volatile sig_atomic_t in_handlers; /* waits of handlers that had room */

static void leave(int sig)
{
	(void)sig;
	siglongjmp(away, 1);
}

static void wait_too(int sig)
{
	int saved_errno = errno;

	(void)sig;
	in_handlers += growth_ask(0, 2, false) && wait_once();
	errno = saved_errno;
}

/*
 * Have the thread that waits run its handler; answer the wait of that. That thread asserts nothing
 * meanwhile: the handler would leave Check, or wait, with a lock of Check's that is needed here.
 */
static void *interrupt(void *nested)
{
	ck_assert_uint_eq(next().bytes, 1);
	usleep(5000);
	pthread_kill(waiting, SIGUSR1);
	if (nested) {
		struct growth g = next();

		ck_assert_uint_eq(g.bytes, 2);
		growth_answer(g.serial, true);
	}
	return NULL;
}

static pthread_t begin_to_interrupt(void (*handler)(int), void *nested)
{
	pthread_t thread;

	signal(SIGUSR1, handler);
	waiting = pthread_self();
	pthread_create(&thread, NULL, interrupt, nested);
	return thread;
}

START_TEST(a_wait_that_is_left_by_longjmp)
{
	growth_begin(wake);
	for (volatile int i = 0; i < THREADS; i++) {
		volatile pthread_t helper = begin_to_interrupt(leave, NULL);

		if (!sigsetjmp(away, 1)) {
			if (growth_ask(0, 1, false))
				wait_once();
			ck_abort_msg("the wait ended");
		}
		pthread_join(helper, NULL);
		ck_assert(growth_waits());
	}
	ck_assert(growth_ask(0, 2, false));
	growth_answer(next().serial, true);
	ck_assert(wait_once());
	ck_assert(!growth_waits());
}
END_TEST

START_TEST(a_wait_in_a_handler)
{
	pthread_t helper;
	bool more;

	growth_begin(wake);
	for (int i = 0; i < THREADS; i++) {
		helper = begin_to_interrupt(wait_too, &helper);
		more = growth_ask(0, 1, false) && wait_once();
		ck_assert(more); /* it may ask again */
		pthread_join(helper, NULL);
		ck_assert(!growth_waits());
		ck_assert_int_eq(in_handlers, i + 1);
	}
}
END_TEST

START_TEST(a_child_has_no_waits)
{
	int status;

	growth_begin(wake);
	ck_assert(growth_ask(0, 1, false));
	if (!fork()) {
		/* As a handler in that wait would return to it. */
		wait_once();
		_exit(growth_waits() || growth_is_on() || growth_ask(0, 1, false));
	}
	wait(&status);
	ck_assert_int_eq(status, 0);
	ck_assert(growth_waits());
}
END_TEST

int main(void)
{
	Suite *s = suite_create("growth");
	TCase *tc = tcase_create("growth");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, nobody_waits_unless_it_is_on);
	tcase_add_test(tc, answers_reach_those_that_asked);
	tcase_add_test(tc, the_wait_may_be_over_before_it_begins);
	tcase_add_test(tc, slots_of_ended_threads);
	tcase_add_test(tc, what_was_told_still_waits);
	tcase_add_test(tc, many_wait);
	tcase_add_test(tc, others_are_told_anew);
	tcase_add_test(tc, a_thread_that_is_cancelled);
	tcase_add_test(tc, a_wake_without_a_reader_is_no_signal);
	tcase_add_test(tc, a_wait_that_is_left_by_longjmp);
	tcase_add_test(tc, a_wait_in_a_handler);
	tcase_add_test(tc, a_child_has_no_waits);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
