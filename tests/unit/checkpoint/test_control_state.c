/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the control thread decides: every event in every state, and single rules. test_control_model.c has all states
 * that events and operations can lead to.
 */
#include "checkpoint/control/state/state.h"

#include "tests/check_suite.h"
#include "tests/unit/checkpoint/control_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const activity_names[] = {
#define ACTIVITY_NAME(name, op) #name,
	ACTIVITY_MAP(ACTIVITY_NAME)
#undef ACTIVITY_NAME
};

static const char *const event_names[] = {
#define EVENT_NAME(name) #name,
	EVENT_MAP(EVENT_NAME)
#undef EVENT_NAME
};

/*
 * The activity after each event; "." is the same, "!" is a cancelled operation. The columns are the
 * events in the order of EVENT_MAP; a new one has to be given a cell in each row.
 */
/* clang-format off */
static const char *const table[ACTIVITIES][EVENTS + 1] = {
#define ROW(name, pause, resume, end, stop, go_on, trim, snapshot, call_off, done, moved, commit, \
	    abort, gone, ended, no_start, retry, yield, room, back, probe, expired) \
	[ACTIVITY_##name] = {pause, resume, end, stop, go_on, trim, snapshot, call_off, done, moved, commit, abort, \
			     gone, ended, no_start, retry, yield, room, back, probe, expired, "end"}
/*
 * PAUSE RESUME END STOP GO_ON TRIM SNAPSHOT CALL_OFF DONE MOVED COMMIT ABORT HOLDER_GONE ENDED NO_START RETRY
 * YIELD ROOM LEASE_BACK PROBE EXPIRED
 */
ROW(IDLE, ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".",
    ".", ".", "."),
ROW(STARVED, "IDLE", "IDLE", ".", "IDLE", ".", "IDLE", "IDLE", ".", "IDLE", ".", ".", ".", ".", ".",
    ".", "IDLE", "IDLE", "IDLE", "IDLE", ".", "IDLE"),
ROW(PAUSING, ".", "PAUSING_OFF!", "PAUSING_OFF!", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".",
    "IDLE", "STARVED", ".", ".", ".", ".", ".", "."),
ROW(PAUSING_OFF, "PAUSING_AGAIN", ".", ".", "PAUSING_AGAIN", ".", ".", "PAUSING_AGAIN", ".", ".",
    ".", ".", ".", ".", "IDLE", ".", ".", ".", ".", ".", ".", "PAUSING_AGAIN"),
ROW(PAUSING_AGAIN, ".", "PAUSING_OFF", "PAUSING_OFF", ".", ".", ".", ".", ".", ".", ".", ".", ".",
    ".", "IDLE", ".", ".", ".", ".", ".", ".", "."),
ROW(RESUMING, "RESUMING_OFF!", ".", ".", "RESUMING_OFF!", ".", ".", "RESUMING_OFF!", ".", ".", ".",
    ".", ".", ".", "IDLE", "STARVED", ".", "RESUMING_OFF!", ".", ".", ".", "RESUMING_OFF!"),
ROW(RESUMING_OFF, ".", "RESUMING_AGAIN", "RESUMING_AGAIN", ".", ".", ".", ".", ".", ".", ".", ".",
    ".", ".", "IDLE", ".", ".", ".", ".", ".", ".", "."),
ROW(RESUMING_AGAIN, "RESUMING_OFF", ".", ".", "RESUMING_OFF", ".", ".", "RESUMING_OFF", ".", ".",
    ".", ".", ".", ".", "IDLE", ".", ".", "RESUMING_OFF", ".", ".", ".", "RESUMING_OFF"),
ROW(TRIMMING, ".!", ".!", ".", ".!", ".", ".", ".!", ".", ".", ".", ".", ".", ".", "IDLE",
    "STARVED", ".", ".!", ".", ".", ".", ".!"),
ROW(WRITING, ".", ".!", ".!", ".", ".", ".", ".", ".!", ".", ".", ".", ".", ".", "IDLE", "STARVED",
    ".", ".", ".", ".", ".", "."),
ROW(RELEASING, ".", ".!", ".!", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", "IDLE", "STARVED",
    ".", ".", ".", ".", ".", "."),
ROW(TIDYING, ".!", ".!", ".", ".!", ".", ".!", ".!", ".", ".!", ".", ".", ".", ".", "IDLE",
    "STARVED", ".", ".!", ".!", ".!", ".", ".!"),
