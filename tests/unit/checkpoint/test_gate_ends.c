/* SPDX-License-Identifier: Apache-2.0 */
/* The gate, and threads that end: in every way, inside and outside, with calls from destructors. */
#include "checkpoint/gate/gate.h"

#include "tests/check_suite.h"
#include "common/clock.h"

#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 20
#define HANG_MS 30000 /* for threads that have next to nothing to do, on any machine */

/* TSan keeps a thread's state in thread-specific data too: it is gone in the last round. */
#ifdef __SANITIZE_THREAD__
#define ROUNDS (PTHREAD_DESTRUCTOR_ITERATIONS - 1)
#else
#define ROUNDS PTHREAD_DESTRUCTOR_ITERATIONS
#endif

/* Sanitizers do not see the system call, which is the last of the ends. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ENDS 3
#else
#define ENDS 4
#endif

static const bool never;
static pthread_key_t key;

static void call(void)
{
	ck_assert(gate_enter(GATE_HOLD));
	gate_exit();
}

static void closes_and_opens(void)
{
	gate_close();
	ck_assert(gate_wait_until_out(GATE_HOLD, clock_ms() + HANG_MS, &never));
	ck_assert(gate_wait_until_out(GATE_WAIT, clock_ms() + HANG_MS, &never));
	gate_open();
}

/* The rounds that are to come are in the key's value. */
static void call_in_each_round(void *rounds)
{
	if (rounds > (void *)1)
		pthread_setspecific(key, (char *)rounds - 1);
	call();
}

static void *calls_from_destructors(void *arg)
{
	call();
	pthread_setspecific(key, (void *)ROUNDS);
	return arg;
}

/* The key comes after any that the gate might have. */
static void prepare(void)
{
	ck_assert_int_eq(gate_init(), 0);
	call();
	ck_assert_int_eq(pthread_key_create(&key, call_in_each_round), 0);
}

START_TEST(calls_come_from_the_last_destructors)
{
	pthread_t threads[THREADS];

	prepare();
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < THREADS; i++)
			ck_assert_int_eq(
				pthread_create(&threads[i], NULL, calls_from_destructors, NULL), 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		closes_and_opens();
	}
}
END_TEST

static void *returns(void *arg)
{
	return arg;
}

static void *exits(void *arg)
{
	pthread_exit(arg);
}

static void *is_cancelled(void *arg)
{
	pthread_cancel(pthread_self());
	pthread_testcancel();
	return arg;
}

/* As a thread does that was made by clone(), or whose language has a runtime of its own. */
static void *exits_by_system_call(void *arg)
{
	syscall(SYS_exit, 0);
	return arg;
}

static void *(*const ends[4])(void *) = {returns, exits, is_cancelled, exits_by_system_call};

struct life {
	void *(*end)(void *);
	enum gate_kind kind;
	const int *mark;
};

static void *lives(void *arg)
{
	struct life *life = arg;

	call();
	life->mark = gate_self.inside;
	if (life->kind)
		ck_assert(gate_enter(life->kind));
	return life->end(NULL);
}

static const int *mark_of_one_that_ends(int end, enum gate_kind kind)
{
	struct life life = {ends[end], kind, NULL};
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, lives, &life), 0);
	pthread_join(thread, NULL);
	return life.mark;
}

/* Nobody is left who could call gate_exit(). */
START_TEST(who_ends_inside_is_not_inside)
{
	ck_assert_int_eq(gate_init(), 0);
	for (enum gate_kind kind = GATE_HOLD; kind <= GATE_WAIT; kind++) {
		mark_of_one_that_ends(_i, kind);
		closes_and_opens();
	}
}
END_TEST

START_TEST(the_next_thread_has_its_slot)
{
	const int *mark = mark_of_one_that_ends(_i, GATE_OUT);

	ck_assert_ptr_ne(mark, NULL);
	for (int i = 0; i < 100; i++)
		ck_assert_ptr_eq(mark_of_one_that_ends(_i, i % 3), mark);
}
END_TEST

START_TEST(a_thread_without_a_slot_is_refused)
{
	struct rlimit limit, none;

	ck_assert_int_eq(gate_init(), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	none = limit;
	none.rlim_cur = 4096;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	bool entered = gate_enter(GATE_HOLD);
	CUresult error = gate_refusal();
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	ck_assert(!entered);
	ck_assert_int_eq(error, CUDA_ERROR_OUT_OF_MEMORY);
	call();
	closes_and_opens();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gate");
	TCase *tc = tcase_create("ends");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, calls_come_from_the_last_destructors);
	tcase_add_loop_test(tc, who_ends_inside_is_not_inside, 0, ENDS);
	tcase_add_loop_test(tc, the_next_thread_has_its_slot, 0, ENDS);
	tcase_add_test(tc, a_thread_without_a_slot_is_refused);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
