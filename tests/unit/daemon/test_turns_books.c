/* SPDX-License-Identifier: Apache-2.0 */
/* Single decisions, of members that are as the test has put them into the books. */
#include "tests/unit/daemon/decisions.h"

START_TEST(the_one_that_had_less_is_served_first)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90), *had_less;

	waits(t, 90, 200, 50000);
	had_less = waits(t, 90, 100, 0);
	ck_assert_uint_eq(successor(t, first, NOW + 20), had_less->id);
	turns_free(t);
}
END_TEST

START_TEST(of_two_that_starve_the_first_is_served_first)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90), *longer;

	longer = waits(t, 90, 200000, 50000);
	waits(t, 90, 100000, 0);
	ck_assert_uint_eq(successor(t, first, NOW + 20), longer->id);
	turns_free(t);
}
END_TEST

START_TEST(the_higher_class_is_served_first)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90), *interactive;

	waits(t, 90, 200000, 0);
	interactive = waits(t, 90, 100, 50000);
	interactive->class = TURNS_INTERACTIVE;
	/* It runs in the same class, so that it is stopped for its gift alone. */
	first->class = TURNS_INTERACTIVE;
	ck_assert_uint_eq(successor(t, first, NOW + 20), interactive->id);
	turns_free(t);
}
END_TEST

START_TEST(one_that_ends_is_served_first_for_a_while)
{
	for (int late = 0; late < 2; late++) {
		struct turns *t = begin(10000);
		struct account *first = runs(t, 90), *longer, *ends;
		double now = NOW + (late ? 12100 : 11900);

		longer = waits(t, 90, 200, 0);
		ends = waits(t, 90, 100, 20000);
		turns_ends(t, ends->id, NOW);
		first->giving.until = now;
		decide(t, NOW + 20);
		ck_assert_ptr_null(order_of(TURNS_YIELD, first));
		ck_assert_uint_eq(successor(t, first, now), late ? longer->id : ends->id);
		turns_free(t);
	}
}
END_TEST

/* Nobody knows what took so long. */
START_TEST(a_hand_over_that_was_stuck_is_not_measured)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90), *waiter = waits(t, 90, 100, 0);
	double price = t->handover_ms;

	first->most_out = 90 * GIB;
	ck_assert_uint_eq(successor(t, first, NOW), waiter->id);
	decide(t, NOW + 60000);
	ck_assert(!waiter->slot);
	turns_freed(t, first->id, 90 * GIB, NOW + 60020);
	turns_ended(t, first->id, TURNS_OK, NOW + 60020);
	decide(t, NOW + 60020);
	turns_ended(t, waiter->id, TURNS_OK, NOW + 60040);
	ck_assert_double_eq(t->handover_ms, price);
	turns_free(t);
}
END_TEST

START_TEST(a_turn_lasts_as_the_hand_overs_want)
{
	static const double expected[][2] = {
		{100, 10000}, {1000, 20000}, {3000, 60000}, {10000, 120000}};
	struct turns *t = begin(0);

	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		t->handover_ms = expected[i][0];
		ck_assert_double_eq(books_quantum(t), expected[i][1]);
	}
	turns_free(t);
}
END_TEST

/* One that was idle has a lead only if it is behind. */
START_TEST(one_that_was_idle_is_preferred_if_it_had_less)
{
	for (int less = 0; less < 2; less++) {
		struct turns *t = begin(60000);
		struct account *first = runs(t, 90), *woken;

		first->vtime = 5000;
		first->phase_since = NOW - 20000;
		woken = waits(t, 90, 100, less ? 3900 : 4100);
		woken->woken = true;
		decide(t, NOW);
		ck_assert_int_eq(order_of(TURNS_YIELD, first) != NULL, less);
		turns_free(t);
	}
}
END_TEST

