/* SPDX-License-Identifier: Apache-2.0 */
/* How often a job is brought to rest to see whether it is idle, by a clock that is set here. */
#include "checkpoint/control/job.h"
#include "checkpoint/control/server.h"
#include "checkpoint/control/turn/turn_idle.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/growth.h"

#include "tests/check_suite.h"

#include <string.h>

#define LIMIT_MS 25
#define PROBE_MS 20 /* how long a probe of a busy job closes the gate */

static struct control_state state = {.lease = LEASE_OURS, .rest = STATE_RUNNING};
static double now = 1000000, probe_end;
static bool unused, works;
static int probes, idles;

double __wrap_clock_ms(void);
const struct control_state *__wrap_job_now(void);
void __wrap_job_probe(void);
bool __wrap_job_came_to_rest(void);
void __wrap_server_say(const struct client *c, const char *fmt, ...);
void __wrap_gate_watch(void);
void __wrap_gate_unwatch(void);
bool __wrap_gate_is_unused(void);
pid_t __wrap_gate_inside(enum gate_kind kind);
bool __wrap_growth_waits(void);

double __wrap_clock_ms(void)
{
	return now;
}

const struct control_state *__wrap_job_now(void)
{
	return &state;
}

void __wrap_job_probe(void)
{
	state.activity = ACTIVITY_PROBING;
	probe_end = now + PROBE_MS;
	probes++;
}

bool __wrap_job_came_to_rest(void)
{
	return !works;
}

void __wrap_server_say(const struct client *c, const char *fmt, ...)
{
	(void)c;
	idles += !strncmp(fmt, "idle", 4);
}

void __wrap_gate_watch(void)
{
	unused = true;
}

void __wrap_gate_unwatch(void)
{
}

bool __wrap_gate_is_unused(void)
{
	return unused;
}

pid_t __wrap_gate_inside(enum gate_kind kind)
{
	(void)kind;
	return 0;
}

bool __wrap_growth_waits(void)
{
	return false;
}

static void pass(int ms)
{
	for (int i = 0; i < ms; i++) {
		now++;
		if (state.activity == ACTIVITY_PROBING && now >= probe_end)
			state.activity = ACTIVITY_IDLE;
		turn_idle_look(NULL, true);
	}
}

static void begin(void)
{
	probes = idles = 0;
	turn_idle_set(LIMIT_MS);
	turn_idle_look(NULL, true);
}

/* Each kernel lasts for 60 ms of its 90. */
START_TEST(bursts_are_held_up_for_a_tenth_at_most)
{
	begin();
	works = true;
	for (int burst = 0; burst < 100; burst++) {
		unused = false;
		pass(90);
	}
	ck_assert_int_gt(probes, 10);
	ck_assert_int_le(probes * PROBE_MS, 100 * 90 / 10);
	ck_assert_int_eq(idles, 0);
}
END_TEST

START_TEST(one_that_is_idle_again_is_told_as_soon)
{
	begin();
	for (int pause = 1; pause <= 10; pause++) {
		works = unused = false;
		pass(100);
		ck_assert_int_eq(idles, pause);
	}
}
END_TEST

START_TEST(one_that_is_out_looks_seldom)
{
	begin();
	ck_assert_double_lt(turn_idle_look_ms(), LIMIT_MS);
	state.lease = LEASE_GONE;
	ck_assert_double_eq(turn_idle_look_ms(), 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turn_idle");
	TCase *tc = tcase_create("turn_idle");

	tcase_add_test(tc, bursts_are_held_up_for_a_tenth_at_most);
	tcase_add_test(tc, one_that_is_idle_again_is_told_as_soon);
	tcase_add_test(tc, one_that_is_out_looks_seldom);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
