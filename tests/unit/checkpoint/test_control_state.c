/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the control thread decides: every event in every state, and then all states that events and
 * operations can lead to, with clients that come, give orders and hang up at any moment. In each of
 * them no operation is begun beside another one, every client is answered once, nothing is stuck,
 * and the last wish wins.
 */
#include "checkpoint/control/state.h"
#include "common/hash.h"

#include "tests/check_suite.h"

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
ROW(RELEASING, ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", ".", "IDLE", "STARVED",
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

static size_t count(const struct control_actions *actions, enum action_kind kind)
{
	size_t n = 0;

	for (size_t i = 0; i < actions->n; i++)
		n += actions->list[i].kind == kind;
	return n;
}

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

static void take_signal(struct control_state *s, enum event_kind kind)
{
	struct control_actions actions = {0};

	control_take(s, &(struct control_event){.kind = kind, .by_signal = true}, &actions);
	control_decide(s, false, false, &actions);
}

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
	const struct control_event called_off = {.kind = EV_ENDED,
						 .code = END_BUSY,
						 .written = END_OK,
						 .reason = "",
						 .paused = true};
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

static const struct control_event timed_out = {
	.kind = EV_ENDED, .code = END_TIMEOUT, .written = END_OK, .reason = "", .paused = true};

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

static const struct control_action *find(const struct control_actions *actions,
					 enum action_kind kind)
{
	for (size_t i = 0; i < actions->n; i++)
		if (actions->list[i].kind == kind)
			return &actions->list[i];
	ck_abort_msg("there is no action %d", kind);
}

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

/* The end of a resume that was cancelled. */
static const struct control_event called_off = {
	.kind = EV_ENDED, .code = END_BUSY, .written = END_OK, .reason = "", .paused = true};

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

/* ---- probes ---- */

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

/* ---- the model: a job, its operation, and clients ---- */

#define CLIENTS  2
#define ALL_ROOM 2 /* less is not enough for all of the memory */

struct model_client {
	enum server_wait waits; /* WAITS_NOT: this one is free */
	bool holds;
};

struct model {
	struct control_state s;
	struct model_client clients[CLIENTS];
	bool paused;    /* the engine's */
	bool partly;    /* and a part of the memory is on the GPU */
	bool room;      /* of the fill under way, for all */
	bool due;       /* a yield is to be answered */
	bool kept;      /* and its context is on the GPU */
	bool all;       /* the operation releases it */
	bool cancelled; /* the operation */
	bool committed;
	bool held;

	/* Of what is to come of it all. */
	bool last_paused; /* the last wish */
	bool last_all;    /* or one before it, since the job ran: for the whole GPU */
	int holder;       /* who may undo it: a client's number from 1 */
	bool undoes;      /* there is something to undo */
};

static bool starves; /* the next operation has no thread */
static bool follows; /* whether the last wish wins */
static int nclients; /* that come */
static const struct model *origin;
static const char *step_name;

#define REQUIRE(condition, what)                                                            \
	ck_assert_msg(condition, "%s after %s in %s (snapshot %d, hold %d, rest %d)", what, \
		      step_name, activity_names[origin->s.activity], origin->s.snapshot,    \
		      origin->s.hold, origin->s.rest)

static void perform(struct model *m, const struct control_actions *actions);

static int take(struct model *m, struct control_event e)
{
	struct control_actions actions = {0};
	int ret;

	e.held = false;
	ret = control_take(&m->s, &e, &actions);
	perform(m, &actions);
	return ret;
}

static bool under_way;

static void begin(struct model *m, const struct control_action *a)
{
	REQUIRE(!under_way, "an operation is begun beside another one");
	m->cancelled = m->committed = false;
	m->held = a->options.hold;
	m->room = a->op == OP_FILL && a->options.bytes == ALL_ROOM;
	m->all = a->options.release == RELEASE_ALL;
	if (a->op == OP_RELEASE) {
		REQUIRE(m->paused && m->kept && m->all, "nothing that was kept is released");
		m->holder = 0; /* the job stays paused, whatever its client does */
	}
	if (!starves) {
		under_way = true;
		return;
	}
	starves = false;
	take(m, (struct control_event){.kind = EV_NO_START, .reason = ""});
}

static void perform(struct model *m, const struct control_actions *actions)
{
	for (size_t i = 0; i < actions->n; i++) {
		const struct control_action *a = &actions->list[i];

		switch (a->kind) {
		case ACT_START:
			begin(m, a);
			break;
		case ACT_CANCEL:
			REQUIRE(under_way, "nothing is cancelled");
			m->cancelled = true;
			break;
		case ACT_COMMIT:
			REQUIRE(under_way && m->held, "nothing that is held is committed");
			m->committed = true;
			break;
		case ACT_ROOM:
			REQUIRE(control_operation(&m->s) == OP_FILL,
				"there is no fill for the room");
			m->room = a->options.bytes == ALL_ROOM;
			break;
		case ACT_ANSWER:
			m->due &= a->whom != WAITS_LEASE;
			if (a->whom == WAITS_PAUSED && a->answer == ANSWER_STATE && !a->code)
				REQUIRE(!m->s.whole, "it is paused, but not as asked");
			for (int c = 0; c < CLIENTS; c++)
				if (m->clients[c].waits == a->whom &&
				    (a->answer != ANSWER_TURN || m->clients[c].holds))
					m->clients[c] = (struct model_client){0};
			break;
		default:
			break;
		}
	}
}

static void decide(struct model *m)
{
	struct control_actions actions = {0};

	control_decide(&m->s, false, m->paused && m->kept, &actions);
	perform(m, &actions);
	if (m->s.activity != ACTIVITY_IDLE)
		return;
	REQUIRE(m->s.lease != LEASE_GONE || m->paused, "it runs without the lease");
	REQUIRE(m->s.rest != STATE_PAUSED || (m->paused && !m->partly), "not all of it is out");
	REQUIRE(m->s.rest != STATE_WAITING || m->s.lease == LEASE_GONE, "it waits for nothing");
}

/* The operation ends: as it should, or with @code. */
static void end(struct model *m, enum end_code code)
{
	enum operation op = control_operation(&m->s);
	bool ok = code == END_OK;

	under_way = false;
	if (ok && (op == OP_PAUSE || op == OP_RELEASE)) {
		m->kept = (!m->paused || m->kept) && !m->all;
		m->paused = true;
		m->partly = false;
	}
	if (ok && (op == OP_RESUME || (op == OP_FILL && m->room)))
		m->paused = m->kept = m->partly = false;
	else if (ok && op == OP_FILL)
		m->partly = m->kept = true;
	if (ok && op == OP_YIELD && !m->paused)
		m->paused = m->partly = m->kept = true;
	m->all = false;
	take(m, (struct control_event){.kind = EV_ENDED,
				       .code = code,
				       .written = code,
				       .reason = "",
				       .paused = m->paused,
				       .partly = m->partly,
				       .room = m->room ? ALL_ROOM : 1});
}

/* A resume takes back that the whole GPU was asked for; a pause that does not say so does not. */
static void want(struct model *m, bool paused)
{
	m->last_paused = paused;
	m->last_all &= paused;
}

static bool somebody_holds(const struct model *m)
{
	return m->holder && m->clients[m->holder - 1].holds;
}

/* What may happen in a model; each returns false where it cannot. */

static bool ask(struct model *m, enum server_wait waits, bool holds, struct control_event e)
{
	for (int c = 0; c < nclients; c++) {
		if (m->clients[c].waits != WAITS_NOT)
			continue;
		e.client = holds ? c + 1 : 0;
		if (e.kind == EV_PAUSE || e.kind == EV_RESUME) {
			m->undoes = m->last_paused != (e.kind == EV_PAUSE) ||
				    (m->undoes && somebody_holds(m));
			want(m, e.kind == EV_PAUSE);
			m->last_all |= e.options.release == RELEASE_ALL;
			m->holder = e.client;
		}
		m->clients[c] = (struct model_client){waits, holds};
		if (take(m, e))
			m->clients[c] = (struct model_client){0}; /* it is turned away */
		return true;
	}
	return false;
}

static bool hang_up(struct model *m, int c)
{
	struct model_client client = m->clients[c];

	if (client.waits == WAITS_NOT)
		return false;
	m->clients[c] = (struct model_client){0};
	if (client.waits == WAITS_WRITTEN)
		take(m, (struct control_event){.kind = EV_CALL_OFF});
	else if (client.holds)
		take(m, (struct control_event){.kind = EV_HOLDER_GONE, .client = c + 1});
	if (client.holds && m->holder == c + 1) {
		if (client.waits == WAITS_PAUSED && m->undoes)
			want(m, false);
		m->holder = 0;
	}
	return true;
}

static bool order(struct model *m, int c, enum event_kind kind)
{
	struct model_client client = m->clients[c];

	if (!client.holds)
		return false;
	take(m, (struct control_event){.kind = kind, .client = c + 1});
	if (kind == EV_ABORT && m->holder == c + 1) {
		if (m->undoes)
			want(m, client.waits != WAITS_PAUSED);
		m->holder = 0;
	}
	/* Of several clients that hold, each may let it go on. */
	if (kind == EV_COMMIT)
		m->holder = 0;
	return true;
}

static bool signal_comes(struct model *m, enum event_kind kind)
{
	if (kind != EV_END) {
		want(m, kind == EV_PAUSE);
		m->holder = 0;
	} else if (control_wants_paused(&m->s)) {
		want(m, false);
		m->holder = 0;
	}
	take(m, (struct control_event){.kind = kind, .by_signal = true});
	return true;
}

static bool yields(struct model *m)
{
	if (m->s.lease == LEASE_ASKED || control_operation(&m->s) == OP_YIELD)
		return false;
	m->due = true;
	take(m, (struct control_event){.kind = EV_YIELD});
	return true;
}

static bool gets_room(struct model *m, size_t bytes)
{
	if (m->s.lease == LEASE_OURS)
		return false;
	take(m, (struct control_event){.kind = EV_ROOM, .options.bytes = bytes});
	return true;
}

static bool loses_lease(struct model *m)
{
	if (m->s.lease == LEASE_OURS)
		return false;
	m->due = false;
	take(m, (struct control_event){.kind = EV_LEASE_BACK});
	return true;
}

/* Something that holds waits for orders, which nothing else can take the place of. */
static bool waits_for_orders(const struct model *m)
{
	return m->held && !m->committed && !m->cancelled;
}

static bool finish(struct model *m, enum end_code code)
{
	if (!under_way || (waits_for_orders(m) && code == END_OK) ||
	    (m->cancelled && code == END_FAILED))
		return false;
	end(m, m->cancelled && code == END_TIMEOUT ? END_BUSY : code);
	return true;
}

#define SNAPSHOT_EVENT(with_pause, with_image) \
	((struct control_event){.kind = EV_SNAPSHOT, .pause = with_pause, .image = with_image})

#define JOINT_EVENT     ((struct control_event){.kind = EV_RESUME, .options.joint = true})
#define PAUSE_EVENT     ((struct control_event){.kind = EV_PAUSE})
#define PAUSE_ALL_EVENT ((struct control_event){.kind = EV_PAUSE, .options.release = RELEASE_ALL})

#define STEP_MAP(X)                                                                            \
	X(ended, finish(m, END_OK))                                                            \
	X(ended_cancelled, under_way && m->cancelled && finish(m, END_BUSY))                   \
	X(sigusr1, signal_comes(m, EV_PAUSE))                                                  \
	X(sigusr2, signal_comes(m, EV_RESUME))                                                 \
	X(pause, ask(m, WAITS_PAUSED, false, (struct control_event){.kind = EV_PAUSE}))        \
	X(pause_all, ask(m, WAITS_PAUSED, false, PAUSE_ALL_EVENT))                             \
	X(resume, ask(m, WAITS_RUNNING, false, (struct control_event){.kind = EV_RESUME}))     \
	X(hold, ask(m, WAITS_PAUSED, true, (struct control_event){.kind = EV_PAUSE}))          \
	X(regain, ask(m, WAITS_RUNNING, true, (struct control_event){.kind = EV_RESUME}))      \
	X(regain_joint, ask(m, WAITS_RUNNING, false, JOINT_EVENT))                             \
	X(commit_1, order(m, 0, EV_COMMIT))                                                    \
	X(commit_2, order(m, 1, EV_COMMIT))                                                    \
	X(abort_1, order(m, 0, EV_ABORT))                                                      \
	X(abort_2, order(m, 1, EV_ABORT))                                                      \
	X(hang_up_1, hang_up(m, 0))                                                            \
	X(hang_up_2, hang_up(m, 1))                                                            \
	X(sigusr1_without_thread, (starves = signal_comes(m, EV_PAUSE)))                       \
	X(sigusr2_without_thread, (starves = signal_comes(m, EV_RESUME)))                      \
	X(moment, take(m, (struct control_event){.kind = EV_RETRY}) == 0)                      \
	/* From here on the last wish need not win. */                                         \
	X(snapshot, ask(m, WAITS_WRITTEN, false, SNAPSHOT_EVENT(true, true)))                  \
	X(snapshot_as_it_is, ask(m, WAITS_WRITTEN, false, SNAPSHOT_EVENT(false, false)))       \
	X(done,                                                                                \
	  ask(m, WAITS_DONE, false, (struct control_event){.kind = EV_DONE, .matches = true})) \
	X(trim, ask(m, WAITS_TRIMMED, false, (struct control_event){.kind = EV_TRIM}))         \
	X(failed, finish(m, END_FAILED))                                                       \
	X(timed_out, finish(m, END_TIMEOUT))                                                   \
	X(sigterm, signal_comes(m, EV_END))                                                    \
	X(sigtstp, take(m, (struct control_event){.kind = EV_STOP, .by_signal = true}) == 0)   \
	X(sigcont, take(m, (struct control_event){.kind = EV_GO_ON}) == 0)                     \
	X(pause_without_thread, (starves = ask(m, WAITS_PAUSED, false, PAUSE_EVENT)))          \
	X(hold_without_thread, (starves = ask(m, WAITS_PAUSED, true, PAUSE_EVENT)))            \
	X(done_without_thread,                                                                 \
	  (starves = ask(m, WAITS_DONE, false,                                                 \
			 (struct control_event){.kind = EV_DONE, .matches = true})))           \
	X(snapshot_without_thread,                                                             \
	  (starves = ask(m, WAITS_WRITTEN, false, SNAPSHOT_EVENT(true, true))))                \
	X(trim_without_thread,                                                                 \
	  (starves = ask(m, WAITS_TRIMMED, false, (struct control_event){.kind = EV_TRIM})))   \
	X(ended_without_thread, (starves = finish(m, END_OK)))                                 \
	/* From here on the job may be without its lease. */                                   \
	X(yield, yields(m))                                                                    \
	X(room, gets_room(m, 1))                                                               \
	X(room_for_all, gets_room(m, ALL_ROOM))                                                \
	X(lease_back, loses_lease(m))                                                          \
	X(yield_without_thread, (starves = yields(m)))                                         \
	X(room_without_thread, (starves = gets_room(m, ALL_ROOM)))

#define STEP_ENUM(name, call) STEP_##name,
enum step { STEP_MAP(STEP_ENUM) STEPS };
#undef STEP_ENUM

static const char *const step_names[] = {
#define STEP_NAME(name, call) #name,
	STEP_MAP(STEP_NAME)
#undef STEP_NAME
};

static bool make_step(struct model *m, enum step step)
{
	bool could = false;

	step_name = step_names[step];
	switch (step) {
#define STEP_CASE(name, call) \
	case STEP_##name:     \
		could = call; \
		break;
		STEP_MAP(STEP_CASE)
#undef STEP_CASE
	case STEPS:
		break;
	}
	if (could)
		decide(m);
	starves = false;
	return could;
}

/* It needs its lease, or room once more. */
static bool lacks_room(const struct model *m)
{
	return m->s.lease == LEASE_GONE &&
	       (m->s.room != ALL_ROOM || m->s.activity == ACTIVITY_IDLE);
}

/* Nobody asks for anything any more: it comes to an end, in which nobody waits. */
static void quiesce(struct model *m, bool last_wins)
{
	for (int i = 0; under_way || m->s.activity == ACTIVITY_STARVED || m->s.trim ||
			m->s.snapshot == SNAPSHOT_OPEN || m->s.hold == HOLD_OPEN || lacks_room(m);
	     i++) {
		REQUIRE(i < 20, "it does not come to an end");
		/* The lease comes back, or all of the memory does. */
		if (lacks_room(m)) {
			loses_lease(m);
			decide(m);
			continue;
		}
		if (under_way ? waits_for_orders(m) : m->s.hold == HOLD_OPEN) {
			/* There is somebody to give them, or to hang up. */
			REQUIRE(m->s.holder && m->clients[m->s.holder - 1].holds,
				"it waits for the orders of nobody");
			hang_up(m, m->s.holder - 1);
		} else if (under_way) {
			end(m, m->cancelled ? END_BUSY : END_OK);
		} else if (m->s.snapshot == SNAPSHOT_OPEN) {
			take(m, (struct control_event){.kind = EV_DONE, .matches = true});
		} else {
			take(m, (struct control_event){.kind = EV_RETRY});
		}
		decide(m);
	}
	REQUIRE(m->s.activity == ACTIVITY_IDLE, "something is left to be done");
	for (int c = 0; c < CLIENTS; c++)
		REQUIRE(m->clients[c].waits == WAITS_NOT, "a client is not answered");
	REQUIRE(!m->due, "a yield is not answered");
	if (last_wins)
		REQUIRE(m->paused == m->last_paused, "the last wish is not what is");
	if (last_wins && m->paused && m->last_all)
		REQUIRE(!m->kept, "the whole GPU was asked for, and the context is kept");
}

/* ---- all states ---- */

#define SEEN_BITS 21
#define SEEN_SIZE (1UL << SEEN_BITS)

static uint64_t *seen;
static struct model *queue;
static size_t nqueue;

/* What tells a model from others; without what padding may have. */
static uint64_t key_of(const struct model *m)
{
	const struct control_state *s = &m->s;
	int words[] = {s->activity,
		       s->rest,
		       s->wishes[0],
		       s->wishes[1],
		       s->wishes[2],
		       s->options.hold,
		       s->options.timeout_ms,
		       s->by_signal,
		       s->snapshot,
		       s->snapshot ? s->plan_pause + 2 * s->plan_image + 4 * s->plan_kept : 0,
		       s->trim,
		       s->whole,
		       s->options.release,
		       s->lease,
		       s->lease ? s->fill + 2 * (int)s->room : 0,
		       s->partly,
		       m->partly,
		       control_operation(s) == OP_FILL && m->room,
		       m->due,
		       s->hold,
		       s->holder,
		       control_operation(s) == OP_NONE ? 0 : s->timeout_ms,
		       m->clients[0].waits,
		       m->clients[0].holds,
		       m->clients[1].waits,
		       m->clients[1].holds,
		       m->paused,
		       m->kept,
		       m->all,
		       follows && m->last_all,
		       control_operation(s) == OP_NONE
			       ? 0
			       : 1 + m->cancelled + 2 * m->committed + 4 * m->held,
		       m->last_paused,
		       m->holder,
		       s->holder && s->undoes,
		       follows && m->holder && m->undoes};

	return hash_bytes(words, sizeof(words)).low | 1;
}

static void visit(const struct model *m)
{
	uint64_t key = key_of(m);
	size_t at = key >> (64 - SEEN_BITS);

	while (seen[at] && seen[at] != key)
		at = (at + 1) % SEEN_SIZE;
	if (seen[at])
		return;
	seen[at] = key;
	ck_assert_uint_lt(nqueue, SEEN_SIZE / 2);
	queue[nqueue++] = *m;
}

static bool is_in(enum step step, enum step steps, bool lease)
{
	/* There are fewer states without holds, with one client, and with one kind of snapshot. */
	if (lease && ((step >= STEP_hold && step <= STEP_hang_up_2) ||
		      step == STEP_snapshot_as_it_is || step == STEP_snapshot_without_thread ||
		      step == STEP_done_without_thread || step == STEP_hold_without_thread))
		return step == STEP_hang_up_1;
	return step < steps || (lease && step >= STEP_yield);
}

/* All models that the first @steps steps lead to, from one of which it runs; and with the lease. */
static void explore(enum step steps, bool last_wins, bool lease)
{
	seen = calloc(SEEN_SIZE, sizeof(*seen));
	queue = malloc(SEEN_SIZE / 2 * sizeof(*queue));
	follows = last_wins;
	nclients = lease ? 1 : CLIENTS;
	ck_assert(seen && queue);
	visit(&(struct model){0});
	for (size_t i = 0; i < nqueue; i++) {
		origin = &queue[i];
		for (enum step step = 0; step < STEPS; step++) {
			struct model m = queue[i];

			under_way = control_operation(&m.s) != OP_NONE;
			if (!is_in(step, steps, lease) || !make_step(&m, step))
				continue;
			visit(&m);
			quiesce(&m, last_wins);
		}
	}
	ck_assert_uint_gt(nqueue, 100);
	free(seen);
	free(queue);
}

START_TEST(the_last_wish_wins)
{
	explore(STEP_snapshot, true, false);
}
END_TEST

START_TEST(nobody_waits_for_ever)
{
	explore(STEP_yield, false, false);
}
END_TEST

/* Beside all that a user may want. */
START_TEST(nobody_waits_for_ever_with_a_lease)
{
	explore(STEP_yield, false, true);
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
	tcase_add_test(tcase, a_probe_comes_last);
	tcase_add_test(tcase, the_last_wish_wins);
	tcase_add_test(tcase, nobody_waits_for_ever);
	tcase_add_test(tcase, nobody_waits_for_ever_with_a_lease);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
