/* SPDX-License-Identifier: Apache-2.0 */
/* Members that fit only without the contexts of others, and those whose context was out. */
#include "tests/unit/daemon/turns_world.h"
#include "tools/daemon/turns/books.h"
#include "tests/check_suite.h"

#define NOW     1000000.0
#define TOTAL   (100 * GIB)
#define CONTEXT GIB
#define AFTER   60000.0
#define TEN_MIN 600000.0

static struct turns_settings settings = {
	.quantum_ms = 10000, .residence_ms = 2000, .rest_ms = 16000};
static struct turns *t;
static struct turns_order orders[64];
static size_t norders;
static double now;

/* What NVML says: each of the members that there are has a context on GPU 0, unless it is out. */
static void shows(void)
{
	uint64_t contexts = 0;

	FOR_EACH_MEMBER(t, m) {
		turns_context(t, m->id, 0, m->released ? 0 : CONTEXT, now);
		contexts += m->need[0].context;
	}
	turns_capacity(t, 0, TOTAL - contexts);
	turns_there(t, 0, TOTAL - contexts);
}

static void setup(void)
{
	settings.context_after_ms = 0;
	t = turns_new(&settings);
	ck_assert_ptr_nonnull(t);
	now = t->now = NOW;
}

static void teardown(void)
{
	turns_free(t);
}

static struct account *joins(double after)
{
	struct account *m = books_find(t, turns_join(t, TURNS_BATCH, 1, now));

	turns_context_after(t, m->id, after);
	return m;
}

/* It runs, and has done so for long. */
static struct account *runs(uint64_t gib, double after)
{
	struct account *m = joins(after);

	turns_need(t, m->id, 0, gib * GIB, gib * GIB, now);
	m->phase_since = 0;
	m->vtime = 1e5;
	return m;
}

/* It is out, and wants @gib GiB or, of a job that makes no calls, does not. */
static struct account *out(uint64_t gib, double after, bool wants)
{
	struct account *m = joins(after);

	turns_need(t, m->id, 0, 0, gib * GIB, now);
	m->phase = PHASE_OUT;
	m->phase_since = now;
	m->vtime = 0;
	if (wants)
		turns_want(t, m->id, now);
	return m;
}

static void decide(double ms)
{
	now += ms;
	shows();
	norders = turns_decide(t, now, orders, 64);
	ck_assert_uint_lt(norders, 64);
	turns_check(t);
}

static const struct turns_order *order_of(enum turns_order_kind kind, const struct account *m)
{
	for (size_t i = 0; i < norders; i++)
		if (orders[i].kind == kind && orders[i].id == m->id)
			return &orders[i];
	return NULL;
}

/* It is told to give all, with its context as @context says. */
static void gives_all(const struct account *m, bool context)
{
	const struct turns_order *order = order_of(TURNS_YIELD, m);

	ck_assert_ptr_nonnull(order);
	ck_assert_uint_eq(order->bytes, TURNS_ALL);
	ck_assert_int_eq(order->context, context);
}

/* It has given all, and its context if @released. */
static void gave(struct account *m, bool released)
{
	uint64_t total = m->need[0].total;

	turns_freed(t, m->id, m->yield_from, now);
	if (released)
		turns_restored(t, m->id, true, now);
	turns_ended(t, m->id, TURNS_OK, now);
	turns_need(t, m->id, 0, 0, total + (released ? CONTEXT : 0), now);
}

/* It has all of its memory, and its context, back. */
static void fills(struct account *m)
{
	uint64_t total = m->need[0].total - (m->released ? CONTEXT : 0);

	ck_assert_int_eq(m->phase, PHASE_ENTERS);
	turns_mapped(t, m->id, total, now);
	turns_need(t, m->id, 0, total, total, now);
	turns_ended(t, m->id, TURNS_OK, now);
	ck_assert_int_eq(m->phase, PHASE_RUNS);
}

static void nobody_is_asked(double ms)
{
	for (double end = now + ms; now < end;) {
		decide(1000);
		for (size_t i = 0; i < norders; i++)
			ck_assert_int_ne(orders[i].kind, TURNS_YIELD);
	}
}

START_TEST(contexts_stay_unless_they_may_go)
{
	struct account *big, *small = runs(10, -1);
	struct turns_view view;

	big = out(99, -1, true);
	nobody_is_asked(10 * AFTER);
	ck_assert(turns_look(t, big->id, now, &view));
	ck_assert_int_eq(view.unfit_on, 0);
	ck_assert_str_eq(view.context, "in");
	ck_assert_int_eq(small->phase, PHASE_RUNS);
}
END_TEST

