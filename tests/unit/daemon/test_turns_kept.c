/* SPDX-License-Identifier: Apache-2.0 */
/* Those of the lower class whom the higher one keeps out. */
#include "tests/unit/daemon/decisions.h"

#define AFTER 90000.0

static struct turns *t;

static void setup(void)
{
	t = begin(20 * AFTER);
	turns_capacity(t, 1, CAPACITY);
	t->settings.batch_after_ms = AFTER;
}

static void teardown(void)
{
	turns_free(t);
}

static struct account *interactive(uint64_t gib)
{
	struct account *m = runs(t, gib);

	m->class = TURNS_INTERACTIVE;
	return m;
}

static bool is_stopped(const struct account *m, double now)
{
	decide(t, now);
	return order_of(TURNS_YIELD, m);
}

/* After so long, and not for one of its own class, or one on another GPU. */
START_TEST(one_that_a_higher_class_keeps_out_gets_a_turn)
{
	struct account *first = interactive(90), *elsewhere = interactive(0);
	struct account *waiter = waits(t, 90, 0, 0);

	turns_need(t, elsewhere->id, 1, CAPACITY + GIB, CAPACITY + GIB, NOW);
	turns_context(t, waiter->id, 1, GIB, NOW);
	if (_i)
		first->class = TURNS_BATCH;
	ck_assert(!is_stopped(first, NOW));
	ck_assert_int_eq(waiter->kept, !_i);
	ck_assert(!is_stopped(first, NOW + AFTER - 1));
	ck_assert_int_eq(is_stopped(first, NOW + AFTER), !_i);
}
END_TEST

/* It has gone before the higher class, and has got nothing: so another one does not, either. */
START_TEST(a_turn_that_fails_was_one)
{
	struct account *first = interactive(90), *waiter = waits(t, 90, 0, 0);
	double now = NOW + AFTER;

	waits(t, 90, 0, 50000);
	decide(t, NOW);
	ck_assert(is_stopped(first, now));
	turns_freed(t, first->id, 90 * GIB, now + 20);
	turns_ended(t, first->id, TURNS_OK, now + 20);
	decide(t, now + 20);
	turns_ended(t, waiter->id, TURNS_FAILED, now + 40);
	turns_want(t, first->id, now + 60);
	decide(t, now + 60);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, first));
	turns_need(t, first->id, 0, 90 * GIB, 90 * GIB, now + 80);
	turns_ended(t, first->id, TURNS_OK, now + 80);
	for (int s = 1; s < 90; s++)
		ck_assert(!is_stopped(first, now + 1000 * s));
}
END_TEST

/* While its own class keeps it out, or its GPU is drained, its time stands still. */
START_TEST(other_waits_do_not_count)
{
	struct account *first = interactive(90);

	waits(t, 90, 0, 0);
	decide(t, NOW);
	if (_i)
		turns_drain(t, 0, true);
	else
		first->class = TURNS_BATCH;
	ck_assert(!is_stopped(first, NOW + 60000));
	turns_drain(t, 0, false);
	first->class = TURNS_INTERACTIVE;
	ck_assert(!is_stopped(first, NOW + 120000));
	ck_assert(!is_stopped(first, NOW + 120000 + AFTER - 60001));
	ck_assert(is_stopped(first, NOW + 120000 + AFTER - 60000));
}
END_TEST

/* On the other GPU two change places. */
static void change_places(struct account *from, struct account *to, double now)
{
	turns_give(t, from->id, now);
	decide(t, now);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, from));
	turns_freed(t, from->id, 90 * GIB, now + 500);
	turns_ended(t, from->id, TURNS_OK, now + 500);
	turns_want(t, from->id, now + 500);
	decide(t, now + 500);
	turns_need(t, to->id, 1, 90 * GIB, 90 * GIB, now + 1000);
	turns_ended(t, to->id, TURNS_OK, now + 1000);
	decide(t, now + 1000);
}

