/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/state/decide.h"

static void start(struct control_state *s, enum activity activity, struct control_actions *actions)
{
	struct control_action *a = act(actions, ACT_START);

	s->activity = activity;
	a->op = control_operation(s);
	if (activity == ACTIVITY_YIELDING)
		a->options = s->yield;
	else if (activity == ACTIVITY_FILLING)
		a->options = (struct operation_options){.bytes = s->room, .hold = s->room_holds};
	else
		a->options = s->options;
	a->options.hold &= activity == ACTIVITY_PAUSING || activity == ACTIVITY_RESUMING ||
			   control_is_part(a->op);
	a->options.joint = s->joint && activity == ACTIVITY_RESUMING;
	/* Until it is done, others make the image: none that has an operation under way. */
	a->options.awaits_lock = s->snapshot != SNAPSHOT_OPEN;
	s->hold = a->options.joint ? HOLD_JOINT : a->options.hold ? HOLD_OPEN : HOLD_NONE;
	s->joint &= activity != ACTIVITY_RESUMING;
	s->timeout_ms = s->options.timeout_ms;
	if (activity == ACTIVITY_YIELDING)
		s->timeout_ms = s->yield.timeout_ms;
	if (control_is_part(a->op))
		return;
	if (s->whole) /* a later pause may not have said */
		a->options.release = RELEASE_ALL;
	if (activity == ACTIVITY_PAUSING || activity == ACTIVITY_RELEASING)
		s->whole = false;
	a->options.writes =
		s->snapshot == SNAPSHOT_ASKED && (a->op == OP_PAUSE || a->op == OP_SNAPSHOT);
	if (a->options.writes)
		s->snapshot = SNAPSHOT_WRITTEN;
}

/* What a decision finds. */
struct found {
	bool wants;  /* that it be paused */
	bool paused; /* it is, or waits to run though it is to be paused */
	bool waits;  /* it is to run, and cudawd has the right to let it */
	bool untidy;
};

static void trim(struct control_state *s, const struct found *found,
		 struct control_actions *actions)
{
	(void)found;
	s->trim = false;
	start(s, ACTIVITY_TRIMMING, actions);
}

static void yield(struct control_state *s, const struct found *found,
		  struct control_actions *actions)
{
	(void)found;
	s->lease = LEASE_GONE;
	start(s, ACTIVITY_YIELDING, actions);
}

static void fill(struct control_state *s, const struct found *found,
		 struct control_actions *actions)
{
	(void)found;
	s->fill = false;
	start(s, ACTIVITY_FILLING, actions);
}

static void pause_or_resume(struct control_state *s, const struct found *found,
			    struct control_actions *actions)
{
	if (found->paused) /* it may have been held */
		answer_code(actions, WAITS_PAUSED, END_BUSY, SUPERSEDED);
	start(s, found->paused ? ACTIVITY_RESUMING : ACTIVITY_PAUSING, actions);
}

static void write_snapshot(struct control_state *s, const struct found *found,
			   struct control_actions *actions)
{
	(void)found;
	start(s, ACTIVITY_WRITING, actions);
}

/* It was to run, and runs if its client gives up. */
static void stay_held(struct control_state *s, const struct found *found,
		      struct control_actions *actions)
{
	(void)found;
	if (s->hold != HOLD_OPEN)
		act(actions, ACT_REST);
	s->hold = HOLD_OPEN;
}

static void release(struct control_state *s, const struct found *found,
		    struct control_actions *actions)
{
	(void)found;
	s->holder = 0; /* the job is at rest: there is nothing to hold */
	start(s, ACTIVITY_RELEASING, actions);
}

/* All is as it is wanted. */
static void settle(struct control_state *s, const struct found *found,
		   struct control_actions *actions)
{
	s->whole = s->joint = false;
	s->hold = HOLD_NONE;
	if (found->waits) {
		answer(actions, WAITS_RUNNING, ANSWER_TURN);
	} else {
		answer(actions, found->paused ? WAITS_PAUSED : WAITS_RUNNING, ANSWER_STATE);
		answer_code(actions, WAITS_RUNNING, END_BUSY, SUPERSEDED);
	}
	answer_code(actions, WAITS_PAUSED, END_BUSY, SUPERSEDED);
	answer(actions, WAITS_DONE, ANSWER_STATE);
	s->holder = 0;
	if (found->untidy)
		start(s, ACTIVITY_TIDYING, actions);
	else if (s->probe && s->rest == STATE_RUNNING)
		start(s, ACTIVITY_PROBING, actions);
}

static struct found look(struct control_state *s, bool untidy)
{
	struct found found = {.wants = control_wants_paused(s), .untidy = untidy};

	found.waits = s->lease == LEASE_GONE && !found.wants;
	if (found.waits && s->rest == STATE_PAUSED)
		s->rest = STATE_WAITING;
	found.paused = s->rest != STATE_RUNNING && (s->rest != STATE_WAITING || !found.wants);
	return found;
}

static bool is_all_out(const struct control_state *s)
{
	return s->rest == STATE_PAUSED || (s->rest == STATE_FAILED && !s->partly);
}

/* The first row that is due. */
static void begin(struct control_state *s, bool untidy, bool kept, struct control_actions *actions)
{
	const struct found f = look(s, untidy);
	const bool asked = s->snapshot == SNAPSHOT_ASKED;
	const struct {
		bool due;
		void (*act)(struct control_state *, const struct found *, struct control_actions *);
	} rows[] = {
		{s->trim, trim},
		{s->lease == LEASE_ASKED, yield},
		{f.waits && s->fill && !asked, fill},
		{f.wants != f.paused && !f.waits, pause_or_resume},
		{asked, write_snapshot},
		{f.wants && s->holder && s->undoes, stay_held},
		{s->whole && kept && is_all_out(s), release},
		{true, settle},
	};
	size_t i = 0;

	while (!rows[i].due)
		i++;
	rows[i].act(s, &f, actions);
}

void control_decide(struct control_state *s, bool untidy, bool kept,
		    struct control_actions *actions)
{
	if (s->activity != ACTIVITY_IDLE)
		return;
	if (s->snapshot == SNAPSHOT_CLOSING)
		control_close_snapshot(s, actions);
	control_keep_with_others(s);
	s->called &= s->rest != STATE_RUNNING;
	begin(s, untidy, kept, actions);
	s->probe = false;
}
