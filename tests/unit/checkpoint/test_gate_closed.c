/* SPDX-License-Identifier: Apache-2.0 */
/* The gate, closed and opened under threads that call all the time, come, go and nest. */
#include "checkpoint/gate/gate.h"

#include "tests/check_suite.h"
#include "common/clock.h"
#include "common/limits.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLERS 8
#define HANG_MS 30000 /* for threads that have next to nothing to do, on any machine */

static const bool never;
static bool stop;
static unsigned int inside[4]; /* threads between gate_enter() and gate_exit(), by kind */
static unsigned int calls;
static unsigned int refused;
static pthread_t threads[CALLERS];
static double frozen_ms; /* between two looks at the clock; 0: it is the machine's */
static unsigned int looks;

double __real_clock_ms(void);
double __wrap_clock_ms(void);

double __wrap_clock_ms(void)
{
	return frozen_ms ? ++looks * frozen_ms : __real_clock_ms();
}

static unsigned int get(const unsigned int *count)
{
	return __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

static void add(unsigned int *count, int n)
{
	__atomic_add_fetch(count, n, __ATOMIC_SEQ_CST);
}

/* Every second call has another one in it, as a profiler's callback makes it. */
static void call(enum gate_kind kind)
{
	if (!gate_enter(kind)) {
		add(&refused, 1);
		return;
	}
	add(&inside[kind], 1);
	if (get(&calls) % 2 && gate_enter(GATE_HOLD))
		gate_exit();
	add(&calls, 1);
	add(&inside[kind], -1);
	gate_exit();
}

static void *caller(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		call(GATE_HOLD);
	return NULL;
}

static void *one_call(void *arg)
{
	call((enum gate_kind)(uintptr_t)arg);
	return NULL;
}

/* A thread that begins others, each of which makes one call and ends. */
static void *parent(void *arg)
{
	pthread_t child;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		if (!pthread_create(&child, NULL, one_call, (void *)GATE_HOLD))
			pthread_join(child, NULL);
	return arg;
}

static void start(void *(*function)(void *), void *arg)
{
	for (int i = 0; i < CALLERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, function, arg), 0);
}

static void join(void)
{
	for (int i = 0; i < CALLERS; i++)
		pthread_join(threads[i], NULL);
}

static bool wait_until_out(enum gate_kind kind, double ms)
{
	return gate_wait_until_out(kind, clock_ms() + ms, &never);
}

/* Nobody is inside once the gate is closed and all are out, and calls go on when it is open. */
static void close_and_open(int times)
{
	for (int i = 0; i < times; i++) {
		unsigned int before;

		gate_close();
		ck_assert(wait_until_out(GATE_HOLD, HANG_MS));
		before = get(&calls);
		ck_assert_uint_eq(get(&inside[GATE_HOLD]), 0);
		usleep(500);
		ck_assert_uint_eq(get(&inside[GATE_HOLD]), 0);
		ck_assert_uint_eq(get(&calls), before);
		gate_open();
		for (int ms = 0; get(&calls) == before && ms < HANG_MS; ms++)
			usleep(1000);
		ck_assert_uint_gt(get(&calls), before);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	join();
}

START_TEST(nobody_is_inside_a_closed_gate)
{
	ck_assert_int_eq(gate_init(), 0);
	start(caller, NULL);
	close_and_open(15);
}
END_TEST

START_TEST(nor_where_membarrier_is_refused)
{
	ck_assert_int_eq(gate_init(), 0);
	__atomic_fetch_or(&gate_flags, GATE_FENCE, __ATOMIC_SEQ_CST);
	start(caller, NULL);
	close_and_open(15);
	ck_assert_int_eq(gate_flags, GATE_FENCE);
}
END_TEST

START_TEST(threads_come_and_go)
{
	ck_assert_int_eq(gate_init(), 0);
	start(parent, NULL);
	close_and_open(10);
}
END_TEST

static int stay[2]; /* a pipe: who is inside stays there until there is a byte */

static void *stays(void *arg)
{
	enum gate_kind kind = (enum gate_kind)(uintptr_t)arg;
	char byte;

	ck_assert(gate_enter(kind));
	add(&inside[kind], 1);
	ck_assert_int_eq(read(stay[0], &byte, 1), 1);
	gate_exit();
	return NULL;
}

static pthread_t staying(enum gate_kind kind)
{
	pthread_t thread;

	if (!stay[1])
		ck_assert_int_eq(pipe(stay), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, stays, (void *)kind), 0);
	while (!get(&inside[kind]))
		usleep(100);
	return thread;
}

