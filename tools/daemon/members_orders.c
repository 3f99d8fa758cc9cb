/* SPDX-License-Identifier: Apache-2.0 */
/* What is decided for the members, and goes to them. */
#include "tools/daemon/member.h"
#include "common/clock.h"
#include "common/protocol/pact.h"
#include "common/size.h"
#include "common/text.h"
#include "tools/daemon/gpus.h"
#include "tools/daemon/rescue.h"
#include "tools/daemon/rules.h"

#include <stdio.h>
#include <unistd.h>

#define LOG_PREFIX "members: "
#include "common/log.h"

#define WAIT_AGE_MS 250  /* of a sample, while somebody waits */
#define TAKES       3    /* times CONF_SILENCE: see turns_settings */
#define SHOWN_MS    1000 /* of a sample that bounds what members say */
#define ONLY_NEW_MS 1e15 /* GPUs that were never looked at */

static size_t total_of(const struct member *m)
{
	size_t sum = 0;

	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		sum += m->need[gpu].total;
	return sum;
}

static void begin_hand(struct member *m, enum member_hand hand, double now)
{
	if (m->hand == HAND_NONE)
		m->since_ms = now;
	m->hand = hand;
	m->moved = true;
	m->heard_ms = m->moved_ms = now;
}

static void order_yield(struct member *m, const struct party_order *order, double now)
{
	char bytes[FORMAT_SIZE], timeout[16] = "";

	if (order->bytes == TURNS_ALL)
		member_note("gives", m, order->context ? "all, and its context" : "all");
	else if (!order->bytes)
		member_note("gives", m, "nothing, and waits for its turn");
	else
		member_note("gives", m, "up to %s", format_bytes(bytes, order->bytes));
	begin_hand(m, HAND_OUT, now);
	for (int gpu = 0; gpu < TURNS_GPUS && order->context; gpu++)
		m->need[gpu].out = m->need[gpu].context;
	m->freed = m->told = 0;
	m->looked_ms = 0;
	m->heard_ms += order->timeout_ms;
	if (order->timeout_ms)
		snprintf(timeout, sizeof(timeout), " %.0f", order->timeout_ms);
	connection_say(m->connection, "yield %lu%s%s", order->bytes, timeout,
		       order->hold      ? " hold"
		       : order->context ? " context"
					: "");
}

/* The last one that was made; the orders of a party come one after the other. */
static int new_pact(const struct party_order *order)
{
	static int pact = -1;

	if (!order->on)
		return pact;
	if (pact >= 0)
		close(pact);
	pact = pact_create(order->bytes);
	return pact;
}

/* If not all have the new one, they stay paused if the daemon ends. An older one is of no use any more. */
static void send_pact(struct member *m, const struct party_order *order)
{
	int pact = new_pact(order);

	if (m->silent || (pact >= 0 && connection_send(m->connection, "pact", pact)))
		return;
	connection_say(m->connection, "pact");
	parties_lacks_pact(members_parties, m->id);
}

static void give_order(const struct party_order *order, void *arg)
{
	struct member *m = member_find(order->id);
	double now = *(double *)arg;

	/* It could only be told what is of no use to it before it joins again. */
	if (m->silent && order->kind != PARTY_PACT)
		return;
	switch (order->kind) {
	case PARTY_YIELD:
		order_yield(m, order, now);
		return;
	case PARTY_ROOM:
		begin_hand(m, HAND_IN, now);
		m->room = order->bytes;
		connection_say(m->connection, "room %lu%s", order->bytes,
			       order->hold ? " hold" : "");
		return;
	case PARTY_SAY:
		m->heard_ms = now > m->heard_ms ? now : m->heard_ms;
		connection_say(m->connection, "%s", order->text);
		return;
	case PARTY_TRY:
	case PARTY_NO:
		if (order->kind == PARTY_NO)
			member_note("refused", m, "there is no memory for the allocation");
		connection_say(m->connection, "%s %lu", order->kind == PARTY_TRY ? "try" : "no",
			       order->serial);
		return;
	case PARTY_WATCH:
		connection_say(m->connection, order->on ? "watch" : "unwatch");
		return;
	case PARTY_LIMIT:
		connection_say(m->connection, "idle %.0f", order->timeout_ms);
		return;
	case PARTY_PACT:
		send_pact(m, order);
		return;
	case PARTY_LET_GO:
		member_note("dropped", m, "it cannot follow the other processes of its job");
		connection_answer(m->connection, END_TIMEOUT, "it could not rest with its job");
	}
}

static bool is_giving(void)
{
	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		if (m->hand == HAND_OUT)
			return true;
	return false;
}

/* A member that takes memory waits for those who give, and for room for all that it has. */
static double silence_left(const struct member *m, double now)
{
	double left;

	if (m->hand == HAND_NONE ||
	    (m->hand == HAND_IN && (is_giving() || m->room < total_of(m))) ||
	    parties_waits(members_parties, m->id))
		return -1;
	left = m->heard_ms + rules_value(CONF_SILENCE) - now;
	return left > 0 ? left : 0;
}

