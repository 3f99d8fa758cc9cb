/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate against the store buffers of this machine's processors: threads that enter and leave as
 * fast as they can, and a pauser that closes the gate and looks whether anything moves inside.
 */
#include "checkpoint/gate/gate.h"

#include "tests/check_suite.h"
#include "common/clock.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALLERS 4 /* at the most: one processor is the pauser's */
#define LOAD_MS 1000
#define BEHIND  16
#define LOOKS   1000 /* at a closed gate, each of all callers */
#define HANG_MS 30000

static const bool never;
static bool stop;
static int ncallers;

static struct caller {
	unsigned int entered, left;
	unsigned int place; /* in "far" */
} __attribute__((aligned(64))) callers[CALLERS];

/* More than a processor's own cache holds: a store waits for its line. */
static char far[32 << 20];

/* Stores that keep the one behind them in the store buffer. */
static void fill_store_buffer(struct caller *me)
{
	for (int i = 0; i < BEHIND; i++) {
		me->place = me->place * 1664525 + 1013904223;
		__atomic_store_n(&far[me->place % sizeof(far)], 1, __ATOMIC_RELAXED);
	}
}

static void *caller(void *arg)
{
	struct caller *me = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		fill_store_buffer(me);
		if (!gate_enter(GATE_HOLD))
			break;
		__atomic_store_n(&me->entered, me->entered + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&me->left, me->left + 1, __ATOMIC_RELEASE);
		gate_exit();
	}
	return NULL;
}

/* Calls of all callers, of those that have returned or of those that have begun. */
static unsigned int calls(bool begun)
{
	unsigned int n = 0;

	for (int i = 0; i < ncallers; i++)
		n += __atomic_load_n(begun ? &callers[i].entered : &callers[i].left,
				     __ATOMIC_ACQUIRE);
	return n;
}

/*
 * Close and open the gate under load, after @before; returns the calls that ran at a closed gate.
 */
static unsigned int calls_unseen(void (*before)(void))
{
	double until_ms = clock_ms() + LOAD_MS;
	unsigned int unseen = 0, closed = 0;
	pthread_t threads[CALLERS];

	ncallers = (int)sysconf(_SC_NPROCESSORS_ONLN) - 1;
	if (ncallers < 1 || ncallers > CALLERS)
		ncallers = ncallers < 1 ? 1 : CALLERS;
	for (int i = 0; i < ncallers; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, caller, &callers[i]), 0);
	do {
		unsigned int returned = calls(false);

		/* So that the gate closes under callers at full speed, at any moment of theirs. */
		while (calls(false) < returned + 10 + closed % 100)
			;
		closed++;
		before();
		gate_close();
		ck_assert(gate_wait_until_out(GATE_HOLD, clock_ms() + HANG_MS, &never));
		returned = calls(false);
		for (int i = 0; i < LOOKS; i++)
			if (calls(true) != returned) {
				unseen++;
				break;
			}
		gate_open();
	} while (clock_ms() < until_ms);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < ncallers; i++)
		pthread_join(threads[i], NULL);
	return unseen;
}

static void as_it_is(void)
{
}

static bool is_fenced(void)
{
	return __atomic_load_n(&gate_flags, __ATOMIC_SEQ_CST) & GATE_FENCE;
}

static void fenced(void)
{
	__atomic_fetch_or(&gate_flags, GATE_FENCE, __ATOMIC_SEQ_CST);
}

/* Every close finds out anew that there is no membarrier. */
static void unfenced(void)
{
	__atomic_fetch_and(&gate_flags, ~GATE_FENCE, __ATOMIC_SEQ_CST);
}

/* As a program does that goes into a sandbox after its first CUDA call. */
static void refuse_membarrier(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
	ck_assert_int_eq(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0), -1);
}

START_TEST(nobody_is_unseen)
{
	ck_assert_int_eq(gate_init(), 0);
	ck_assert_uint_eq(calls_unseen(as_it_is), 0);
}
END_TEST

START_TEST(nor_with_fences)
{
	ck_assert_int_eq(gate_init(), 0);
	ck_assert_uint_eq(calls_unseen(fenced), 0);
	ck_assert(is_fenced());
}
END_TEST

START_TEST(nor_where_membarrier_is_refused_later)
{
	ck_assert_int_eq(gate_init(), 0);
	refuse_membarrier();
	ck_assert_uint_eq(calls_unseen(unfenced), 0);
}
END_TEST

START_TEST(a_refused_membarrier_is_noticed)
{
	ck_assert_int_eq(gate_init(), 0);
	gate_close();
	ck_assert(!is_fenced());
	gate_open();
	refuse_membarrier();
	gate_close();
	ck_assert(is_fenced());
	gate_open();
	ck_assert(is_fenced());
}
END_TEST

START_TEST(so_is_one_that_never_was)
{
	refuse_membarrier();
	ck_assert_int_eq(gate_init(), 0);
	gate_hold();
	ck_assert(is_fenced());
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gate");
	TCase *tc = tcase_create("litmus");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, nobody_is_unseen);
	tcase_add_test(tc, nor_with_fences);
	tcase_add_test(tc, nor_where_membarrier_is_refused_later);
	tcase_add_test(tc, a_refused_membarrier_is_noticed);
	tcase_add_test(tc, so_is_one_that_never_was);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
