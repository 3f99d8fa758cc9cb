/* SPDX-License-Identifier: Apache-2.0 */
/* What the control thread decides for one of several processes: resumes with the others, and its lease. */
#include "checkpoint/control/state/state.h"

#include "tests/check_suite.h"
#include "tests/unit/checkpoint/control_world.h"

/* ---- resumes with others ---- */

/* Of one of several, whose command may have ended before its line is read: it waits for the others. */
START_TEST(the_end_of_a_snapshot_of_several_resumes_them_together)
{
	const struct control_event gone = {.kind = EV_DONE, .matches = true};
	const struct control_event done = {.kind = EV_DONE, .matches = true, .options.joint = true};

	for (int i = 0; i < 2; i++) {
		struct control_state s = {.rest = STATE_PAUSED,
					  .wishes = {[WISHER_SNAPSHOT] = true}};
		struct control_actions actions = {0};

		ck_assert(control_is_lent(&s));
		if (i)
			control_take(&s, &gone, &actions);
		control_take(&s, &done, &actions);
		control_decide(&s, false, false, &actions);
		ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
		ck_assert(find(&actions, ACT_START)->options.joint);
	}
}
END_TEST

/* A joint resume waits for memory. */
static struct control_state resuming_with_others(void)
{
	struct control_state s = {.rest = STATE_PAUSED, .wishes = {[WISHER_USER] = true}};
	struct control_actions actions = {0};

	control_take(&s, &(struct control_event){.kind = EV_RESUME, .options.joint = true},
		     &actions);
	control_decide(&s, false, false, &actions);
	ck_assert(find(&actions, ACT_START)->options.joint);
	return s;
}

static void check_stays_paused(struct control_state *s)
{
	struct control_actions actions = {0};

	control_decide(s, false, false, &actions);
	ck_assert_int_eq(s->activity, ACTIVITY_IDLE);
	ck_assert_int_eq(s->rest, STATE_PAUSED);
	ck_assert(s->wishes[WISHER_USER] && !s->holder);
	ck_assert_uint_eq(count(&actions, ACT_START), 0);
	/* Who asks for it gets it. */
	take_signal(s, EV_RESUME);
	ck_assert_int_eq(s->activity, ACTIVITY_RESUMING);
}

/* The client that holds gives up, or is gone, at once or when the process is at rest: the others are paused too. */
START_TEST(what_ends_a_joint_resume_leaves_it_paused)
{
	const enum event_kind end = _i % 2 ? EV_ABORT : EV_HOLDER_GONE;
	struct control_state s = resuming_with_others();
	struct control_actions actions = {0};

	control_take(&s, &(struct control_event){.kind = EV_PAUSE, .client = 1}, &actions);
	if (_i < 2)
		control_take(&s, &called_off, &actions);
	control_decide(&s, false, false, &actions);
	control_take(&s, &(struct control_event){.kind = end, .client = 1}, &actions);
	if (_i >= 2)
		control_take(&s, &called_off, &actions);
	check_stays_paused(&s);
}
END_TEST

