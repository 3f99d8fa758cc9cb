/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/parties/party.h"
#include "common/protocol/lines.h"
#include "common/size.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parties *parties_new(const struct turns_settings *settings)
{
	struct parties *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->turns = turns_new(settings);
	if (p->turns)
		return p;
	free(p);
	return NULL;
}

void party_end_round(struct party *party)
{
	rest_fini(&party->rest);
	party->committed = party->aborted = false;
	party->round = ROUND_NONE;
}

void party_outdate_pact(struct party *party)
{
	if (party->pact == PACT_OURS)
		party->pact = PACT_OLD;
}

void parties_free(struct parties *p)
{
	if (!p)
		return;
	FOR_EACH_PARTY(p, party)
		party_end_round(party);
	turns_free(p->turns);
	free(p);
}

struct process *parties_find(struct parties *p, uint32_t id)
{
	for (struct process *m = p->processes; id && m < p->processes + TURNS_MEMBERS; m++)
		if (m->id == id)
			return m;
	return NULL;
}

struct party *parties_find_member(struct parties *p, uint32_t member)
{
	FOR_EACH_PARTY(p, party)
		if (party->member == member)
			return party;
	return NULL;
}

size_t party_count(struct parties *p, const struct party *party)
{
	size_t n = 0;

	FOR_EACH_OF(p, party, m)
		n++;
	return n;
}

int party_only_gpu(struct parties *p, const struct process *m)
{
	int found = -1;

	for (int g = 0; g < TURNS_GPUS; g++) {
		bool tries = m->tried & 1U << g && turns_promised(p->turns, m->party->member, g);

		if (!m->total[g] && !tries)
			continue;
		if (found >= 0)
			return -1;
		found = g;
	}
	return found;
}

bool party_takes_parts(struct parties *p, const struct party *party)
{
	FOR_EACH_OF(p, party, m)
		if (party_sum(m->total) && party_only_gpu(p, m) < 0)
			return false;
	return true;
}

struct turns *parties_turns(struct parties *p)
{
	return p->turns;
}

static struct party *find_job(struct parties *p, unsigned int user, const char *job)
{
	FOR_EACH_PARTY(p, party)
		if (party->user == user && !strcmp(party->job, job))
			return party;
	return NULL;
}

static struct party *new_party(struct parties *p, unsigned int user, const char *job,
			       enum turns_class class, int weight, double now)
{
	struct party *party = p->parties;

	/* There are as many as processes. */
	while (party->member)
		party++;
	*party = (struct party){.user = user};
	party->member = turns_join(p->turns, class, weight, now);
	snprintf(party->job, sizeof(party->job), "%s", job);
	return party->member ? party : NULL;
}

void party_tell_idle(struct parties *p, const struct party *party, double now)
{
	bool all = true, any = false;

	FOR_EACH_OF(p, party, m) {
		all &= m->idle || m->paused;
		any |= m->idle && !m->paused;
	}
	turns_idle(p->turns, party->member, all && any, now);
}

/* Tell the books what NVML shows of the job on @gpu. */
static void tell_shown(struct parties *p, const struct party *party, int gpu, double asked,
		       double now)
{
	uint64_t sum = 0;

	FOR_EACH_OF(p, party, m)
		if (sum < TURNS_NO_LIMIT)
			sum += m->shown[gpu];
	turns_shown(p->turns, party->member, gpu, sum < TURNS_NO_LIMIT ? sum : TURNS_NO_LIMIT,
		    asked, now);
}

static void tell_all_shown(struct parties *p, const struct party *party, double now)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		tell_shown(p, party, g, 0, now);
}

static void tell_contexts(struct parties *p, const struct party *party, double now)
{
	bool single = party_count(p, party) == 1;

	FOR_EACH_OF(p, party, m)
		for (int g = 0; g < TURNS_GPUS; g++)
			turns_context(p->turns, party->member, g, single ? m->context[g] : 0, now);
}

uint32_t parties_join(struct parties *p, unsigned int user, const char *job, enum turns_class class,
		      int weight, double now)
{
	/* A process without an ID is a job of its own. */
	struct party *party = *job ? find_job(p, user, job) : NULL;
	struct process *m = p->processes;

	while (m < p->processes + TURNS_MEMBERS && m->id)
		m++;
	if (m == p->processes + TURNS_MEMBERS)
		return 0;
	if (!party)
		party = new_party(p, user, job, class, weight, now);
	if (!party)
		return 0;
	do {
		p->last_id++;
	} while (!p->last_id || parties_find(p, p->last_id));
	*m = (struct process){.id = p->last_id, .party = party};
	for (int g = 0; g < TURNS_GPUS; g++)
		m->shown[g] = TURNS_NO_LIMIT;
	party_outdate_pact(party);
	tell_all_shown(p, party, now);
	tell_contexts(p, party, now);
	/* The others of its job may be idle. */
	party_tell_idle(p, party, now);
	return m->id;
}

