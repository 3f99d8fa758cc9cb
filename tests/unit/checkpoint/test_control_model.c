/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of what the control thread decides (test_control_state.c has its rules): all states that events and
 * operations can lead to, with clients that come, give orders and hang up at any moment. In each of them no operation
 * is begun beside another one, every client is answered once, nothing is stuck, and the last wish wins.
 */
#include "checkpoint/control/state/state.h"
#include "common/hash.h"

#include "tests/check_suite.h"

#include <stdlib.h>
#include <string.h>

static const char *const activity_names[] = {
#define ACTIVITY_NAME(name, op) #name,
	ACTIVITY_MAP(ACTIVITY_NAME)
#undef ACTIVITY_NAME
};

/* A job, its operation, and clients. */
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
	bool joint;  /* the operation is a resume with others */
	bool leased; /* the last yield was with others */
	bool apart;  /* it was asked to resume with others, and has not run since */

	/* Of what is to come of it all. */
	bool last_paused; /* the last wish */
	bool last_all;    /* or one before it, since the job ran: for the whole GPU */
	int holder;       /* who may undo it: a client's number from 1 */
	bool undoes;      /* there is something to undo */
	bool undone; /* the last wish is none: it stays paused, as others were to resume with it */
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

	e.in_snapshot = false;
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
	m->joint = a->options.joint;
	REQUIRE(a->op != OP_RESUME || m->joint || !m->apart, "it resumes without the others");
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
	REQUIRE(!m->joint || m->s.joint || control_wants_paused(&m->s),
		"a resume with others that is tried again is forgotten");
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
	m->apart &= m->paused;
	/* It ran on, or the others run as well. */
	if (m->undone && !m->paused)
		m->undone = m->last_paused = false;
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
	m->undone = false;
}

/* The client that holds gives up the pause, or the resume. */
static void undo(struct model *m, bool pause)
{
	want(m, !pause || m->apart);
	m->undone = pause && m->apart;
}

/* Somebody asks for a resume: a joint one that is under way stays so. */
static void want_back(struct model *m, bool joint)
{
	bool under = control_operation(&m->s) == OP_RESUME && m->joint && !m->cancelled;

	m->apart = joint ? m->paused || under_way : m->apart && (under || m->s.joint);
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
			bool paused = m->undone ? control_wants_paused(&m->s) : m->last_paused;

			m->undoes =
				paused != (e.kind == EV_PAUSE) || (m->undoes && somebody_holds(m));
			want(m, e.kind == EV_PAUSE);
			if (e.kind == EV_RESUME)
				want_back(m, e.options.joint);
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
			undo(m, true);
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
			undo(m, client.waits == WAITS_PAUSED);
		m->holder = 0;
	}
	/* Of several clients that hold, each may let it go on. */
	if (kind == EV_COMMIT)
		m->holder = 0;
	return true;
}

/* As clients_handle() lets them: to one who has a snapshot of each process made, and no second one. */
static bool lend(struct model *m)
{
	const struct control_event e = {
		.kind = EV_PAUSE, .lent = true, .options.release = RELEASE_ALL};

	return m->s.snapshot == SNAPSHOT_NONE && !control_is_lent(&m->s) &&
	       ask(m, WAITS_PAUSED, true, e);
}

static bool signal_comes(struct model *m, enum event_kind kind)
{
	if (kind != EV_END) {
		want(m, kind == EV_PAUSE);
		m->holder = 0;
	} else if (control_wants_paused(&m->s)) {
		want(m, false);
		m->holder = 0;
		m->apart = false;
	}
	if (kind == EV_RESUME)
		want_back(m, false);
	take(m, (struct control_event){.kind = kind, .by_signal = true});
	return true;
}

static bool yields(struct model *m, bool hold)
{
	if (m->s.lease == LEASE_ASKED || control_operation(&m->s) == OP_YIELD)
		return false;
	m->due = true;
	m->leased = hold;
	take(m, (struct control_event){.kind = EV_YIELD, .options.hold = hold});
	return true;
}

static bool gets_room(struct model *m, size_t bytes, bool hold)
{
	if (m->s.lease == LEASE_OURS)
		return false;
	take(m, (struct control_event){.kind = EV_ROOM, .options = {.bytes = bytes, .hold = hold}});
	return true;
}

static bool lease_orders(struct model *m, enum event_kind kind)
{
	if (!m->held || !control_is_part(control_operation(&m->s)))
		return false;
	take(m, (struct control_event){.kind = kind, .by_lease = true});
	return true;
}