/* Of which one still lacks memory: it does not know which of the bytes that it is told of are where. */
START_TEST(one_on_two_gpus_gets_all_at_once)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90), *wide = waits(t, 40, 100, 0);

	turns_capacity(t, 1, CAPACITY);
	turns_need(t, wide->id, 1, 0, 40 * GIB, NOW);
	ck_assert_uint_eq(successor(t, first, NOW), wide->id);
	ck_assert_ptr_null(order_of(TURNS_ROOM, wide));
	turns_freed(t, first->id, 30 * GIB, NOW + 20);
	decide(t, NOW + 20);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, wide));
	ck_assert_uint_eq(order_of(TURNS_ROOM, wide)->bytes, 80 * GIB);
	turns_free(t);
}
END_TEST

/* Whoever starves behind it is the first one that can be served, and is not to wait for the end of a turn. */
START_TEST(one_that_starves_is_served_before_one_that_cannot_fit)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90), *starves;

	first->phase_since = NOW - 5000;
	turns_there(t, 0, CAPACITY);
	waits(t, 110, 200000, 0);
	starves = waits(t, 90, 100000, 50000);
	decide(t, NOW + 20);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, first));
	ck_assert_uint_eq(first->leaves_for, starves->id);
	turns_free(t);
}
END_TEST

/* Others have come to have memory: who leaves for it leaves for nobody. */
START_TEST(a_hand_over_to_one_that_does_not_fit_any_more_ends)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90), *next = waits(t, 90, 100, 0);

	ck_assert_uint_eq(successor(t, first, NOW), next->id);
	ck_assert(next->slot);
	turns_there(t, 0, 80 * GIB);
	decide(t, NOW + 20);
	ck_assert(!next->slot);
	ck_assert_uint_eq(first->leaves_for, 0);
	/* What is given by then is there for those who fit. */
	turns_freed(t, first->id, 90 * GIB, NOW + 40);
	turns_ended(t, first->id, TURNS_OK, NOW + 40);
	turns_want(t, first->id, NOW + 40);
	turns_there(t, 0, 90 * GIB);
	first->paused = true;
	decide(t, NOW + 60);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, next));
	turns_free(t);
}
END_TEST

START_TEST(idleness_is_watched_while_somebody_waits)
{
	struct turns *t = begin(60000);
	struct account *first = runs(t, 90), *elsewhere = runs(t, 0), *next;

	turns_need(t, elsewhere->id, 1, 10 * GIB, 10 * GIB, NOW);
	decide(t, NOW);
	ck_assert_ptr_null(order_of(TURNS_WATCH, first));
	first->phase_since = NOW;
	next = waits(t, 90, 100, 0);
	decide(t, NOW + 20);
	ck_assert_ptr_nonnull(order_of(TURNS_WATCH, first));
	ck_assert(order_of(TURNS_WATCH, first)->on);
	ck_assert_ptr_null(order_of(TURNS_WATCH, elsewhere));
	decide(t, NOW + 40);
	ck_assert_ptr_null(order_of(TURNS_WATCH, first));
	turns_leave(t, next->id, NOW + 60);
	decide(t, NOW + 60);
	ck_assert_ptr_nonnull(order_of(TURNS_WATCH, first));
	ck_assert(!order_of(TURNS_WATCH, first)->on);
	turns_free(t);
}
END_TEST

static const struct {
	double set;
	int has, expected;
} rests[] = {{16000, 0, 2000}, {1500, 0, 1500}, {1500, 8000, 1500}, {3000, 8000, 3000}};

START_TEST(kernels_have_no_longer_than_is_set)
{
	struct turns_settings settings = {.quantum_ms = 10000, .rest_ms = rests[_i].set};
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90);

	turns_set(t, &settings);
	first->rest_ms = rests[_i].has;
	waits(t, 90, 100, 0);
	successor(t, first, NOW);
	ck_assert_int_eq(order_of(TURNS_YIELD, first)->timeout_ms, rests[_i].expected);
	turns_free(t);
}
END_TEST

START_TEST(those_that_run_together_share_the_time)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 10), *second = runs(t, 10), *idle = runs(t, 10);

	turns_idle(t, idle->id, true, NOW);
	second->weight = 2;
	books_advance(t, NOW + 1000);
	ck_assert_double_eq(first->vtime, 500);
	ck_assert_double_eq(second->vtime, 250);
	ck_assert_double_eq(idle->vtime, 0);
	turns_free(t);
}
END_TEST

