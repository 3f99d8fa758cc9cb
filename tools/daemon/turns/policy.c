/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/turns/kept.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RESIDENCE_MIN_MS    2000
#define RESIDENCE_MAX_MS    120000
#define RESIDENCE_HANDOVERS 5
#define WOKEN_LEAD_MS       1000 /* of virtual time, that one which was idle is behind: see turns.h */
#define STUCK_MS            5000  /* without news, until others may have a hand-over beside it */
#define GIVEN_MS            10000 /* for which a member that gives its turn stays willing to */
#define ENDS_MS             12000 /* for which one that ends is served before others */
#define LOOK_MS             100   /* between looks at the clock while somebody waits */
#define TAKES_LATE          10 /* times takes_ms, while others still give memory for it, or it copies */

static double residence(const struct turns *t)
{
	double ms = RESIDENCE_HANDOVERS * t->handover_ms;

	if (t->settings.residence_ms > 0)
		return t->settings.residence_ms;
	return ms < RESIDENCE_MIN_MS   ? RESIDENCE_MIN_MS
	       : ms > RESIDENCE_MAX_MS ? RESIDENCE_MAX_MS
				       : ms;
}

/* It would get a turn, or its first memory, on a drained GPU. */
static bool is_kept_out(const struct turns *t, const struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (t->drained[g] && books_uses(m, g) && (books_is_out(m) || !m->need[g].mapped))
			return true;
	return false;
}

/* True if @e fits on each of its GPUs, counting the contexts that may go for it. */
static bool may_fit(const struct turns *t, const struct account *e)
{
	for (int g = 0; g < TURNS_GPUS; g++) {
		uint64_t there = t->there[g];

		if (!there || e->need[g].total <= there)
			continue;
		FOR_EACH_MEMBER(t, x)
			there += books_context_for(t, e, x, g);
		if (e->need[g].total > there)
			return false;
	}
	return true;
}

static bool wants_turn(const struct turns *t, const struct account *m)
{
	if (m->paused || m->slot || is_kept_out(t, m))
		return false;
	/* One that runs and could not give its memory may need that of its allocation to come to rest. */
	return (books_is_out(m) && m->wants && t->now >= m->taking.until &&
		t->now >= m->unused.until && may_fit(t, m)) ||
	       (m->phase == PHASE_RUNS && m->ngrows);
}

/* It has waited for longer than a turn of each member that it may wait for, and one more, takes. */
static bool is_starved(const struct turns *t, const struct account *m)
{
	double turns = 1;

	FOR_EACH_MEMBER(t, x) {
		if (x != m && books_share_gpu(x, m))
			turns += x->weight > m->weight ? (double)x->weight / m->weight : 1;
	}
	return m->wait_since > 0 && t->now - m->wait_since > turns * books_quantum(t);
}

/* True if @a is served before @b. */
static bool precedes(const struct turns *t, const struct account *a, const struct account *b)
{
	double step = books_quantum(t) / 4;
	int64_t turn_a = (int64_t)(a->vtime / step), turn_b = (int64_t)(b->vtime / step);
	bool starved_a = is_starved(t, a), starved_b = is_starved(t, b);
	bool first_a = kept_goes_first(t, a), first_b = kept_goes_first(t, b);

	if (a->ending != b->ending)
		return a->ending;
	if (first_a != first_b)
		return first_a;
	if (first_a && a->kept_ms != b->kept_ms)
		return a->kept_ms > b->kept_ms;
	if (a->class != b->class)
		return a->class > b->class;
	if (starved_a != starved_b)
		return starved_a;
	if (starved_a && a->wait_since != b->wait_since)
		return a->wait_since < b->wait_since;
	if (turn_a != turn_b)
		return turn_a < turn_b;
	if (a->wait_since != b->wait_since)
		return a->wait_since < b->wait_since;
	return a->id < b->id;
}

/* Bytes that @e lacks on @gpu; for an allocation that waits, those of the allocation. */
static int64_t lacks(const struct turns *t, const struct account *e, int gpu)
{
	int64_t bytes;

	if (!books_uses(e, gpu))
		return 0;
	if (e->phase == PHASE_RUNS) {
		if (e->grows[0].gpu != gpu)
			return 0;
		bytes = (int64_t)e->grows[0].bytes;
	} else {
		bytes = (int64_t)books_wanted(t, e, gpu) - (int64_t)books_held(e, gpu);
	}
	return bytes - books_free(t, gpu);
}