/* The interactive job has both GPUs, so that it cannot be stopped meanwhile. */
START_TEST(hand_overs_on_another_gpu_count)
{
	struct account *first = interactive(90), *pair[2] = {runs(t, 0), runs(t, 0)};

	turns_need(t, first->id, 1, GIB, GIB, NOW);
	for (int i = 0; i < 2; i++)
		turns_need(t, pair[i]->id, 1, i ? 0 : 90 * GIB, 90 * GIB, NOW);
	pair[1]->phase = PHASE_OUT;
	turns_want(t, pair[1]->id, NOW);
	waits(t, 90, 0, 0);
	decide(t, NOW);
	for (int i = 0; i < 9; i++) {
		ck_assert(!is_stopped(first, NOW + i * 10000));
		change_places(pair[i % 2], pair[1 - i % 2], NOW + i * 10000);
	}
	ck_assert(is_stopped(first, NOW + AFTER));
}
END_TEST

/* It runs without memory, as it has just begun. With its first allocation it has a turn, which it is left. */
START_TEST(one_whose_allocation_is_kept_out_gets_a_turn)
{
	struct account *first = interactive(90), *newcomer = runs(t, 0);

	newcomer->phase_since = -20 * AFTER;
	turns_grow(t, newcomer->id, 1, 0, 20 * GIB, NOW);
	decide(t, NOW);
	ck_assert(!is_stopped(first, NOW + AFTER - 1));
	ck_assert(is_stopped(first, NOW + AFTER));
	turns_freed(t, first->id, 90 * GIB, NOW + AFTER + 20);
	turns_ended(t, first->id, TURNS_OK, NOW + AFTER + 20);
	turns_want(t, first->id, NOW + AFTER + 20);
	decide(t, NOW + AFTER + 20);
	ck_assert_ptr_nonnull(order_of(TURNS_TRY, newcomer));
	turns_need(t, newcomer->id, 0, 20 * GIB, 20 * GIB, NOW + AFTER + 20);
	ck_assert(!is_stopped(newcomer, NOW + AFTER + 10000));
	ck_assert(is_stopped(newcomer, NOW + 22 * AFTER));
}
END_TEST

/* Not with the order to the other one, which takes its time, or gives nothing. */
START_TEST(its_turn_begins_with_its_memory)
{
	struct account *first = interactive(50), *grows = runs(t, 40);
	double now = NOW + (_i ? 5000 : 15000);

	t->settings.quantum_ms = QUANTUM;
	turns_grow(t, grows->id, 1, 0, 30 * GIB, NOW);
	grows->kept_ms = AFTER;
	ck_assert(is_stopped(first, NOW));
	if (_i) {
		turns_ended(t, first->id, TURNS_TIMEOUT, now);
		turns_grow(t, first->id, 2, 0, 20 * GIB, now);
		ck_assert(is_stopped(grows, now + 100));
		return;
	}
	turns_freed(t, first->id, 20 * GIB, now);
	turns_ended(t, first->id, TURNS_OK, now);
	turns_want(t, first->id, now);
	decide(t, now);
	ck_assert_ptr_nonnull(order_of(TURNS_TRY, grows));
	turns_need(t, grows->id, 0, 70 * GIB, 70 * GIB, now);
	ck_assert(!is_stopped(grows, now + QUANTUM - 100));
	ck_assert(is_stopped(grows, now + QUANTUM));
}
END_TEST

/* One after the other is served: the first one is not kept out. */
START_TEST(the_next_allocation_counts)
{
	struct account *grows = runs(t, 10);

	interactive(50);
	runs(t, 40);
	for (int i = 1; i <= 2; i++)
		turns_grow(t, grows->id, i, 0, (_i ? 41 : 30) * GIB, NOW);
	grows->phase_since = NOW;
	decide(t, NOW);
	ck_assert_int_eq(grows->kept, _i);
}
END_TEST

