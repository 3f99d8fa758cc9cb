/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round takes the processes of a job off the GPU, or brings them back, together. If one of them
 * fails, a second round brings the others back to where they were.
 */
#include "tools/daemon/parties/party.h"
#include "common/size.h"

#include <string.h>

#define LOOK_MS       2    /* while processes come to rest */
#define PACT_AGAIN_MS 1000 /* until a pact is sent again that not all got */
#define ORDERS        64

static void give(struct parties *p, const struct party_order *order)
{
	p->give(order, p->arg);
}

static void say_to_asked(struct parties *p, const struct party *party, const char *text)
{
	FOR_EACH_OF(p, party, m)
		if (m->asked)
			give(p,
			     &(struct party_order){.kind = PARTY_SAY, .id = m->id, .text = text});
}

static void say_orders(struct parties *p, const struct party *party)
{
	char text[REACH_TEXT];

	FOR_EACH_OF(p, party, m)
		if (m->asked && rest_order(&party->rest, m->rank, text))
			give(p,
			     &(struct party_order){.kind = PARTY_SAY, .id = m->id, .text = text});
}

/* Those who take their memory back are to give it up again. */
static void stop_taking(struct parties *p, struct party *party)
{
	FOR_EACH_OF(p, party, m) {
		/* One alone is asked in any case. If it cannot give, it has its room, or refuses it. */
		m->out &= !m->asked || !party->together;
		m->asked = m->held = false;
	}
	party_end_round(party);
}

/* All have their memory, or had it: one whose fill was called off has it only now. */
static void let_run(struct parties *p, const struct party *party)
{
	FOR_EACH_OF(p, party, m) {
		if (!m->asked || !m->held)
			continue;
		m->held = false;
		give(p, &(struct party_order){.kind = PARTY_SAY, .id = m->id, .text = "commit"});
	}
}

static void commit(struct parties *p, struct party *party)
{
	party->committed = true;
	if (party->round == ROUND_IN)
		let_run(p, party);
	else
		say_to_asked(p, party, "commit");
}

/* Bring the processes to rest, or let them run on, together. */
static void lead(struct parties *p, struct party *party, double now)
{
	bool all_held = true;

	if (party->committed && party->round == ROUND_IN)
		let_run(p, party);
	if (party->committed || party->aborted)
		return;
	FOR_EACH_OF(p, party, m)
		all_held &= m->held || !m->asked;
	if (party->round == ROUND_IN) {
		if (party->fails)
			stop_taking(p, party);
		else if (all_held)
			commit(p, party);
		return;
	}
	if (party->fails) {
		party->aborted = true;
		say_to_asked(p, party, "abort");
		return;
	}
	switch (rest_next(&party->rest, (int64_t)now)) {
	case REST_READY:
		commit(p, party);
		break;
	case REST_GO:
		say_orders(p, party);
		break;
	case REST_WAIT:
		break;
	}
}

static bool any_asked(struct parties *p, const struct party *party)
{
	FOR_EACH_OF(p, party, m)
		if (m->asked)
			return true;
	return false;
}

/* What @m gives of all that it has, if its job gives what it is to give on @gpu: the same part. */
static uint64_t part_on(struct parties *p, const struct party *party, const struct process *m,
			int gpu)
{
	unsigned __int128 all = 0, bytes = party->gives[gpu];

	FOR_EACH_OF(p, party, other)
		all += other->mapped[gpu];
	if (all && bytes < TURNS_ALL)
		bytes = (bytes * party_sum(m->mapped) + all - 1) / all;
	return bytes < TURNS_ALL ? (uint64_t)bytes : TURNS_ALL;
}

/*
 * What @m gives of what its job is to give: its part of that on its GPU, nothing where the GPU lacks nothing. One with
 * several GPUs gives the same part of each: the largest of these. One of which it is not known where its memory is, as
 * while it takes some back, gives everything.
 */
static uint64_t part_of(struct parties *p, const struct party *party, const struct process *m)
{
	int gpu = party_only_gpu(p, m), known = 0;
	uint64_t bytes = 0;

	if (!party->follows && !party->bytes)
		return 0; /* only its lease is taken */
	for (int g = 0; g < TURNS_GPUS; g++) {
		known += m->total[g] > 0;
		if (g == gpu || m->mapped[g])
			bytes = size_max(bytes, part_on(p, party, m, g));
	}
	return party->follows || party->bytes == TURNS_ALL || (gpu < 0 && (known < 2 || m->room))
		       ? TURNS_ALL
		       : bytes;
}

