/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/turns/kept.h"

/* It runs before @m as it is of a higher class. */
static bool is_above(const struct account *x, const struct account *m)
{
	return x->class > m->class && books_may_run(x) && !x->paused && !books_is_idle(x);
}

/* What @m is to have on @gpu: of its allocations that wait while it runs, with the next one; 0: it waits for none. */
static uint64_t needed(const struct turns *t, const struct account *m, int gpu)
{
	if (m->phase != PHASE_RUNS)
		return books_wanted(t, m, gpu);
	for (int i = 0; i < m->ngrows; i++)
		if (m->grows[i].gpu == gpu)
			return m->need[gpu].mapped + m->grows[i].bytes;
	return 0;
}

/*
 * It must not run beside those above on @gpu, or what they leave there is too little for it. @all: or beside those, or
 * what those leave, who are not asked for memory.
 */
static bool is_kept_on(const struct turns *t, const struct account *m, int gpu, bool all)
{
	uint64_t held = 0, there = t->there[gpu], bytes = needed(t, m, gpu);

	if (!books_is_on(m, gpu))
		return false;
	FOR_EACH_MEMBER(t, x) {
		if (!is_above(x, m) && !(all && x != m && books_gives_nothing(t, x))) {
			there += books_context_for(t, m, x, gpu);
			continue;
		}
		if (books_keeps_out(m, x) && books_is_on(x, gpu))
			return true;
		held += books_held(x, gpu);
	}
	return (bytes && held && bytes + held > t->capacity[gpu]) ||
	       (books_is_out(m) && t->there[gpu] && m->need[gpu].total > there);
}

void kept_look(const struct turns *t, struct account *m, bool wants)
{
	m->kept = m->blocked = false;
	for (int g = 0; g < TURNS_GPUS; g++) {
		m->need[g].kept = wants && is_kept_on(t, m, g, false);
		m->kept |= m->need[g].kept;
		m->blocked |= wants && is_kept_on(t, m, g, true);
	}
}

/* Its turn would be one on @gpu. */
static bool is_at(const struct account *m, int gpu)
{
	return books_uses(m, gpu) || m->need[gpu].kept;
}

static bool is_due(const struct turns *t, const struct account *m)
{
	double after = t->settings.batch_after_ms;

	return after > 0 && m->wait_since > 0 && m->kept_ms >= after;
}

/* It is too soon after the last one that went first on one of its GPUs. */
static bool is_early(const struct turns *t, const struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (is_at(m, g) && t->first_until[g] > 0 &&
		    t->now - t->first_until[g] < t->settings.batch_after_ms)
			return true;
	return false;
}

/* Another one on its GPUs goes before it, as soon as it may. */
static bool is_behind(const struct turns *t, const struct account *m)
{
	FOR_EACH_MEMBER(t, x) {
		if (x->kept_ms <= m->kept_ms || !is_due(t, x) || !is_early(t, x))
			continue;
		for (int g = 0; g < TURNS_GPUS; g++)
			if (is_at(x, g) && is_at(m, g))
				return true;
	}
	return false;
}

bool kept_goes_first(const struct turns *t, const struct account *m)
{
	return m->first || (m->kept && is_due(t, m) && !is_early(t, m) && !is_behind(t, m));
}

void kept_go(struct turns *t, struct account *m)
{
	m->first = true;
	m->kept_ms = 0;
	for (int g = 0; g < TURNS_GPUS; g++)
		if (is_at(m, g))
			t->first_until[g] = t->now + books_quantum(t);
}

void kept_got(const struct turns *t, struct account *m)
{
	if (m->first)
		m->first_until = t->now + books_quantum(t);
	m->first = false;
}
