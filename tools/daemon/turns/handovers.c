/* SPDX-License-Identifier: Apache-2.0 */
/* Members give memory, and get it. */
#include "tools/daemon/turns/kept.h"

#define REST_MS          2000   /* for the kernels of a member that is to leave, at first */
#define BACK_OFF_MS      10000  /* for a member that did not come to rest */
#define BACK_OFF_RESTS   20.0   /* at most so many times what it had for its kernels */
#define RETRY_MS         1000   /* for a member that could not take memory back */
#define LEFT_MS          10000  /* for a member that did not take what it was given */
#define CONTEXT_RETRY_MS 600000 /* for a member that could not give its context */

void books_end_handover(struct turns *t, struct account *m)
{
	m->slot = false;
	m->turn_at = 0;
	for (int g = 0; g < TURNS_GPUS; g++)
		if (t->slot[g] == m->id)
			t->slot[g] = 0;
	FOR_EACH_MEMBER(t, other)
		if (other->leaves_for == m->id)
			other->leaves_for = 0;
}

void books_give_room(struct account *m, const uint64_t *room, double now)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		m->need[g].room = room[g];
	m->told = true;
	m->taken = books_shown(m);
	m->taken_at = now;
}

static void progress(struct turns *t, struct account *m, double now)
{
	struct account *entrant = m->leaves_for ? books_find(t, m->leaves_for) : NULL;

	m->progress_at = now;
	m->left = false;
	if (entrant)
		entrant->progress_at = now;
}

void books_note_filled(struct turns *t, struct account *m, double now)
{
	uint64_t shown = books_shown(m), filled = m->said < shown ? m->said : shown;

	if (filled < m->filled + BOOKS_STEP)
		return;
	m->filled = filled;
	m->took = true;
	if (shown == TURNS_NO_LIMIT)
		m->taken_at = now;
	progress(t, m, now);
}

/* A member with one GPU says there what it has in all. */
static void set_mapped(struct account *m, uint64_t bytes)
{
	if (!books_has_one_gpu(m))
		return;
	for (int g = 0; g < TURNS_GPUS; g++)
		if (books_uses(m, g))
			m->need[g].mapped = bytes;
}

void turns_mapped(struct turns *t, uint32_t id, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	set_mapped(m, bytes);
	/* Of a yield it is the last word, and its end follows. */
	if (m->phase != PHASE_LEAVING)
		turns_filled(t, id, bytes, now);
}

void turns_filled(struct turns *t, uint32_t id, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	if (bytes > m->said)
		m->said = bytes;
	books_note_filled(t, m, now);
}

void turns_freed(struct turns *t, uint32_t id, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || m->phase != PHASE_LEAVING)
		return;
	if (bytes > m->freed)
		m->freed = bytes;
	set_mapped(m, bytes < m->yield_from ? m->yield_from - bytes : 0);
	turns_frees(t, id, bytes, now);
}

void turns_frees(struct turns *t, uint32_t id, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || m->phase != PHASE_LEAVING)
		return;
	m->rests |= bytes > 0;
	if (bytes > m->had)
		bytes = m->had;
	if (bytes < m->gave + BOOKS_STEP)
		return;
	m->gave = bytes;
	progress(t, m, now);
}

double books_rest_ms(const struct turns *t, const struct account *m)
{
	double ms = m->rest_ms ? m->rest_ms : REST_MS;

	return ms < t->settings.rest_ms ? ms : t->settings.rest_ms;
}

static void back_off(struct turns *t, struct account *m, struct back_off *b, double first_ms)
{
	double most = BACK_OFF_RESTS * books_rest_ms(t, m);

	b->ms = b->ms < first_ms ? first_ms : b->ms * 2;
	if (b->ms > most && b->ms > first_ms)
		b->ms = most > first_ms ? most : first_ms;
	b->until = t->now + b->ms;
}

void books_charge_left(struct turns *t, struct account *m)
{
	m->vtime += (t->now - m->taken_at) / m->weight;
	m->wait_since = t->now;
	back_off(t, m, &m->unused, LEFT_MS);
}

void books_take_room_back(struct turns *t, struct account *m, double now)
{
	books_end_room(m);
	if (m->phase != PHASE_ENTERS)
		return;
	books_end_handover(t, m);
	books_set_phase(m, PHASE_OUT, now);
	back_off(t, m, &m->taking, RETRY_MS);
}

/* It had to give its context, and kept it: not again soon, and whoever was to run without that cannot. */
static void keep_context(struct turns *t, struct account *m, enum turns_end end, double now)
{
	struct account *entrant = books_find(t, m->leaves_for);

	if (entrant)
		entrant->gets_contexts = false;
	if (end == TURNS_OK)
		m->context_until = now + CONTEXT_RETRY_MS;
}

/*
 * The one that gets the memory waits for the rest of it, and asks once more. If that was of no use before, @m is not
 * kept from its turn: else none of them would ever run.
 */
static void fail_yield(struct turns *t, struct account *m)
{
	bool hopes = m->ran ? !m->giving.ms : m->freed;

	back_off(t, m, &m->giving, BACK_OFF_MS);
	if (hopes)
		m->taking.until = m->giving.until;
}

static void end_yield(struct turns *t, struct account *m, enum turns_end end, double now)
{
	bool kept_all = end != TURNS_OK && end != TURNS_LEFT && !m->freed;

	progress(t, m, now);
	if (m->gives_context && !m->released)
		keep_context(t, m, end, now);
	m->gives_context = false;
	m->leaves_for = 0;
	if (end != TURNS_OK)
		fail_yield(t, m);
	if (end == TURNS_TIMEOUT && books_rest_ms(t, m) < t->settings.rest_ms)
		m->rest_ms = 2 * books_rest_ms(t, m);
	if (end == TURNS_OK)
		m->giving.ms = 0;
	books_end_room(m);
	if (books_out(m) > m->most_out)
		m->most_out = books_out(m);
	/* Unless it was paused while it gave a part. */
	if (end == TURNS_OK)
		m->takes_all &= m->paused && !m->gives_all && !m->keeps;
	/* Nothing was freed of a member that ran: it runs on. */
	books_set_phase(m, kept_all && m->ran ? PHASE_RUNS : PHASE_OUT, now);
}

static void end_fill(struct turns *t, struct account *m, enum turns_end end, double now)
{
	if (end != TURNS_OK) {
		books_end_handover(t, m);
		books_set_phase(m, PHASE_OUT, now);
		books_end_room(m);
		back_off(t, m, &m->taking, RETRY_MS);
		return;
	}
	if (m->phase == PHASE_ENTERS && m->turn_at > 0) {
		double took = now - m->turn_at;

		t->handover_ms += (took - t->handover_ms) / 4;
		m->entered_ms += m->entered_ms > 0 ? (took - m->entered_ms) / 4 : took;
	}
	books_end_handover(t, m);
	m->taking.ms = m->unused.ms = 0;
	m->handovers++;
	m->came = m->phase != PHASE_ENTERS;
	if (m->ending)
		m->safe_until = now + books_quantum(t);
	kept_got(t, m);
	books_set_phase(m, PHASE_RUNS, now);
	for (int g = 0; g < TURNS_GPUS; g++) {
		m->need[g].got = 0;
		books_get(m, g, m->need[g].total, now);
	}
}

void turns_ended(struct turns *t, uint32_t id, enum turns_end end, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || m->phase == PHASE_RUNS)
		return;
	if (m->phase == PHASE_LEAVING)
		end_yield(t, m, end, now);
	else
		end_fill(t, m, end, now);
}