/* The books have given room for all that its processes need, on each GPU. */
static bool has_all_room(struct parties *p, const struct party *party)
{
	for (int g = 0; g < TURNS_GPUS; g++) {
		uint64_t total = 0;

		FOR_EACH_OF(p, party, m)
			total += m->total[g];
		if (total > party->room[g])
			return false;
	}
	return true;
}

/* How the processes of a job share its room. */
struct division {
	bool parts; /* each takes it as it comes; else all at once, if there is enough for @all */
	bool all;
	__int128 left[TURNS_GPUS]; /* beside what they have, or were told that they may have */
};

static uint64_t share_of(const struct process *m, int gpu)
{
	return gpu < 0 ? 0 : size_max(m->room, m->mapped[gpu]);
}

static struct division divide(struct parties *p, const struct party *party)
{
	struct division d = {.parts = party_takes_parts(p, party), .all = has_all_room(p, party)};

	for (int g = 0; g < TURNS_GPUS; g++)
		d.left[g] = party->room[g];
	FOR_EACH_OF(p, party, m) {
		int gpu = party_only_gpu(p, m);

		if (gpu >= 0)
			d.left[gpu] -= share_of(m, gpu);
	}
	return d;
}

/* What @m may have of its job's room on @gpu, its only one: what the others leave of it, but no more than it needs. */
static uint64_t room_of(const struct party *party, const struct process *m, int gpu,
			const struct division *d)
{
	uint64_t total = party_sum(m->total);
	__int128 left;

	if (!party->together)
		return gpu < 0 ? party->bytes : party->room[gpu];
	if (!d->parts)
		return d->all ? total : m->room;
	if (gpu < 0)
		return 0; /* it has no memory */
	left = d->left[gpu] + share_of(m, gpu);
	return left < 0 ? 0 : left < total ? (uint64_t)left : total;
}

/* To those that have not been told so. @anew: to all. */
static void tell_room(struct parties *p, const struct party *party, bool anew)
{
	struct division d = divide(p, party);

	FOR_EACH_OF(p, party, m) {
		int gpu = party_only_gpu(p, m);
		uint64_t had, room = room_of(party, m, gpu, &d);

		if (!m->asked || (room == m->room && !anew))
			continue;
		had = share_of(m, gpu);
		m->room = room;
		if (gpu >= 0)
			d.left[gpu] += (__int128)had - share_of(m, gpu);
		give(p, &(struct party_order){.kind = PARTY_ROOM,
					      .id = m->id,
					      .hold = party->together,
					      .bytes = room});
	}
}

static void tell_yield(struct parties *p, struct party *party)
{
	FOR_EACH_OF(p, party, m) {
		uint64_t bytes;

		if (!m->asked)
			continue;
		/* One that is out is at rest. */
		if (m->out && party->rest.ranks)
			rest_leave(&party->rest, m->rank);
		bytes = part_of(p, party, m);
		m->gives = size_min(bytes, party_sum(m->mapped));
		give(p, &(struct party_order){.kind = PARTY_YIELD,
					      .id = m->id,
					      .hold = party->together,
					      .bytes = bytes,
					      .context = party->context && !party->together,
					      .timeout_ms = party->timeout_ms});
	}
}

/* Ask those who are not where the job is to be; for a new order to give memory, all. */
static void begin_round(struct parties *p, struct party *party, double now)
{
	size_t n = 0;

	party->follows = party->out && !party->fresh;
	/* Also one that is left of several, when what they did is undone. */
	party->together =
		party_count(p, party) > 1 || (party->owed && party->attempt != ATTEMPT_FIRST);
	FOR_EACH_OF(p, party, m) {
		m->asked = m->out != party->out || (party->fresh && party->out);
		m->held = m->failed = false;
		m->freeing = m->filled = 0;
		m->rank = n;
		n += m->asked;
		if (m->asked && party->out)
			m->freed = 0;
	}
	/* Back to where they were: nobody else has that. */
	for (int g = 0; g < TURNS_GPUS && !party->out && !party->fresh; g++)
		party->bytes = party->room[g] = TURNS_ALL;
	party->fresh = party->fails = false;
	if (!n)
		return;
	party->round = party->out ? ROUND_OUT : ROUND_IN;
	if (party->together && party->out && rest_init(&party->rest, n, p->last_id, (int64_t)now)) {
		party_end_round(party);
		FOR_EACH_OF(p, party, m)
			m->asked = false;
		return;
	}
	if (party->round == ROUND_OUT)
		tell_yield(p, party);
	else
		tell_room(p, party, true);
}