START_TEST(one_that_waits_long_gets_contexts)
{
	struct account *big, *small = runs(10, AFTER);
	struct turns_view view;

	big = out(99, -1, true);
	nobody_is_asked(AFTER - 1000);
	decide(1000);
	gives_all(small, true);
	decide(100);
	ck_assert_ptr_null(order_of(TURNS_ROOM, big));
	ck_assert(turns_look(t, big->id, now, &view));
	ck_assert_int_eq(view.unfit_on, -1);
	gave(small, true);
	ck_assert(turns_look(t, small->id, now, &view));
	ck_assert_str_eq(view.context, "out");
	turns_want(t, small->id, now);
	decide(100);
	ck_assert_uint_eq(order_of(TURNS_ROOM, big)->bytes, 99 * GIB);
	fills(big);
}
END_TEST

/* A job's own word counts before what is set. */
START_TEST(what_is_set_counts_for_those_that_say_nothing)
{
	struct account *says = runs(10, 2 * AFTER), *never;

	settings.context_after_ms = AFTER;
	turns_set(t, &settings);
	out(99, -1, true);
	nobody_is_asked(2 * AFTER - 1000);
	turns_context_after(t, says->id, -1);
	decide(100);
	gives_all(says, true);
	gave(says, true);
	never = runs(10, 0);
	turns_leave(t, says->id, now);
	nobody_is_asked(10 * AFTER);
	ck_assert_int_eq(never->phase, PHASE_RUNS);
}
END_TEST

START_TEST(one_that_is_out_for_long_gives_its_context_at_once)
{
	struct account *idle = out(10, AFTER, false), *runner = runs(10, AFTER);

	nobody_is_asked(2 * AFTER);
	out(98, -1, true);
	decide(100);
	/* With this one's context it fits beside that of the other, which only makes room. */
	gives_all(idle, true);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, runner));
	ck_assert(!order_of(TURNS_YIELD, runner)->context);
}
END_TEST

/* Its user has paused it: it has nothing there except its context. */
START_TEST(one_that_is_paused_gives_its_context)
{
	struct account *paused = out(10, AFTER, false);

	turns_paused(t, paused->id, true, now);
	paused->takes_all = false;
	decide(2 * AFTER);
	out(99, -1, true);
	decide(100);
	gives_all(paused, true);
}
END_TEST

START_TEST(all_contexts_that_are_needed_go_or_none)
{
	struct account *one = runs(10, AFTER), *other = runs(10, 0);

	out(99, -1, true);
	nobody_is_asked(10 * AFTER);
	turns_context_after(t, other->id, AFTER);
	decide(100);
	gives_all(one, true);
	gives_all(other, true);
}
END_TEST

START_TEST(whoever_may_not_be_stopped_keeps_its_context)
{
	struct account *small = runs(10, AFTER);

	small->class = TURNS_INTERACTIVE;
	out(99, -1, true);
	nobody_is_asked(10 * AFTER);
}
END_TEST

START_TEST(one_that_cannot_give_its_context_is_not_asked_again_soon)
{
	struct account *big, *small = runs(10, AFTER);

	big = out(99, -1, true);
	decide(AFTER);
	gives_all(small, true);
	gave(small, false);
	decide(100);
	ck_assert_ptr_null(order_of(TURNS_ROOM, big));
	ck_assert(!big->slot);
	turns_want(t, small->id, now);
	decide(100);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, small));
	fills(small);
	nobody_is_asked(TEN_MIN - 10000);
	decide(20000);
	gives_all(small, true);
}
END_TEST

/* The contexts have gone, but NVML does not show that: others have taken that memory. */
START_TEST(a_hand_over_ends_if_contexts_were_not_enough)
{
	struct account *big, *small = runs(10, AFTER);

	big = out(99, -1, true);
	decide(AFTER);
	gave(small, true);
	for (int i = 0; i < 49; i++) {
		now += 100;
		turns_there(t, 0, 98 * GIB);
		norders = turns_decide(t, now, orders, 64);
		ck_assert_ptr_null(order_of(TURNS_ROOM, big));
		ck_assert(big->slot);
	}
	now += 200;
	turns_decide(t, now, orders, 64);
	ck_assert(!big->slot);
}
END_TEST

/* A job of @gib GiB whose context is out, and that waits. */
static struct account *released(uint64_t gib)
{
	struct account *m = out(gib + 1, AFTER, false);

	turns_restored(t, m->id, true, now);
	turns_want(t, m->id, now);
	return m;
}

