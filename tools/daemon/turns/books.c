/* SPDX-License-Identifier: Apache-2.0 */
/* The books: who has how much, and for how long. */
#include "tools/daemon/turns/books.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_HANDOVER_MS 500 /* until one is measured */
#define QUANTUM_HANDOVERS 20  /* at most a twentieth of the time goes to hand-overs */
#define QUANTUM_MIN_MS    10000
#define QUANTUM_MAX_MS    120000

struct turns *turns_new(const struct turns_settings *settings)
{
	struct turns *t = calloc(1, sizeof(*t));

	if (t) {
		t->settings = *settings;
		t->handover_ms = FIRST_HANDOVER_MS;
	}
	return t;
}

void turns_free(struct turns *t)
{
	free(t);
}

void turns_set(struct turns *t, const struct turns_settings *settings)
{
	t->settings = *settings;
}

struct account *books_find(struct turns *t, uint32_t id)
{
	FOR_EACH_MEMBER(t, m)
		if (m->id == id)
			return m;
	return NULL;
}

bool books_uses(const struct account *m, int gpu)
{
	const struct need *n = &m->need[gpu];

	if (n->mapped || n->total || n->promised)
		return true;
	for (int i = 0; i < m->ngrows; i++)
		if (m->grows[i].gpu == gpu)
			return true;
	return false;
}

bool books_is_on(const struct account *m, int gpu)
{
	return books_uses(m, gpu) || m->need[gpu].context;
}

bool books_share_gpu(const struct account *a, const struct account *b)
{
	bool alone = a->alone || b->alone;

	for (int g = 0; g < TURNS_GPUS; g++)
		if (alone ? books_is_on(a, g) && books_is_on(b, g)
			  : books_uses(a, g) && books_uses(b, g))
			return true;
	return false;
}

bool books_has_one_gpu(const struct account *m)
{
	int n = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		n += books_uses(m, g);
	return n <= 1;
}

bool books_takes_parts(const struct account *m)
{
	return !m->released && (m->parts || books_has_one_gpu(m));
}

double books_pinned_at(const struct account *m)
{
	double first = 0;

	for (int i = 0; i < m->ngrows; i++)
		if (m->grows[i].pinned_at > 0 && (first <= 0 || m->grows[i].pinned_at < first))
			first = m->grows[i].pinned_at;
	return first;
}

uint64_t books_has(const struct account *m, int gpu)
{
	const struct need *n = &m->need[gpu];

	return n->mapped < n->shown + n->got ? n->mapped : n->shown + n->got;
}

void books_get(struct account *m, int gpu, uint64_t bytes, double now)
{
	uint64_t *got = &m->need[gpu].got;

	*got = bytes < TURNS_NO_LIMIT - *got ? *got + bytes : TURNS_NO_LIMIT;
	m->got_at = now;
}

uint64_t books_said(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		sum += m->need[g].mapped;
	return sum;
}

uint64_t books_out(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		if (m->need[g].total > m->need[g].mapped)
			sum += m->need[g].total - m->need[g].mapped;
	return sum;
}

uint64_t books_shown(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS && sum < TURNS_NO_LIMIT; g++)
		if (books_uses(m, g))
			sum += m->need[g].shown;
	return sum < TURNS_NO_LIMIT ? sum : TURNS_NO_LIMIT;
}

uint64_t books_mapped(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		sum += books_has(m, g);
	return sum;
}

bool books_is_on_drained(const struct turns *t, const struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (t->drained[g] && m->need[g].mapped)
			return true;
	return false;
}

uint64_t books_most(const struct turns *t, int gpu)
{
	uint64_t capacity = t->capacity[gpu] == TURNS_NO_LIMIT ? 0 : t->capacity[gpu];

	return capacity > t->most[gpu] ? capacity : t->most[gpu];
}

uint64_t books_wanted(const struct turns *t, const struct account *m, int gpu)
{
	const struct need *n = &m->need[gpu];
	uint64_t bytes = n->total > n->mapped || m->phase != PHASE_RUNS ? n->total : n->mapped;
	uint64_t most = books_most(t, gpu);

	for (int i = 0; i < m->ngrows; i++)
		if (m->grows[i].gpu == gpu && bytes <= most && m->grows[i].bytes <= most - bytes)
			bytes += m->grows[i].bytes;
	return bytes;
}

