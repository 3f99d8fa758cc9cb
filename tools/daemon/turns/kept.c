/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/turns/kept.h"

/* It runs before @m as it is of a higher class. */
static bool is_above(const struct account *x, const struct account *m)
{
	return x->class > m->class && books_may_run(x) && !x->paused && !books_is_idle(x);
}

/* What those above leave on @gpu is too little for @m. */
static bool is_kept_on(const struct turns *t, const struct account *m, int gpu)
{
	uint64_t held = 0, there = t->there[gpu];

	if (!books_uses(m, gpu))
		return false;
	FOR_EACH_MEMBER(t, x) {
		if (is_above(x, m))
			held += books_held(x, gpu);
		else
			there += books_context_for(t, m, x, gpu);
	}
	return (held && books_wanted(t, m, gpu) + held > t->capacity[gpu]) ||
	       (books_is_out(m) && t->there[gpu] && m->need[gpu].total > there);
}

static bool is_kept(const struct turns *t, const struct account *m)
{
	FOR_EACH_MEMBER(t, x)
		if (is_above(x, m) && books_keeps_out(m, x))
			return true;
	for (int g = 0; g < TURNS_GPUS; g++)
		if (is_kept_on(t, m, g))
			return true;
	return false;
}

void kept_look(const struct turns *t, struct account *m, bool wants)
{
	m->kept = wants && is_kept(t, m);
}

bool kept_goes_first(const struct turns *t, const struct account *m)
{
	double after = t->settings.batch_after_ms;

	return (m->first && books_is_out(m)) || (after > 0 && m->kept && m->kept_ms >= after);
}

void kept_go(struct turns *t, struct account *m)
{
	m->first = true;
	/* One whose allocation waits has its turn from now on. */
	if (m->phase == PHASE_RUNS)
		m->phase_since = t->now;
	FOR_EACH_MEMBER(t, x)
		if (books_share_gpu(x, m))
			x->kept_ms = 0;
}