ROW(YIELDING, ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", "IDLE", "STARVED",
    ".", ".", ".", ".!", ".", "."),
ROW(FILLING, ".!", ".", ".", ".!", ".", ".!", ".!", ".", ".!", ".", ".", ".", ".", "IDLE",
    "STARVED", ".", ".!", ".", ".!", ".", ".!"),
ROW(PROBING, ".!", ".!", ".", ".!", ".", ".!", ".!", ".", ".", ".", ".", ".", ".", "IDLE",
    "STARVED", ".", ".!", ".", ".", ".", ".!"),
#undef ROW
};
/* clang-format on */

/* A state in which the activity is what it is for a reason. */
static struct control_state state_in(enum activity activity)
{
	struct control_state s = {.activity = activity};
	bool was_paused = control_operation(&s) == OP_RESUME || activity == ACTIVITY_WRITING ||
			  activity == ACTIVITY_RELEASING;
	bool parts = activity == ACTIVITY_YIELDING || activity == ACTIVITY_FILLING;

	s.rest = was_paused ? STATE_PAUSED : STATE_RUNNING;
	if (activity == ACTIVITY_FILLING)
		s.rest = STATE_WAITING;
	/* With the room of a starved fill. */
	s.lease = parts || activity == ACTIVITY_STARVED || activity == ACTIVITY_TIDYING
			  ? LEASE_GONE
			  : LEASE_OURS;
	s.wishes[WISHER_USER] = activity == ACTIVITY_PAUSING ||
				activity == ACTIVITY_PAUSING_AGAIN ||
				activity == ACTIVITY_RESUMING_OFF || activity == ACTIVITY_WRITING ||
				activity == ACTIVITY_RELEASING;
	if (activity == ACTIVITY_WRITING) {
		s.snapshot = SNAPSHOT_WRITTEN;
		s.plan_image = true;
	}
	return s;
}

static struct control_event event_of(enum event_kind kind, const struct control_state *s)
{
	return (struct control_event){.kind = kind,
				      .pause = true,
				      .code = END_OK,
				      .written = END_OK,
				      .reason = "",
				      .paused = control_operation(s) == OP_PAUSE ||
						control_operation(s) == OP_RELEASE};
}

START_TEST(every_event_in_every_state)
{
	for (int from = 0; from < ACTIVITIES; from++) {
		ck_assert_msg(table[from][EVENTS] && !strcmp(table[from][EVENTS], "end"),
			      "the row of %s has not a cell for each event", activity_names[from]);
		for (int kind = 0; kind < EVENTS; kind++) {
			struct control_state s = state_in(from);
			struct control_event e = event_of(kind, &s);
			struct control_actions actions = {0};
			char found[64], want[64];
			bool cancel = false;

			control_take(&s, &e, &actions);
			for (size_t i = 0; i < actions.n; i++)
				cancel |= actions.list[i].kind == ACT_CANCEL;
			snprintf(found, sizeof(found), "%s%s", activity_names[s.activity],
				 cancel ? "!" : "");
			snprintf(want, sizeof(want), "%s%s",
				 table[from][kind][0] == '.' ? activity_names[from] : "",
				 table[from][kind] + (table[from][kind][0] == '.'));
			ck_assert_msg(!strcmp(found, want), "%s in %s: %s, expected %s",
				      event_names[kind], activity_names[from], found, want);
		}
	}
}
END_TEST

/* ---- the lease ---- */

/* A yield calls a resume off, and its client is gone before the resume has ended. */
START_TEST(a_resume_outlives_the_lease)
{
	struct control_state s = {.activity = ACTIVITY_RESUMING, .rest = STATE_PAUSED};
	const struct control_event ended = {.kind = EV_ENDED,
					    .code = END_BUSY,
					    .written = END_OK,
					    .reason = "",
					    .paused = true};
	struct control_actions actions = {0};

	control_take(&s, &(struct control_event){.kind = EV_YIELD}, &actions);
	ck_assert_uint_eq(count(&actions, ACT_CANCEL), 1);
	control_take(&s, &(struct control_event){.kind = EV_LEASE_BACK}, &actions);
	control_take(&s, &ended, &actions);
	ck_assert(!s.wishes[WISHER_USER]);
	control_decide(&s, false, false, &actions);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
}
END_TEST

