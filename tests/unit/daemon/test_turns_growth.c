/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that wait for others to give memory. */
#include "tests/unit/daemon/turns_world.h"
#include "tests/check_suite.h"

#include <math.h>

START_TEST(two_that_grow_at_once_both_go_on)
{
	struct world w;
	struct job *a, *b;

	world_begin(&w, QUANTUM);
	a = job_start(&w, 0, 69 * GIB, TURNS_BATCH, 1);
	b = job_start(&w, 0, 69 * GIB, TURNS_BATCH, 1);
	job_allocate(&w, a, 20 * GIB);
	job_allocate(&w, b, 20 * GIB);
	world_decide(&w);
	world_run(&w, 3 * QUANTUM);
	ck_assert_uint_eq(a->total, 89 * GIB);
	ck_assert_uint_eq(b->total, 89 * GIB);
	ck_assert_int_eq(a->refused + b->refused, 0);
	world_end(&w);
}
END_TEST

/* Hand-overs take longer than turns, so that its job is out and back before the allocation's turn. */
START_TEST(an_allocation_keeps_its_place_while_its_job_is_out)
{
	const struct turns_settings settings = {
		.quantum_ms = 100, .residence_ms = 100, .rest_ms = 16000};
	struct world w;
	struct job *grows;

	world_begin(&w, 0);
	turns_set(w.t, &settings);
	job_start(&w, 0, 110 * GIB, TURNS_BATCH, 1);
	job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	grows = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	for (uint64_t total = 70 * GIB; total <= 90 * GIB; total += 10 * GIB) {
		for (int i = 0; i < 5000 && grows->does != RUNS; i++)
			world_tick(&w);
		job_allocate(&w, grows, 10 * GIB);
		world_run(&w, 120000);
		ck_assert_uint_eq(grows->total, total);
	}
	world_end(&w);
}
END_TEST

/* It has memory on another GPU, too, which is full up to what the books keep back. */
START_TEST(growth_on_one_gpu_does_not_wait_for_another)
{
	struct job *two;
	struct world w;

	world_begin(&w, QUANTUM);
	two = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	turns_need(w.t, two->id, 1, H200 + GIB, H200 + GIB, w.now);
	job_start(&w, 0, 78 * GIB, TURNS_BATCH, 1);
	job_allocate(&w, two, 10 * GIB);
	for (double end = w.now + 60000; w.now < end && two->grow; world_tick(&w))
		;
	ck_assert_uint_eq(two->total, 70 * GIB);
	world_end(&w);
}
END_TEST

/* The serial of the next allocation that may try, within @ms; 0: none. */
static uint64_t next_try(struct world *w, double ms)
{
	struct turns_order orders[8];

	for (double end = w->now + ms; w->now < end; w->now += TICK_MS) {
		size_t n = turns_decide(w->t, w->now, orders, 8);

		for (size_t i = 0; i < n; i++)
			if (orders[i].kind == TURNS_TRY)
				return orders[i].serial;
	}
	return 0;
}

/* One of the higher class has the first GPU for good. */
START_TEST(an_allocation_does_not_wait_behind_one_on_another_gpu)
{
	uint32_t keeps, grows, ends;
	struct world w;

	world_begin(&w, QUANTUM);
	keeps = turns_join(w.t, TURNS_INTERACTIVE, 1, w.now);
	grows = turns_join(w.t, TURNS_BATCH, 1, w.now);
	ends = turns_join(w.t, TURNS_BATCH, 1, w.now);
	turns_need(w.t, keeps, 0, 120 * GIB, 120 * GIB, w.now);
	turns_need(w.t, ends, 1, 130 * GIB, 130 * GIB, w.now);
	turns_need(w.t, grows, 0, 10 * GIB, 10 * GIB, w.now);
	turns_grow(w.t, grows, 1, 0, 20 * GIB, w.now);
	turns_grow(w.t, grows, 2, 1, 20 * GIB, w.now);
	turns_grow(w.t, grows, 3, 1, 20 * GIB, w.now);
	ck_assert_uint_eq(next_try(&w, 1000), 0);
	turns_leave(w.t, ends, w.now);
	ck_assert_uint_eq(next_try(&w, 1000), 2);
	ck_assert_uint_eq(next_try(&w, 1000), 3);
	ck_assert_uint_eq(next_try(&w, 1000), 0);
	turns_leave(w.t, keeps, w.now);
	ck_assert_uint_eq(next_try(&w, 1000), 1);
	world_end(&w);
}
END_TEST

