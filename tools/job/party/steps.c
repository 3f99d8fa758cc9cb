/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/party/steps.h"

#include "common/protocol/protocol.h"

#include <stddef.h>
#include <stdint.h>

/* These grow with the time since the start, so that they fit slow machines and kernels. */
#define SETTLE_MS(elapsed) (4 + (elapsed) / 256) /* for answers of ranks that a step freed */
#define PATIENCE_MS(elapsed) \
	(200 + (elapsed) / 8) /* without a change, until all ranks make a step */

#define EARLY_MS 200 /* for the answer of a rank that was drained before it saw the order */

#define PLAIN_CHASES 3 /* before a coin decides which ranks make a step */

/* How many turns each way takes until the next one follows; the plain chases take any number. */
#define CHASE_TURNS(n)  (64 + 8 * (n))
#define GATHER_TURNS(n) (64 + 8 * (n))
#define WAVE_TURNS(n)   (64 + 32 * (n)) /* a quarter, if a step is a launch */
#define WAVES           8               /* then one after the other */

#define KNOWN_LAUNCHES 64  /* fewer do not tell the ends of a pipeline */
#define STEPS_ENDS     256 /* ranks that become an anchor */

void steps_begin(struct steps *steps, struct steps_rank *ranks, size_t n, uint32_t seed,
		 double now_ms)
{
	*steps = (struct steps){.ranks = ranks, .n = n, .turn = 2, .random = seed | 1};
	steps->begin_ms = steps->news_ms = steps->change_ms = now_ms;
	for (size_t i = 0; i < n; i++)
		ranks[i] = (struct steps_rank){.asked = true};
}

void steps_take(struct steps *steps, size_t rank, bool drained, uint32_t came, double now_ms)
{
	struct steps_rank *r = &steps->ranks[rank];
	/* A stuck rank answers a step otherwise: this is no answer, and it may yet let a call in. */
	bool early = r->asked && r->step && !r->drained && drained && !came;

	if (r->drained != drained)
		steps->change_ms = now_ms;
	steps->news_ms = now_ms;
	if (drained)
		r->turn = !r->drained ? steps->turn + 1 : came ? steps->turn : 0;
	if (!r->drained && steps->way == STEPS_WAVE)
		r->made = 0;
	r->asked = early;
	r->early_ms = early ? now_ms : 0;
	r->drained = drained;
	r->chased &= !drained;
	r->made += came;
}

void steps_leave(struct steps *steps, size_t rank)
{
	steps->ranks[rank] = (struct steps_rank){.left = true, .drained = true};
}

static bool coin(struct steps *steps)
{
	/* xorshift32 */
	steps->random ^= steps->random << 13;
	steps->random ^= steps->random >> 17;
	steps->random ^= steps->random << 5;
	return steps->random & 1;
}

/* Begin a chase, unless there is one: the ranks that are stuck now are chased. */
static void chase(struct steps *steps)
{
	for (size_t i = 0; i < steps->n; i++)
		if (steps->ranks[i].chased)
			return;
	steps->chases++;
	for (size_t i = 0; i < steps->n; i++) {
		steps->ranks[i].chased = !steps->ranks[i].drained;
		steps->ranks[i].made = 0;
	}
}

static void give(struct steps_rank *r, uint32_t calls)
{
	if (r->left)
		return;
	r->step = calls < PROTOCOL_STEP ? calls : PROTOCOL_STEP;
	r->asked = true;
}

/* Give a step to the drained ranks that the coin picks; to all of them at first. */
static void step_chase(struct steps *steps)
{
	chase(steps);
	for (size_t i = 0; i < steps->n; i++) {
		struct steps_rank *r = &steps->ranks[i];

		if (r->drained && (steps->chases <= PLAIN_CHASES || coin(steps)))
			give(r, 1 + r->made / 4);
	}
}

/*
 * The most launches of a rank that may be at an end of the pipeline: a stage there has one neighbour,
 * and half the launches of the others. If that tells nothing, any may be.
 */
static uint64_t most_of_ends(const struct steps *steps)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (size_t i = 0; i < steps->n; i++) {
		const struct steps_rank *r = &steps->ranks[i];

		if (r->left)
			continue;
		least = r->launches < least ? r->launches : least;
		most = r->launches > most ? r->launches : most;
	}
	return most < KNOWN_LAUNCHES || least > most / 4 * 3 ? most : most / 4 * 3;
}