/* Processes that could not follow their job do so on their own. */
static void let_go(struct parties *p, const struct party *party)
{
	FOR_EACH_OF(p, party, m)
		if (m->failed && m->out != party->out)
			give(p, &(struct party_order){.kind = PARTY_LET_GO, .id = m->id});
}

/* A round of several processes has ended, and some have failed. */
static void take_failure(struct parties *p, struct party *party)
{
	bool first = party->owed && party->attempt == ATTEMPT_FIRST && party->was != party->out;

	/* Others have what was freed. */
	if (first && !party->waited_alone && !party->frees) {
		party->attempt = ATTEMPT_UNDONE;
		party->out = party->was;
		/* Also those that have failed come back, if they are out with a part. */
		FOR_EACH_OF(p, party, m)
			m->failed &= m->out == party->out;
	} else if (first || (party->owed && party->attempt == ATTEMPT_UNDONE && !party->out)) {
		party->attempt = ATTEMPT_FORCED;
		party->out = true;
		FOR_EACH_OF(p, party, m)
			m->failed = false;
	} else {
		let_go(p, party);
	}
}

/* What the books have ordered is done, or has failed and is undone. */
static void answer_books(struct parties *p, struct party *party, double now)
{
	uint64_t freed = 0;

	FOR_EACH_OF(p, party, m) {
		freed += m->out ? m->freed : 0;
		m->idle &= m->out;
	}
	if (party->together && party->out)
		turns_freed(p->turns, party->member, freed, now);
	/* They do not run, also if nothing was freed. */
	if (party->end != TURNS_OK && party->out && !party->was)
		party->end = TURNS_LEFT;
	party->owed = party->frees = false;
	party_tell_needs(p, party, now);
	turns_ended(p->turns, party->member, party->end, now);
	party_tell_idle(p, party, now);
	party->end = TURNS_OK;
	party_tell_paused(p, party, now);
}

/* A job of one process that has failed is where it says. */
static void end_alone(struct parties *p, struct party *party)
{
	party->out = false;
	FOR_EACH_OF(p, party, m)
		party->out |= m->out;
}

/* The round was not for the books' new order, which asks all again. */
static void forget_failures(struct parties *p, struct party *party)
{
	party->end = TURNS_OK;
	FOR_EACH_OF(p, party, m)
		m->failed = false;
}

static void take_order(struct parties *p, struct party *party, bool out, uint64_t bytes)
{
	if (!party->owed) {
		party->was = party->out;
		party->waited_alone = false;
		FOR_EACH_OF(p, party, m)
			party->waited_alone |= m->waits_alone;
	}
	party->out = out;
	party->frees = false;
	party->owed = party->fresh = true;
	party->attempt = ATTEMPT_FIRST;
	party->end = TURNS_OK;
	party->bytes = bytes;
	party->short_of = false;
}

/* Processes begin to take room when there is enough for all, unless each takes it as it comes. */
static bool may_begin(struct parties *p, const struct party *party)
{
	return party_takes_parts(p, party) || has_all_room(p, party);
}

/*
 * Others may have what is freed once each process has shown that it can give its own: before, one may fail, and then
 * all run on. One that gives nothing need not show it, though it may wait for the others. The GPU has memory that it
 * imports until it has released that, too, at the same time. If it is stopped just then, whoever is told of the room
 * may find no memory yet.
 */
static void note_freed(struct parties *p, struct party *party, double now)
{
	bool all = party->owed && party->committed && party->round == ROUND_OUT && !party->fails;

	FOR_EACH_OF(p, party, m)
		all &= !m->asked || m->freed || !m->gives;
	if (!all || party->frees)
		return;
	party->frees = true;
	party_tell_needs(p, party, now);
}

void parties_lacks_pact(struct parties *p, uint32_t id)
{
	struct process *m = parties_find(p, id);

	m->party->pact_lacks = true;
	party_outdate_pact(m->party);
}

/* Before any of them is out: if the daemon ends, they resume together. So do those that others have left. */
static void give_pact(struct parties *p, struct party *party, double now)
{
	size_t n = party_count(p, party);
	bool first = true;

	if (!party->out || party->pact == PACT_OURS || (n == 1 && party->pact == PACT_NONE) ||
	    (party->pact_lacks && now - party->pact_ms < PACT_AGAIN_MS))
		return;
	party->pact = PACT_OURS;
	party->pact_ms = now;
	party->pact_lacks = false;
	FOR_EACH_OF(p, party, m) {
		give(p, &(struct party_order){
				.kind = PARTY_PACT, .id = m->id, .bytes = n, .on = first});
		first = false;
	}
}

