/* SPDX-License-Identifier: Apache-2.0 */
/* What members say of themselves, and what is seen of them. */
#include "tools/daemon/turns/books.h"

#include <math.h>

static uint64_t total_of(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		sum += m->need[g].total;
	return sum;
}

/*
 * On the GPUs of @m, the least virtual time of those that run or want to. If nobody does, the most of the others, as
 * they may come back; @m's own if there are none.
 */
static double least_vtime(struct turns *t, const struct account *m)
{
	double least = -1, most = -1;

	FOR_EACH_MEMBER(t, other) {
		if (other == m || !books_share_gpu(m, other))
			continue;
		if ((books_is_active(other) || other->wants) && (least < 0 || other->vtime < least))
			least = other->vtime;
		most = other->vtime > most ? other->vtime : most;
	}
	return least >= 0 ? least : most >= 0 ? most : m->vtime;
}

/* For the time that it did not want the GPU it gets one turn's credit at most. */
static void limit_credit(struct turns *t, struct account *m)
{
	double least = least_vtime(t, m) - books_quantum(t);

	if (m->vtime < least)
		m->vtime = least;
}

/* It has come to a GPU. */
static void begin_on_gpu(struct turns *t, struct account *m)
{
	if (m->began)
		limit_credit(t, m);
	else
		m->vtime = least_vtime(t, m);
	m->began = true;
}

uint32_t turns_join(struct turns *t, enum turns_class class, int weight, double now)
{
	books_advance(t, now);
	for (struct account *m = t->members; m < t->members + TURNS_MEMBERS; m++) {
		if (m->id)
			continue;
		do {
			t->last_id++;
		} while (!t->last_id || books_find(t, t->last_id));
		*m = (struct account){.class = class,
				      .weight = weight,
				      .phase_since = now,
				      .context_after = -1,
				      .came = true};
		for (int g = 0; g < TURNS_GPUS; g++)
			m->need[g].shown = TURNS_NO_LIMIT;
		m->id = t->last_id;
		if (m - t->members >= t->nmembers)
			t->nmembers = (int)(m - t->members) + 1;
		return m->id;
	}
	return 0;
}

void turns_leave(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	if (m->leaves_for) {
		struct account *entrant = books_find(t, m->leaves_for);

		if (entrant)
			entrant->progress_at = now;
	}
	books_end_handover(t, m);
	*m = (struct account){.id = 0};
	/* There may be room now for one that could not give, or take back, what it has. */
	FOR_EACH_MEMBER(t, other)
		if (other->phase == PHASE_OUT)
			other->giving.until = other->taking.until = 0;
}

/* What was promised is in what it has now, which was @had. */
static void keep_promise(struct account *m, int gpu, uint64_t had)
{
	uint64_t *promised = &m->need[gpu].promised, has = books_has(m, gpu);

	if (has > had)
		*promised -= has - had < *promised ? has - had : *promised;
}

void turns_need(struct turns *t, uint32_t id, int gpu, uint64_t mapped, uint64_t total, double now)
{
	struct account *m = books_find(t, id);
	struct need *n;
	uint64_t had;
	bool used;

	books_advance(t, now);
	if (!m)
		return;
	used = books_uses(m, gpu);
	n = &m->need[gpu];
	had = books_has(m, gpu);
	/* An allocation that was let through before the yield. */
	if (mapped > n->mapped && m->phase == PHASE_LEAVING)
		m->yield_from += mapped - n->mapped;
	m->came |= m->phase == PHASE_RUNS && !n->mapped && mapped;
	m->takes_all |= t->drained[gpu] && m->phase == PHASE_RUNS && !n->mapped && mapped;
	n->mapped = mapped;
	n->total = total;
	keep_promise(m, gpu, had);
	if (!used && books_uses(m, gpu))
		begin_on_gpu(t, m);
}

void turns_shown(struct turns *t, uint32_t id, int gpu, uint64_t bytes, double asked, double now)
{
	struct account *m = books_find(t, id);
	uint64_t had, before, shown;

	books_advance(t, now);
	if (!m)
		return;
	had = books_has(m, gpu);
	before = books_shown(m);
	m->need[gpu].shown = bytes;
	/* By the time of the question: the answer may come much later, as NVML may block. */
	if (asked - m->got_at >= BOOKS_GOT_MS)
		m->need[gpu].got = 0;
	keep_promise(m, gpu, had);
	shown = books_shown(m);
	if (shown < TURNS_NO_LIMIT &&
	    (m->taken == TURNS_NO_LIMIT || shown >= m->taken + BOOKS_STEP)) {
		m->taken = shown;
		m->taken_at = now;
	}
	/* Until now its words were all that was known. */
	if (before == TURNS_NO_LIMIT && shown < m->filled)
		m->filled = shown;
	books_note_filled(t, m, now);
}