START_TEST(one_that_goes_first_is_served_first)
{
	struct account *first = interactive(90), *waiter = waits(t, 90, 0, 0);

	waits(t, 90, 100, 0)->class = TURNS_INTERACTIVE;
	decide(t, NOW);
	ck_assert_uint_eq(successor(t, first, NOW + AFTER), waiter->id);
}
END_TEST

START_TEST(of_two_that_go_first_the_one_that_was_kept_out_for_longer_does)
{
	struct account *first = interactive(90), *waiter = waits(t, 90, 0, 1000);

	waits(t, 90, 2000, 0)->kept_ms = AFTER;
	waiter->kept_ms = AFTER + 1;
	ck_assert(is_stopped(first, NOW));
	ck_assert_uint_eq(first->leaves_for, waiter->id);
	ck_assert_double_eq(waiter->kept_ms, 0);
}
END_TEST

/* Its own class does so as well, or alone: the higher one is not stopped in vain. */
START_TEST(one_that_goes_first_stops_nobody_of_its_class)
{
	struct account *first = interactive(_i ? 50 : 10), *other = runs(t, _i ? 50 : 80);
	struct account *waiter = waits(t, _i ? 90 : 20, 0, 0);

	waiter->kept_ms = AFTER;
	other->phase_since = NOW - 100;
	ck_assert(!is_stopped(first, NOW));
	ck_assert_int_eq(waiter->kept, _i);
	ck_assert_ptr_null(order_of(TURNS_YIELD, other));
}
END_TEST

/* Else a moment in which the higher class is idle would take off all. */
START_TEST(a_turn_takes_its_time_off)
{
	struct account *first = interactive(90), *waiter = waits(t, 90, 0, 0);
	double now = NOW + 60000;

	t->settings.quantum_ms = QUANTUM;
	decide(t, NOW);
	ck_assert_uint_eq(successor(t, first, now), waiter->id);
	turns_freed(t, first->id, 90 * GIB, now);
	turns_ended(t, first->id, TURNS_OK, now);
	decide(t, now);
	turns_ended(t, waiter->id, TURNS_OK, now);
	ck_assert_double_eq(waiter->kept_ms, 60000);
	decide(t, now + QUANTUM / 10);
	ck_assert_double_eq(waiter->kept_ms, 60000 - AFTER / 10);
	decide(t, now + QUANTUM);
	ck_assert_double_eq(waiter->kept_ms, 0);
}
END_TEST

START_TEST(one_that_could_not_give_had_no_turn)
{
	struct account *grows = runs(t, 50);

	turns_grow(t, grows->id, 1, 0, 60 * GIB, NOW);
	grows->kept_ms = AFTER / 2;
	grows->phase = PHASE_LEAVING;
	grows->ran = true;
	turns_ended(t, grows->id, TURNS_NOMEM, NOW);
	ck_assert_int_eq(grows->phase, PHASE_RUNS);
	ck_assert_double_eq(grows->kept_ms, AFTER / 2);
}
END_TEST

/* Nor one that nobody can stop now. It needs more than the books have, so that it has the GPU alone. */
START_TEST(only_those_that_run_keep_it_out)
{
	struct account *first = interactive(90), *waiter = waits(t, 101, 0, 0);

	first->giving.until = NOW + AFTER;
	turns_idle(t, first->id, _i == 1, NOW);
	turns_paused(t, first->id, _i == 2, NOW);
	if (_i == 3)
		first->phase = PHASE_OUT;
	decide(t, NOW);
	ck_assert_int_eq(waiter->kept, !_i);
}
END_TEST

/* One that must run alone, and one without whose context there is not enough. */
START_TEST(small_ones_of_a_higher_class_keep_it_out)
{
	struct account *first = interactive(5), *waiter = waits(t, 90, 2000, 0);

	if (_i < 2) {
		first->alone = _i;
	} else {
		turns_there(t, 0, 89 * GIB);
		turns_context_after(t, first->id, 1000);
		turns_context(t, first->id, 0, GIB, NOW);
		first->class = _i == 2 ? TURNS_INTERACTIVE : TURNS_BATCH;
		first->giving.until = NOW + AFTER;
	}
	decide(t, NOW);
	ck_assert_int_eq(waiter->kept, _i == 1 || _i == 2);
}
END_TEST