/* In the books, serials of a process begin with its number. */
static uint64_t serial_of(uint32_t id, uint32_t serial)
{
	return (uint64_t)id << 32 | serial;
}

/* Those allocations of the process that wait get no answer any more. */
static void forget_growth(struct parties *p, const struct process *m, double now)
{
	turns_forget(p->turns, m->party->member, serial_of(m->id, 0), serial_of(m->id, UINT32_MAX),
		     now);
}

/* What @m has on @gpu, or may come to have there without more room. */
static uint64_t may_have(struct parties *p, const struct process *m, int gpu)
{
	const struct party *party = m->party;

	/* What is out may have to come back with the others, until all give, or the order is done. */
	if (party->together && party->owed && !party->was && !party->frees)
		return size_max(m->mapped[gpu], m->total[gpu]);
	return party_only_gpu(p, m) == gpu ? size_less(m->mapped[gpu], m->freeing) : m->mapped[gpu];
}

/* Tell the books what the job has on @gpu. */
static void tell_need(struct parties *p, const struct party *party, int gpu, double now)
{
	uint64_t mapped = 0, total = 0;

	FOR_EACH_OF(p, party, m) {
		mapped += may_have(p, m, gpu);
		total += m->total[gpu];
	}
	turns_takes_parts(p->turns, party->member, party_takes_parts(p, party));
	turns_need(p->turns, party->member, gpu, mapped, total, now);
}

void party_tell_needs(struct parties *p, const struct party *party, double now)
{
	bool used[TURNS_GPUS] = {0};

	FOR_EACH_OF(p, party, m)
		for (int g = 0; g < TURNS_GPUS; g++)
			used[g] |= m->mapped[g] || m->total[g];
	for (int g = 0; g < TURNS_GPUS; g++)
		if (used[g])
			tell_need(p, party, g, now);
}

uint64_t party_sum(const uint64_t *bytes)
{
	uint64_t all = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		all += bytes[g];
	return all;
}

void party_tell_paused(struct parties *p, const struct party *party, double now)
{
	bool any = false, all = true, waits = false, stops = false;

	FOR_EACH_OF(p, party, m) {
		any |= m->paused || m->stops;
		all &= m->paused;
		waits |= m->waits_alone;
		stops |= m->stops;
	}
	/*
	 * A job that is out, or comes back, gets its turn only if all of its processes can use it. One that runs
	 * goes out if a process waits for memory by itself, or is to stop: all come back together.
	 */
	turns_keeps(p->turns, party->member, waits && !stops);
	turns_paused(p->turns, party->member,
		     party->out || party->round == ROUND_IN ? any : all || waits || stops, now);
	/* The books do not know what a paused job wants, but its processes do not say it again. */
	FOR_EACH_OF(p, party, m)
		if (m->wants && !any)
			(m->ends ? turns_ends : turns_want)(p->turns, party->member, now);
}

void parties_leave(struct parties *p, uint32_t id, double now)
{
	struct process *m = parties_find(p, id);
	struct party *party = m ? m->party : NULL;
	bool has[TURNS_GPUS];

	if (!m)
		return;
	for (int g = 0; g < TURNS_GPUS; g++)
		has[g] = m->mapped[g] || m->total[g];
	if (m->asked && party->rest.ranks)
		rest_leave(&party->rest, m->rank);
	forget_growth(p, m, now);
	*m = (struct process){0};
	if (!party_count(p, party)) {
		party_end_round(party);
		turns_leave(p->turns, party->member, now);
		*party = (struct party){0};
		return;
	}
	party_outdate_pact(party);
	for (int g = 0; g < TURNS_GPUS; g++)
		if (has[g])
			tell_need(p, party, g, now);
	tell_all_shown(p, party, now);
	tell_contexts(p, party, now);
	party_tell_paused(p, party, now);
	party_tell_idle(p, party, now);
}