START_TEST(the_one_that_makes_room_is_named)
{
	struct turns *t = begin(10000);
	struct account *longest = runs(t, 5), *leaves = runs(t, 90), *next;
	struct turns_view view;

	leaves->phase_since = NOW - 20000;
	next = waits(t, 90, 100, 0);
	turns_look(t, next->id, NOW, &view);
	ck_assert_uint_eq(view.waits_for, longest->id);
	ck_assert_uint_eq(successor(t, leaves, NOW), next->id);
	turns_look(t, next->id, NOW, &view);
	ck_assert_uint_eq(view.waits_for, leaves->id);
	turns_free(t);
}
END_TEST

START_TEST(what_was_promised_is_kept_for_a_while)
{
	struct turns *t = begin(10000);
	struct account *grows = runs(t, 10);

	turns_grow(t, grows->id, 1, 0, 20 * GIB, NOW);
	decide(t, NOW);
	ck_assert_ptr_nonnull(order_of(TURNS_TRY, grows));
	books_advance(t, NOW + 1900);
	ck_assert_int_eq(books_free(t, 0), (int64_t)(70 * GIB));
	books_advance(t, NOW + 2100);
	ck_assert_int_eq(books_free(t, 0), (int64_t)(90 * GIB));
	turns_free(t);
}
END_TEST

/* Nobody waits for its answer, also where it would have to leave. */
START_TEST(one_that_is_aside_is_asked_for_nothing)
{
	struct turns *t = begin(10000);
	struct account *silent = runs(t, 60), *first = runs(t, 30), *next;
	struct turns_view view;

	turns_drain(t, 0, true);
	turns_aside(t, silent->id, NOW);
	turns_give(t, silent->id, NOW);
	next = waits(t, 60, 100, 0);
	decide(t, NOW + 20);
	ck_assert_ptr_null(order_of(TURNS_YIELD, silent));
	turns_drain(t, 0, false);
	turns_give(t, first->id, NOW);
	decide(t, NOW + 1000);
	ck_assert_ptr_null(order_of(TURNS_YIELD, silent));
	ck_assert_ptr_null(order_of(TURNS_YIELD, first));
	turns_leave(t, first->id, NOW + 1000);
	turns_look(t, next->id, NOW + 1000, &view);
	ck_assert_uint_eq(view.waits_for, silent->id);
	turns_leave(t, silent->id, NOW + 2000);
	decide(t, NOW + 2000);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, next));
	turns_free(t);
}
END_TEST

/* Each of its allocations fits beside what it has; both do not. */
START_TEST(allocations_keep_nobody_from_his_turn)
{
	struct turns *t = begin(10000);
	struct account *m = waits(t, 60, 100, 0);
	struct turns_view view;

	turns_there(t, 0, 80 * GIB);
	turns_grow(t, m->id, 1, 0, 30 * GIB, NOW);
	turns_grow(t, m->id, 2, 0, 30 * GIB, NOW);
	turns_look(t, m->id, NOW, &view);
	ck_assert_int_eq(view.unfit_on, -1);
	ck_assert_uint_eq(books_wanted(t, m, 0), 90 * GIB);
	decide(t, NOW);
	ck_assert_ptr_nonnull(order_of(TURNS_ROOM, m));
	turns_mapped(t, m->id, 60 * GIB, NOW);
	turns_ended(t, m->id, TURNS_OK, NOW);
	decide(t, NOW);
	for (size_t i = 0; i < norders; i++)
		if (orders[i].kind == TURNS_TRY)
			turns_need(t, m->id, 0, 90 * GIB, 90 * GIB, NOW);
	ck_assert_uint_eq(m->need[0].mapped, 90 * GIB);
	decide(t, NOW);
	ck_assert_ptr_nonnull(order_of(TURNS_NO, m));
	turns_free(t);
}
END_TEST