/* A higher class keeps its allocation out, or one that nobody can ask: it does not use what it has, drained or not. */
START_TEST(one_that_cannot_grow_makes_way_for_one_that_fits)
{
	struct account *first = interactive(40), *grows = runs(t, 50);

	if (_i) {
		first->class = TURNS_BATCH;
		turns_aside(t, first->id, NOW);
	}
	if (_i == 2) {
		turns_need(t, grows->id, 1, GIB, GIB, NOW);
		turns_drain(t, 1, true);
	}
	turns_grow(t, grows->id, 1, 0, 20 * GIB, NOW);
	waits(t, 50, 0, 50000);
	grows->wait_since = NOW - 50000;
	grows->phase_since = NOW - 1000;
	ck_assert(!is_stopped(grows, NOW));
	ck_assert(is_stopped(grows, NOW + 2000));
}
END_TEST

/* By a higher class, or by one that answers nothing, ends, or has memory on a drained GPU, too. */
START_TEST(one_that_starves_does_not_wait_behind_one_that_is_kept_out)
{
	struct account *first = interactive(40), *other, *waiter;

	t->settings.quantum_ms = QUANTUM;
	if (_i)
		first->class = TURNS_BATCH;
	if (_i == 1)
		turns_aside(t, first->id, NOW);
	if (_i == 2)
		first->safe_until = NOW + QUANTUM;
	if (_i == 3) {
		turns_need(t, first->id, 1, GIB, GIB, NOW);
		turns_drain(t, 1, true);
	}
	other = runs(t, 50);
	waits(t, 70, 200000, 0);
	waiter = waits(t, 50, 100000, 50000);
	ck_assert(is_stopped(other, NOW));
	ck_assert_uint_eq(other->leaves_for, waiter->id);
}
END_TEST

/* It has just failed to give memory itself, and its other GPU is being handed over: it is the next one all the same. */
START_TEST(one_that_cannot_give_keeps_its_place)
{
	struct account *other = runs(t, 50), *pair[2] = {runs(t, 0), runs(t, 0)}, *first;

	t->settings.quantum_ms = QUANTUM;
	for (int i = 0; i < 2; i++)
		turns_need(t, pair[i]->id, 1, i ? 0 : 90 * GIB, 90 * GIB, NOW);
	pair[1]->phase = PHASE_OUT;
	turns_want(t, pair[1]->id, NOW);
	ck_assert_uint_eq(successor(t, pair[0], NOW), pair[1]->id);
	first = waits(t, 70, 200000, 0);
	turns_need(t, first->id, 0, 40 * GIB, 70 * GIB, NOW);
	turns_need(t, first->id, 1, 0, GIB, NOW);
	first->giving.until = NOW + AFTER;
	waits(t, 50, 100000, 50000);
	ck_assert(!is_stopped(other, NOW + 20));
}
END_TEST

/* What was ordered is done at once. */
static void carry_out(const struct turns_order *o, double now)
{
	struct account *m = books_find(t, o->id);

	for (int g = 0; g < 2; g++) {
		struct need *n = &m->need[g];
		bool gives = o->kind == TURNS_YIELD && n->mapped;
		bool gets = o->kind == TURNS_ROOM || (o->kind == TURNS_TRY && o->gpu == g);

		if (gives || gets)
			turns_need(t, m->id, g, gives ? 0 : n->total, n->total, now);
	}
	if (o->kind == TURNS_YIELD || o->kind == TURNS_ROOM)
		turns_ended(t, m->id, TURNS_OK, now);
	if (o->kind == TURNS_YIELD)
		turns_want(t, m->id, now);
}