/* True if running @x may be stopped for @e. @head: nobody who could be served waits before @e. */
static bool may_stop(const struct turns *t, const struct account *e, const struct account *x,
		     bool head)
{
	double ran = t->now - x->phase_since, quantum = books_quantum(t);
	double waited = t->now - x->wait_since;
	/* At a tie, a heavy one that may run without a break would lose a turn. */
	bool due = x->vtime >= e->vtime + quantum / 16;

	/* @e cannot give way, and @x does not use what it has. */
	if (x->ngrows && books_pinned_at(e) > 0)
		return true;
	if (e->ending || x->given)
		return true;
	if (e->class != x->class)
		return (e->class > x->class && t->now >= x->first_until) || kept_goes_first(t, e);
	if (ran < residence(t))
		return false;
	/* It does not use what it has, and its allocation cannot be served before @e. */
	if (x->ngrows && waited >= residence(t))
		return true;
	return (ran >= quantum && due) || (e->woken && x->vtime > e->vtime + WOKEN_LEAD_MS) ||
	       (head && is_starved(t, e));
}

/* How gladly @x's memory is taken for @e: the higher, the sooner. */
enum rank {
	RANK_NOT,
	RANK_STOPPED,
	RANK_IDLE,
	RANK_WAITS,
	RANK_OUT,
	RANK_CHOSEN, /* for its context: it gives memory anyway */
};

static enum rank rank_victim(const struct turns *t, const struct account *e,
			     const struct account *x, bool head)
{
	if (x == e || x->slot || x->phase == PHASE_LEAVING || books_gives_nothing(t, x))
		return RANK_NOT;
	if (books_is_out(x))
		return x->wants ? RANK_WAITS : RANK_OUT;
	if (books_is_idle(x) && !x->ngrows)
		return RANK_IDLE;
	return may_stop(t, e, x, head) ? RANK_STOPPED : RANK_NOT;
}

static bool slots_are_free(const struct turns *t, const struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (books_uses(m, g) && t->slot[g])
			return false;
	return true;
}

struct choice {
	struct account *victim[TURNS_MEMBERS];
	uint64_t gives[TURNS_MEMBERS][TURNS_GPUS];
	bool context[TURNS_MEMBERS]; /* the context goes, too */
	size_t n;
};

/* Its place among the chosen; @c->n: it is not chosen. */
static size_t place_of(const struct choice *c, const struct account *x)
{
	size_t i = 0;

	while (i < c->n && c->victim[i] != x)
		i++;
	return i;
}

static struct account *best_victim(struct turns *t, const struct account *e, bool head,
				   const struct choice *c, const int64_t *missing)
{
	struct account *best = NULL;
	enum rank best_rank = RANK_NOT;

	FOR_EACH_MEMBER(t, x) {
		enum rank rank = rank_victim(t, e, x, head);
		bool helps = false, chosen = place_of(c, x) < c->n;

		for (int g = 0; g < TURNS_GPUS; g++)
			helps |= missing[g] > 0 && books_held(x, g);
		if (!rank || chosen || !helps || !slots_are_free(t, x))
			continue;
		if (rank > best_rank || (rank == best_rank && x->vtime > best->vtime)) {
			best = x;
			best_rank = rank;
		}
	}
	return best;
}

/* True if what is @missing comes from those chosen after the first @fixed, without @spared. */
static bool is_enough_without(const struct choice *c, size_t fixed, const struct account *spared,
			      const int64_t *missing)
{
	for (int g = 0; g < TURNS_GPUS; g++) {
		int64_t left = missing[g];

		for (size_t i = fixed; i < c->n; i++)
			left -= c->victim[i] == spared ? 0 : (int64_t)books_held(c->victim[i], g);
		if (left > 0)
			return false;
	}
	return true;
}

static void give_everything(uint64_t *gives)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		gives[g] = TURNS_ALL;
}