/* It may use its room until it has ended the yield that takes it. */
uint64_t books_may_have(const struct account *m, int gpu)
{
	uint64_t has = books_has(m, gpu), room = m->need[gpu].room;

	return room > has ? room : has;
}

uint64_t books_held(const struct account *m, int gpu)
{
	return books_may_have(m, gpu) + m->need[gpu].promised;
}

int64_t books_free(const struct turns *t, int gpu)
{
	int64_t bytes = (int64_t)t->capacity[gpu];

	FOR_EACH_MEMBER(t, m)
		bytes -= (int64_t)books_held(m, gpu);
	return bytes;
}

bool books_is_active(const struct account *m)
{
	return m->phase == PHASE_RUNS && !books_is_idle(m) && !m->paused && !m->ngrows;
}

bool books_is_out(const struct account *m)
{
	return m->phase == PHASE_OUT || m->phase == PHASE_ENTERS;
}

bool books_gives_nothing(const struct turns *t, const struct account *m)
{
	bool stays = m->phase == PHASE_RUNS && books_is_on_drained(t, m);

	return t->now < m->giving.until || t->now < m->safe_until || books_pinned_at(m) > 0 ||
	       m->paused || (stays && !m->ngrows);
}

/* It has been told to leave, and its kernels still run: that is its time. */
static bool drains(const struct account *m)
{
	return m->phase == PHASE_LEAVING && m->ran && !m->rests && !m->paused;
}

/* The share of the time that @m had: the least of its GPUs', each divided by those that ran there. */
static double share_of(const struct turns *t, const struct account *m)
{
	int most = 1;

	for (int g = 0; g < TURNS_GPUS; g++) {
		int n = 0;

		if (!books_uses(m, g))
			continue;
		FOR_EACH_MEMBER(t, other)
			n += (books_is_active(other) || drains(other)) && books_uses(other, g);
		most = n > most ? n : most;
	}
	return 1.0 / most;
}

void books_advance(struct turns *t, double now)
{
	double passed = now - t->now;
	double takes = passed / books_quantum(t) * t->settings.batch_after_ms;

	if (passed <= 0)
		return;
	t->now = now;
	FOR_EACH_MEMBER(t, m) {
		bool runs = books_is_active(m) || drains(m);

		if (runs)
			m->vtime += passed * share_of(t, m) / m->weight;
		m->kept_ms += m->kept ? passed : 0;
		m->kept_ms -= !runs ? 0 : m->kept_ms < takes ? m->kept_ms : takes;
		if (now - m->got_at >= BOOKS_GOT_MS)
			for (int g = 0; g < TURNS_GPUS; g++)
				m->need[g].promised = 0;
	}
}

/* When the first of its allocations began to wait; 0: none waits. */
static double waits_since(const struct account *m)
{
	double first = 0;

	for (int i = 0; i < m->ngrows; i++)
		if (first <= 0 || m->grows[i].since < first)
			first = m->grows[i].since;
	return first;
}

uint64_t books_room(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		sum += m->need[g].room;
	return sum;
}

void books_end_room(struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		m->need[g].room = 0;
}

void books_set_phase(struct account *m, enum phase phase, double now)
{
	m->phase = phase;
	m->phase_since = m->progress_at = now;
	m->ending &= phase != PHASE_RUNS;
	m->first &= phase == PHASE_ENTERS;
	m->came &= phase != PHASE_OUT;
	m->left = false;
	m->said = m->filled = 0;
	/* What an allocation was promised it cannot take while its member is out, and asks for anew. */
	for (int g = 0; g < TURNS_GPUS && phase == PHASE_OUT; g++)
		m->need[g].promised = 0;
	if (phase == PHASE_RUNS) {
		m->wants = m->given = m->woken = m->released = false;
		m->ending_since = 0;
		books_end_room(m);
		/* An allocation keeps its place among those who wait. */
		m->wait_since = waits_since(m);
	}
}

bool books_order(struct turns *t, const struct turns_order *order)
{
	if (t->norders == sizeof(t->orders) / sizeof(t->orders[0]))
		return false;
	t->orders[t->norders++] = *order;
	return true;
}

void turns_capacity(struct turns *t, int gpu, uint64_t bytes)
{
	t->capacity[gpu] = bytes;
}

void turns_most(struct turns *t, int gpu, uint64_t bytes)
{
	t->most[gpu] = bytes;
}