START_TEST(one_whose_kernels_run_on_shares_the_time)
{
	struct turns *t = begin(10000);
	struct account *leaves = runs(t, 40), *other = runs(t, 40);

	leaves->phase = PHASE_LEAVING;
	leaves->ran = true;
	books_advance(t, NOW + 1000);
	ck_assert_double_eq(leaves->vtime, 500);
	ck_assert_double_eq(other->vtime, 500);
	/* They have ended. */
	turns_frees(t, leaves->id, 1, NOW + 1000);
	books_advance(t, NOW + 2000);
	ck_assert_double_eq(leaves->vtime, 500);
	ck_assert_double_eq(other->vtime, 1500);
	turns_free(t);
}
END_TEST

/* However little time its kernels had. */
START_TEST(one_that_did_not_rest_is_left_alone_for_a_while)
{
	struct turns_settings settings = {.quantum_ms = 10000, .rest_ms = 100};
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90);

	turns_set(t, &settings);
	waits(t, 90, 100, 0);
	for (int i = 0; i < 4; i++) {
		double now = NOW + i * 20000;

		successor(t, first, now);
		turns_ended(t, first->id, TURNS_TIMEOUT, now);
		ck_assert_double_eq(first->giving.until, now + 10000);
	}
	turns_free(t);
}
END_TEST

/* Those that have run for longer give memory first. Of the others, one that is not needed after all runs on. */
START_TEST(nobody_is_stopped_without_need)
{
	static const uint64_t gib[][4] = {{10, 60, 60, 100}, {35, 29, 60, 79}};
	struct turns *t = begin(10000);
	struct account *jobs[3];

	turns_capacity(t, 0, 138 * GIB);
	for (int i = 0; i < 3; i++) {
		jobs[i] = runs(t, gib[_i][i]);
		jobs[i]->vtime = 40000 - i * 10000;
	}
	waits(t, gib[_i][3], 100, 0);
	decide(t, NOW);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(order_of(TURNS_YIELD, jobs[i]) != NULL, i != _i);
	turns_free(t);
}
END_TEST

/* It has waited for memory by itself, and has had its turn. */
START_TEST(one_that_has_waited_alone_runs_on_where_turns_end)
{
	struct turns *t = begin(10000);
	struct account *m = runs(t, 60);

	turns_keeps(t, m->id, true);
	turns_paused(t, m->id, true, NOW);
	decide(t, NOW);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, m));
	turns_ended(t, m->id, TURNS_OK, NOW + 20);
	turns_keeps(t, m->id, false);
	turns_paused(t, m->id, false, NOW + 20);
	turns_want(t, m->id, NOW + 20);
	decide(t, NOW + 20);
	turns_ended(t, m->id, TURNS_OK, NOW + 40);
	turns_drain(t, 0, true);
	decide(t, NOW + 60);
	ck_assert_ptr_null(order_of(TURNS_YIELD, m));
	turns_free(t);
}
END_TEST

/* A process that is to stop is paused in the books, and says nothing more when it has stopped. */
START_TEST(one_that_is_paused_while_it_gives_a_part_gives_all)
{
	struct turns *t = begin(10000);
	struct account *first = runs(t, 90);
	const struct turns_order *order;

	waits(t, 50, 100, 0);
	turns_give(t, first->id, NOW);
	decide(t, NOW + 20);
	order = order_of(TURNS_YIELD, first);
	ck_assert(order && order->bytes < 90 * GIB);
	turns_paused(t, first->id, true, NOW + 30);
	ck_assert(turns_gives_all(t, first->id));
	turns_freed(t, first->id, 40 * GIB, NOW + 40);
	turns_ended(t, first->id, TURNS_OK, NOW + 50);
	ck_assert(turns_gives_all(t, first->id));
	decide(t, NOW + 60);
	order = order_of(TURNS_YIELD, first);
	ck_assert(order && order->bytes == TURNS_ALL);
	turns_freed(t, first->id, 50 * GIB, NOW + 70);
	turns_ended(t, first->id, TURNS_OK, NOW + 80);
	ck_assert(!turns_gives_all(t, first->id));
	turns_free(t);
}
END_TEST