/* What it may have on @gpu though it says nothing: of one that was given room, all of that. */
static size_t kept_on(const struct member *m, int gpu)
{
	const struct member_need *n = &m->need[gpu];
	size_t room = n->total;
	int gpus = 0;

	for (int i = 0; i < TURNS_GPUS; i++)
		gpus += m->need[i].total > 0;
	if (m->hand == HAND_OUT && gpus == 1)
		return size_less(n->mapped, m->freed - m->told);
	if (m->hand == HAND_IN && gpus == 1 && m->room < room)
		room = m->room;
	return m->hand == HAND_IN && room > n->mapped ? room : n->mapped;
}

static void book_kept(struct member *m, double now)
{
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++) {
		size_t kept = kept_on(m, gpu);

		if (m->need[gpu].told)
			parties_need(members_parties, m->id, gpu, kept, kept, now);
	}
}

/* It is where it is, and gets nothing. */
static void leave_alone(struct member *m, double now)
{
	member_note("silent", m, "it gives no answer, and is left alone");
	parties_leave(members_parties, m->id, now);
	m->id = parties_join(members_parties, m->connection->uid, "", m->class, m->weight, now);
	m->silent = true;
	book_kept(m, now);
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		parties_shown(members_parties, m->id, gpu, m->need[gpu].shown, 0, now);
	m->kept_ms = m->hand == HAND_IN ? now : 0;
	m->hand = HAND_NONE;
	parties_aside(members_parties, m->id, now);
}

/*
 * It was given room, and has not taken it: a stopped job would keep it from others for as long as it is stopped.
 * When it goes on it joins again, and takes what is free then.
 */
static void take_room_back(struct member *m, double now)
{
	if (m->kept_ms <= 0 || now - m->kept_ms <= TAKES * rules_value(CONF_SILENCE))
		return;
	m->kept_ms = 0;
	book_kept(m, now);
}

static void leave_silent_alone(double now)
{
	for (struct member *m = members_all; m < members_all + CONNECTIONS_MAX; m++) {
		if (m->id && !m->connection->ending && silence_left(m, now) == 0)
			leave_alone(m, now);
		if (m->id)
			take_room_back(m, now);
	}
}

/* Whose memory it waits for. */
static void tell_behind(struct member *m, double now)
{
	struct turns_view view = {0};
	const struct member *other;
	bool named;

	members_look(m, now, &view);
	other = view.waits_for ? member_find(view.waits_for) : NULL;
	if (m->behind == (other ? other->id : 0))
		return;
	m->behind = other ? other->id : 0;
	named = other && other->name[0] && other->connection->uid == m->connection->uid;
	connection_say(m->connection, "behind %d%s%s", other ? other->connection->pid : 0,
		       named ? " " : "", named ? other->name : "");
}

/* That it cannot have what it needs, as long as others have what they have. */
static void tell_unfit(struct member *m, double now)
{
	struct turns_view view = {.unfit_on = -1};
	const struct daemon_gpu *gpu;
	char needs[FORMAT_SIZE], there[FORMAT_SIZE], other[FORMAT_SIZE];

	members_look(m, now, &view);
	if (view.unfit_on < 0 && m->needs)
		connection_say(m->connection, "unfit - 0 0");
	if (view.unfit_on >= 0 && !m->needs) {
		gpu = gpus_get(view.unfit_on);
		connection_say(m->connection, "unfit %s %zu %zu", gpu->uuid, view.needs,
			       view.there);
		member_note("unfit", m,
			    "its job needs %s, and at most %s are there, as others have %s",
			    format_bytes(needs, view.needs), format_bytes(there, view.there),
			    format_bytes(other, gpu->lasts));
	}
	m->needs = view.unfit_on >= 0 ? view.needs : 0;
}

/*
 * What members may have together. Host memory that is pinned to hold what is out takes page tables on the GPU,
 * 2 MiB for a GiB, which a job gives back where it lacks them.
 */
static size_t there_on(int i, const struct daemon_gpu *gpu)
{
	size_t out = 0;

	for (const struct member *m = members_next(NULL); m; m = members_next(m)) {
		size_t missing = m->need[i].total > m->need[i].mapped
					 ? m->need[i].total - m->need[i].mapped
					 : 0;

		out += missing < gpu->total ? missing : gpu->total;
	}
	return (gpu->total > gpu->lasts ? gpu->total - gpu->lasts : 0) + out / 512;
}

static void let_stop(struct member *m)
{
	if (!m->stops || m->hand != HAND_NONE || !parties_may_stop(members_parties, m->id))
		return;
	m->stops = m->rescued = false;
	connection_say(m->connection, "stop");
}

static double look_left(const struct member *m, double now)
{
	double left = m->looked_ms + rules_value(CONF_RESCUE) - now;

	return left > 0 ? left : 0;
}

/* Milliseconds until the next look whether a member that is to give memory was stopped; negative: never. */
static double rescue_patience(const struct member *m, double now)
{
	return m->hand == HAND_OUT && rules_value(CONF_RESCUE) > 0 ? look_left(m, now) : -1;
}