START_TEST(a_context_comes_back_with_room_for_all)
{
	struct account *other = out(60, 0, false), *back = released(80);

	turns_need(t, other->id, 0, 60 * GIB, 60 * GIB, now);
	decide(100);
	/* Room for parts of it would be there at once. */
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, other));
	ck_assert_ptr_null(order_of(TURNS_ROOM, back));
	turns_freed(t, other->id, 30 * GIB, now);
	decide(100);
	ck_assert_ptr_null(order_of(TURNS_ROOM, back));
	turns_freed(t, other->id, 42 * GIB, now);
	decide(100);
	ck_assert_uint_eq(order_of(TURNS_ROOM, back)->bytes, 81 * GIB);
}
END_TEST

START_TEST(one_whose_context_was_out_gets_its_turn_beside_nobody)
{
	struct account *other = runs(10, 0), *back = released(10);
	struct turns_view view;

	decide(100);
	gives_all(other, false);
	ck_assert_ptr_null(order_of(TURNS_ROOM, back));
	turns_freed(t, other->id, 10 * GIB, now);
	decide(100);
	ck_assert_ptr_null(order_of(TURNS_ROOM, back));
	gave(other, false);
	decide(100);
	ck_assert_uint_eq(order_of(TURNS_ROOM, back)->bytes, 11 * GIB);
	fills(back);
	ck_assert(turns_look(t, back->id, now, &view));
	ck_assert_str_eq(view.context, "restored");
	/* Nor does another one get its turn beside it. */
	turns_want(t, other->id, now);
	decide(100);
	ck_assert_ptr_null(order_of(TURNS_ROOM, other));
	decide(60000);
	gives_all(back, false);
	ck_assert_ptr_null(order_of(TURNS_ROOM, other));
	gave(back, false);
	decide(100);
	ck_assert_uint_eq(order_of(TURNS_ROOM, other)->bytes, 10 * GIB);
}
END_TEST

/* It has no memory there, but its kernels may run. */
START_TEST(one_without_memory_counts_by_its_context)
{
	struct account *bare = runs(0, 0), *back = released(10);

	decide(100);
	gives_all(bare, false);
	ck_assert_ptr_null(order_of(TURNS_ROOM, back));
	/* Its turn is one, too: the other one does not take it away as it waits again. */
	gave(bare, false);
	decide(100);
	fills(back);
	turns_want(t, bare->id, now);
	decide(60000);
	gives_all(back, false);
	gave(back, false);
	turns_want(t, back->id, now);
	decide(100);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, bare));
	ck_assert_ptr_null(order_of(TURNS_YIELD, bare));
}
END_TEST

START_TEST(one_without_memory_gets_the_turn_of_one_that_is_idle)
{
	struct account *back = runs(10, 0), *bare = out(0, 0, true);

	turns_restored(t, back->id, false, now);
	back->class = TURNS_INTERACTIVE;
	decide(100);
	/* Else it does not say so. */
	ck_assert_ptr_nonnull(order_of(TURNS_WATCH, back));
	turns_idle(t, back->id, true, now);
	decide(100);
	gives_all(back, false);
	gave(back, false);
	decide(100);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, bare));
}
END_TEST

/* It needs no room, but a word that the GPU is its own. Or another one comes to run there meanwhile. */
START_TEST(one_without_memory_is_asked_for_again)
{
	struct account *back = runs(10, 0), *bare = out(0, 0, true), *newcomer = NULL;

	turns_restored(t, back->id, false, now);
	decide(100);
	gives_all(back, false);
	if (_i) {
		newcomer = runs(10, 0);
		turns_restored(t, newcomer->id, false, now);
		decide(100);
		gives_all(newcomer, false);
		gave(back, false);
	} else {
		turns_ended(t, back->id, TURNS_TIMEOUT, now);
	}
	decide(100);
	ck_assert_ptr_null(order_of(TURNS_ROOM, bare));
	ck_assert(!bare->slot);
	nobody_is_asked(9000);
	if (_i) {
		gave(newcomer, false);
	} else {
		decide(1000);
		gives_all(back, false);
		gave(back, false);
	}
	decide(100);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, bare));
}
END_TEST

START_TEST(one_that_comes_beside_it_makes_way)
{
	struct account *back = runs(10, 0), *newcomer;

	turns_restored(t, back->id, false, now);
	nobody_is_asked(10000);
	newcomer = runs(10, 0);
	decide(100);
	gives_all(newcomer, false);
	ck_assert_ptr_null(order_of(TURNS_YIELD, back));
	gave(newcomer, false);
	nobody_is_asked(10000);
}
END_TEST

/* So no job can throw others off by a word. */
START_TEST(one_that_comes_with_it_beside_another_makes_way)
{
	struct account *first = runs(10, 0), *back = runs(10, 0);

	turns_restored(t, back->id, false, now);
	decide(100);
	gives_all(back, false);
	ck_assert_ptr_null(order_of(TURNS_YIELD, first));
	gave(back, false);
	nobody_is_asked(10000);
}
END_TEST