/* On the first GPU, whatever it has on the other one. */
START_TEST(one_that_is_to_give_memory_may_use_its_room)
{
	struct turns *t = begin(10000);
	struct account *m = waits(t, 60, 100, 0);

	turns_capacity(t, 1, CAPACITY);
	turns_takes_parts(t, m->id, true);
	decide(t, NOW + 20);
	ck_assert_uint_eq(order_of(TURNS_ROOM, m)->each[0], 60 * GIB);
	turns_need(t, m->id, 1, 70 * GIB, 70 * GIB, NOW + 20);
	turns_paused(t, m->id, true, NOW + 20);
	decide(t, NOW + 40);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, m));
	ck_assert_int_eq(books_free(t, 0), 40 * GIB);
	turns_ended(t, m->id, TURNS_OK, NOW + 40);
	ck_assert_int_eq(books_free(t, 0), CAPACITY);
	turns_free(t);
}
END_TEST

/* Its GPU is drained, and its user gives its turn, while others give memory for its allocation. */
START_TEST(a_hand_over_ends_before_its_job_leaves)
{
	struct turns *t = begin(10000);
	struct account *grows = runs(t, 50), *other = runs(t, 45);

	turns_grow(t, grows->id, 1, 0, 20 * GIB, NOW);
	turns_give(t, other->id, NOW);
	decide(t, NOW);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, other));
	turns_drain(t, 0, true);
	turns_give(t, grows->id, NOW);
	decide(t, NOW);
	ck_assert_ptr_null(order_of(TURNS_YIELD, grows));
	turns_freed(t, other->id, 15 * GIB, NOW);
	turns_ended(t, other->id, TURNS_OK, NOW);
	decide(t, NOW);
	ck_assert_ptr_nonnull(order_of(TURNS_TRY, grows));
	decide(t, NOW);
	ck_assert_ptr_nonnull(order_of(TURNS_YIELD, grows));
	turns_free(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns_books");
	TCase *cases = tcase_create("turns_books");

	tcase_add_test(cases, the_one_that_had_less_is_served_first);
	tcase_add_test(cases, of_two_that_starve_the_first_is_served_first);
	tcase_add_test(cases, the_higher_class_is_served_first);
	tcase_add_test(cases, one_that_ends_is_served_first_for_a_while);
	tcase_add_test(cases, a_hand_over_that_was_stuck_is_not_measured);
	tcase_add_test(cases, a_turn_lasts_as_the_hand_overs_want);
	tcase_add_test(cases, one_that_was_idle_is_preferred_if_it_had_less);
	tcase_add_test(cases, one_on_two_gpus_gets_all_at_once);
	tcase_add_test(cases, one_that_starves_is_served_before_one_that_cannot_fit);
	tcase_add_test(cases, a_hand_over_ends_before_its_job_leaves);
	tcase_add_test(cases, a_hand_over_to_one_that_does_not_fit_any_more_ends);
	tcase_add_test(cases, idleness_is_watched_while_somebody_waits);
	tcase_add_loop_test(cases, kernels_have_no_longer_than_is_set, 0,
			    sizeof(rests) / sizeof(*rests));
	tcase_add_test(cases, those_that_run_together_share_the_time);
	tcase_add_test(cases, the_one_that_makes_room_is_named);
	tcase_add_test(cases, what_was_promised_is_kept_for_a_while);
	tcase_add_test(cases, one_that_is_aside_is_asked_for_nothing);
	tcase_add_test(cases, allocations_keep_nobody_from_his_turn);
	tcase_add_test(cases, one_whose_kernels_run_on_shares_the_time);
	tcase_add_test(cases, one_that_did_not_rest_is_left_alone_for_a_while);
	tcase_add_loop_test(cases, nobody_is_stopped_without_need, 0, 2);
	tcase_add_test(cases, one_that_has_waited_alone_runs_on_where_turns_end);
	tcase_add_test(cases, one_that_is_paused_while_it_gives_a_part_gives_all);
	tcase_add_test(cases, one_that_is_to_give_memory_may_use_its_room);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