/* The seconds that each member ran from now on. */
static void measure(int seconds, double *ran)
{
	for (int s = 0; s < seconds; s++) {
		do {
			decide(t, NOW + 1000 * s);
			for (size_t i = 0; i < norders; i++)
				carry_out(&orders[i], NOW + 1000 * s);
		} while (norders);
		FOR_EACH_MEMBER(t, m)
			ran[m - t->members] += m->phase == PHASE_RUNS;
	}
}

/* Each GPU has its interactive job, and a small job; the large one needs both. */
START_TEST(one_with_two_gpus_goes_first_as_others_do)
{
	struct account *large = waits(t, 90, 0, 0), *small = NULL;
	double ran[5] = {0};

	t->settings.quantum_ms = QUANTUM;
	turns_need(t, large->id, 1, 0, 90 * GIB, NOW);
	for (int g = 0; g < 2; g++) {
		turns_need(t, interactive(0)->id, g, 90 * GIB, 90 * GIB, NOW);
		small = waits(t, 0, 0, 0);
		turns_need(t, small->id, g, 0, 90 * GIB, NOW);
	}
	/* So the small ones do not go at the same time. */
	small->kept_ms = AFTER / 2;
	measure(3000, ran);
	for (int i = 0; i < 5; i++)
		ck_assert_double_ge(ran[i], i % 2 ? 2690 : 90);
}
END_TEST

/* One that must run alone keeps it out on its own GPU. */
START_TEST(one_is_kept_out_where_the_other_one_is)
{
	struct account *first = interactive(0), *waiter = waits(t, 0, 0, 0);

	turns_context(t, waiter->id, 0, GIB, NOW);
	turns_need(t, waiter->id, 1, 0, GIB, NOW);
	turns_need(t, first->id, 1, GIB, GIB, NOW);
	turns_restored(t, first->id, false, NOW);
	decide(t, NOW);
	ck_assert(waiter->need[1].kept && !waiter->need[0].kept);
}
END_TEST

/* They have no memory, and each of them must run alone. */
START_TEST(those_without_memory_go_first_one_after_the_other)
{
	double ran[5] = {0};

	t->settings.quantum_ms = QUANTUM;
	interactive(90);
	for (int i = 0; i < 4; i++)
		waits(t, 0, 0, 0);
	FOR_EACH_MEMBER(t, m) {
		turns_restored(t, m->id, false, NOW);
		turns_context(t, m->id, 0, GIB, NOW);
	}
	measure(3000, ran);
	for (int i = 0; i < 5; i++)
		ck_assert_double_ge(ran[i], i ? 50 : 2690);
}
END_TEST

/* The higher one never idles. */
START_TEST(the_lower_class_has_what_is_set)
{
	const struct turns_settings settings = {
		.quantum_ms = QUANTUM, .batch_after_ms = 9 * QUANTUM, .rest_ms = 16000};
	int n = 1 + 4 * _i;
	double served[6], sum = 0;
	struct world w;

	world_begin(&w, QUANTUM);
	turns_set(w.t, &settings);
	for (int i = 0; i <= n; i++)
		job_start(&w, 0, 80 * GIB, i < n ? TURNS_BATCH : TURNS_INTERACTIVE, 1);
	world_run(&w, 60000);
	world_measure(&w, n + 1, 60 * QUANTUM, served);
	for (int i = 0; i < n; i++) {
		ck_assert_double_ge(served[i], QUANTUM * 9 / 10);
		sum += served[i];
	}
	ck_assert_double_eq_tol(sum / (60 * QUANTUM), 0.1, 0.02);
	ck_assert_double_ge(served[n] / (60 * QUANTUM), 0.85);
	world_end(&w);
}
END_TEST