/* The ends take turns, in the order first, last, second, ... of the processes. */
static size_t next_anchor(struct steps *steps)
{
	uint64_t most = most_of_ends(steps);
	size_t ends[STEPS_ENDS], n = 0, nth;

	for (size_t i = 0; i < steps->n && n < STEPS_ENDS; i++)
		if (!steps->ranks[i].left && steps->ranks[i].launches <= most)
			ends[n++] = i;
	nth = steps->waves++ % n;
	return ends[nth % 2 ? n - 1 - nth / 2 : nth / 2];
}

/* All but the anchor go on until they are stuck. False: they are, or make no calls. */
static bool step_gathering(struct steps *steps)
{
	bool any = false;

	for (size_t i = 0; i < steps->n; i++) {
		struct steps_rank *r = &steps->ranks[i];

		if (i == steps->anchor || r->left || !r->drained || !r->turn)
			continue;
		give(r, PROTOCOL_STEP);
		any = true;
	}
	return any;
}

/* The ranks that were drained last go on. */
static void step_wave(struct steps *steps)
{
	uint32_t latest = 0;

	for (size_t i = 0; i < steps->n; i++) {
		const struct steps_rank *r = &steps->ranks[i];

		if (!r->left && r->drained && r->turn > latest)
			latest = r->turn;
	}
	for (size_t i = 0; i < steps->n; i++) {
		struct steps_rank *r = &steps->ranks[i];

		if (r->drained && r->turn == latest)
			give(r, steps->by_launches ? PROTOCOL_STEP : 1 + r->made / 4);
	}
}

static void begin_way(struct steps *steps, enum steps_way way, double now_ms)
{
	steps->way = way;
	steps->way_ms = now_ms;
	steps->turns = 0;
	if (way == STEPS_GATHER)
		steps->anchor = next_anchor(steps);
	for (size_t i = 0; i < steps->n; i++) {
		steps->ranks[i].turn = steps->turn;
		steps->ranks[i].made = 0;
		steps->ranks[i].chased = false;
	}
}

void steps_begin_waves(struct steps *steps, double now_ms)
{
	steps->by_launches = true;
	begin_way(steps, STEPS_GATHER, now_ms);
}

/* The way that has led nowhere ends: the next one follows. */
static void change_way(struct steps *steps, double now_ms)
{
	uint32_t n = (uint32_t)steps->n;
	uint32_t wave = WAVE_TURNS(n) / (steps->by_launches ? 4 : 1);
	bool again = steps->by_launches && steps->waves % WAVES;

	if (steps->way == STEPS_CHASE && steps->turns > CHASE_TURNS(n))
		begin_way(steps, STEPS_GATHER, now_ms);
	else if (steps->way == STEPS_WAVE && steps->turns > wave)
		begin_way(steps, again ? STEPS_GATHER : STEPS_CHASE, now_ms);
}

/* Give steps to some of the drained ranks. */
static void step_some(struct steps *steps, double now_ms)
{
	steps->turn += 2;
	steps->turns += steps->chases > PLAIN_CHASES || steps->way != STEPS_CHASE;
	change_way(steps, now_ms);
	if (steps->way == STEPS_CHASE) {
		step_chase(steps);
		return;
	}
	if (steps->way == STEPS_GATHER) {
		if (steps->turns <= GATHER_TURNS((uint32_t)steps->n) && step_gathering(steps))
			return;
		begin_way(steps, STEPS_WAVE, now_ms);
	}
	step_wave(steps);
}

bool steps_are_over(const struct steps *steps)
{
	for (size_t i = 0; i < steps->n; i++)
		if (steps->ranks[i].asked || !steps->ranks[i].drained)
			return false;
	return true;
}

enum steps_verdict steps_next(struct steps *steps, double now_ms)
{
	double elapsed = now_ms - steps->begin_ms;
	size_t drained = 0;

	for (size_t i = 0; i < steps->n; i++) {
		struct steps_rank *r = &steps->ranks[i];

		/* Of two reports in a row only the later one may come: it was the answer. */
		r->asked &= !r->early_ms || now_ms - r->early_ms < EARLY_MS;
		if (r->asked)
			return STEPS_WAIT;
		r->early_ms = 0;
		r->step = 0;
		drained += r->drained;
	}
	if (drained == steps->n)
		return STEPS_READY;
	if (now_ms - steps->change_ms >= PATIENCE_MS(elapsed)) {
		steps->change_ms = now_ms;
		for (size_t i = 0; i < steps->n; i++)
			give(&steps->ranks[i], 1);
		return STEPS_GO;
	}
	/* There are many turns, and a wave that was misled by a late answer is followed by another. */
	if (steps->way != STEPS_CHASE)
		elapsed = now_ms - steps->way_ms;
	if (!drained || now_ms - steps->news_ms < SETTLE_MS(elapsed))
		return STEPS_WAIT;
	step_some(steps, now_ms);
	return STEPS_GO;
}