/* True if something has changed. */
static bool advance(struct parties *p, struct party *party, double now)
{
	bool any = false;

	give_pact(p, party, now);
	if (party->round != ROUND_NONE) {
		if (party->together)
			lead(p, party, now);
		if (party->round == ROUND_IN)
			tell_room(p, party, false);
		note_freed(p, party, now);
		if (any_asked(p, party))
			return false;
		party_end_round(party);
		if (party->fresh)
			forget_failures(p, party);
		else if (party->fails && party->together)
			take_failure(p, party);
		else if (party->fails)
			end_alone(p, party);
		if (!party->owed)
			party->end = TURNS_OK;
		return true;
	}
	/* There may be enough because a process has ended. */
	if (party->short_of && may_begin(p, party))
		take_order(p, party, false, party->bytes);
	FOR_EACH_OF(p, party, m)
		any |= m->out != party->out && !m->failed;
	if (party->fresh || any) {
		begin_round(p, party, now);
		return party->round != ROUND_NONE;
	}
	if (!party->owed)
		return false;
	answer_books(p, party, now);
	return true;
}

static void take_yield(struct parties *p, struct party *party, const struct turns_order *order)
{
	if (party->round == ROUND_IN)
		stop_taking(p, party);
	take_order(p, party, true, order->bytes);
	memcpy(party->gives, order->each, sizeof(party->gives));
	party->context = order->context;
	party->timeout_ms = order->timeout_ms;
}

static void take_room(struct party *party, const struct turns_order *order)
{
	bool undoes = party->owed && party->attempt != ATTEMPT_FIRST;

	if (undoes || (party->round != ROUND_IN && !party->out))
		return;
	memcpy(party->room, order->each, sizeof(party->room));
	party->bytes = order->bytes;
	party->short_of = party->round != ROUND_IN;
}

/* The answer to an allocation that waits. */
static void pass_answer(struct parties *p, const struct turns_order *order)
{
	struct process *m = parties_find(p, (uint32_t)(order->serial >> 32));

	if (!m)
		return;
	if (order->kind == TURNS_TRY)
		m->tried |= 1U << order->gpu;
	give(p, &(struct party_order){.kind = order->kind == TURNS_TRY ? PARTY_TRY : PARTY_NO,
				      .id = m->id,
				      .serial = (uint32_t)order->serial});
}

static void pass_limit(struct parties *p, const struct party *party, double ms)
{
	FOR_EACH_OF(p, party, m)
		give(p, &(struct party_order){.kind = PARTY_LIMIT, .id = m->id, .timeout_ms = ms});
}

static void pass_order(struct parties *p, const struct turns_order *order)
{
	struct party *party = parties_find_member(p, order->id);

	if (!party)
		return;
	switch (order->kind) {
	case TURNS_YIELD:
		take_yield(p, party, order);
		break;
	case TURNS_ROOM:
		take_room(party, order);
		break;
	case TURNS_TRY:
	case TURNS_NO:
		pass_answer(p, order);
		break;
	case TURNS_WATCH:
		party->watched = order->on;
		break;
	case TURNS_LIMIT:
		pass_limit(p, party, order->timeout_ms);
	}
}

static void watch(struct parties *p)
{
	for (struct process *m = p->processes; m < p->processes + TURNS_MEMBERS; m++) {
		if (!m->id || m->watched == m->party->watched)
			continue;
		m->watched = m->party->watched;
		give(p, &(struct party_order){.kind = PARTY_WATCH, .id = m->id, .on = m->watched});
	}
}

void parties_decide(struct parties *p, double now,
		    void (*give_order)(const struct party_order *, void *), void *arg)
{
	struct turns_order orders[ORDERS];
	bool changed;
	size_t n;

	p->give = give_order;
	p->arg = arg;
	do {
		changed = false;
		FOR_EACH_PARTY(p, party)
			changed |= advance(p, party, now);
		n = turns_decide(p->turns, now, orders, ORDERS);
		for (size_t i = 0; i < n; i++)
			pass_order(p, &orders[i]);
	} while (n || changed);
	watch(p);
}

double parties_next(struct parties *p, double now)
{
	double next = turns_next(p->turns, now);

	FOR_EACH_PARTY(p, party)
		if (party->rest.ranks && !party->committed && !party->aborted)
			return LOOK_MS;
	return next;
}
