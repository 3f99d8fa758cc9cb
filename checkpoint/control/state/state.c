/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/state/state.h"
#include "checkpoint/control/state/decide.h"

#include <errno.h>
#include <string.h>

#define TERM_TIMEOUT_MS 10000 /* of a resume for a program that handles SIGTERM */
#define UNDO_TIMEOUT_MS 30000 /* of the pause that undoes a resume */
#define RESUME_CAME     "superseded by a later resume"
#define NO_TURN         "no turn on the GPU came in time; the job stays paused"
#define REQUESTER_GONE  "the requester disconnected"

/*
 * What an event does to the activity; an empty entry leaves it as it is. ENDED leads from every
 * operation to IDLE, NO_START from an operation that could not begin to STARVED.
 */
#define TO(activity) (1 + ACTIVITY_##activity)
#define CANCEL       0x80

/* clang-format off */
static const unsigned char moves[ACTIVITIES][EVENTS] = {
	[ACTIVITY_STARVED] = {
		[EV_PAUSE] = TO(IDLE),
		[EV_RESUME] = TO(IDLE),
		[EV_TRIM] = TO(IDLE),
		[EV_SNAPSHOT] = TO(IDLE),
		[EV_DONE] = TO(IDLE),
		[EV_RETRY] = TO(IDLE),
		[EV_YIELD] = TO(IDLE),
		[EV_ROOM] = TO(IDLE),
		[EV_LEASE_BACK] = TO(IDLE),
	},
	[ACTIVITY_PAUSING] = {
		[EV_RESUME] = TO(PAUSING_OFF) | CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
	[ACTIVITY_PAUSING_OFF] = {
		[EV_PAUSE] = TO(PAUSING_AGAIN),
		[EV_ENDED] = TO(IDLE),
	},
	[ACTIVITY_PAUSING_AGAIN] = {
		[EV_RESUME] = TO(PAUSING_OFF),
		[EV_ENDED] = TO(IDLE),
	},
	[ACTIVITY_RESUMING] = {
		[EV_PAUSE] = TO(RESUMING_OFF) | CANCEL,
		[EV_YIELD] = TO(RESUMING_OFF) | CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
	[ACTIVITY_RESUMING_OFF] = {
		[EV_RESUME] = TO(RESUMING_AGAIN),
		[EV_ENDED] = TO(IDLE),
	},
	[ACTIVITY_RESUMING_AGAIN] = {
		[EV_PAUSE] = TO(RESUMING_OFF),
		[EV_YIELD] = TO(RESUMING_OFF),
		[EV_ENDED] = TO(IDLE),
	},
	[ACTIVITY_TRIMMING] = {
		[EV_PAUSE] = CANCEL,
		[EV_RESUME] = CANCEL,
		[EV_YIELD] = CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
	[ACTIVITY_WRITING] = {
		[EV_RESUME] = CANCEL,
		[EV_CALL_OFF] = CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
	[ACTIVITY_RELEASING] = {
		[EV_RESUME] = CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
	[ACTIVITY_TIDYING] = {
		[EV_PAUSE] = CANCEL,
		[EV_RESUME] = CANCEL,
		[EV_TRIM] = CANCEL,
		[EV_SNAPSHOT] = CANCEL,
		[EV_DONE] = CANCEL,
		[EV_YIELD] = CANCEL,
		[EV_ROOM] = CANCEL,
		[EV_LEASE_BACK] = CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
	[ACTIVITY_YIELDING] = {
		[EV_ABORT] = CANCEL,
		[EV_LEASE_BACK] = CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
	[ACTIVITY_FILLING] = {
		[EV_PAUSE] = CANCEL,
		[EV_TRIM] = CANCEL,
		[EV_SNAPSHOT] = CANCEL,
		[EV_DONE] = CANCEL,
		[EV_YIELD] = CANCEL,
		[EV_LEASE_BACK] = CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
	[ACTIVITY_PROBING] = {
		[EV_PAUSE] = CANCEL,
		[EV_RESUME] = CANCEL,
		[EV_TRIM] = CANCEL,
		[EV_SNAPSHOT] = CANCEL,
		[EV_YIELD] = CANCEL,
		[EV_ENDED] = TO(IDLE),
		[EV_NO_START] = TO(STARVED),
	},
};
/* clang-format on */

static const enum operation operations[ACTIVITIES] = {
#define ACTIVITY_OPERATION(name, op) [ACTIVITY_##name] = op,
	ACTIVITY_MAP(ACTIVITY_OPERATION)
#undef ACTIVITY_OPERATION
};

enum operation control_operation(const struct control_state *s)
{
	return operations[s->activity];
}

bool control_is_part(enum operation op)
{
	return op == OP_YIELD || op == OP_FILL;
}

bool control_wants_paused(const struct control_state *s)
{
	for (int i = 0; i < WISHERS; i++)
		if (s->wishes[i])
			return true;
	return false;
}

bool control_wants_paused_anyway(const struct control_state *s)
{
	return s->wishes[WISHER_USER] || s->wishes[WISHER_STOP] || s->wishes[WISHER_LEASE];
}

/* By somebody, and not only for want of the others. */
static bool is_asked_to_pause(const struct control_state *s)
{
	return s->wishes[WISHER_USER] || s->wishes[WISHER_SNAPSHOT] || s->wishes[WISHER_STOP];
}

bool control_awaits_lease(const struct control_state *s)
{
	return s->wishes[WISHER_LEASE] && !is_asked_to_pause(s);
}

bool control_awaits_done(const struct control_state *s)
{
	return s->snapshot == SNAPSHOT_OPEN;
}

bool control_is_lent(const struct control_state *s)
{
	return s->wishes[WISHER_SNAPSHOT] && s->snapshot == SNAPSHOT_NONE;
}

/* True if other processes have a part in the snapshot, and it is not done. */
static bool is_unfinished(const struct control_state *s)
{
	if (s->snapshot == SNAPSHOT_ASKED || s->snapshot == SNAPSHOT_WRITTEN)
		return s->plan_pause || s->plan_image;
	return s->snapshot != SNAPSHOT_NONE;
}

static void move(struct control_state *s, enum event_kind event, struct control_actions *actions)
{
	unsigned char to = moves[s->activity][event];

	if (to & CANCEL)
		act(actions, ACT_CANCEL);
	if (to & ~CANCEL)
		s->activity = (to & ~CANCEL) - 1;
}

/* The snapshot that was asked for will not be written. */
static void forget_snapshot(struct control_state *s, enum end_code code, const char *reason,
			    struct control_actions *actions)
{
	if (s->snapshot != SNAPSHOT_ASKED)
		return;
	s->snapshot = SNAPSHOT_NONE;
	answer_code(actions, WAITS_WRITTEN, code, reason);
}

static void forget_wishes(struct control_state *s)
{
	memset(s->wishes, 0, sizeof(s->wishes));
}

/* True if the operation under way is wanted. */
static bool is_wanted(const struct control_state *s)
{
	return s->activity == ACTIVITY_PAUSING || s->activity == ACTIVITY_RESUMING;
}

static void let_go_on(struct control_state *s, struct control_actions *actions)
{
	s->hold = HOLD_COMMITTED;
	act(actions, ACT_COMMIT);
}

static void commit(struct control_state *s, struct control_actions *actions)
{
	s->holder = 0;
	s->options.hold = false;
	if (s->hold == HOLD_OPEN && is_wanted(s))
		let_go_on(s, actions);
}

/*
 * True if the resume under way is to begin again: with the pact that comes, or since nobody holds it, and it
 * would wait longer than the client that asks.
 */
static bool begins_again(const struct control_state *s, const struct control_event *how)
{
	double ms = how->options.timeout_ms;

	if (s->activity != ACTIVITY_RESUMING)
		return false;
	return how->options.joint || (s->hold != HOLD_OPEN && s->hold != HOLD_JOINT &&
				      how->client && ms && (!s->timeout_ms || s->timeout_ms > ms));
}

/* Nobody has asked for a resume without the others. */
static bool would_be_alone(const struct control_state *s)
{
	return s->back != BACK_ALONE && !s->joint && !s->ends;
}

/* Somebody asks for this process. A joint resume that is under way stays one; without the lease, others decide. */
static void ask_to_run(struct control_state *s)
{
	if (s->lease == LEASE_OURS && !s->joint &&
	    !(s->activity == ACTIVITY_RESUMING && s->hold == HOLD_JOINT))
		s->back = BACK_ALONE;
}

/* The last wish wins: that the job runs, or that it is paused, which @wisher wants. */
static void wish(struct control_state *s, bool paused, enum wisher wisher,
		 const struct control_event *how, struct control_actions *actions)
{
	bool same = paused ? is_asked_to_pause(s) : !control_wants_paused(s);

	s->ends = false;
	if (paused) {
		s->wishes[wisher] = true;
		/* The rest of its memory goes out as well. */
		if (s->rest == STATE_FAILED && s->partly)
			s->rest = STATE_WAITING;
	} else {
		forget_wishes(s);
		s->stopping = false;
		forget_snapshot(s, END_BUSY, RESUME_CAME, actions);
		if (how->options.joint)
			s->back = BACK_ASKED;
	}
	if (!paused || how->options.release == RELEASE_MEMORY)
		s->whole = false;
	else if (how->options.release == RELEASE_ALL)
		s->whole = true;
	move(s, paused ? EV_PAUSE : EV_RESUME, actions);
	/* It begins again, held. The others of the client may have no room because of this one. */
	if (begins_again(s, how)) {
		s->activity = ACTIVITY_RESUMING_AGAIN;
		act(actions, ACT_CANCEL);
	}
	/* It is not sent off alone. */
	if (same && !paused && s->joint && !how->options.joint)
		return;
	s->joint = how->options.joint;
	s->options = how->options;
	s->options.hold = how->client != 0;
	s->options.alone = how->by_signal;
	s->by_signal = how->by_signal || (same && s->by_signal);
	/* The client that holds goes on with it: others may wait for this process. */
	if (how->by_signal && s->activity == ACTIVITY_PAUSING && s->hold == HOLD_OPEN)
		return;
	s->undoes = !same || (s->holder && s->undoes);
	s->holder = how->client;
	/* It is at rest, held by another client (control_decide()). */
	if (paused && how->client && s->activity == ACTIVITY_IDLE && s->hold == HOLD_OPEN)
		act(actions, ACT_REST);
	/*
	 * The same as an operation that a client holds: let it go on, or hold it too. A resume that
	 * nobody holds is not stopped, but others that the client holds wait for its report.
	 */
	if (!is_wanted(s))
		return;
	if (!how->client)
		commit(s, actions);
	else if (s->hold == HOLD_OPEN || !paused)
		act(actions, ACT_REPORT);
}

static void wish_to_run(struct control_state *s, double timeout_ms, struct control_actions *actions)
{
	const struct control_event how = {.options.timeout_ms = timeout_ms};

	wish(s, false, WISHER_USER, &how, actions);
}

static void take_stop(struct control_state *s, const struct control_event *e,
		      struct control_actions *actions)
{
	s->stopping = true;
	if (!e->by_lease)
		wish(s, true, WISHER_STOP, e, actions);
}

/* What others want paused stays so. */
static void take_go_on(struct control_state *s, struct control_actions *actions)
{
	const struct control_event how = {.by_signal = true};
	bool wanted = s->wishes[WISHER_STOP];

	s->stopping = s->wishes[WISHER_STOP] = false;
	if (wanted && !control_wants_paused(s))
		wish(s, false, WISHER_USER, &how, actions);
}

static int take_snapshot(struct control_state *s, const struct control_event *e,
			 struct control_actions *actions)
{
	if (s->snapshot != SNAPSHOT_NONE || (control_operation(s) == OP_RESUME && e->in_snapshot))
		return -EBUSY;
	if (e->pause && !control_wants_paused(s))
		wish(s, true, WISHER_SNAPSHOT, e, actions);
	else
		move(s, EV_SNAPSHOT, actions);
	s->snapshot = SNAPSHOT_ASKED;
	s->plan_pause = e->pause;
	s->plan_image = e->image;
	s->plan_kept = e->by_signal;
	return 0;
}

/* The requester disconnected: nobody would add the process image. */
static void call_snapshot_off(struct control_state *s, struct control_actions *actions)
{
	bool early = s->snapshot == SNAPSHOT_ASKED || s->snapshot == SNAPSHOT_WRITTEN;

	if (!early || !s->plan_image)
		return;
	if (s->activity == ACTIVITY_WRITING)
		move(s, EV_CALL_OFF, actions);
	else if (s->plan_pause && !control_wants_paused_anyway(s))
		wish_to_run(s, 0, actions);
	else
		forget_snapshot(s, END_BUSY, REQUESTER_GONE, actions);
	if (s->snapshot == SNAPSHOT_NONE && s->plan_pause)
		s->wishes[WISHER_SNAPSHOT] = false;
}

/* A resume, unless it is to run already. The user's pause ends only if there is memory soon. */
static void take_end(struct control_state *s, struct control_actions *actions)
{
	const struct control_event how = {
		.options = {.timeout_ms = TERM_TIMEOUT_MS, .own_limit = true}, .by_signal = true};

	if (!control_wants_paused(s))
		return;
	wish(s, false, WISHER_USER, &how, actions);
	s->ends = true;
}

/*
 * The client that holds has given up a pause that a signal wants as well. It begins again for this
 * process alone, which the engine refuses if others wait for its kernels.
 */
static void leave_to_signal(struct control_state *s, struct control_actions *actions)
{
	answer_code(actions, WAITS_PAUSED, END_BUSY, SUPERSEDED);
	s->holder = 0;
	s->options.hold = false;
	s->options.alone = true;
	move(s, EV_RESUME, actions);
	move(s, EV_PAUSE, actions);
}

/* Undo what the client that holds has asked for. */
static void undo(struct control_state *s, struct control_actions *actions)
{
	const struct control_event how = {
		.options = {.timeout_ms = UNDO_TIMEOUT_MS, .own_limit = true}};

	if (control_wants_paused(s) && s->by_signal) {
		leave_to_signal(s, actions);
	} else if (control_wants_paused(s)) {
		s->called = true; /* it was, perhaps, before that pause */
		wish_to_run(s, 0, actions);
	} else {
		wish(s, true, WISHER_USER, &how, actions);
	}
}

/* Who asked for the resume wanted it paused if it could not run in time. */
static void expire(struct control_state *s, struct control_actions *actions)
{
	const struct control_event how = {
		.options = {.timeout_ms = UNDO_TIMEOUT_MS, .own_limit = true}};

	answer_code(actions, WAITS_RUNNING, END_TIMEOUT, NO_TURN);
	s->called = false;
	wish(s, true, WISHER_USER, &how, actions);
}

/* An order of the client that has the lease. */
static void take_lease_order(struct control_state *s, const struct control_event *e,
			     struct control_actions *actions)
{
	if (s->hold != HOLD_OPEN || !control_is_part(control_operation(s)))
		return;
	if (e->kind == EV_COMMIT)
		let_go_on(s, actions);
	else
		move(s, EV_ABORT, actions);
}

static void take_holder(struct control_state *s, const struct control_event *e,
			struct control_actions *actions)
{
	if (e->by_lease)
		take_lease_order(s, e, actions);
	else if (e->kind == EV_COMMIT)
		commit(s, actions);
	else if (e->client != s->holder || !e->client)
		return;
	else if (s->undoes && (e->kind == EV_ABORT || control_wants_paused(s)))
		undo(s, actions);
	else
		commit(s, actions);
}

/* Somebody has asked for the resume that timed out, and waits for longer. */
static bool is_asked_for_longer(const struct control_state *s, const struct control_event *e)
{
	double ms = s->options.timeout_ms;

	return s->activity == ACTIVITY_RESUMING && e->code == END_TIMEOUT && s->timeout_ms &&
	       (!ms || ms > s->timeout_ms);
}

/*
 * True if a pause or a resume failed and must begin again: it has been asked for again meanwhile,
 * or it was a pause for a snapshot alone, and the user has asked for a pause.
 */
static bool is_wanted_still(const struct control_state *s, const struct control_event *e)
{
	bool pause = control_operation(s) == OP_PAUSE;
	bool again = s->activity == ACTIVITY_PAUSING_AGAIN ||
		     s->activity == ACTIVITY_RESUMING_AGAIN || is_asked_for_longer(s, e);
	bool by_user =
		pause && s->snapshot == SNAPSHOT_WRITTEN && s->plan_pause && s->wishes[WISHER_USER];

	return (again || by_user) && e->paused != pause && e->code != END_OK &&
	       (pause || !would_be_alone(s));
}

/* Who wants a process paused that would be alone. */
static enum wisher keeper(const struct control_state *s)
{
	return s->back == BACK_LEASED ? WISHER_LEASE : WISHER_USER;
}

/* The job is paused: record that somebody wants it so. */
static void accept_paused(struct control_state *s)
{
	/* A stop that has called off a resume ends with a SIGCONT. */
	if (s->wishes[WISHER_STOP])
		return;
	if (!is_unfinished(s))
		s->wishes[keeper(s)] = true;
	else if (!control_wants_paused(s))
		s->wishes[WISHER_SNAPSHOT] = true;
}

/* The operation failed, and is not tried again by itself. */
static void give_up(struct control_state *s, const struct control_event *e,
		    struct control_actions *actions)
{
	if (control_operation(s) == OP_PAUSE) {
		forget_snapshot(s, e->code, e->reason, actions);
		if (!e->paused || s->lease != LEASE_OURS)
			forget_wishes(s);
	} else if (e->paused && s->lease == LEASE_OURS) {
		accept_paused(s);
	}
}

/* @good: it has not failed for good. */
static enum job_state rest_after(const struct control_state *s, const struct control_event *e,
				 bool good)
{
	if (!e->paused)
		return STATE_RUNNING;
	if (good)
		return e->partly ? STATE_WAITING : STATE_PAUSED;
	return s->lease == LEASE_OURS ? STATE_FAILED : STATE_WAITING;
}

/* A pause or a resume has ended. */
static void end_change(struct control_state *s, const struct control_event *e,
		       struct control_actions *actions)
{
	bool pause = control_operation(s) == OP_PAUSE, again = is_wanted_still(s, e);
	bool wanted = control_wants_paused(s) == pause;
	bool ok = e->code == END_OK;
	bool patient = e->code == END_TIMEOUT || e->code == END_BUSY;
	/* False if a pause has ended the resume, or if another resume follows. */
	bool failed = !pause && !ok && !again && !control_wants_paused(s) &&
		      s->snapshot != SNAPSHOT_CLOSING;

	s->rest = rest_after(s, e, ok || (!pause && patient));
	s->whole |= e->kept;
	if (!ok && !again)
		give_up(s, e, actions);
	if (ok && !pause && s->snapshot >= SNAPSHOT_OPEN)
		s->snapshot = SNAPSHOT_NONE;
	if (again)
		answer_code(actions, pause ? WAITS_RUNNING : WAITS_PAUSED, END_BUSY, SUPERSEDED);
	else if (!s->whole || !e->paused || !ok) /* else control_decide() goes on, or answers */
		answer(actions, pause ? WAITS_PAUSED : WAITS_RUNNING, ANSWER_RESULT);
	if (failed)
		answer(actions, WAITS_DONE, ANSWER_RESULT);
	if (!again && wanted)
		s->holder = 0; /* it is answered */
	s->ends &= again;
}

/* A yield or a fill has ended. */
static void end_part(struct control_state *s, const struct control_event *e,
		     struct control_actions *actions)
{
	bool fill = control_operation(s) == OP_FILL, ok = e->code == END_OK;
	bool cancelled = e->code == END_BUSY;

	if (!e->paused) {
		s->rest = STATE_RUNNING;
		if (s->lease == LEASE_GONE)
			s->lease = LEASE_OURS;
	} else if (!control_wants_paused(s) || s->rest == STATE_RUNNING) {
		s->rest = STATE_WAITING;
	}
	if (fill && e->paused && s->lease == LEASE_GONE)
		s->fill |= cancelled || e->room != s->room;
	if (fill && ok && !e->paused)
		answer(actions, WAITS_RUNNING, ANSWER_RESULT);
	if (!fill || !e->paused || (!ok && !cancelled))
		answer(actions, WAITS_LEASE, fill ? ANSWER_FILL : ANSWER_RESULT);
}

/* The operation that wrote the snapshot has ended. */
static void end_writing(struct control_state *s, const struct control_event *e,
			struct control_actions *actions)
{
	if (e->written == END_OK) {
		s->snapshot = s->plan_pause || s->plan_image ? SNAPSHOT_OPEN : SNAPSHOT_NONE;
	} else {
		s->snapshot = SNAPSHOT_NONE;
		if (s->plan_pause && control_wants_paused(s) && !control_wants_paused_anyway(s))
			wish_to_run(s, 0, actions);
		if (s->plan_pause)
			s->wishes[WISHER_SNAPSHOT] = false;
	}
	answer(actions, WAITS_WRITTEN, ANSWER_WRITTEN);
}

static void end_release(struct control_state *s, struct control_actions *actions)
{
	answer(actions, WAITS_PAUSED, ANSWER_NOTE);
	if (control_wants_paused(s))
		s->holder = 0; /* it is answered */
}

static void take_ended(struct control_state *s, const struct control_event *e,
		       struct control_actions *actions)
{
	enum operation op = control_operation(s);

	s->partly = e->partly;
	if (op == OP_PAUSE || op == OP_RESUME)
		end_change(s, e, actions);
	else if (control_is_part(op))
		end_part(s, e, actions);
	else if (op == OP_TRIM)
		answer(actions, WAITS_TRIMMED, ANSWER_RESULT);
	else if (op == OP_RELEASE)
		end_release(s, actions);
	move(s, EV_ENDED, actions);
	s->hold = HOLD_NONE;
	if (s->snapshot == SNAPSHOT_WRITTEN)
		end_writing(s, e, actions);
}

/* A pause or a resume could not be begun. */
static void forgo_change(struct control_state *s, const struct control_event *e,
			 struct control_actions *actions)
{
	bool pause = control_operation(s) == OP_PAUSE;

	answer_code(actions, pause ? WAITS_PAUSED : WAITS_RUNNING, END_FAILED, e->reason);
	if (!pause)
		answer_code(actions, WAITS_DONE, END_FAILED, e->reason);
	s->holder = 0;
	s->options.hold = false;
	if (s->by_signal && !e->exiting) {
		s->joint |= s->hold == HOLD_JOINT;
		return;
	}
	forget_snapshot(s, END_FAILED, e->reason, actions);
	if (pause) {
		forget_wishes(s);
		return;
	}
	if (!is_unfinished(s))
		act(actions, ACT_LOCK);
	accept_paused(s);
}

static void forgo_yield(struct control_state *s, const struct control_event *e,
			struct control_actions *actions)
{
	answer_code(actions, WAITS_LEASE, END_FAILED, e->reason);
	if (s->rest == STATE_RUNNING)
		s->lease = LEASE_OURS;
}

static void take_no_start(struct control_state *s, const struct control_event *e,
			  struct control_actions *actions)
{
	enum operation op = control_operation(s);

	if (s->snapshot == SNAPSHOT_WRITTEN)
		s->snapshot = SNAPSHOT_ASKED;
	if (!s->plan_kept || e->exiting)
		forget_snapshot(s, END_FAILED, e->reason, actions);
	if (op == OP_PAUSE || op == OP_RESUME)
		forgo_change(s, e, actions);
	else if (op == OP_TRIM)
		answer_code(actions, WAITS_TRIMMED, END_FAILED, e->reason);
	else if (op == OP_RELEASE)
		answer_code(actions, WAITS_PAUSED, END_FAILED, e->reason);
	else if (op == OP_YIELD)
		forgo_yield(s, e, actions);
	else if (op == OP_FILL)
		s->fill = true;
	move(s, EV_NO_START, actions);
	s->hold = HOLD_NONE;
}

static void take_yield(struct control_state *s, const struct control_event *e,
		       struct control_actions *actions)
{
	s->lease = LEASE_ASKED;
	s->wishes[WISHER_LEASE] = false;
	s->yield = e->options;
	s->room = 0;
	s->fill = false;
	move(s, EV_YIELD, actions);
}

static void give_room(struct control_state *s, const struct operation_options *options,
		      struct control_actions *actions)
{
	if (s->lease == LEASE_OURS)
		return;
	s->room = options->bytes;
	s->room_holds = options->hold;
	s->fill = true;
	if (s->activity == ACTIVITY_FILLING)
		act(actions, ACT_ROOM)->options.bytes = s->room;
	move(s, EV_ROOM, actions);
}

static void take_lease_back(struct control_state *s, const struct control_event *e,
			    struct control_actions *actions)
{
	bool leased = s->yield.hold || s->back == BACK_LEASED;
	bool together = (leased || e->options.joint) && !e->by_lease;

	s->lease = LEASE_OURS;
	s->back = together ? BACK_LEASED : BACK_ALONE;
	/* A resume follows, or a pause of the rest, of which nobody would hear that it could not begin. */
	if (!control_wants_paused(s)) {
		s->joint |= together && e->options.joint;
		s->options = (struct operation_options){.release = RELEASE_MEMORY};
		s->by_signal = true;
	}
	/* It is the one that the yield has called off. */
	if (!control_wants_paused(s) && s->activity == ACTIVITY_RESUMING_OFF)
		s->activity = ACTIVITY_RESUMING_AGAIN;
	move(s, EV_LEASE_BACK, actions);
}

/* Somebody asks to pause or to resume. */
static void take_request(struct control_state *s, const struct control_event *e,
			 struct control_actions *actions)
{
	s->called = e->kind == EV_RESUME;
	if (e->kind == EV_RESUME)
		ask_to_run(s);
	wish(s, e->kind == EV_PAUSE, e->lent ? WISHER_SNAPSHOT : WISHER_USER, e, actions);
}

static void take_done(struct control_state *s, const struct control_event *e,
		      struct control_actions *actions)
{
	if (e->matches && (s->snapshot == SNAPSHOT_OPEN || control_is_lent(s))) {
		s->snapshot = SNAPSHOT_CLOSING;
		s->joint = e->options.joint;
	} else if (s->snapshot == SNAPSHOT_CLOSING) {
		/* The end of its process was seen before its line. */
		s->joint |= e->options.joint;
	} else if (e->options.joint && !control_wants_paused(s)) {
		/* Others wait for it, if it has yet to resume. */
		wish(s, false, WISHER_USER, e, actions);
	}
	move(s, EV_DONE, actions);
}

static void take_moved(struct control_state *s)
{
	s->wishes[WISHER_USER] = control_wants_paused(s);
	s->wishes[WISHER_SNAPSHOT] = s->wishes[WISHER_LEASE] = false;
	s->lease = LEASE_OURS;
	if (s->snapshot >= SNAPSHOT_OPEN)
		s->snapshot = SNAPSHOT_NONE;
}

int control_take(struct control_state *s, const struct control_event *e,
		 struct control_actions *actions)
{
	switch (e->kind) {
	case EV_PAUSE:
	case EV_RESUME:
		take_request(s, e, actions);
		break;
	case EV_END:
		take_end(s, actions);
		break;
	case EV_STOP:
		take_stop(s, e, actions);
		break;
	case EV_GO_ON:
		take_go_on(s, actions);
		break;
	case EV_TRIM:
		s->trim = true;
		move(s, EV_TRIM, actions);
		break;
	case EV_SNAPSHOT:
		return take_snapshot(s, e, actions);
	case EV_CALL_OFF:
		call_snapshot_off(s, actions);
		break;
	case EV_DONE:
		take_done(s, e, actions);
		break;
	case EV_MOVED:
		take_moved(s);
		break;
	case EV_COMMIT:
	case EV_ABORT:
	case EV_HOLDER_GONE:
		take_holder(s, e, actions);
		break;
	case EV_ENDED:
		take_ended(s, e, actions);
		break;
	case EV_NO_START:
		take_no_start(s, e, actions);
		break;
	case EV_YIELD:
		take_yield(s, e, actions);
		break;
	case EV_ROOM:
		give_room(s, &e->options, actions);
		break;
	case EV_LEASE_BACK:
		take_lease_back(s, e, actions);
		break;
	case EV_PROBE:
		s->probe = true;
		break;
	case EV_EXPIRED:
		expire(s, actions);
		break;
	case EV_RETRY:
	case EVENTS:
		move(s, e->kind, actions);
	}
	return 0;
}

void control_close_snapshot(struct control_state *s, struct control_actions *actions)
{
	const struct control_event how = {.options.joint = s->joint};

	s->snapshot = SNAPSHOT_NONE;
	/* Their resume came while others made the image, and has failed for that. */
	if (would_be_alone(s) && s->rest != STATE_RUNNING)
		s->wishes[keeper(s)] = true;
	if (!control_wants_paused_anyway(s)) {
		wish(s, false, WISHER_USER, &how, actions);
		return;
	}
	s->wishes[WISHER_SNAPSHOT] = false;
	act(actions, ACT_LOCK);
}

void control_keep_with_others(struct control_state *s)
{
	if (s->rest == STATE_RUNNING) {
		s->back = BACK_ALONE;
		s->ends = false;
	} else if (would_be_alone(s) && s->lease == LEASE_OURS && !control_wants_paused(s)) {
		s->wishes[keeper(s)] = true;
		s->called = false;
	}
}