/* Nobody has asked for the resume, and nobody would ask again. */
START_TEST(a_lease_that_is_back_waits_for_a_thread)
{
	struct control_state s = {.rest = STATE_WAITING, .lease = LEASE_GONE};
	struct control_actions actions = {0};

	control_take(&s, &(struct control_event){.kind = EV_LEASE_BACK}, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
	control_take(&s, &(struct control_event){.kind = EV_NO_START, .reason = ""}, &actions);
	ck_assert(!s.wishes[WISHER_USER]);
	control_take(&s, &(struct control_event){.kind = EV_RETRY}, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
}
END_TEST

/* It is the lease that says when a program runs that is to end. */
START_TEST(a_signal_leaves_the_lease)
{
	static const enum activity under_way[] = {ACTIVITY_IDLE, ACTIVITY_YIELDING,
						  ACTIVITY_FILLING};

	for (int i = 0; i < 3; i++) {
		struct control_state s = {
			.activity = under_way[i], .rest = STATE_WAITING, .lease = LEASE_GONE};
		struct control_actions actions = {0};

		control_take(&s, &(struct control_event){.kind = EV_END}, &actions);
		ck_assert_uint_eq(actions.n, 0);
		control_decide(&s, false, false, &actions);
		ck_assert_int_eq(s.activity, under_way[i]);
		ck_assert_int_eq(s.lease, LEASE_GONE);
	}
}
END_TEST

static void pause_ends(struct control_state *s, enum end_code code)
{
	const struct control_event ended = {.kind = EV_ENDED,
					    .code = code,
					    .written = END_OK,
					    .reason = "",
					    .paused = code == END_OK};
	struct control_actions actions = {0};

	ck_assert_int_eq(control_operation(s), OP_PAUSE);
	control_take(s, &ended, &actions);
	control_decide(s, false, false, &actions);
	ck_assert_int_eq(s->activity, ACTIVITY_IDLE);
}

/* What the user wants paused, before the process is to stop or after that, SIGCONT does not resume. */
START_TEST(a_stop_is_not_the_users_pause)
{
	for (int i = 0; i < 3; i++) {
		struct control_state s = {.rest = STATE_RUNNING};

		take_signal(&s, i == 1 ? EV_PAUSE : EV_STOP);
		if (i > 0)
			take_signal(&s, i == 1 ? EV_STOP : EV_PAUSE);
		pause_ends(&s, END_OK);
		ck_assert(s.stopping);
		take_signal(&s, EV_GO_ON);
		ck_assert(!s.stopping);
		ck_assert_int_eq(s.activity, i ? ACTIVITY_IDLE : ACTIVITY_RESUMING);
	}
}
END_TEST

START_TEST(a_stop_that_a_resume_or_a_failure_ends)
{
	struct control_state s = {.rest = STATE_RUNNING};

	take_signal(&s, EV_STOP);
	take_signal(&s, EV_RESUME);
	ck_assert(!s.stopping);
	pause_ends(&s, END_BUSY);
	take_signal(&s, EV_STOP);
	pause_ends(&s, END_UNSUPPORTED);
	ck_assert(s.stopping && !control_wants_paused(&s));
	take_signal(&s, EV_GO_ON);
	ck_assert_int_eq(s.activity, ACTIVITY_IDLE);
}
END_TEST

/* It is not the user's pause then: SIGCONT brings the memory back. */
START_TEST(a_stop_while_the_memory_comes_back)
{
	struct control_state s = {.rest = STATE_RUNNING};
	struct control_actions actions = {0};

	take_signal(&s, EV_STOP);
	pause_ends(&s, END_OK);
	take_signal(&s, EV_GO_ON);
	take_signal(&s, EV_STOP);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING_OFF);
	control_take(&s, &called_off, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert_int_eq(s.activity, ACTIVITY_IDLE);
	ck_assert(s.stopping);
	take_signal(&s, EV_GO_ON);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
}
END_TEST

START_TEST(a_stop_outlives_a_snapshot)
{
	const struct control_event done = {.kind = EV_DONE, .matches = true};
	struct control_state s = {.rest = STATE_PAUSED,
				  .snapshot = SNAPSHOT_OPEN,
				  .plan_pause = true,
				  .wishes = {[WISHER_SNAPSHOT] = true}};
	struct control_actions actions = {0};

	take_signal(&s, EV_STOP);
	control_take(&s, &done, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert(s.stopping && control_wants_paused(&s));
	ck_assert_int_eq(s.snapshot, SNAPSHOT_NONE);
	take_signal(&s, EV_GO_ON);
	ck_assert(!control_wants_paused(&s));
}
END_TEST

/* A program that is to end gets no memory: it is paused as before, and can be resumed. */
START_TEST(what_a_signal_asks_for_may_fail)
{
	struct control_state s = {.rest = STATE_PAUSED, .wishes = {[WISHER_USER] = true}};
	struct control_actions actions = {0};

	for (int i = 0; i < 2; i++) {
		control_take(&s, &(struct control_event){.kind = EV_END}, &actions);
		control_decide(&s, false, false, &actions);
		ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
		ck_assert_int_eq(s.timeout_ms, 10000);
		ck_assert(s.options.own_limit);
		control_take(&s, &timed_out, &actions);
		control_decide(&s, false, false, &actions);
		ck_assert_int_eq(s.activity, ACTIVITY_IDLE);
		ck_assert_int_eq(s.rest, STATE_PAUSED);
		ck_assert(s.wishes[WISHER_USER]);
		actions.n = 0;
	}
	control_take(&s, &(struct control_event){.kind = EV_RESUME}, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
	ck_assert_int_eq(s.timeout_ms, 0);
	ck_assert(!s.options.own_limit);
}
END_TEST

/* The user asks for the same meanwhile, and waits for longer. */
START_TEST(a_resume_outlives_the_patience_of_another)
{
	struct control_state s = {.rest = STATE_PAUSED, .wishes = {[WISHER_USER] = true}};
	struct control_actions actions = {0};

	control_take(&s, &(struct control_event){.kind = EV_END}, &actions);
	control_decide(&s, false, false, &actions);
	control_take(&s, &(struct control_event){.kind = EV_RESUME}, &actions);
	control_take(&s, &timed_out, &actions);
	control_decide(&s, false, false, &actions);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
	ck_assert_int_eq(s.timeout_ms, 0);
	ck_assert_uint_eq(count(&actions, ACT_CANCEL), 0);
}
END_TEST

/* A resume for all processes of a job is given up, as it fails for one: the others are as before. */
START_TEST(a_resume_that_is_given_up_pauses_nobody_else)
{
	static const enum activity under_way[] = {ACTIVITY_YIELDING, ACTIVITY_FILLING,
						  ACTIVITY_PROBING};

	for (int i = 0; i < 6; i++) {
		bool paused = i % 2;
		struct control_state s = {
			.activity = under_way[i / 2], .wishes = {paused}, .lease = LEASE_GONE};
		struct control_actions actions = {0};

		control_take(&s, &(struct control_event){.kind = EV_RESUME, .client = 1}, &actions);
		ck_assert(!control_wants_paused(&s));
		control_take(&s, &(struct control_event){.kind = EV_ABORT, .client = 1}, &actions);
		ck_assert_int_eq(control_wants_paused(&s), paused);
	}
}
END_TEST

/* ---- holds ---- */

static const struct control_state held_pause = {.activity = ACTIVITY_PAUSING,
						.wishes = {[WISHER_USER] = true},
						.hold = HOLD_OPEN,
						.holder = 1,
						.undoes = true};

/* Others may wait for the kernels of the process that is held. */
START_TEST(a_signal_does_not_let_a_held_pause_go_on)
{
	struct control_state s = held_pause;
	struct control_actions actions = {0};

	control_take(&s, &(struct control_event){.kind = EV_PAUSE, .by_signal = true}, &actions);
	ck_assert_uint_eq(actions.n, 0);
	control_take(&s, &(struct control_event){.kind = EV_COMMIT, .client = 1}, &actions);
	ck_assert_uint_eq(count(&actions, ACT_COMMIT), 1);
}
END_TEST

/* The client that holds gives up, or is gone: the signal is as good as one that comes now. */
START_TEST(a_signal_outlives_a_held_pause)
{
	const struct control_event ended = {
		.kind = EV_ENDED, .code = END_BUSY, .written = END_OK, .reason = ""};
	enum event_kind ends[] = {EV_ABORT, EV_HOLDER_GONE};
	struct control_state s = held_pause;
	struct control_actions actions = {0}, then = {0};
	const struct operation_options *options;

	control_take(&s, &(struct control_event){.kind = EV_PAUSE, .by_signal = true}, &actions);
	control_take(&s, &(struct control_event){.kind = ends[_i], .client = 1}, &actions);
	ck_assert_uint_eq(count(&actions, ACT_CANCEL), 1);
	ck_assert_int_eq(find(&actions, ACT_ANSWER)->code, END_BUSY);
	control_take(&s, &ended, &actions);
	control_decide(&s, false, false, &then);
	ck_assert_int_eq(s.activity, ACTIVITY_PAUSING);
	options = &find(&then, ACT_START)->options;
	ck_assert(options->alone && !options->hold);
}
END_TEST

/* A client waits for the report of a resume, which it does not hold. */
START_TEST(a_resume_that_is_not_held_reports)
{
	static const enum hold_phase holds[] = {HOLD_NONE, HOLD_COMMITTED};
	struct control_state s = {
		.activity = ACTIVITY_RESUMING, .rest = STATE_PAUSED, .hold = holds[_i]};
	struct control_actions actions = {0};

	control_take(&s, &(struct control_event){.kind = EV_RESUME, .client = 1}, &actions);
	ck_assert_uint_eq(actions.n, 1);
	ck_assert_int_eq(actions.list[0].kind, ACT_REPORT);
}
END_TEST

/* The client has another patience: all whom it holds give up at the same time. */
START_TEST(a_resume_without_a_limit_begins_again_with_it)
{
	struct control_state s = {.activity = ACTIVITY_RESUMING, .rest = STATE_PAUSED};
	struct control_actions actions = {0}, then = {0};
	const struct operation_options *options;

	control_take(
		&s,
		&(struct control_event){.kind = EV_RESUME, .client = 1, .options.timeout_ms = 1000},
		&actions);
	ck_assert_uint_eq(count(&actions, ACT_CANCEL), 1);
	control_take(&s, &called_off, &actions);
	control_decide(&s, false, false, &then);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
	options = &find(&then, ACT_START)->options;
	ck_assert(options->hold);
	ck_assert_int_eq(options->timeout_ms, 1000);
}
END_TEST

/* Of its snapshot; but a process image with a resume under way would be of no use. */
START_TEST(a_resume_awaits_the_lock_once_the_snapshot_is_done)
{
	static const enum event_kind kinds[] = {EV_RESUME, EV_DONE};

	for (int i = 0; i < 2; i++) {
		struct control_state s = {.rest = STATE_PAUSED,
					  .wishes = {[WISHER_SNAPSHOT] = true},
					  .snapshot = SNAPSHOT_OPEN};
		struct control_actions actions = {0};

		control_take(&s, &(struct control_event){.kind = kinds[i], .matches = true},
			     &actions);
		control_decide(&s, false, false, &actions);
		ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
		ck_assert_int_eq(find(&actions, ACT_START)->options.awaits_lock, i);
	}
}
END_TEST

/* The client is gone before others of the job are at rest: the job is to run, as it was. */
START_TEST(a_hold_that_ends_a_resume_can_be_undone)
{
	struct control_state s = {.activity = ACTIVITY_RESUMING, .rest = STATE_PAUSED};
	struct control_actions actions = {0}, rests = {0}, then = {0};

	control_take(&s, &(struct control_event){.kind = EV_PAUSE, .client = 1}, &actions);
	ck_assert_uint_eq(count(&actions, ACT_CANCEL), 1);
	control_take(&s, &called_off, &actions);
	control_decide(&s, false, false, &rests);
	control_decide(&s, false, false, &rests);
	ck_assert_uint_eq(rests.n, 1);
	ck_assert_int_eq(rests.list[0].kind, ACT_REST);
	/* Another client holds it as well, and is told so. */
	control_take(&s, &(struct control_event){.kind = EV_PAUSE, .client = 2}, &rests);
	ck_assert_uint_eq(rests.n, 2);
	ck_assert_int_eq(rests.list[1].kind, ACT_REST);
	control_take(&s, &(struct control_event){.kind = EV_HOLDER_GONE, .client = 1}, &then);
	ck_assert_uint_eq(then.n, 0);
	control_take(&s, &(struct control_event){.kind = EV_HOLDER_GONE, .client = 2}, &then);
	control_decide(&s, false, false, &then);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING);
}
END_TEST

/* ---- releases and probes ---- */

/* The resume was called off by a pause, and ends with @code. The answer to the pause waits for the release. */
static void end_with_context(enum end_code code, enum job_state rest)
{
	struct control_event ended = timed_out;
	struct control_state s = {.rest = STATE_PAUSED, .wishes = {[WISHER_USER] = true}};
	struct control_actions actions = {0};

	take_signal(&s, EV_RESUME);
	take_signal(&s, EV_PAUSE);
	ck_assert_int_eq(s.activity, ACTIVITY_RESUMING_OFF);
	ended.code = code;
	ended.kept = true;
	control_take(&s, &ended, &actions);
	control_decide(&s, false, true, &actions);
	ck_assert_int_eq(s.activity, ACTIVITY_RELEASING);
	ck_assert_int_eq(actions.list[actions.n - 1].kind, ACT_START);
	ck_assert_int_eq(actions.list[actions.n - 1].options.release, RELEASE_ALL);
	for (size_t i = 0; i < actions.n; i++)
		ck_assert(actions.list[i].kind != ACT_ANSWER ||
			  actions.list[i].whom != WAITS_PAUSED);
	/* If that fails, once is enough. */
	ended.code = END_TIMEOUT;
	ended.kept = false;
	actions.n = 0;
	control_take(&s, &ended, &actions);
	control_decide(&s, false, true, &actions);
	ck_assert_int_eq(s.activity, ACTIVITY_IDLE);
	ck_assert_int_eq(s.rest, rest);
}

START_TEST(what_a_failed_resume_leaves_on_the_gpu_is_released)
{
	end_with_context(END_BUSY, STATE_PAUSED);
	end_with_context(END_FAILED, STATE_FAILED);
}
END_TEST

/* Only a job that runs, and of which nothing else is wanted, is looked at. */
START_TEST(a_probe_comes_last)
{
	static const struct {
		struct control_state s;
		enum activity then;
	} cases[] = {
		{{.rest = STATE_RUNNING}, ACTIVITY_PROBING},
		{{.rest = STATE_RUNNING, .trim = true}, ACTIVITY_TRIMMING},
		{{.rest = STATE_RUNNING, .wishes = {true}}, ACTIVITY_PAUSING},
		{{.rest = STATE_RUNNING, .lease = LEASE_ASKED}, ACTIVITY_YIELDING},
		{{.rest = STATE_PAUSED, .wishes = {true}}, ACTIVITY_IDLE},
		{{.rest = STATE_WAITING, .lease = LEASE_GONE}, ACTIVITY_IDLE},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct control_state s = cases[i].s;
		struct control_actions actions = {0};

		control_take(&s, &(struct control_event){.kind = EV_PROBE}, &actions);
		control_decide(&s, false, false, &actions);
		ck_assert_int_eq(s.activity, cases[i].then);
		ck_assert(!s.probe); /* it is not made up for later */
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control_state");
	TCase *tcase = tcase_create("control_state");

	tcase_add_test(tcase, every_event_in_every_state);
	tcase_add_test(tcase, a_resume_outlives_the_lease);
	tcase_add_test(tcase, a_lease_that_is_back_waits_for_a_thread);
	tcase_add_test(tcase, a_signal_leaves_the_lease);
	tcase_add_test(tcase, a_stop_is_not_the_users_pause);
	tcase_add_test(tcase, a_stop_that_a_resume_or_a_failure_ends);
	tcase_add_test(tcase, a_stop_while_the_memory_comes_back);
	tcase_add_test(tcase, a_stop_outlives_a_snapshot);
	tcase_add_test(tcase, what_a_signal_asks_for_may_fail);
	tcase_add_test(tcase, a_resume_outlives_the_patience_of_another);
	tcase_add_test(tcase, a_resume_that_is_given_up_pauses_nobody_else);
	tcase_add_test(tcase, a_signal_does_not_let_a_held_pause_go_on);
	tcase_add_loop_test(tcase, a_signal_outlives_a_held_pause, 0, 2);
	tcase_add_loop_test(tcase, a_resume_that_is_not_held_reports, 0, 2);
	tcase_add_test(tcase, a_resume_without_a_limit_begins_again_with_it);
	tcase_add_test(tcase, a_resume_awaits_the_lock_once_the_snapshot_is_done);
	tcase_add_test(tcase, a_hold_that_ends_a_resume_can_be_undone);
	tcase_add_test(tcase, what_a_failed_resume_leaves_on_the_gpu_is_released);
	tcase_add_test(tcase, a_probe_comes_last);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