static void leave(pthread_t thread)
{
	ck_assert_int_eq(write(stay[1], "", 1), 1);
	pthread_join(thread, NULL);
}

START_TEST(who_only_waits_is_waited_for_apart)
{
	pthread_t thread;

	ck_assert_int_eq(gate_init(), 0);
	thread = staying(GATE_WAIT);
	gate_close();
	ck_assert(wait_until_out(GATE_HOLD, HANG_MS));
	ck_assert(!wait_until_out(GATE_WAIT, 50));
	leave(thread);
	ck_assert(wait_until_out(GATE_WAIT, HANG_MS));
}
END_TEST

/* It passes a closed gate, and a held one; it waits at a shut one, and not at rest. */
START_TEST(who_asks_passes_until_the_gate_is_shut)
{
	pthread_t thread;

	ck_assert_int_eq(gate_init(), 0);
	gate_hold();
	call(GATE_ASK);
	gate_close();
	call(GATE_ASK);
	thread = staying(GATE_ASK);
	ck_assert(wait_until_out(GATE_HOLD, HANG_MS));
	ck_assert(wait_until_out(GATE_WAIT, HANG_MS));
	gate_shut();
	ck_assert(!wait_until_out(GATE_ASK, 50));
	leave(thread);
	ck_assert(wait_until_out(GATE_ASK, HANG_MS));
	start(one_call, (void *)GATE_ASK);
	usleep(2000);
	ck_assert_uint_eq(get(&calls), 2);
	ck_assert_uint_eq(get(&refused), 0);
	gate_rest();
	join();
	ck_assert_uint_eq(get(&calls), 2);
	ck_assert_uint_eq(get(&refused), CALLERS);
	ck_assert(gate_rests());
	gate_open();
	ck_assert(!gate_rests());
	call(GATE_ASK);
	ck_assert_uint_eq(get(&calls), 3);
}
END_TEST

static unsigned int made; /* calls that were put off */

static void put_off(void)
{
	ck_assert_int_eq(*gate_self.inside, GATE_HOLD);
	ck_assert(gate_enter(GATE_HOLD)); /* it is inside */
	gate_exit();
	made++;
}

/* It is made once, by the first call that enters, which may be a fast one. */
START_TEST(a_call_is_put_off_until_the_next_one_enters)
{
	ck_assert_int_eq(gate_init(), 0);
	gate_close();
	gate_shut();
	gate_rest();
	for (int i = 0; i < 3; i++) {
		ck_assert(!gate_enter(GATE_ASK));
		gate_call_later(put_off);
	}
	ck_assert(!gate_enter(GATE_ASK));
	gate_open();
	ck_assert_uint_eq(made, 0);
	ck_assert(gate_enter(GATE_HOLD));
	ck_assert_uint_eq(made, 1);
	gate_exit();
	ck_assert_int_eq(*gate_self.inside, GATE_OUT);
	ck_assert(gate_enter(GATE_HOLD));
	ck_assert_uint_eq(made, 1);
	gate_exit();
	gate_close();
	ck_assert(wait_until_out(GATE_HOLD, HANG_MS));
}
END_TEST

/* A process that exits while it rests answers nothing. */
START_TEST(a_gate_that_refuses_does_not_rest)
{
	ck_assert_int_eq(gate_init(), 0);
	gate_close();
	gate_shut();
	gate_rest();
	gate_refuse(CUDA_ERROR_DEINITIALIZED);
	ck_assert(!gate_rests());
	ck_assert(!gate_enter(GATE_ASK));
	ck_assert_int_eq(gate_refusal(), CUDA_ERROR_DEINITIALIZED);
}
END_TEST

START_TEST(a_call_that_does_not_return)
{
	pthread_t thread;
	bool cancel = true;
	double start_ms;

	ck_assert_int_eq(gate_init(), 0);
	thread = staying(GATE_HOLD);
	gate_close();
	start_ms = clock_ms();
	ck_assert(!wait_until_out(GATE_HOLD, 50));
	ck_assert_double_ge(clock_ms(), start_ms + 50);
	ck_assert(!gate_wait_until_out(GATE_HOLD, INFINITY, &cancel));
	gate_open();
	leave(thread);
}
END_TEST

