/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DECISIONS_H
#define CUDAW_DECISIONS_H
/* For tests of single decisions, of members that are as the test has put them into the books. */
#include "tests/unit/daemon/turns_world.h"
#include "tools/daemon/turns/books.h"
#include "tests/check_suite.h"

#define NOW      1000000.0
#define CAPACITY (100 * GIB)

static struct turns_order orders[64];
static size_t norders;

static inline struct turns *begin(double quantum)
{
	const struct turns_settings settings = {
		.quantum_ms = quantum, .idle_ms = 500, .rest_ms = 16000};
	struct turns *t = turns_new(&settings);

	ck_assert_ptr_nonnull(t);
	turns_capacity(t, 0, CAPACITY);
	t->now = NOW;
	return t;
}

/* It runs, with @gib GiB, for long. */
static inline struct account *runs(struct turns *t, uint64_t gib)
{
	struct account *m = books_find(t, turns_join(t, TURNS_BATCH, 1, NOW));

	turns_need(t, m->id, 0, gib * GIB, gib * GIB, NOW);
	m->phase_since = 0;
	m->vtime = 0;
	return m;
}

/* It has no memory on the GPU, and waits since @ago ms for all of it. */
static inline struct account *waits(struct turns *t, uint64_t gib, double ago, double vtime)
{
	struct account *m = books_find(t, turns_join(t, TURNS_BATCH, 1, NOW));

	turns_need(t, m->id, 0, 0, gib * GIB, NOW);
	m->phase = PHASE_OUT;
	m->phase_since = 0;
	turns_want(t, m->id, NOW);
	m->wait_since = NOW - ago;
	m->vtime = vtime;
	return m;
}

static inline void decide(struct turns *t, double now)
{
	norders = turns_decide(t, now, orders, 64);
	ck_assert_uint_lt(norders, 64);
	turns_check(t);
}

/* The order of @kind that @m gets; NULL: none. */
static inline const struct turns_order *order_of(enum turns_order_kind kind,
						 const struct account *m)
{
	for (size_t i = 0; i < norders; i++)
		if (orders[i].kind == kind && orders[i].id == m->id)
			return &orders[i];
	return NULL;
}

/* Who gets the memory of @m, if that is given away. */
static inline uint32_t successor(struct turns *t, struct account *m, double now)
{
	turns_give(t, m->id, now);
	decide(t, now);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, m));
	return m->leaves_for;
}

#endif