/* True if a look is due now, and finds that Slurm has stopped it, and had CONF_RESCUE before. */
static bool is_stopped(struct member *m, double now)
{
	double delay = rules_value(CONF_RESCUE);

	if (delay <= 0 || look_left(m, now) > 0)
		return false;
	m->looked_ms = now;
	if (!rescue_is_stopped(m->connection))
		m->stopped_ms = 0;
	else if (m->stopped_ms <= 0)
		m->stopped_ms = now;
	return m->stopped_ms > 0 && now - m->stopped_ms >= delay;
}

static bool has_memory(const struct member *m)
{
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		if (m->need[gpu].mapped)
			return true;
	return false;
}

/* A job that Slurm has stopped with its memory needs no more of its turn, for which others wait. */
static void look_for_stopped(struct member *m, double now)
{
	if (m->hand != HAND_NONE || m->stops || m->idles || m->silent || !has_memory(m) ||
	    !is_stopped(m, now))
		return;
	m->idles = true;
	parties_stops(members_parties, m->id, true, now);
}

static bool can_be_continued(struct member *m)
{
	const char *obstacle = rescue_obstacle(m->connection);

	if (obstacle && !m->stuck)
		pr_warn("process %d is stopped, and cannot be continued: %s", m->connection->pid,
			obstacle);
	m->stuck |= obstacle != NULL;
	return !obstacle;
}

static void rescue(struct member *m, double now)
{
	if (m->hand != HAND_OUT || !is_stopped(m, now))
		return;
	/* What is said cannot be taken back: a job that reads it when Slurm resumes it would stop itself. */
	if (!can_be_continued(m))
		return;
	connection_say(m->connection, "rescue");
	if (!rescue_continue(m->connection))
		return;
	m->stopped_ms = 0;
	/*
	 * Slurm may stop it again: its SIGSTOP comes some seconds after SIGTSTP. One that is stopped again and
	 * again, and says nothing between, is silent in the end.
	 */
	if (m->rescued)
		return;
	member_note("rescued", m,
		    "it was stopped with its memory: it runs until it has given that");
	m->rescued = true;
	m->heard_ms = now > m->heard_ms ? now : m->heard_ms;
}

void members_decide(double now)
{
	struct turns *turns = parties_turns(members_parties);
	bool waits = parties_next(members_parties, now) >= 0;
	const struct daemon_gpu *gpu;

	for (struct member *m = members_all; m < members_all + CONNECTIONS_MAX; m++)
		if (m->id && !m->connection->ending) {
			if (waits)
				look_for_stopped(m, now);
			rescue(m, now);
		}
	leave_silent_alone(now);
	gpus_take(now);
	gpus_sample(ONLY_NEW_MS, now);
	turns_set(turns,
		  &(struct turns_settings){.quantum_ms = rules_value(CONF_QUANTUM),
					   .residence_ms = rules_value(CONF_RESIDENCE),
					   .idle_ms = rules_value(CONF_IDLE),
					   .rest_ms = rules_value(CONF_REST),
					   .takes_ms = TAKES * rules_value(CONF_SILENCE),
					   .context_after_ms = rules_value(CONF_CONTEXT_AFTER),
					   .batch_after_ms = rules_value(CONF_BATCH_AFTER)});
	if (!gpus_are_settled(now))
		return;
	for (int i = 0; (gpu = gpus_get(i)); i++) {
		if (now - gpu->taken_ms > SHOWN_MS)
			members_forget_shown(i, now);
		turns_capacity(turns, i, gpu->capacity);
		turns_most(turns, i, gpus_is_fresh(i, now) ? gpu->most : TURNS_NO_LIMIT);
		turns_there(turns, i, gpu->total ? there_on(i, gpu) : 0);
		turns_drain(turns, i, gpu->drained);
	}
	parties_decide(members_parties, now, give_order, &now);
	for (struct member *m = members_all; m < members_all + CONNECTIONS_MAX; m++)
		if (m->id && !m->connection->ending && !m->silent) {
			tell_behind(m, now);
			tell_unfit(m, now);
			let_stop(m);
		}
	/* For the next decision, which waits for them. */
	if (parties_next(members_parties, now) >= 0)
		gpus_sample(WAIT_AGE_MS, now);
}

double members_patience(double now)
{
	double next = parties_next(members_parties, now);

	if (next >= 0)
		next = clock_shorter(next, WAIT_AGE_MS);
	if (!gpus_are_settled(now))
		next = GPUS_PATIENCE_MS;
	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		if (!m->connection->ending)
			next = clock_shorter(
				next, clock_shorter(silence_left(m, now), rescue_patience(m, now)));
	return next;
}

void members_look(const struct member *member, double now, struct turns_view *view)
{
	parties_look(members_parties, member->id, now, view);
}

void members_give(const struct member *member, double now)
{
	member_note("asked", member, "its user gives its turn away");
	parties_give(members_parties, member->id, now);
}