void turns_context_after(struct turns *t, uint32_t id, double ms)
{
	struct account *m = books_find(t, id);

	if (m)
		m->context_after = ms;
}

void turns_context(struct turns *t, uint32_t id, int gpu, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (m)
		m->need[gpu].context = bytes;
}

void turns_restored(struct turns *t, uint32_t id, bool out, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	m->alone = true;
	m->released = out;
	m->came |= m->phase == PHASE_RUNS;
}

/* What it takes to begin a turn of @m. */
static double price_of(const struct turns *t, const struct account *m)
{
	return m->entered_ms > 0 ? m->entered_ms : t->handover_ms;
}

double books_idle_limit(const struct turns *t, const struct account *m)
{
	return t->settings.idle_ms > 0 ? t->settings.idle_ms
				       : idleness_limit(&m->idleness, price_of(t, m));
}

static void end_idleness(const struct turns *t, struct account *m)
{
	idleness_end(&m->idleness, price_of(t, m), t->now);
}

static void start_to_wait(struct account *m, double now)
{
	if (m->wait_since <= 0)
		m->wait_since = now;
}

void turns_want(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	/* What is paused gets no turn, and says it again afterwards. */
	if (!m || m->phase == PHASE_RUNS || m->wants || m->paused)
		return;
	limit_credit(t, m);
	m->wants = true;
	m->woken = books_is_idle(m);
	end_idleness(t, m);
	start_to_wait(m, now);
}

void turns_idle(struct turns *t, uint32_t id, bool idle, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	if (idle) {
		idleness_begin(&m->idleness, now);
	} else if (books_is_idle(m)) {
		limit_credit(t, m);
		idleness_forget(&m->idleness);
	}
}

void turns_busy(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || !books_is_idle(m))
		return;
	limit_credit(t, m);
	end_idleness(t, m);
}

void turns_takes_parts(struct turns *t, uint32_t id, bool takes)
{
	struct account *m = books_find(t, id);

	if (m)
		m->parts = takes;
}

double turns_idle_limit(struct turns *t, uint32_t id)
{
	struct account *m = books_find(t, id);

	if (m && !m->idleness.told)
		m->idleness.told = books_idle_limit(t, m);
	return m ? m->idleness.told : 0;
}

void turns_paused(struct turns *t, uint32_t id, bool paused, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	/* What it had room for is taken back: its user may let it run at any time. */
	if (paused && !m->paused)
		m->takes_all = true;
	m->paused = paused;
	if (!paused) {
		/* Nothing was taken, and it runs on; or it waits for its turn. */
		m->takes_all &= m->phase != PHASE_OUT && books_is_on_drained(t, m);
		if (m->ngrows)
			start_to_wait(m, now);
		return;
	}
	m->wants = m->woken = m->given = m->ending = false;
	m->wait_since = 0;
	if (m->phase == PHASE_ENTERS)
		books_set_phase(m, PHASE_OUT, now);
	if (m->slot)
		books_end_handover(t, m);
}

void turns_keeps(struct turns *t, uint32_t id, bool keeps)
{
	struct account *m = books_find(t, id);

	if (!m)
		return;
	m->takes_all |= m->paused && m->keeps && !keeps;
	m->keeps = keeps;
}

bool turns_gives_all(struct turns *t, uint32_t id)
{
	const struct account *m = books_find(t, id);

	return m && m->paused && m->takes_all;
}

void turns_aside(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	turns_paused(t, id, true, now);
	m->takes_all = false;
	m->giving.until = INFINITY;
}

/*
 * Its process has told all that it has. So a try for so much has found nothing, and others may have what that was
 * promised; or the try has yet to come, and waits anew if it comes too late.
 */
static void end_promise(struct account *m, int gpu, uint64_t bytes)
{
	struct need *n = &m->need[gpu];

	if (bytes > n->promised)
		bytes = n->promised;
	n->promised -= bytes;
	n->got -= bytes < n->got ? bytes : n->got;
}