/* Choose @x, which gives up what is @missing, and no more. */
static void add_missing(struct choice *c, struct account *x, int64_t *missing)
{
	uint64_t *gives = c->gives[c->n];

	for (int g = 0; g < TURNS_GPUS; g++) {
		uint64_t held = books_held(x, g);
		uint64_t part = missing[g] > 0 ? (uint64_t)missing[g] : 0;

		gives[g] = part < held ? part : TURNS_ALL;
		missing[g] -= (int64_t)(part < held ? part : held);
	}
	c->context[c->n] = false;
	c->victim[c->n++] = x;
}

/*
 * Of those chosen after the first @fixed, which were to give what is @missing, stop none without need: the last chosen
 * is spared first.
 */
static void spare(struct turns *t, const struct account *e, bool head, struct choice *c,
		  size_t fixed, int64_t *missing)
{
	size_t n;

	for (size_t i = c->n; i-- > fixed;) {
		if (rank_victim(t, e, c->victim[i], head) > RANK_STOPPED ||
		    !is_enough_without(c, fixed, c->victim[i], missing))
			continue;
		c->n--;
		memmove(c->victim + i, c->victim + i + 1, (c->n - i) * sizeof(*c->victim));
	}
	n = c->n;
	c->n = fixed;
	for (size_t i = fixed; i < n; i++)
		add_missing(c, c->victim[i], missing);
}

/*
 * True if nobody but @e and the @c->n chosen has memory on @gpu. Then the driver decides whether there
 * is enough: the books keep a margin, and count what others have as it was.
 */
static bool has_alone(struct turns *t, const struct account *e, int gpu, const struct choice *c)
{
	FOR_EACH_MEMBER(t, x) {
		bool counts = x != e && books_held(x, gpu);

		for (size_t i = 0; c && i < c->n; i++)
			counts &= c->victim[i] != x || c->gives[i][gpu] < books_held(x, gpu);
		if (counts)
			return false;
	}
	return true;
}

static void add_whole(struct choice *c, struct account *x, int64_t *missing)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		missing[g] -= (int64_t)books_held(x, g);
	give_everything(c->gives[c->n]);
	c->context[c->n] = false;
	c->victim[c->n++] = x;
}

/* Choose all that @e must not run beside. False if one of them need not leave. */
static bool choose_others(struct turns *t, const struct account *e, bool head, struct choice *c,
			  int64_t *missing)
{
	FOR_EACH_MEMBER(t, x) {
		if (!books_keeps_out(e, x))
			continue;
		if (!rank_victim(t, e, x, head) || !slots_are_free(t, x))
			return false;
		add_whole(c, x, missing);
	}
	return true;
}

/* How gladly @x gives its context for @e; as rank_victim(). */
static enum rank rank_context(const struct turns *t, const struct account *e,
			      const struct account *x, bool head, const struct choice *c)
{
	if (place_of(c, x) < c->n)
		return c->context[place_of(c, x)] ? RANK_NOT : RANK_CHOSEN;
	if (!slots_are_free(t, x))
		return RANK_NOT;
	if (x->phase == PHASE_OUT)
		return t->now < x->giving.until ? RANK_NOT : x->wants ? RANK_WAITS : RANK_OUT;
	return rank_victim(t, e, x, head);
}

/* One more context goes on @gpu. False if there is none. */
static bool choose_context(struct turns *t, const struct account *e, bool head, int gpu,
			   struct choice *c, int64_t *missing)
{
	struct account *best = NULL;
	enum rank best_rank = RANK_NOT;

	FOR_EACH_MEMBER(t, x) {
		enum rank rank =
			books_context_for(t, e, x, gpu) ? rank_context(t, e, x, head, c) : RANK_NOT;

		if (rank > best_rank || (rank && rank == best_rank && x->vtime > best->vtime)) {
			best = x;
			best_rank = rank;
		}
	}
	if (!best)
		return false;
	if (place_of(c, best) == c->n)
		add_whole(c, best, missing);
	c->context[place_of(c, best)] = true;
	for (int g = 0; g < TURNS_GPUS; g++)
		missing[g] -= (int64_t)best->need[g].context;
	return true;
}

/* Bytes that are there on @gpu without the contexts of the chosen. */
static uint64_t there_without(const struct turns *t, int gpu, const struct choice *c)
{
	uint64_t bytes = t->there[gpu];

	for (size_t i = 0; i < c->n; i++)
		bytes += c->context[i] ? c->victim[i]->need[gpu].context : 0;
	return bytes;
}

