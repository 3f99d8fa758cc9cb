/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate, and signal handlers that make calls. The processor's trap flag has a handler come after
 * every instruction of a call, so no window is too narrow to be met.
 */
#include "checkpoint/gate/gate.h"

#include "tests/check_suite.h"

#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100 /* of EFLAGS */

/* Code in this section is interrupted, what it calls is not. */
#define STEPPED __attribute__((section("stepped"), noinline))
extern const char __start_stepped[], __stop_stepped[];

static volatile enum gate_kind outer, inner;
static volatile int first, every; /* the handler comes at the @first instruction, and each @every */
static volatile int seen, handled, unmarked, refused;
static volatile bool in_driver;

/* What the driver sees while a call is in it. */
static __attribute__((noinline)) void driver(enum gate_kind kind)
{
	if (__atomic_load_n(gate_self.inside, __ATOMIC_RELAXED) != (int)kind)
		unmarked++;
}

static void on_step(int sig, siginfo_t *info, void *arg)
{
	uintptr_t at = ((ucontext_t *)arg)->uc_mcontext.gregs[REG_RIP];
	int n;

	(void)sig;
	(void)info;
	if (at < (uintptr_t)__start_stepped || at >= (uintptr_t)__stop_stepped)
		return;
	n = seen++;
	if (n != first && (!every || n < first || (n - first) % every))
		return;
	handled++;
	if (!gate_enter(inner)) {
		refused++;
		return;
	}
	if (__atomic_load_n(gate_self.inside, __ATOMIC_RELAXED) == GATE_OUT)
		unmarked++;
	gate_exit();
}

STEPPED static void call(enum gate_kind kind)
{
	__builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | TRAP_FLAG);
	if (gate_enter(kind)) {
		driver(kind);
		gate_exit();
	}
	__builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~(unsigned long)TRAP_FLAG);
}

/* Returns how many instructions there were. */
static int interrupted_call(int at, int and_each)
{
	first = at;
	every = and_each;
	seen = handled = 0;
	call(outer);
	ck_assert_int_eq(unmarked, 0);
	ck_assert_int_eq(refused, 0);
	ck_assert_uint_eq(gate_self.depth, 0);
	ck_assert_int_eq(*gate_self.inside, GATE_OUT);
	return seen;
}

static void catch_steps(void)
{
	struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};

	ck_assert_int_eq(gate_init(), 0);
	ck_assert(gate_enter(GATE_HOLD));
	gate_exit();
	ck_assert_int_eq(sigaction(SIGTRAP, &action, NULL), 0);
}

/* One handler at each place, and then several at each distance. */
START_TEST(an_interrupted_call_has_its_mark)
{
	int steps;

	outer = _i & 1 ? GATE_WAIT : GATE_HOLD;
	inner = _i & 2 ? GATE_WAIT : GATE_HOLD;
	catch_steps();
	steps = interrupted_call(1 << 20, 0);
	ck_assert_int_gt(steps, 10);
	for (int at = 0; at < steps; at++) {
		interrupted_call(at, 0);
		ck_assert_int_eq(handled, 1);
		for (int each = 1; each < steps; each++)
			interrupted_call(at, each);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gate");
	TCase *tc = tcase_create("handlers");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, an_interrupted_call_has_its_mark, 0, 4);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