void turns_grow(struct turns *t, uint32_t id, uint64_t serial, int gpu, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);
	bool used;

	books_advance(t, now);
	if (!m)
		return;
	if (m->ngrows == TURNS_GROWS) {
		books_order(t, &(struct turns_order){.kind = TURNS_NO, .id = id, .serial = serial});
		return;
	}
	end_promise(m, gpu, bytes);
	used = books_uses(m, gpu);
	m->grows[m->ngrows++] =
		(struct grow){.serial = serial, .bytes = bytes, .gpu = gpu, .since = now};
	if (!used)
		begin_on_gpu(t, m);
	end_idleness(t, m);
	start_to_wait(m, now);
}

void turns_forget(struct turns *t, uint32_t id, uint64_t first, uint64_t last, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	for (int i = m->ngrows; i-- > 0;)
		if (m->grows[i].serial >= first && m->grows[i].serial <= last)
			books_end_grow(m, i);
	if (m->slot && m->phase == PHASE_RUNS && !m->ngrows)
		books_end_handover(t, m);
}

bool turns_promised(struct turns *t, uint32_t id, int gpu)
{
	const struct account *m = books_find(t, id);

	return m && m->need[gpu].promised;
}

void turns_pinned(struct turns *t, uint32_t id, uint64_t serial, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	for (int i = 0; m && i < m->ngrows; i++)
		if (m->grows[i].serial == serial)
			m->grows[i].pinned_at = now;
}

void turns_ends(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	turns_want(t, id, now);
	/* Once, until it has run: it would come first as often as it says so. */
	if (!m || m->phase == PHASE_RUNS || !m->wants || m->ending_since > 0)
		return;
	m->taking.until = 0;
	m->ending = true;
	m->ending_since = now;
}

void turns_give(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || m->phase != PHASE_RUNS || isinf(m->giving.until))
		return;
	m->given = true;
	m->given_at = now;
}

static const char *state_of(const struct account *m)
{
	if (m->paused)
		return "paused";
	switch (m->phase) {
	case PHASE_RUNS:
		return m->ngrows ? "waits" : books_is_idle(m) ? "idle" : "runs";
	case PHASE_LEAVING:
		return "leaving";
	case PHASE_ENTERS:
		return "enters";
	case PHASE_OUT:
		break;
	}
	return m->wants ? "waits" : "out";
}

/* The member whose memory @m waits for: one that runs before one that only keeps some. */
static uint32_t waits_for(struct turns *t, const struct account *m)
{
	const struct account *found = NULL, *keeps = NULL;

	FOR_EACH_MEMBER(t, other) {
		if (other == m || !books_share_gpu(m, other))
			continue;
		if (other->leaves_for == m->id)
			return other->id;
		if (books_is_active(other) && (!found || other->phase_since < found->phase_since))
			found = other;
		if (books_mapped(other) && (!keeps || books_mapped(other) > books_mapped(keeps)))
			keeps = other;
	}
	if (!found)
		found = keeps;
	return found ? found->id : 0;
}

static bool anybody_waits(struct turns *t)
{
	FOR_EACH_MEMBER(t, m)
		if (m->wait_since > 0 && !m->paused)
			return true;
	return false;
}

bool turns_look(struct turns *t, uint32_t id, double now, struct turns_view *view)
{
	struct account *m = books_find(t, id);
	double left;

	books_advance(t, now);
	if (!m)
		return false;
	left = m->phase_since + books_quantum(t) - now;
	*view = (struct turns_view){
		.state = state_of(m),
		.granted = m->phase == PHASE_RUNS || books_room(m) < books_mapped(m)
				   ? books_mapped(m)
				   : books_room(m),
		.mapped = books_mapped(m),
		.total = total_of(m),
		.wait_ms = m->wait_since > 0 ? now - m->wait_since : 0,
		.left_ms = books_is_active(m) && left > 0 && anybody_waits(t) ? left : 0,
		.handovers = m->handovers,
		.waits_for = m->wait_since > 0 ? waits_for(t, m) : 0,
		.unfit_on = m->phase == PHASE_RUNS || m->paused || !m->wants ||
					    (m->slot && m->gets_contexts)
				    ? -1
				    : books_unfit_on(t, m),
		.context = m->released ? "out"
			   : m->alone  ? "restored"
				       : "in"};
	if (view->unfit_on >= 0) {
		view->needs = m->need[view->unfit_on].total;
		view->there = t->there[view->unfit_on];
	}
	return true;
}
