/* SPDX-License-Identifier: Apache-2.0 */
/* The gate while it is held: who gets in, and how many. What others learn of calls that come. */
#include "checkpoint/gate/gate.h"

#include "tests/check_suite.h"
#include "common/clock.h"

#include <pthread.h>
#include <unistd.h>

#define CALLERS 8
#define HANG_MS 30000 /* for threads that have next to nothing to do, on any machine */

static const bool never;
static unsigned int came[2]; /* calls of CALLERS threads in all, by whether they only wait */
static bool stop;

/* The calls of a thread of a program. */
static void *caller(void *arg)
{
	bool waits = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		if (!gate_enter(waits ? GATE_WAIT : GATE_HOLD))
			break;
		__atomic_add_fetch(&came[waits], 1, __ATOMIC_RELAXED);
		gate_exit();
	}
	return NULL;
}

static unsigned int calls(bool waits)
{
	return __atomic_load_n(&came[waits], __ATOMIC_RELAXED);
}

static void still(void)
{
	ck_assert(gate_wait_until_out(GATE_HOLD, clock_ms() + HANG_MS, &never));
}

START_TEST(as_many_come_as_are_admitted)
{
	pthread_t threads[CALLERS];
	unsigned int before;

	ck_assert_int_eq(gate_init(), 0);
	gate_hold();
	for (int i = 0; i < CALLERS; i++)
		pthread_create(&threads[i], NULL, caller, NULL);
	for (unsigned int n = 0; n < 200; n++) {
		before = calls(false);
		ck_assert_uint_eq(gate_admit(n % 5, clock_ms() + HANG_MS, &never), n % 5);
		still();
		ck_assert_uint_eq(calls(false), before + n % 5);
	}
	gate_open();
	while (calls(false) < before + 1000)
		usleep(100);
	gate_hold();
	still();
	before = calls(false);
	usleep(2000);
	ck_assert_uint_eq(calls(false), before);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	gate_open();
	for (int i = 0; i < CALLERS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

START_TEST(who_waits_goes_in_and_out_until_it_is_closed)
{
	pthread_t thread;
	unsigned int before;

	gate_hold();
	pthread_create(&thread, NULL, caller, (void *)1);
	while (calls(true) < 1000)
		usleep(100);
	gate_close();
	ck_assert(gate_wait_until_out(GATE_WAIT, clock_ms() + HANG_MS, &never));
	before = calls(true);
	usleep(2000);
	ck_assert_uint_eq(calls(true), before);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	gate_open();
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(nobody_comes_after_the_deadline)
{
	pthread_t thread;
	bool cancel = true;

	gate_hold();
	ck_assert_uint_eq(gate_admit(3, clock_ms() + 1, &never), 0);
	ck_assert_uint_eq(gate_admit(3, clock_ms() + HANG_MS, &cancel), 0);
	pthread_create(&thread, NULL, caller, NULL);
	usleep(2000);
	ck_assert_uint_eq(calls(false), 0);
	gate_close();
	usleep(2000);
	ck_assert_uint_eq(calls(false), 0);
	gate_refuse(CUDA_ERROR_DEINITIALIZED);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(calls(false), 0);
}
END_TEST

static unsigned int wakes;

static void wake(void)
{
	__atomic_add_fetch(&wakes, 1, __ATOMIC_RELAXED);
}

/* A waiter is there before it wakes anybody. */
static void await_wakes(unsigned int count)
{
	while (__atomic_load_n(&wakes, __ATOMIC_RELAXED) < count)
		usleep(100);
}

static void call(enum gate_kind kind)
{
	ck_assert(gate_enter(kind));
	gate_exit();
}

START_TEST(a_watched_gate_notices_the_first_call)
{
	gate_set_wake(wake);
	call(GATE_HOLD);
	gate_watch();
	ck_assert(gate_is_unused());
	call(GATE_ASK);
	ck_assert(gate_is_unused());
	ck_assert_uint_eq(wakes, 0);
	for (unsigned int i = 1; i <= 3; i++) {
		gate_watch();
		call(i == 2 ? GATE_WAIT : GATE_HOLD);
		call(GATE_HOLD);
		ck_assert(!gate_is_unused());
		ck_assert_uint_eq(wakes, i);
	}
	gate_watch();
	gate_close();
	ck_assert(gate_is_unused());
	gate_open();
	ck_assert(gate_is_unused());
	gate_unwatch();
	call(GATE_HOLD);
	ck_assert_uint_eq(wakes, 3);
}
END_TEST

START_TEST(a_closed_gate_notices_who_waits)
{
	pthread_t threads[CALLERS];

	gate_set_wake(wake);
	for (unsigned int round = 0; round < 20; round++) {
		gate_close();
		usleep(1000);
		ck_assert(!gate_has_waiter());
		ck_assert_uint_eq(__atomic_load_n(&wakes, __ATOMIC_RELAXED), round);
		__atomic_store_n(&stop, false, __ATOMIC_RELAXED);
		for (int i = 0; i < CALLERS; i++)
			pthread_create(&threads[i], NULL, caller, NULL);
		await_wakes(round + 1);
		ck_assert(gate_has_waiter());
		gate_shut(); /* all look again */
		usleep(1000);
		ck_assert(gate_has_waiter());
		ck_assert_uint_eq(__atomic_load_n(&wakes, __ATOMIC_RELAXED), round + 1);
		__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
		gate_open();
		ck_assert(!gate_has_waiter());
		for (int i = 0; i < CALLERS; i++)
			pthread_join(threads[i], NULL);
	}
}
END_TEST

static int turns[2][2]; /* pipes: from the caller to the test, and back */

/* The caller is about to sleep: the gate is opened and closed before it does. */
static void wake_before_the_turn(void)
{
	char byte;

	if (__atomic_fetch_add(&wakes, 1, __ATOMIC_RELAXED))
		return;
	ck_assert_int_eq(write(turns[0][1], "", 1), 1);
	ck_assert_int_eq(read(turns[1][0], &byte, 1), 1);
}

START_TEST(one_that_waits_since_before_is_noticed_again)
{
	pthread_t thread;
	char byte;

	ck_assert(!pipe(turns[0]) && !pipe(turns[1]));
	gate_set_wake(wake_before_the_turn);
	gate_close();
	pthread_create(&thread, NULL, caller, NULL);
	ck_assert_int_eq(read(turns[0][0], &byte, 1), 1);
	gate_open();
	gate_close();
	ck_assert(!gate_has_waiter());
	ck_assert_int_eq(write(turns[1][1], "", 1), 1);
	await_wakes(2);
	ck_assert(gate_has_waiter());
	ck_assert_uint_eq(__atomic_load_n(&wakes, __ATOMIC_RELAXED), 2);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	gate_open();
	pthread_join(thread, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gate");
	TCase *tc = tcase_create("held");

	tcase_add_test(tc, as_many_come_as_are_admitted);
	tcase_add_test(tc, who_waits_goes_in_and_out_until_it_is_closed);
	tcase_add_test(tc, nobody_comes_after_the_deadline);
	tcase_add_test(tc, a_watched_gate_notices_the_first_call);
	tcase_add_test(tc, a_closed_gate_notices_who_waits);
	tcase_add_test(tc, one_that_waits_since_before_is_noticed_again);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
