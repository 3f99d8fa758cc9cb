/* SPDX-License-Identifier: Apache-2.0 */
/* What a process tells the others of a joint resume, by what it does when it is asked. */
#include "checkpoint/control/joint.h"
#include "checkpoint/control/state/state.h"
#include "common/protocol/pact.h"

#include "tests/check_suite.h"

#include <unistd.h>

static struct pact *other;

/* This process is asked for a resume with one other, which has room, and looks at it in @state. */
static void ask(struct control_state state)
{
	int fd = pact_create(2);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(joint_take(fd), 0);
	other = pact_open(fd);
	ck_assert_ptr_nonnull(other);
	ck_assert(pact_join(other));
	pact_say(other, PACT_ROOM);
	close(fd);
	state.joint = true;
	joint_look(&state);
}

/* The other one takes its memory, and this one takes no part any more. */
static void check_left(void)
{
	ck_assert_int_eq(pact_look(other), PACT_TAKE);
	ck_assert(!joint_is_on());
	pact_close(other);
}

static void check_waited_for(void)
{
	ck_assert_int_eq(pact_look(other), PACT_SEEK);
	ck_assert(joint_is_on());
	ck_assert(pact_stop(other));
	pact_close(other);
}

START_TEST(one_that_runs_leaves_whatever_it_does)
{
	static const enum activity activities[] = {ACTIVITY_IDLE, ACTIVITY_TRIMMING,
						   ACTIVITY_PROBING, ACTIVITY_WRITING};

	for (size_t i = 0; i < sizeof(activities) / sizeof(*activities); i++) {
		ask((struct control_state){.rest = STATE_RUNNING, .activity = activities[i]});
		check_left();
	}
}
END_TEST

START_TEST(one_that_is_about_to_pause_or_to_run_is_waited_for)
{
	static const enum activity activities[] = {ACTIVITY_PAUSING, ACTIVITY_RESUMING,
						   ACTIVITY_YIELDING, ACTIVITY_FILLING};

	for (size_t i = 0; i < sizeof(activities) / sizeof(*activities); i++) {
		ask((struct control_state){.rest = STATE_RUNNING, .activity = activities[i]});
		check_waited_for();
	}
}
END_TEST

START_TEST(one_that_is_paused_is_waited_for)
{
	ask((struct control_state){.rest = STATE_PAUSED});
	check_waited_for();
	ask((struct control_state){.rest = STATE_PAUSED, .activity = ACTIVITY_TRIMMING});
	check_waited_for();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("joint");
	TCase *tc = tcase_create("joint");

	tcase_add_test(tc, one_that_runs_leaves_whatever_it_does);
	tcase_add_test(tc, one_that_is_about_to_pause_or_to_run_is_waited_for);
	tcase_add_test(tc, one_that_is_paused_is_waited_for);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