/* Though the other one, which comes to run by itself, had joined first. */
START_TEST(one_that_has_its_turn_stays)
{
	struct account *other = out(10, 0, false), *back = released(10);

	decide(100);
	fills(back);
	other->phase = PHASE_RUNS;
	other->came = true;
	turns_need(t, other->id, 0, 10 * GIB, 10 * GIB, now);
	decide(100);
	gives_all(other, false);
	ck_assert_ptr_null(order_of(TURNS_YIELD, back));
}
END_TEST

START_TEST(of_two_such_the_later_one_makes_way)
{
	struct account *first = runs(10, 0), *second = runs(10, 0);

	turns_restored(t, first->id, false, now);
	turns_restored(t, second->id, false, now);
	decide(100);
	gives_all(second, false);
	ck_assert_ptr_null(order_of(TURNS_YIELD, first));
}
END_TEST

START_TEST(those_on_other_gpus_do_not_mind)
{
	struct account *back = runs(10, 0), *other = joins(0);

	turns_capacity(t, 1, TOTAL);
	turns_restored(t, back->id, false, now);
	turns_need(t, other->id, 1, 10 * GIB, 10 * GIB, now);
	for (int i = 0; i < 100; i++) {
		now += 1000;
		ck_assert_uint_eq(turns_decide(t, now, orders, 64), 0);
	}
}
END_TEST

/* Two change places on the first GPU, on which two others have contexts, and memory on the second one. */
START_TEST(contexts_alone_take_no_turns)
{
	struct account *first = runs(60, 0), *second = runs(0, 0), *next = out(0, 0, false);

	turns_capacity(t, 1, TOTAL);
	turns_need(t, second->id, 1, 60 * GIB, 60 * GIB, now);
	turns_need(t, next->id, 1, 0, 60 * GIB, now);
	next->vtime = 0;
	turns_want(t, next->id, now);
	decide(100);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, second));
	ck_assert_ptr_null(order_of(TURNS_WATCH, first));
	out(60, 0, true);
	decide(100);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, first));
}
END_TEST

/* A job that fills the GPU, and a small one: both run for nearly half of the time. */
START_TEST(both_get_their_share)
{
	struct world w;
	struct job *big, *small;
	double served[2];

	world_begin(&w, QUANTUM);
	w.contexts = true;
	big = job_start(&w, 0, H200 - GIB, TURNS_BATCH, 1);
	big->context = GIB;
	small = job_start(&w, 0, 10 * GIB, TURNS_BATCH, 1);
	small->context = GIB;
	w.exact = false;
	turns_context_after(w.t, small->id, 5000);
	world_run(&w, 60000);
	world_measure(&w, 2, 600000, served);
	ck_assert_double_ge(served[0], 240000);
	ck_assert_double_ge(served[1], 240000);
	ck_assert_int_gt(w.contexts_given, 10);
	world_end(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns_context");
	TCase *cases = tcase_create("turns_context");

	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_test(cases, contexts_stay_unless_they_may_go);
	tcase_add_test(cases, one_that_waits_long_gets_contexts);
	tcase_add_test(cases, what_is_set_counts_for_those_that_say_nothing);
	tcase_add_test(cases, one_that_is_out_for_long_gives_its_context_at_once);
	tcase_add_test(cases, one_that_is_paused_gives_its_context);
	tcase_add_test(cases, all_contexts_that_are_needed_go_or_none);
	tcase_add_test(cases, whoever_may_not_be_stopped_keeps_its_context);
	tcase_add_test(cases, one_that_cannot_give_its_context_is_not_asked_again_soon);
	tcase_add_test(cases, a_hand_over_ends_if_contexts_were_not_enough);
	tcase_add_test(cases, a_context_comes_back_with_room_for_all);
	tcase_add_test(cases, one_whose_context_was_out_gets_its_turn_beside_nobody);
	tcase_add_test(cases, one_without_memory_counts_by_its_context);
	tcase_add_test(cases, one_without_memory_gets_the_turn_of_one_that_is_idle);
	tcase_add_loop_test(cases, one_without_memory_is_asked_for_again, 0, 2);
	tcase_add_test(cases, one_that_comes_beside_it_makes_way);
	tcase_add_test(cases, one_that_comes_with_it_beside_another_makes_way);
	tcase_add_test(cases, one_that_has_its_turn_stays);
	tcase_add_test(cases, of_two_such_the_later_one_makes_way);
	tcase_add_test(cases, those_on_other_gpus_do_not_mind);
	tcase_add_test(cases, contexts_alone_take_no_turns);
	tcase_add_test(cases, both_get_their_share);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