/* The others had begun to run, and it does as well. */
START_TEST(what_comes_too_late_for_a_joint_resume)
{
	const struct control_event runs = {
		.kind = EV_ENDED, .code = END_OK, .written = END_OK, .reason = ""};
	struct control_state s = resuming_with_others();
	struct control_actions actions = {0};

	control_take(&s, &(struct control_event){.kind = EV_PAUSE, .client = 1}, &actions);
	control_take(&s, &(struct control_event){.kind = EV_ABORT, .client = 1}, &actions);
	control_take(&s, &runs, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert(s.activity == ACTIVITY_IDLE && s.rest == STATE_RUNNING);
	ck_assert(!control_wants_paused(&s));
}
END_TEST

/* Ctrl-Z for one process, and fg. */
START_TEST(a_stop_that_ends_a_joint_resume)
{
	struct control_state s = resuming_with_others();
	struct control_actions actions = {0};

	take_signal(&s, EV_STOP);
	control_take(&s, &called_off, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert(s.activity == ACTIVITY_IDLE && s.stopping);
	control_take(&s, &(struct control_event){.kind = EV_GO_ON}, &actions);
	check_stays_paused(&s);
}
END_TEST

/* Its time is over, and somebody has asked for this process meanwhile, who would wait for longer. */
START_TEST(a_joint_resume_that_times_out)
{
	struct control_state s = resuming_with_others();
	struct control_actions actions = {0};

	s.timeout_ms = 1000;
	control_take(&s, &(struct control_event){.kind = EV_RESUME}, &actions);
	control_take(&s, &timed_out, &actions);
	check_stays_paused(&s);
}
END_TEST

/*
 * It comes while others make the image of all, and fails as the snapshot alone has the memory. At the end all resume,
 * by the pact that is for that; none does without one.
 */
START_TEST(a_joint_resume_during_a_snapshot)
{
	const struct control_event done = {.kind = EV_DONE, .matches = true, .options.joint = _i};
	struct control_state s = {.rest = STATE_PAUSED,
				  .wishes = {[WISHER_SNAPSHOT] = true},
				  .snapshot = SNAPSHOT_OPEN,
				  .plan_image = true};
	struct control_actions actions = {0}, then = {0};

	control_take(&s, &(struct control_event){.kind = EV_RESUME, .options.joint = true},
		     &actions);
	control_decide(&s, false, false, &actions);
	control_take(&s, &called_off, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert_int_eq(s.snapshot, SNAPSHOT_OPEN);
	control_take(&s, &done, &then);
	control_decide(&s, false, false, &then);
	ck_assert_uint_eq(count(&then, ACT_LOCK), !_i);
	if (_i)
		ck_assert(s.activity == ACTIVITY_RESUMING && s.hold == HOLD_JOINT);
	else
		check_stays_paused(&s);
}
END_TEST

/* ---- the lease of one of several processes ---- */

static void take_plainly(struct control_state *s, struct control_event e)
{
	struct control_actions actions = {0};

	control_take(s, &e, &actions);
	control_decide(s, false, false, &actions);
}

static void ends(struct control_state *s, enum end_code code, bool paused, bool partly)
{
	take_plainly(s, (struct control_event){.kind = EV_ENDED,
					       .code = code,
					       .written = END_OK,
					       .reason = "",
					       .paused = paused,
					       .partly = partly});
}

static const struct control_event joint_yield = {.kind = EV_YIELD, .options.hold = true},
				  with_pact = {.kind = EV_LEASE_BACK, .options.joint = true},
				  without = {.kind = EV_LEASE_BACK};

/* A part of its memory is out, or all, and so are the others. */
static struct control_state out_with_others(bool partly)
{
	struct control_state s = {.rest = STATE_RUNNING};

	take_plainly(&s, joint_yield);
	take_plainly(&s, (struct control_event){.kind = EV_COMMIT, .by_lease = true});
	ends(&s, END_OK, true, partly);
	ck_assert(s.lease == LEASE_GONE && s.rest == STATE_WAITING);
	return s;
}

/* Its daemon is gone, and the others have not run; nor has it. */
static struct control_state left_by_its_daemon(void)
{
	struct control_state s = out_with_others(false);

	take_plainly(&s, with_pact);
	ck_assert(s.activity == ACTIVITY_RESUMING && s.hold == HOLD_JOINT);
	ends(&s, END_BUSY, true, false);
	ck_assert(s.activity == ACTIVITY_IDLE && control_awaits_lease(&s));
	return s;
}

/* The daemon has ended, and has sent a pact before; or has let it go by a word, or has sent none. */
START_TEST(one_of_several_resumes_with_the_others)
{
	struct control_state s = out_with_others(true);

	take_plainly(&s, with_pact);
	ck_assert(s.activity == ACTIVITY_RESUMING && s.hold == HOLD_JOINT);
	s = out_with_others(true);
	take_plainly(&s, (struct control_event){
				 .kind = EV_LEASE_BACK, .by_lease = true, .options.joint = true});
	ck_assert(s.activity == ACTIVITY_RESUMING && s.hold == HOLD_NONE);
	/* There is no thread for it at first. */
	s = out_with_others(true);
	take_plainly(&s, with_pact);
	take_plainly(&s, (struct control_event){.kind = EV_NO_START, .reason = ""});
	ck_assert(s.activity == ACTIVITY_STARVED && s.joint);
	take_plainly(&s, (struct control_event){.kind = EV_RETRY});
	ck_assert(s.activity == ACTIVITY_RESUMING && s.hold == HOLD_JOINT);
	s = out_with_others(true);
	take_plainly(&s, without);
	ck_assert_int_eq(s.activity, ACTIVITY_PAUSING); /* of the rest */
	ends(&s, END_OK, true, false);
	ck_assert(s.activity == ACTIVITY_IDLE && control_awaits_lease(&s));
}
END_TEST

/* The daemon took it as one of no others: those with which its user had asked it to resume are no more. */
START_TEST(one_that_is_left_of_several_waits_for_nobody)
{
	struct control_state s = {.rest = STATE_WAITING, .lease = LEASE_GONE, .back = BACK_ASKED};

	take_plainly(&s, without);
	ck_assert(s.activity == ACTIVITY_RESUMING && s.hold == HOLD_NONE);
}
END_TEST

/* All or none have resumed: another daemon may take it, or its user. */
START_TEST(one_of_several_is_taken_by_another_daemon)
{
	struct control_state s = left_by_its_daemon();

	take_plainly(&s, joint_yield);
	ck_assert(s.activity == ACTIVITY_YIELDING && !control_wants_paused(&s));
	ends(&s, END_OK, true, false);
	/* That one ends as well, before all have its pact. */
	take_plainly(&s, without);
	ck_assert_int_eq(s.activity, ACTIVITY_PAUSING);
	ends(&s, END_OK, true, false);
	ck_assert(s.activity == ACTIVITY_IDLE && control_awaits_lease(&s));
	take_plainly(&s, (struct control_event){.kind = EV_RESUME, .options.joint = true});
	ck_assert(s.activity == ACTIVITY_RESUMING && s.hold == HOLD_JOINT);
	ends(&s, END_TIMEOUT, true, false);
	ck_assert(s.wishes[WISHER_USER] && !control_awaits_lease(&s));
}
END_TEST

/* A program that handles SIGTERM may run alone, for its end. If there is no memory, it is as it was. */
START_TEST(one_of_several_ends_without_the_others)
{
	struct control_state s = left_by_its_daemon();

	take_signal(&s, EV_END);
	ck_assert(s.activity == ACTIVITY_RESUMING && s.hold == HOLD_NONE);
	ends(&s, END_TIMEOUT, true, false);
	ck_assert(s.activity == ACTIVITY_IDLE && control_awaits_lease(&s));
	take_plainly(&s, (struct control_event){.kind = EV_RETRY});
	ck_assert_int_eq(s.activity, ACTIVITY_IDLE);
}
END_TEST

/* So it is after a pause that is given up. */
START_TEST(one_of_several_is_held_and_let_go)
{
	struct control_state s = left_by_its_daemon();

	take_plainly(&s, (struct control_event){.kind = EV_PAUSE, .client = 1});
	ck_assert(s.hold == HOLD_OPEN && !control_awaits_lease(&s));
	take_plainly(&s,
		     (struct control_event){.kind = _i ? EV_ABORT : EV_HOLDER_GONE, .client = 1});
	ck_assert(s.activity == ACTIVITY_IDLE && control_awaits_lease(&s));
}
END_TEST

/* The daemon ends between two orders to go on: one goes out, the other one runs on. Both have it to resume. */
START_TEST(a_yield_ends_with_its_daemon)
{
	struct control_state s = {.rest = STATE_RUNNING};

	take_plainly(&s, joint_yield);
	if (_i)
		take_plainly(&s, (struct control_event){.kind = EV_COMMIT, .by_lease = true});
	control_take(&s, &with_pact, &(struct control_actions){0});
	ends(&s, END_BUSY, _i, _i);
	ck_assert_int_eq(s.activity, _i ? ACTIVITY_RESUMING : ACTIVITY_IDLE);
	ck_assert(s.hold == (_i ? HOLD_JOINT : HOLD_NONE) && !s.joint && !control_wants_paused(&s));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control_joint");
	TCase *tcase = tcase_create("control_joint");

	tcase_add_test(tcase, the_end_of_a_snapshot_of_several_resumes_them_together);
	tcase_add_loop_test(tcase, what_ends_a_joint_resume_leaves_it_paused, 0, 4);
	tcase_add_test(tcase, what_comes_too_late_for_a_joint_resume);
	tcase_add_test(tcase, a_stop_that_ends_a_joint_resume);
	tcase_add_test(tcase, a_joint_resume_that_times_out);
	tcase_add_loop_test(tcase, a_joint_resume_during_a_snapshot, 0, 2);
	tcase_add_test(tcase, one_of_several_resumes_with_the_others);
	tcase_add_test(tcase, one_that_is_left_of_several_waits_for_nobody);
	tcase_add_test(tcase, one_of_several_is_taken_by_another_daemon);
	tcase_add_test(tcase, one_of_several_ends_without_the_others);
	tcase_add_loop_test(tcase, one_of_several_is_held_and_let_go, 0, 2);
	tcase_add_loop_test(tcase, a_yield_ends_with_its_daemon, 0, 2);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