/* Choose whose context goes for @e. False if it is not enough. */
static bool choose_contexts(struct turns *t, const struct account *e, bool head, struct choice *c,
			    int64_t *missing)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		while (t->there[g] && e->need[g].total > there_without(t, g, c))
			if (!choose_context(t, e, head, g, c, missing))
				return false;
	return true;
}

/* Choose who gives up how much for @e. False if it is not enough. */
static bool choose(struct turns *t, const struct account *e, bool head, struct choice *c)
{
	int64_t missing[TURNS_GPUS], first[TURNS_GPUS];
	size_t fixed;
	bool enough;

	c->n = 0;
	for (int g = 0; g < TURNS_GPUS; g++)
		missing[g] = lacks(t, e, g);
	if (e->phase != PHASE_RUNS &&
	    (!choose_others(t, e, head, c, missing) || !choose_contexts(t, e, head, c, missing)))
		return false;
	fixed = c->n;
	memcpy(first, missing, sizeof(first));
	for (;;) {
		struct account *x;

		enough = true;
		for (int g = 0; g < TURNS_GPUS; g++)
			enough &= missing[g] <= 0 ||
				  (e->phase != PHASE_RUNS && has_alone(t, e, g, c));
		if (enough) {
			spare(t, e, head, c, fixed, first);
			return true;
		}
		x = best_victim(t, e, head, c, missing);
		if (!x)
			return false;
		add_missing(c, x, missing);
	}
}

/*
 * The same; for a member that runs, for the first of its allocations on each GPU. The one for which
 * there is enough becomes the first of all.
 */
static bool choose_for(struct turns *t, struct account *e, bool head, struct choice *c)
{
	bool seen[TURNS_GPUS] = {false};

	if (e->phase != PHASE_RUNS)
		return choose(t, e, head, c);
	for (int i = 0; i < e->ngrows; i++) {
		struct grow g = e->grows[i];

		if (seen[g.gpu])
			continue;
		seen[g.gpu] = true;
		memmove(e->grows + 1, e->grows, (size_t)i * sizeof(g));
		e->grows[0] = g;
		if (choose(t, e, head, c))
			return true;
		memmove(e->grows, e->grows + 1, (size_t)i * sizeof(g));
		e->grows[i] = g;
	}
	return false;
}

/* The sum of what @x gives, or TURNS_ALL. */
static uint64_t sum_given(const struct account *x, const uint64_t *gives)
{
	uint64_t sum = 0;
	bool all = true;

	for (int g = 0; g < TURNS_GPUS; g++) {
		all &= gives[g] == TURNS_ALL;
		sum += gives[g] == TURNS_ALL ? books_held(x, g) : gives[g];
	}
	return all ? TURNS_ALL : sum;
}

/* Others have come to have what @e was told it may have. */
static bool is_overdrawn(struct turns *t, const struct account *e)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (books_uses(e, g) && books_free(t, g) < 0 && !has_alone(t, e, g, NULL))
			return true;
	return false;
}

/* What it was told it may have is there. */
static bool could_take(struct turns *t, const struct account *e)
{
	return e->phase == PHASE_ENTERS && books_has_all_room(e) && !is_overdrawn(t, e) &&
	       books_unfit_on(t, e) < 0;
}

/*
 * It has taken nothing of what is there, or has all and does not run. One that has taken some may still be at it, and one
 * whose context comes back shows nothing meanwhile.
 */
static bool has_left_room(struct turns *t, const struct account *e)
{
	return could_take(t, e) && (books_has_taken_all(e) || (!e->took && !e->released));
}

/* @gives: of each GPU. @context: that is to go as well. */
static void order_yield(struct turns *t, struct account *x, const uint64_t *gives, bool context,
			uint32_t entrant)
{
	struct turns_order order = {.kind = TURNS_YIELD,
				    .id = x->id,
				    .bytes = sum_given(x, gives),
				    .context = context,
				    .timeout_ms = books_rest_ms(t, x)};

	memcpy(order.each, gives, sizeof(order.each));
	if (!books_order(t, &order))
		return;
	x->ran = x->phase == PHASE_RUNS;
	if (x->left && has_left_room(t, x))
		books_charge_left(t, x);
	for (int g = 0; g < TURNS_GPUS; g++)
		if (x->need[g].room <= books_has(x, g))
			x->need[g].room = 0;
	books_set_phase(x, PHASE_LEAVING, t->now);
	x->yield_from = books_said(x);
	x->had = books_mapped(x);
	x->freed = x->gave = 0;
	x->rests = false;
	x->leaves_for = entrant;
	x->gives_context = context;
	x->gives_all = order.bytes == TURNS_ALL;
	x->given = false;
	/* It waits from when it says so. */
	if (x->ran && !x->ngrows)
		x->wait_since = 0;
}

