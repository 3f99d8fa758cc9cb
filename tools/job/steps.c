/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/steps.h"

#include "common/protocol.h"

/* These grow with the time since the start, so that they fit slow machines and kernels. */
#define SETTLE_MS(elapsed) (4 + (elapsed) / 256) /* for answers of ranks that a step freed */
#define PATIENCE_MS(elapsed) \
	(200 + (elapsed) / 8) /* without a change, until all ranks make a step */

#define PLAIN_CHASES 3 /* before a coin decides which ranks make a step */

void steps_begin(struct steps *steps, struct steps_rank *ranks, size_t n, uint32_t seed,
		 int64_t now_ms)
{
	*steps = (struct steps){.ranks = ranks, .n = n, .random = seed | 1};
	steps->begin_ms = steps->news_ms = steps->change_ms = now_ms;
	for (size_t i = 0; i < n; i++)
		ranks[i] = (struct steps_rank){.asked = true};
}

void steps_take(struct steps *steps, size_t rank, bool drained, uint32_t came, int64_t now_ms)
{
	struct steps_rank *r = &steps->ranks[rank];

	if (r->drained != drained)
		steps->change_ms = now_ms;
	steps->news_ms = now_ms;
	r->asked = false;
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
static void step_drained(struct steps *steps)
{
	for (size_t i = 0; i < steps->n; i++) {
		struct steps_rank *r = &steps->ranks[i];

		if (r->drained && (steps->chases <= PLAIN_CHASES || coin(steps)))
			give(r, 1 + r->made / 4);
	}
}

bool steps_are_over(const struct steps *steps)
{
	for (size_t i = 0; i < steps->n; i++)
		if (steps->ranks[i].asked || !steps->ranks[i].drained)
			return false;
	return true;
}

enum steps_verdict steps_next(struct steps *steps, int64_t now_ms)
{
	int64_t elapsed = now_ms - steps->begin_ms;
	size_t drained = 0;

	for (size_t i = 0; i < steps->n; i++) {
		if (steps->ranks[i].asked)
			return STEPS_WAIT;
		steps->ranks[i].step = 0;
		drained += steps->ranks[i].drained;
	}
	if (drained == steps->n)
		return STEPS_READY;
	if (now_ms - steps->change_ms >= PATIENCE_MS(elapsed)) {
		steps->change_ms = now_ms;
		for (size_t i = 0; i < steps->n; i++)
			give(&steps->ranks[i], 1);
		return STEPS_GO;
	}
	if (!drained || now_ms - steps->news_ms < SETTLE_MS(elapsed))
		return STEPS_WAIT;
	chase(steps);
	step_drained(steps);
	return STEPS_GO;
}