void parties_need(struct parties *p, uint32_t id, int gpu, uint64_t mapped, uint64_t total,
		  double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->mapped[gpu] = mapped;
	m->total[gpu] = total;
	m->freeing = 0;
	tell_need(p, m->party, gpu, now);
}

void parties_shown(struct parties *p, uint32_t id, int gpu, uint64_t bytes, double asked,
		   double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->shown[gpu] = bytes;
	tell_shown(p, m->party, gpu, asked, now);
}

void parties_context_after(struct parties *p, uint32_t id, double ms)
{
	struct process *m = parties_find(p, id);

	if (m)
		turns_context_after(p->turns, m->party->member, ms);
}

void parties_context(struct parties *p, uint32_t id, int gpu, uint64_t bytes, double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->context[gpu] = bytes;
	tell_contexts(p, m->party, now);
}

void parties_restored(struct parties *p, uint32_t id, bool out, double now)
{
	struct process *m = parties_find(p, id);

	if (m)
		turns_restored(p->turns, m->party->member, out, now);
}

void parties_want(struct parties *p, uint32_t id, double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->idle = false;
	m->wants = true;
	turns_want(p->turns, m->party->member, now);
}

void parties_idle(struct parties *p, uint32_t id, bool idle, double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->idle = idle;
	if (!idle)
		turns_busy(p->turns, m->party->member, now);
	party_tell_idle(p, m->party, now);
}

double parties_idle_limit(struct parties *p, uint32_t id)
{
	struct process *m = parties_find(p, id);

	return m ? turns_idle_limit(p->turns, m->party->member) : 0;
}

bool parties_is_out(struct parties *p, uint32_t id)
{
	const struct process *m = parties_find(p, id);

	return m && m->out;
}

void parties_paused(struct parties *p, uint32_t id, bool paused, bool waits_alone, double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->paused = paused || waits_alone;
	m->waits_alone = waits_alone;
	m->party->short_of &= !m->paused; /* its turn is over */
	party_tell_paused(p, m->party, now);
}

void parties_stops(struct parties *p, uint32_t id, bool stops, double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->stops = stops;
	party_tell_paused(p, m->party, now);
}

bool parties_may_stop(struct parties *p, uint32_t id)
{
	const struct process *m = parties_find(p, id);

	return m && m->stops && m->out && m->party->round == ROUND_NONE && !m->party->owed &&
	       !turns_gives_all(p->turns, m->party->member);
}

void parties_aside(struct parties *p, uint32_t id, double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->paused = true;
	turns_aside(p->turns, m->party->member, now);
}

void parties_grow(struct parties *p, uint32_t id, uint32_t serial, int gpu, uint64_t bytes,
		  double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->idle = false;
	turns_grow(p->turns, m->party->member, serial_of(id, serial), gpu, bytes, now);
}

void parties_pinned(struct parties *p, uint32_t id, uint32_t serial, double now)
{
	struct process *m = parties_find(p, id);

	if (m)
		turns_pinned(p->turns, m->party->member, serial_of(id, serial), now);
}

void parties_forget(struct parties *p, uint32_t id, uint32_t serial, double now)
{
	struct process *m = parties_find(p, id);
	uint64_t known = serial_of(id, serial);

	if (m)
		turns_forget(p->turns, m->party->member, known, known, now);
}

void parties_ends(struct parties *p, uint32_t id, double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	m->idle = false;
	m->wants = m->ends = true;
	forget_growth(p, m, now); /* the process has refused it */
	turns_ends(p->turns, m->party->member, now);
}

void parties_freed(struct parties *p, uint32_t id, uint64_t bytes, double now)
{
	struct process *m = parties_find(p, id);
	bool more = m && bytes > m->freed && m->party->round == ROUND_OUT;
	uint64_t sum = 0;

	if (!m)
		return;
	m->freeing = bytes;
	if (bytes > m->freed)
		m->freed = bytes;
	if (m->asked && m->party->together && more) {
		FOR_EACH_OF(p, m->party, other)
			sum += other->freed;
		party_tell_needs(p, m->party, now);
		turns_frees(p->turns, m->party->member, sum, now);
	}
	if (!m->asked || m->party->together)
		return;
	/* Also if others join, and have to follow. */
	m->party->frees |= bytes > 0;
	turns_freed(p->turns, m->party->member, bytes, now);
}

/* All that the process has: of which GPU is known if it has one, or nothing. */
static void set_mapped(struct process *m, uint64_t bytes)
{
	int gpus = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		gpus += m->total[g] > 0;
	for (int g = 0; g < TURNS_GPUS; g++)
		if (m->total[g] && (gpus == 1 || !bytes))
			m->mapped[g] = bytes;
}