static void order_answer(struct turns *t, struct account *m, int i, enum turns_order_kind kind)
{
	struct grow *g = &m->grows[i];

	if (!books_order(t, &(struct turns_order){
				    .kind = kind, .id = m->id, .serial = g->serial, .gpu = g->gpu}))
		return;
	if (kind == TURNS_TRY) {
		m->need[g->gpu].promised += g->bytes;
		books_get(m, g->gpu, g->bytes, t->now);
		kept_got(t, m);
	}
	books_end_grow(m, i);
}

static bool is_kept_out_by_others(struct turns *t, const struct account *e)
{
	FOR_EACH_MEMBER(t, x)
		if (books_keeps_out(e, x))
			return true;
	return false;
}

/* What @e may have on @gpu now. Its allocations that wait are to find room, too, or it would have to give way again. */
static uint64_t room_on(struct turns *t, const struct account *e, int gpu)
{
	uint64_t base = books_may_have(e, gpu), total = e->need[gpu].total;
	int64_t bytes = has_alone(t, e, gpu, NULL) ? INT64_MAX : books_free(t, gpu);

	if (total <= base || bytes <= 0)
		return base;
	return total - base < (uint64_t)bytes ? total : base + (uint64_t)bytes;
}

/* @e lacks memory somewhere. */
static bool is_short(struct turns *t, const struct account *e)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (lacks(t, e, g) > 0 && !has_alone(t, e, g, NULL))
			return true;
	return false;
}

/* Give @e what is free. */
static void grant(struct turns *t, struct account *e)
{
	struct turns_order order = {.kind = TURNS_ROOM, .id = e->id};
	bool more = false;

	if (is_kept_out_by_others(t, e))
		return;
	for (int g = 0; g < TURNS_GPUS; g++) {
		/* Also where it needs no memory any more: room that it was told of counts until its end. */
		order.each[g] = room_on(t, e, g);
		order.bytes += order.each[g];
		more |= order.each[g] > books_may_have(e, g);
	}
	if (is_short(t, e) && !(books_takes_parts(e) && more))
		return;
	if (order.bytes <= books_room(e) && e->told)
		return;
	if (books_order(t, &order))
		books_give_room(e, order.each, t->now);
}

/* How long those that leave for @e may go without news; 0: nobody does. */
static double rest_of_leaving(struct turns *t, const struct account *e)
{
	double most = 0;

	FOR_EACH_MEMBER(t, x)
		if (x->leaves_for == e->id && books_rest_ms(t, x) > most)
			most = books_rest_ms(t, x);
	return most;
}

/* It has all of its memory, and copies: of that nothing is told. */
static bool copies(const struct turns *t, const struct account *e)
{
	return books_has_taken_all(e) && t->now - e->taken_at <= TAKES_LATE * t->settings.takes_ms;
}

/* One step of the hand-over to @e. */
static void hand_over(struct turns *t, struct account *e)
{
	double leaving = rest_of_leaving(t, e);
	bool stuck = t->now - e->progress_at > STUCK_MS + leaving && !copies(t, e);
	bool ends = stuck;

	if (e->phase == PHASE_RUNS) {
		bool has_room = e->ngrows && lacks(t, e, e->grows[0].gpu) <= 0;

		if (has_room)
			order_answer(t, e, 0, TURNS_TRY);
		ends |= has_room || !e->ngrows || !leaving;
	} else if (!books_has_all_room(e) && books_unfit_on(t, e) >= 0) {
		/* NVML has yet to show that they have gone. */
		ends |= !e->gets_contexts;
	} else {
		grant(t, e);
		/* Those who were asked have given less than was hoped for, or others took it: choose again. */
		ends |= !leaving && (!books_has_all_room(e) || is_overdrawn(t, e));
	}
	if (!ends)
		return;
	e->left = stuck && has_left_room(t, e);
	books_end_handover(t, e);
}