/* The runner took it unasked, and could not yet say so when the entrant was granted the same. */
START_TEST(memory_that_was_granted_twice_is_asked_for_at_once)
{
	struct job *runs, *enters, *leaves;
	struct world w;

	world_begin(&w, QUANTUM);
	enters = job_start(&w, 0, 50 * GIB, TURNS_INTERACTIVE, 1);
	enters->asleep = enters->said_idle = true;
	turns_idle(w.t, enters->id, true, w.now);
	runs = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	leaves = job_start(&w, 0, 50 * GIB, TURNS_BATCH, 1);
	ck_assert_int_eq(enters->does, OUT);
	world_run(&w, 5000);
	w.exact = false;
	job_stop(&w, leaves);
	runs->mapped += 40 * GIB;
	runs->total += 40 * GIB;
	enters->asleep = false;
	job_want(&w, enters);
	world_decide(&w);
	ck_assert_int_eq(enters->does, GETS);
	enters->silent = true; /* it waits for memory, and so has no news */
	ck_assert_int_eq(runs->stopped, 0);
	job_tell_need(&w, runs);
	world_run(&w, 1000);
	ck_assert_int_eq(runs->stopped, 1);
	world_end(&w);
}
END_TEST

/* Of the 9 GiB that others have, some may be of a member that has yet to join. */
START_TEST(growth_waits_for_what_may_come)
{
	struct world w;
	struct job *j;

	for (int joins = 0; joins < 2; joins++) {
		world_begin(&w, QUANTUM);
		turns_most(w.t, 0, H200 + 9 * GIB);
		j = job_start(&w, 0, 130 * GIB, TURNS_BATCH, 1);
		job_allocate(&w, j, 9 * GIB);
		world_run(&w, 60000);
		ck_assert_int_eq(j->refused, 0);
		if (joins)
			w.capacity[0] += 9 * GIB;
		turns_capacity(w.t, 0, w.capacity[0]);
		turns_most(w.t, 0, w.capacity[0]);
		world_run(&w, 200);
		ck_assert_int_eq(j->refused, !joins);
		ck_assert_uint_eq(j->total, (joins ? 139 : 130) * GIB);
		world_end(&w);
	}
}
END_TEST

START_TEST(what_no_turn_can_give_is_refused)
{
	struct world w;
	struct job *j;

	world_begin(&w, QUANTUM);
	j = job_start(&w, 0, 130 * GIB, TURNS_BATCH, 1);
	job_allocate(&w, j, 9 * GIB);
	world_decide(&w);
	ck_assert_int_eq(j->refused, 1);
	job_allocate(&w, j, 8 * GIB);
	ck_assert_uint_eq(j->total, 138 * GIB);
	world_end(&w);
}
END_TEST

/* Of what memory moves now it may yet be known how much there is. */
START_TEST(where_nobody_takes_turns_it_fails)
{
	struct world w;
	struct job *j;

	world_begin(&w, QUANTUM);
	w.capacity[0] = TURNS_NO_LIMIT;
	turns_capacity(w.t, 0, TURNS_NO_LIMIT);
	j = job_start(&w, 0, 10 * GIB, TURNS_BATCH, 1);
	j->grow = GIB;
	turns_most(w.t, 0, TURNS_NO_LIMIT);
	turns_grow(w.t, j->id, ++w.serial, 0, j->grow, w.now);
	world_decide(&w);
	ck_assert_uint_eq(j->total, 11 * GIB);
	j->grow = GIB;
	turns_most(w.t, 0, 0);
	turns_grow(w.t, j->id, ++w.serial, 0, j->grow, w.now);
	world_decide(&w);
	ck_assert_int_eq(j->refused, 1);
	world_end(&w);
}
END_TEST

/* Its kernels wait for it. */
START_TEST(an_allocation_of_one_that_could_not_give_is_served)
{
	struct world w;
	struct job *stubborn, *other;

	world_begin(&w, QUANTUM);
	stubborn = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	other = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	for (int i = 0; i < 5000 && (stubborn->does != RUNS || other->does != OUT); i++)
		world_tick(&w);
	stubborn->lingers_ms = INFINITY;
	for (int i = 0; i < 5000 && stubborn->does != DRAINS; i++)
		world_tick(&w);
	ck_assert_int_eq(stubborn->does, DRAINS);
	stubborn->grow = 20 * GIB;
	turns_grow(w.t, stubborn->id, ++w.serial, 0, stubborn->grow, w.now);
	world_run(&w, 4000);
	ck_assert_uint_eq(stubborn->total, 100 * GIB);
	stubborn->lingers_ms = 0;
	world_run(&w, 20000);
	ck_assert_double_ge(other->served_ms, 5000);
	world_end(&w);
}
END_TEST

/* An allocation of @j waits, and it cannot give memory meanwhile. */
static void allocate_pinned(struct world *w, struct job *j, uint64_t bytes)
{
	j->pinned = true;
	job_allocate(w, j, bytes);
	ck_assert(j->grow);
	turns_pinned(w->t, j->id, w->serial, w->now);
	world_decide(w);
}