/* Of the small ones two fit beside the higher one, and the third one takes turns with them. */
START_TEST(small_ones_do_not_keep_a_large_one_out)
{
	const struct turns_settings settings = {
		.quantum_ms = QUANTUM, .batch_after_ms = 9 * QUANTUM, .rest_ms = 16000};
	double served[5];
	struct world w;

	world_begin(&w, QUANTUM);
	turns_set(w.t, &settings);
	for (int i = 0; i < 5; i++)
		job_start(&w, 0,
			  (i == 0  ? 110
			   : i < 4 ? 25
				   : 80) *
				  GIB,
			  i < 4 ? TURNS_BATCH : TURNS_INTERACTIVE, 1);
	world_run(&w, 60000);
	world_measure(&w, 5, 60 * QUANTUM, served);
	ck_assert_double_ge(served[0], 4 * QUANTUM);
	ck_assert_double_ge(served[4] / (60 * QUANTUM), 0.85);
	world_end(&w);
}
END_TEST

/* Whom the higher class leaves room is kept out by its own. */
START_TEST(the_own_class_is_served_as_ever)
{
	const struct turns_settings settings = {
		.quantum_ms = 12 * QUANTUM, .batch_after_ms = 9 * QUANTUM, .rest_ms = 16000};
	double served[3];
	struct world w;

	world_begin(&w, 0);
	turns_set(w.t, &settings);
	job_start(&w, 0, 80 * GIB, TURNS_BATCH, 10);
	job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	job_start(&w, 0, 20 * GIB, TURNS_INTERACTIVE, 1);
	world_run(&w, 60000);
	world_measure(&w, 3, 24 * 11 * QUANTUM, served);
	ck_assert_double_eq_tol(served[0] / (served[0] + served[1]), 10.0 / 11, 0.02);
	ck_assert_int_eq(w.jobs[2].stopped, 0);
	world_end(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns_kept");
	TCase *cases = tcase_create("turns_kept"), *worlds = tcase_create("worlds");

	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_loop_test(cases, one_that_a_higher_class_keeps_out_gets_a_turn, 0, 2);
	tcase_add_test(cases, a_turn_that_fails_was_one);
	tcase_add_loop_test(cases, other_waits_do_not_count, 0, 2);
	tcase_add_test(cases, hand_overs_on_another_gpu_count);
	tcase_add_test(cases, one_whose_allocation_is_kept_out_gets_a_turn);
	tcase_add_loop_test(cases, its_turn_begins_with_its_memory, 0, 2);
	tcase_add_loop_test(cases, the_next_allocation_counts, 0, 2);
	tcase_add_test(cases, one_that_goes_first_is_served_first);
	tcase_add_test(cases, of_two_that_go_first_the_one_that_was_kept_out_for_longer_does);
	tcase_add_loop_test(cases, one_that_goes_first_stops_nobody_of_its_class, 0, 2);
	tcase_add_test(cases, a_turn_takes_its_time_off);
	tcase_add_test(cases, one_that_could_not_give_had_no_turn);
	tcase_add_loop_test(cases, only_those_that_run_keep_it_out, 0, 4);
	tcase_add_loop_test(cases, small_ones_of_a_higher_class_keep_it_out, 0, 4);
	tcase_add_loop_test(cases, one_that_cannot_grow_makes_way_for_one_that_fits, 0, 3);
	tcase_add_test(cases, one_that_cannot_give_keeps_its_place);
	tcase_add_loop_test(cases, one_that_starves_does_not_wait_behind_one_that_is_kept_out, 0,
			    4);
	tcase_add_test(cases, one_is_kept_out_where_the_other_one_is);
	tcase_add_test(cases, one_with_two_gpus_goes_first_as_others_do);
	tcase_add_test(cases, those_without_memory_go_first_one_after_the_other);
	suite_add_tcase(suite, cases);
	tcase_add_loop_test(worlds, the_lower_class_has_what_is_set, 0, 2);
	tcase_add_test(worlds, small_ones_do_not_keep_a_large_one_out);
	tcase_add_test(worlds, the_own_class_is_served_as_ever);
	suite_add_tcase(suite, worlds);
	return check_suite_run(suite);
}