/* @x is to have more out than ever, and makes the host memory for it: that comes once. */
static bool makes_host_memory(const struct account *x, const uint64_t *gives)
{
	uint64_t out = books_out(x);

	for (int g = 0; g < TURNS_GPUS; g++)
		out += gives[g] < x->need[g].mapped ? gives[g] : x->need[g].mapped;
	return out > x->most_out + x->most_out / 8;
}

static void begin(struct turns *t, struct account *e, const struct choice *c)
{
	bool anew = e->phase != PHASE_ENTERS, shows = true;

	for (int g = 0; g < TURNS_GPUS; g++)
		if (books_uses(e, g))
			t->slot[g] = e->id;
	e->slot = true;
	e->left = false;
	e->progress_at = t->now;
	if (e->phase == PHASE_OUT) {
		books_set_phase(e, PHASE_ENTERS, t->now);
		e->told = false;
		e->took = false;
	}
	e->gets_contexts = false;
	for (size_t i = 0; i < c->n; i++) {
		shows &= !makes_host_memory(c->victim[i], c->gives[i]);
		e->gets_contexts |= c->context[i];
		order_yield(t, c->victim[i], c->gives[i], c->context[i], e->id);
	}
	hand_over(t, e);
	if (anew || !shows)
		e->turn_at = shows ? t->now : 0;
}

/* An entrant whose hand-over got stuck, and that has all the room it needs. */
static bool only_waits(struct turns *t, const struct account *e)
{
	return e->phase == PHASE_ENTERS && books_has_all_room(e) && !is_short(t, e);
}

static void serve(struct turns *t)
{
	struct account *queue[TURNS_MEMBERS];
	static struct choice choice;
	size_t n = 0;

	FOR_EACH_MEMBER(t, m) {
		bool wants = wants_turn(t, m) && !only_waits(t, m);
		size_t i = n;

		kept_look(t, m, wants);
		if (!wants)
			continue;
		for (; i && precedes(t, m, queue[i - 1]); i--)
			queue[i] = queue[i - 1];
		queue[i] = m;
		n++;
	}
	for (size_t i = 0; i < n; i++) {
		bool head = true;

		for (size_t j = 0; j < i; j++)
			head &= queue[j]->blocked || !books_share_gpu(queue[i], queue[j]);
		if (!wants_turn(t, queue[i]) || !slots_are_free(t, queue[i]) ||
		    t->norders + TURNS_MEMBERS > sizeof(t->orders) / sizeof(t->orders[0]))
			continue;
		if (!choose_for(t, queue[i], head, &choice))
			continue;
		if (!queue[i]->first && kept_goes_first(t, queue[i]))
			kept_go(t, queue[i]);
		begin(t, queue[i], &choice);
	}
}

static bool fits(uint64_t bytes, uint64_t has, uint64_t most)
{
	return bytes <= most && has <= most - bytes;
}

/* Allocations that no hand-over can make room for. */
static void refuse_growth(struct turns *t, struct account *m)
{
	for (int i = m->ngrows; i-- > 0;) {
		const struct grow *g = &m->grows[i];
		uint64_t has =
			m->phase == PHASE_RUNS ? m->need[g->gpu].mapped : m->need[g->gpu].total;

		if (!fits(g->bytes, has, books_most(t, g->gpu)))
			order_answer(t, m, i, TURNS_NO);
	}
}

/*
 * @m and another member on its GPUs wait so that neither can give memory, and may wait for each other:
 * the one that came later goes on without.
 */
static void refuse_pinned(struct turns *t, struct account *m)
{
	double since = books_pinned_at(m);
	bool later = false;

	if (since <= 0)
		return;
	FOR_EACH_MEMBER(t, x) {
		double other = books_pinned_at(x);

		later |= x != m && other > 0 && books_share_gpu(m, x) &&
			 (other < since || (other <= since && x->id < m->id));
	}
	for (int i = m->ngrows; later && i-- > 0;)
		if (m->grows[i].pinned_at > 0)
			order_answer(t, m, i, TURNS_NO);
}