START_TEST(of_two_that_cannot_give_way_one_is_refused)
{
	struct job *first, *second;
	struct world w;

	world_begin(&w, QUANTUM);
	first = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	second = job_start(&w, 0, 60 * GIB, TURNS_INTERACTIVE, 1);
	allocate_pinned(&w, first, 30 * GIB);
	world_run(&w, 100);
	allocate_pinned(&w, second, 30 * GIB);
	ck_assert_int_eq(first->refused, 0);
	ck_assert_int_eq(second->refused, 1);
	/* It waits now as others do, and is stopped though it is of the higher class. */
	second->pinned = false;
	job_allocate(&w, second, 30 * GIB);
	world_run(&w, 5000);
	ck_assert_uint_eq(first->total, 90 * GIB);
	world_end(&w);
}
END_TEST

/* The member that gets an order of this kind now; 0: none. */
static uint32_t ordered(struct turns *t, enum turns_order_kind kind, double now)
{
	struct turns_order orders[8];
	size_t n = turns_decide(t, now, orders, 8);

	for (size_t i = 0; i < n; i++)
		if (orders[i].kind == kind)
			return orders[i].id;
	return 0;
}

/* Its allocation was told to try again, and waits with its process: there is nothing to give. */
START_TEST(one_that_is_out_is_not_asked_for_what_it_was_promised)
{
	const struct turns_settings settings = {.quantum_ms = QUANTUM, .rest_ms = 16000};
	struct turns *t = turns_new(&settings);
	uint32_t batch, other;

	turns_capacity(t, 0, 100 * GIB);
	batch = turns_join(t, TURNS_BATCH, 1, 1000);
	turns_grow(t, batch, 1, 0, 30 * GIB, 1000);
	ck_assert_uint_eq(ordered(t, TURNS_TRY, 1000), batch);
	other = turns_join(t, TURNS_INTERACTIVE, 1, 1010);
	turns_need(t, other, 0, 40 * GIB, 40 * GIB, 1010);
	turns_grow(t, other, 2, 0, 60 * GIB, 1010);
	ck_assert_uint_eq(ordered(t, TURNS_YIELD, 1010), batch);
	turns_ended(t, batch, TURNS_OK, 1020);
	ck_assert_uint_eq(ordered(t, TURNS_TRY, 1020), other);
	turns_free(t);
}
END_TEST

/* It may be host memory that is short. Others have theirs, and each try is answered at once. */
START_TEST(an_allocation_that_memory_does_not_help_stops_nobody)
{
	struct turns_order orders[8];
	struct turns_view view;
	uint32_t other, grows;
	struct world w;

	world_begin(&w, QUANTUM);
	other = turns_join(w.t, TURNS_BATCH, 1, w.now);
	grows = turns_join(w.t, TURNS_BATCH, 1, w.now);
	turns_need(w.t, other, 0, 60 * GIB, 60 * GIB, w.now);
	turns_need(w.t, grows, 0, 20 * GIB, 20 * GIB, w.now);
	for (uint64_t serial = 1; serial < 100; serial++) {
		turns_grow(w.t, grows, serial, 0, 40 * GIB, w.now);
		ck_assert_uint_eq(turns_decide(w.t, w.now, orders, 8), 1);
		ck_assert_int_eq(orders[0].kind, TURNS_TRY);
		ck_assert_uint_eq(orders[0].serial, serial);
		w.now += 250;
	}
	turns_look(w.t, other, w.now, &view);
	ck_assert_str_eq(view.state, "runs");
	world_end(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns_growth");
	TCase *cases = tcase_create("turns_growth");

	tcase_add_test(cases, two_that_grow_at_once_both_go_on);
	tcase_add_test(cases, an_allocation_keeps_its_place_while_its_job_is_out);
	tcase_add_test(cases, growth_on_one_gpu_does_not_wait_for_another);
	tcase_add_test(cases, an_allocation_does_not_wait_behind_one_on_another_gpu);
	tcase_add_test(cases, memory_that_was_granted_twice_is_asked_for_at_once);
	tcase_add_test(cases, growth_waits_for_what_may_come);
	tcase_add_test(cases, where_nobody_takes_turns_it_fails);
	tcase_add_test(cases, what_no_turn_can_give_is_refused);
	tcase_add_test(cases, an_allocation_of_one_that_could_not_give_is_served);
	tcase_add_test(cases, of_two_that_cannot_give_way_one_is_refused);
	tcase_add_test(cases, one_that_is_out_is_not_asked_for_what_it_was_promised);
	tcase_add_test(cases, an_allocation_that_memory_does_not_help_stops_nobody);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