/* A limit of ours, while each look at the clock comes much later than the one before. */
START_TEST(a_frozen_process_has_not_waited)
{
	pthread_t thread;

	ck_assert_int_eq(gate_init(), 0);
	thread = staying(GATE_HOLD);
	gate_close();
	limits_begin(true);
	frozen_ms = 3000;
	ck_assert(!gate_wait_until_out(GATE_HOLD, limits_ms() + 1000, &never));
	ck_assert_uint_ge(looks, 10);
	frozen_ms = 0;
	gate_open();
	leave(thread);
}
END_TEST

/* The engine's thread does not wait for itself; a call in a call does not wait at the gate. */
START_TEST(the_caller_is_not_waited_for)
{
	ck_assert_int_eq(gate_init(), 0);
	ck_assert(gate_enter(GATE_HOLD));
	gate_close();
	ck_assert(wait_until_out(GATE_HOLD, HANG_MS));
	ck_assert(gate_enter(GATE_HOLD));
	gate_exit();
	gate_exit();
}
END_TEST

START_TEST(who_waits_at_the_gate_is_refused)
{
	ck_assert_int_eq(gate_init(), 0);
	gate_close();
	start(one_call, (void *)GATE_HOLD);
	usleep(2000);
	ck_assert_uint_eq(get(&refused), 0);
	gate_refuse(CUDA_ERROR_DEINITIALIZED);
	join();
	ck_assert_uint_eq(get(&refused), CALLERS);
	ck_assert_uint_eq(get(&calls), 0);
	gate_open();
	ck_assert(!gate_enter(GATE_WAIT));
	ck_assert_int_eq(gate_refusal(), CUDA_ERROR_DEINITIALIZED);
}
END_TEST

static void *open_soon(void *arg)
{
	usleep(2000);
	gate_open();
	return arg;
}

/* The driver's functions leave errno alone, and so do ours. */
START_TEST(errno_is_as_it_was)
{
	pthread_t thread;

	ck_assert_int_eq(gate_init(), 0);
	gate_close();
	pthread_create(&thread, NULL, open_soon, NULL);
	errno = EXDEV;
	ck_assert(gate_enter(GATE_HOLD));
	ck_assert_int_eq(errno, EXDEV);
	gate_exit();
	pthread_join(thread, NULL);
	gate_refuse(CUDA_ERROR_DEINITIALIZED);
	ck_assert(!gate_enter(GATE_HOLD));
	ck_assert_int_eq(errno, EXDEV);
}
END_TEST

/* The child has none of the threads that were inside, and an open gate. */
START_TEST(a_forked_child_has_a_gate_of_its_own)
{
	pthread_t thread;
	int status;
	pid_t pid;

	ck_assert_int_eq(gate_init(), 0);
	thread = staying(GATE_HOLD);
	gate_close();
	pid = fork();
	if (!pid) {
		gate_after_fork();
		if (!gate_enter(GATE_HOLD))
			_exit(1);
		gate_exit();
		gate_close();
		_exit(wait_until_out(GATE_HOLD, HANG_MS) ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	gate_open();
	leave(thread);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gate");
	TCase *tc = tcase_create("closed");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, nobody_is_inside_a_closed_gate);
	tcase_add_test(tc, nor_where_membarrier_is_refused);
	tcase_add_test(tc, threads_come_and_go);
	tcase_add_test(tc, who_only_waits_is_waited_for_apart);
	tcase_add_test(tc, who_asks_passes_until_the_gate_is_shut);
	tcase_add_test(tc, a_call_is_put_off_until_the_next_one_enters);
	tcase_add_test(tc, a_gate_that_refuses_does_not_rest);
	tcase_add_test(tc, a_call_that_does_not_return);
	tcase_add_test(tc, a_frozen_process_has_not_waited);
	tcase_add_test(tc, the_caller_is_not_waited_for);
	tcase_add_test(tc, who_waits_at_the_gate_is_refused);
	tcase_add_test(tc, errno_is_as_it_was);
	tcase_add_test(tc, a_forked_child_has_a_gate_of_its_own);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