/* Tell the members that share a GPU with somebody who waits. */
static void watch(struct turns *t)
{
	FOR_EACH_MEMBER(t, m) {
		bool on = false;

		FOR_EACH_MEMBER(t, other)
			on |= other != m && other->wait_since > 0 && !other->paused &&
			      books_share_gpu(m, other);
		if (on != m->watched &&
		    books_order(t,
				&(struct turns_order){.kind = TURNS_WATCH, .id = m->id, .on = on}))
			m->watched = on;
	}
}

/* One that got a turn was there before one that came to run by itself, and so was the one that joined first. */
static bool was_there_before(const struct account *x, const struct account *m)
{
	return x->came != m->came ? m->came : x->id < m->id;
}

/* It has come to run beside another one, and one of them must run alone, as it has to itself or as it says. */
static bool makes_way(const struct turns *t, const struct account *m)
{
	if (m->phase != PHASE_RUNS || m->paused || m->slot || books_pinned_at(m) > 0)
		return false;
	FOR_EACH_MEMBER(t, x)
		if (books_keeps_out(m, x) && x->phase != PHASE_LEAVING && !x->paused &&
		    was_there_before(x, m))
			return true;
	return false;
}

/* Its lease is to be taken, so that it waits for its turn when it may run again. */
static bool is_to_leave(const struct turns *t, const struct account *m)
{
	if (makes_way(t, m))
		return true;
	return m->takes_all && !m->slot && m->phase != PHASE_LEAVING &&
	       (m->paused || (m->phase == PHASE_RUNS && books_is_on_drained(t, m)));
}

/* One that has changed by less than a tenth is as good as before, unless it was set. */
static void tell_limit(struct turns *t, struct account *m)
{
	double limit = books_idle_limit(t, m), change = fabs(limit - m->idleness.told);

	if (!m->idleness.told || !change ||
	    (t->settings.idle_ms <= 0 && change < m->idleness.told / 10))
		return;
	if (books_order(t, &(struct turns_order){
				   .kind = TURNS_LIMIT, .id = m->id, .timeout_ms = limit}))
		m->idleness.told = limit;
}

/* It has room that it does not take, as NVML shows, whatever it says. */
static bool leaves_room(struct turns *t, const struct account *m)
{
	double limit = t->settings.takes_ms;
	double left = t->now - m->taken_at;
	uint64_t shown;

	if (m->phase == PHASE_RUNS || left <= limit)
		return false;
	shown = books_shown(m);
	return shown < TURNS_NO_LIMIT && books_room(m) > shown &&
	       (!rest_of_leaving(t, m) || left > TAKES_LATE * limit);
}

static void tidy(struct turns *t, struct account *m)
{
	uint64_t gives[TURNS_GPUS] = {0};

	if (leaves_room(t, m)) {
		if (has_left_room(t, m))
			books_charge_left(t, m);
		books_take_room_back(t, m, t->now);
	}
	refuse_growth(t, m);
	refuse_pinned(t, m);
	tell_limit(t, m);
	/* It is stopped, perhaps. */
	m->ending &= t->now - m->ending_since <= ENDS_MS;
	if (m->given && t->now - m->given_at > GIVEN_MS && !m->watched)
		m->given = false;
	m->takes_all |= m->given && books_is_on_drained(t, m);
	if (!is_to_leave(t, m) || t->now < m->giving.until)
		return;
	if (!m->keeps)
		give_everything(gives);
	order_yield(t, m, gives, false, 0);
}

static void make_orders(struct turns *t)
{
	FOR_EACH_MEMBER(t, m)
		tidy(t, m);
	FOR_EACH_MEMBER(t, m)
		if (m->slot)
			hand_over(t, m);
	serve(t);
	watch(t);
}

size_t turns_decide(struct turns *t, double now, struct turns_order *out, size_t max)
{
	size_t n;

	books_advance(t, now);
	if (!t->norders)
		make_orders(t);
	n = t->norders < max ? t->norders : max;
	memcpy(out, t->orders, n * sizeof(*out));
	t->norders -= n;
	memmove(t->orders, t->orders + n, t->norders * sizeof(*out));
	return n;
}

double turns_next(struct turns *t, double now)
{
	books_advance(t, now);
	FOR_EACH_MEMBER(t, m)
		if (m->wait_since > 0 || m->slot || is_to_leave(t, m) || m->given)
			return LOOK_MS;
	return -1;
}