/* @joint: and the client has sent a pact before; @word: it has said that it goes. */
static bool loses_lease(struct model *m, bool joint, bool word)
{
	if (m->s.lease == LEASE_OURS)
		return false;
	m->due = false;
	m->apart &= m->s.back == BACK_LEASED;
	m->apart |= m->leased || joint;
	m->apart &= !word && !m->s.ends && (m->paused || under_way);
	take(m, (struct control_event){
			.kind = EV_LEASE_BACK, .options.joint = joint, .by_lease = word});
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

#define JOINT_EVENT ((struct control_event){.kind = EV_RESUME, .options.joint = true})
#define DONE_JOINT_EVENT \
	((struct control_event){.kind = EV_DONE, .matches = true, .options.joint = true})
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
	X(yield, yields(m, false))                                                             \
	X(room, gets_room(m, 1, false))                                                        \
	X(room_for_all, gets_room(m, ALL_ROOM, false))                                         \
	X(lease_back, loses_lease(m, false, false))                                            \
	X(yield_without_thread, (starves = yields(m, false)))                                  \
	X(room_without_thread, (starves = gets_room(m, ALL_ROOM, false)))                      \
	/* From here on it may be paused for one who has snapshots of several made. */         \
	X(lent, lend(m))                                                                       \
	X(snapshot_of_lent,                                                                    \
	  control_is_lent(&m->s) && ask(m, WAITS_WRITTEN, false, SNAPSHOT_EVENT(false, true))) \
	X(done_joint, ask(m, WAITS_DONE, false, DONE_JOINT_EVENT))                             \
	/* From here on it may be out with others. */                                          \
	X(yield_joint, yields(m, true))                                                        \
	X(room_joint, gets_room(m, ALL_ROOM, true))                                            \
	X(commit_by_lease, lease_orders(m, EV_COMMIT))                                         \
	X(abort_by_lease, lease_orders(m, EV_ABORT))                                           \
	X(lease_back_joint, loses_lease(m, true, false))                                       \
	X(lease_back_by_word, loses_lease(m, true, true))                                      \
	X(lease_back_without_thread, (starves = loses_lease(m, true, false)))

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
			m->s.snapshot == SNAPSHOT_OPEN || control_is_lent(&m->s) ||
			m->s.hold == HOLD_OPEN || lacks_room(m);
	     i++) {
		REQUIRE(i < 20, "it does not come to an end");
		/* The lease comes back, or all of the memory does. */
		if (lacks_room(m) ||
		    (waits_for_orders(m) && control_is_part(control_operation(&m->s)))) {
			loses_lease(m, false, false);
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
		} else if (m->s.snapshot == SNAPSHOT_OPEN || control_is_lent(&m->s)) {
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
		       s->wishes[2] + 2 * s->wishes[3],
		       s->options.hold,
		       s->options.timeout_ms,
		       s->by_signal,
		       s->joint + 2 * s->ends + 4 * s->back,
		       s->lease ? s->yield.hold + 2 * s->room_holds : 0,
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
		       follows && m->undone,
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

/* What may happen: beside the steps before a given one, what belongs to a lease; or only what is here. */
enum part { PART_ALL, PART_LEASE, PART_LENT, PART_TOGETHER };

static bool is_in(enum step step, enum step steps, enum part part)
{
	bool failures = step >= STEP_failed && step <= STEP_sigterm;

	if (part == PART_LENT)
		return step < STEP_sigusr1_without_thread || failures ||
		       (step >= STEP_lent && step <= STEP_done_joint);
	if (part == PART_TOGETHER)
		return step <= STEP_pause || failures || step == STEP_resume ||
		       (step >= STEP_regain_joint && step < STEP_moment) || step == STEP_sigtstp ||
		       step == STEP_sigcont || (step >= STEP_yield && step <= STEP_lease_back) ||
		       step > STEP_done_joint;
	/* There are fewer states without holds, with one client, with one kind of snapshot, and without trims. */
	if (part == PART_LEASE &&
	    ((step >= STEP_hold && step <= STEP_hang_up_2) || step == STEP_snapshot_as_it_is ||
	     step == STEP_snapshot_without_thread || step == STEP_done_without_thread ||
	     step == STEP_hold_without_thread))
		return step == STEP_hang_up_1;
	if (nclients > 1 && (step == STEP_trim || step == STEP_trim_without_thread))
		return false;
	return step < steps || (part == PART_LEASE && step >= STEP_yield && step < STEP_lent);
}

/* All models that the first @steps steps lead to, and those of @part, from one of which it runs. */
static void explore(enum step steps, bool last_wins, enum part part, int clients)
{
	seen = calloc(SEEN_SIZE, sizeof(*seen));
	queue = malloc(SEEN_SIZE / 2 * sizeof(*queue));
	follows = last_wins;
	nclients = clients;
	ck_assert(seen && queue);
	visit(&(struct model){0});
	for (size_t i = 0; i < nqueue; i++) {
		origin = &queue[i];
		for (enum step step = 0; step < STEPS; step++) {
			struct model m = queue[i];

			under_way = control_operation(&m.s) != OP_NONE;
			if (!is_in(step, steps, part) || !make_step(&m, step))
				continue;
			visit(&m);
			quiesce(&m, last_wins);
		}
	}
	ck_assert_uint_gt(nqueue, 100);
	nqueue = 0;
	free(seen);
	free(queue);
}

START_TEST(the_last_wish_wins)
{
	explore(STEP_snapshot, true, PART_ALL, CLIENTS);
}
END_TEST

START_TEST(nobody_waits_for_ever)
{
	explore(STEP_yield, false, PART_ALL, 1);
	explore(STEP_yield, false, PART_ALL, CLIENTS);
}
END_TEST

/* Beside all that a user may want. */
START_TEST(nobody_waits_for_ever_with_a_lease)
{
	explore(STEP_yield, false, PART_LEASE, 1);
}
END_TEST

START_TEST(nobody_waits_for_ever_for_who_has_it_lent)
{
	explore(STEP_snapshot, false, PART_LENT, CLIENTS);
}
END_TEST

/* And of several, none resumes without the others when the client that has their leases is gone. */
START_TEST(nobody_waits_for_ever_when_the_leases_of_several_are_lost)
{
	explore(STEPS, false, PART_TOGETHER, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control_model");
	TCase *tcase = tcase_create("control_model");

	tcase_add_test(tcase, the_last_wish_wins);
	tcase_add_test(tcase, nobody_waits_for_ever);
	tcase_add_test(tcase, nobody_waits_for_ever_with_a_lease);
	tcase_add_test(tcase, nobody_waits_for_ever_for_who_has_it_lent);
	tcase_add_test(tcase, nobody_waits_for_ever_when_the_leases_of_several_are_lost);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