/* It has all that it needs. */
static void take_all(struct process *m)
{
	memcpy(m->mapped, m->total, sizeof(m->mapped));
}

/* What its processes have taken: those that say less than before have not given it back. */
static void tell_filled(struct parties *p, const struct party *party, double now)
{
	uint64_t bytes = 0;

	FOR_EACH_OF(p, party, m)
		bytes += size_max(m->filled, party_sum(m->mapped));
	turns_filled(p->turns, party->member, bytes, now);
}

void parties_mapped(struct parties *p, uint32_t id, uint64_t bytes, double now)
{
	struct process *m = parties_find(p, id);

	if (!m)
		return;
	set_mapped(m, bytes);
	m->filled = size_max(m->filled, bytes);
	m->freeing = 0;
	/* It is at rest, whatever fails. */
	if (m->asked && m->party->round == ROUND_OUT)
		m->out = true;
	if (m->party->together) {
		party_tell_needs(p, m->party, now);
		if (m->party->round != ROUND_OUT)
			tell_filled(p, m->party, now);
		return;
	}
	FOR_EACH_OF(p, m->party, other)
		if (other != m)
			bytes += party_sum(other->mapped);
	turns_mapped(p->turns, m->party->member, bytes, now);
}

void parties_give(struct parties *p, uint32_t id, double now)
{
	struct process *m = parties_find(p, id);

	if (m)
		turns_give(p->turns, m->party->member, now);
}

int parties_take(struct parties *p, uint32_t id, const struct line *line, double now)
{
	struct process *m = parties_find(p, id);
	struct party *party = m ? m->party : NULL;

	if (!m || !m->asked)
		return 0;
	if (party->round == ROUND_IN) {
		m->held |= line->id == REPORT_HELD;
		return 0;
	}
	if (party->committed || !party->rest.ranks)
		return 0;
	return rest_take(&party->rest, m->rank, line, (int64_t)now);
}

void parties_ended(struct parties *p, uint32_t id, enum turns_end end, double now)
{
	struct process *m = parties_find(p, id);
	struct party *party = m ? m->party : NULL;

	(void)now;
	if (!m || !m->asked)
		return;
	m->asked = m->held = false;
	m->room = 0;
	m->failed = end != TURNS_OK;
	if (!m->failed)
		m->out = party->round == ROUND_OUT;
	else if (party->round == ROUND_OUT)
		m->out |= m->freed > 0;
	/* Its needs, which tell of each of its GPUs, come a moment later. One with several may have taken all till then. */
	if (party->round == ROUND_IN && (!m->failed || party_only_gpu(p, m) < 0))
		take_all(m);
	m->wants &= m->out;
	m->ends &= m->out;
	party->fails |= m->failed;
	if (m->failed && party->end == TURNS_OK)
		party->end = end;
	if (party->rest.ranks && !party->committed)
		rest_leave(&party->rest, m->rank);
}

bool parties_look(struct parties *p, uint32_t id, double now, struct turns_view *view)
{
	struct process *m = parties_find(p, id);
	struct party *other;

	if (!m || !turns_look(p->turns, m->party->member, now, view))
		return false;
	other = view->waits_for ? parties_find_member(p, view->waits_for) : NULL;
	view->waits_for = 0;
	FOR_EACH_OF(p, other, first)
		if (!view->waits_for)
			view->waits_for = first->id;
	if (party_count(p, m->party) > 1)
		view->granted =
			view->granted < view->total ? party_sum(m->mapped) : party_sum(m->total);
	view->mapped = party_sum(m->mapped);
	view->total = party_sum(m->total);
	return true;
}

bool parties_waits(struct parties *p, uint32_t id)
{
	struct process *m = parties_find(p, id);

	return m && m->asked && m->held && !m->party->committed;
}

void parties_check(struct parties *p)
{
	turns_check(p->turns);
	for (struct process *m = p->processes; m < p->processes + TURNS_MEMBERS; m++) {
		if (!m->id)
			continue;
		assert(m->party->member);
		assert(!m->asked || m->party->round != ROUND_NONE);
		assert(!m->held || m->party->round == ROUND_IN);
	}
	FOR_EACH_PARTY(p, party) {
		assert(party_count(p, party) > 0);
		assert(!party->rest.ranks || (party->round == ROUND_OUT && party->together));
		assert(party->owed || !party->fresh);
	}
}