void turns_there(struct turns *t, int gpu, uint64_t bytes)
{
	t->there[gpu] = bytes;
}

int books_unfit_on(const struct turns *t, const struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (t->there[g] && m->need[g].total > t->there[g])
			return g;
	return -1;
}

uint64_t books_context_for(const struct turns *t, const struct account *e, const struct account *x,
			   int gpu)
{
	double after = x->context_after < 0 ? t->settings.context_after_ms : x->context_after;
	double since = e->wait_since;

	if (x == e || x->released || after <= 0 || t->now < x->context_until)
		return 0;
	if (x->phase == PHASE_OUT && x->phase_since < since)
		since = x->phase_since;
	return t->now - since >= after ? x->need[gpu].context : 0;
}

void turns_drain(struct turns *t, int gpu, bool drained)
{
	FOR_EACH_MEMBER(t, m)
		m->takes_all &= m->paused || drained || !t->drained[gpu];
	t->drained[gpu] = drained;
}

double books_quantum(const struct turns *t)
{
	double ms = t->settings.quantum_ms > 0 ? t->settings.quantum_ms
					       : QUANTUM_HANDOVERS * t->handover_ms;

	if (t->settings.quantum_ms > 0)
		return ms;
	return ms < QUANTUM_MIN_MS ? QUANTUM_MIN_MS : ms > QUANTUM_MAX_MS ? QUANTUM_MAX_MS : ms;
}

bool books_has_all_room(const struct account *m)
{
	if (!m->told)
		return false;
	for (int g = 0; g < TURNS_GPUS; g++)
		if (m->need[g].total > m->need[g].room)
			return false;
	return true;
}

bool books_has_taken_all(const struct account *m)
{
	uint64_t said = books_said(m), total = said + books_out(m), shown = books_shown(m);

	if (m->said > said)
		said = m->said;
	/* A context that was out is in the total, and in what NVML shows. */
	return total && books_has_all_room(m) && (said >= total || m->released) && shown >= total;
}

bool books_may_run(const struct account *m)
{
	return m->phase == PHASE_RUNS || (m->phase == PHASE_LEAVING && m->ran) ||
	       (m->phase == PHASE_ENTERS && (m->slot || books_has_all_room(m)));
}

bool books_keeps_out(const struct account *e, const struct account *x)
{
	return x != e && (e->alone || x->alone) && books_may_run(x) && books_share_gpu(e, x);
}

void books_end_grow(struct account *m, int i)
{
	m->ngrows--;
	memmove(m->grows + i, m->grows + i + 1, (size_t)(m->ngrows - i) * sizeof(*m->grows));
	if (!m->ngrows && m->phase == PHASE_RUNS) {
		m->wait_since = 0;
		m->first = false;
	}
}

static bool has_turn(const struct account *m)
{
	return (m->phase == PHASE_RUNS && !m->came) || (m->phase == PHASE_ENTERS && m->told);
}

void turns_check(const struct turns *t)
{
	for (int g = 0; g < TURNS_GPUS; g++) {
		bool found = false;

		if (!t->slot[g])
			continue;
		FOR_EACH_MEMBER(t, m)
			if (m->id == t->slot[g]) {
				found = true;
				assert(m->slot);
			}
		assert(found);
	}
	FOR_EACH_MEMBER(t, m) {
		assert(m->weight >= 1);
		assert(!m->slot || (!m->paused && (m->phase == PHASE_ENTERS ||
						   (m->phase == PHASE_RUNS && m->ngrows))));
		assert(m->phase != PHASE_ENTERS || (m->wants && !m->paused));
		assert(m->phase == PHASE_LEAVING || (!m->leaves_for && !m->gives_context));
		assert(m->alone || !m->released);
		assert(m->phase != PHASE_RUNS || !books_room(m));
		assert(m->wants || !m->ending);
		for (int g = 0; g < TURNS_GPUS; g++) {
			assert(m->phase != PHASE_RUNS || !books_uses(m, g) ||
			       books_held(m, g) <=
				       m->need[g].shown + m->need[g].got + m->need[g].promised);
		}
	}
	/* Nobody got a turn beside one that must run alone. */
	FOR_EACH_MEMBER(t, e)
		FOR_EACH_MEMBER(t, x)
			assert(!has_turn(e) || !has_turn(x) || !books_keeps_out(e, x));
}
