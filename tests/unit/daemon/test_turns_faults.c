/* SPDX-License-Identifier: Apache-2.0 */
/* Turns in which something fails, ends, or is paused. */
#include "tests/unit/daemon/turns_world.h"
#include "tests/check_suite.h"

#include <math.h>
#include <stdlib.h>

START_TEST(kernels_that_do_not_end_are_left_alone_for_a_while)
{
	struct world w;
	struct job *stubborn, *other;

	world_begin(&w, QUANTUM);
	stubborn = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	other = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	stubborn->lingers_ms = INFINITY;
	job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	world_run(&w, 120000);
	ck_assert_int_le(stubborn->stopped, 6);
	ck_assert_int_ge(stubborn->stopped, 2);
	/* The other two take turns beside it. */
	ck_assert_int_ge(other->stopped, 3);
	ck_assert_double_ge(w.jobs[2].served_ms, 20000);
	world_end(&w);
}
END_TEST

/* Its kernels end, but they take longer than a member is given at first. */
START_TEST(long_kernels_are_waited_for)
{
	struct world w;
	struct job *slow, *other;

	world_begin(&w, QUANTUM);
	slow = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	slow->lingers_ms = 9000;
	other = job_start(&w, 0, 30 * GIB, TURNS_BATCH, 1);
	job_allocate(&w, other, 50 * GIB);
	world_run(&w, 120000);
	ck_assert_uint_eq(other->total, 80 * GIB);
	world_run(&w, 120000);
	ck_assert_double_ge(slow->served_ms, 60000);
	ck_assert_double_ge(other->served_ms, 60000);
	/* How long they take is known from then on. */
	ck_assert_int_ge(other->stopped, 3);
	world_end(&w);
}
END_TEST

START_TEST(a_copy_that_fails_loses_no_turn_for_good)
{
	struct world w;

	world_begin(&w, QUANTUM);
	job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	w.jobs[0].breaks = true;
	world_run(&w, 200000);
	ck_assert_double_ge(w.jobs[0].served_ms, 20000);
	ck_assert_double_ge(w.jobs[1].served_ms, 20000);
	world_end(&w);
}
END_TEST

/* The other one cannot run, and does not keep it from running: it is asked again ever later. */
START_TEST(one_whose_copies_always_fail_runs)
{
	struct world w;

	world_begin(&w, QUANTUM);
	for (int i = 0; i < 2; i++)
		job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	w.jobs[0].keeps = 70 * GIB;
	world_run(&w, 30 * QUANTUM);
	ck_assert_double_ge(w.jobs[0].served_ms, 200000);
	ck_assert_int_ge(w.jobs[0].stopped, 4);
	ck_assert_int_le(w.jobs[0].stopped, 10);
	world_end(&w);
}
END_TEST

START_TEST(one_that_ends_in_a_hand_over_leaves_its_memory)
{
	for (int who = 0; who < 2; who++) {
		struct world w;
		int ticks = 0;

		world_begin(&w, QUANTUM);
		job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
		job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
		while (w.jobs[0].does != GIVES || w.jobs[1].does != GETS) {
			world_tick(&w);
			ck_assert_int_lt(ticks++, 10000);
		}
		job_stop(&w, &w.jobs[who]);
		world_run(&w, 3000);
		ck_assert_int_eq(w.jobs[1 - who].does, RUNS);
		world_end(&w);
	}
}
END_TEST

START_TEST(one_that_is_stopped_delays_others_for_a_moment)
{
	struct world w;

	world_begin(&w, QUANTUM);
	for (int i = 0; i < 3; i++)
		job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	world_run(&w, 30000);
	w.jobs[0].silent = true;
	world_run(&w, 30000);
	world_measure(&w, 3, 100000, (double[3]){0});
	ck_assert_double_ge(w.jobs[1].served_ms, 40000);
	ck_assert_double_ge(w.jobs[2].served_ms, 40000);
	w.jobs[0].silent = false;
	world_run(&w, 60000);
	ck_assert(w.jobs[0].does == RUNS || w.jobs[1].does == RUNS);
	world_end(&w);
}
END_TEST

START_TEST(its_user_pauses_it)
{
	struct world w;
	struct job *a, *b;

	world_begin(&w, QUANTUM);
	a = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	b = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	for (int i = 0; i < SCHEDULES; i++) {
		world_run(&w, rand() % 3000);
		a->mapped = a->room = 0;
		a->paused = true;
		a->said_want = false;
		if (a->does == GETS)
			a->does = OUT;
		job_tell_need(&w, a);
		turns_mapped(w.t, a->id, 0, w.now);
		turns_paused(w.t, a->id, true, w.now);
		turns_check(w.t);
		world_run(&w, 3000);
		ck_assert_uint_eq(a->mapped, 0);
		ck_assert_int_eq(a->does, OUT);
		ck_assert_int_eq(b->does, RUNS);
		a->paused = false;
		turns_paused(w.t, a->id, false, w.now);
		job_want(&w, a);
	}
	world_run(&w, 3 * QUANTUM);
	ck_assert_int_gt(a->stopped, 0);
	world_end(&w);
}
END_TEST

/* Its first allocation waits, so that it has nothing to take back when its turn comes. */
START_TEST(one_that_has_nothing_is_paused)
{
	struct world w;
	struct job *j;

	world_begin(&w, QUANTUM);
	job_start(&w, 0, 138 * GIB, TURNS_BATCH, 1);
	j = job_start(&w, 0, 0, TURNS_BATCH, 1);
	job_allocate(&w, j, 40 * GIB);
	for (int paused = 1; paused >= 0; paused--) {
		j->paused = paused;
		turns_paused(w.t, j->id, paused, w.now);
		world_run(&w, 1000);
		ck_assert_int_eq(j->does, OUT);
		job_want(&w, j);
	}
	world_run(&w, 2 * QUANTUM);
	ck_assert_uint_eq(j->total, 40 * GIB);
	world_end(&w);
}
END_TEST

/* It has just shown that it cannot give memory, and is not asked again so soon. */
START_TEST(its_user_pauses_it_for_a_moment)
{
	struct turns_view view;
	struct job *a, *b;
	struct world w;

	world_begin(&w, QUANTUM);
	a = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	b = job_start(&w, 0, 50 * GIB, TURNS_BATCH, 1);
	a->lingers_ms = INFINITY;
	job_allocate(&w, b, 20 * GIB);
	world_run(&w, QUANTUM + 5000);
	ck_assert_int_eq(a->stopped, 1);
	job_allocate(&w, a, 30 * GIB);
	for (int paused = 1; paused >= 0; paused--) {
		turns_paused(w.t, a->id, paused, w.now);
		world_decide(&w);
	}
	ck_assert(turns_look(w.t, a->id, w.now + 10, &view));
	ck_assert_double_gt(view.wait_ms, 0);
	job_stop(&w, b);
	world_run(&w, 15000);
	ck_assert_uint_eq(a->total, 110 * GIB);
	/* There is nothing left to be done. */
	ck_assert_double_lt(turns_next(w.t, w.now), 0);
	world_end(&w);
}
END_TEST

/* A job took more, before there was another one, than the books have to give. */
START_TEST(what_the_books_keep_back_keeps_nobody_out)
{
	struct world w;

	world_begin(&w, QUANTUM);
	job_start(&w, 0, 130 * GIB, TURNS_BATCH, 1);
	turns_capacity(w.t, 0, 125 * GIB);
	job_start(&w, 0, 20 * GIB, TURNS_BATCH, 1);
	world_run(&w, 60000);
	ck_assert_int_ge(w.jobs[0].stopped, 2);
	ck_assert_int_ge(w.jobs[1].stopped, 2);
	while (w.jobs[1].does != RUNS)
		world_tick(&w);
	job_stop(&w, &w.jobs[1]);
	world_run(&w, 5000);
	ck_assert_int_eq(w.jobs[0].does, RUNS);
	world_end(&w);
}
END_TEST

static void until_it_runs(struct world *w, struct job *j)
{
	for (int i = 0; i < 500 && j->does != RUNS; i++)
		world_tick(w);
	ck_assert_int_eq(j->does, RUNS);
}

START_TEST(one_that_a_signal_ends_is_served_before_all_others)
{
	struct job *ends, *other;
	struct world w;
	int stopped;

	world_begin(&w, QUANTUM);
	ends = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	other = job_start(&w, 0, 80 * GIB, TURNS_INTERACTIVE, 1);
	world_run(&w, 2000);
	ck_assert_int_eq(ends->does, OUT);
	turns_ends(w.t, ends->id, w.now);
	until_it_runs(&w, ends);
	ck_assert_int_eq(other->does, OUT);
	stopped = ends->stopped;
	world_run(&w, QUANTUM - 100);
	ck_assert_int_eq(ends->stopped, stopped);
	/* It has gone on. */
	world_run(&w, 2000);
	ck_assert_int_eq(other->does, RUNS);
	world_end(&w);
}
END_TEST

START_TEST(one_that_a_signal_ends_keeps_nobody_out_for_good)
{
	for (int pauses = 0; pauses < 2; pauses++) {
		struct job *ends, *other;
		struct world w;

		world_begin(&w, QUANTUM);
		ends = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
		other = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
		world_run(&w, 2000);
		ck_assert_int_eq(ends->does, OUT);
		ends->fills_failed = pauses ? -1 : 0;
		turns_ends(w.t, ends->id, w.now);
		/* It cannot take its memory, or its user pauses it before it has. */
		world_run(&w, pauses ? 100 : 1000);
		ck_assert_int_ne(ends->does, RUNS);
		if (pauses)
			turns_paused(w.t, ends->id, true, w.now);
		ends->paused = pauses;
		world_run(&w, 20000);
		ck_assert_int_eq(other->does, RUNS);
		world_end(&w);
	}
}
END_TEST

/* As while memory of a member that has left counts as that of others. */
START_TEST(one_that_a_signal_ends_gets_all_if_the_books_have_less)
{
	struct job *ends;
	struct world w;

	world_begin(&w, QUANTUM);
	ends = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	job_start(&w, 0, 80 * GIB, TURNS_INTERACTIVE, 1);
	world_run(&w, 2000);
	ck_assert_int_eq(ends->does, OUT);
	w.exact = false;
	turns_capacity(w.t, 0, 60 * GIB);
	turns_ends(w.t, ends->id, w.now);
	until_it_runs(&w, ends);
	world_end(&w);
}
END_TEST

START_TEST(one_that_cannot_take_its_memory_back_is_not_asked_all_the_time)
{
	struct world w;

	world_begin(&w, QUANTUM);
	job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	while (w.jobs[0].does != GETS)
		world_tick(&w);
	w.jobs[0].fills_failed = 0;
	world_run(&w, 60000);
	ck_assert_int_ge(w.jobs[0].fills_failed, 3);
	ck_assert_int_le(w.jobs[0].fills_failed, 8);
	ck_assert_double_ge(w.jobs[1].served_ms, 20000);
	w.jobs[0].fills_failed = -1;
	world_run(&w, 60000);
	ck_assert_int_eq(w.jobs[0].does == RUNS || w.jobs[1].does == RUNS, 1);
	world_end(&w);
}
END_TEST

START_TEST(one_that_failed_to_give_gets_its_turn_when_another_ends)
{
	struct job *fails, *ends;
	struct world w;

	world_begin(&w, QUANTUM);
	fails = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	fails->breaks = true;
	ends = job_start(&w, 0, 50 * GIB, TURNS_BATCH, 1);
	job_allocate(&w, ends, 50 * GIB);
	for (int i = 0; i < 5000 && fails->does != OUT; i++)
		world_tick(&w);
	ck_assert_int_eq(fails->does, OUT);
	job_stop(&w, ends);
	world_run(&w, 2000);
	ck_assert_int_eq(fails->does, RUNS);
	world_end(&w);
}
END_TEST

/* Another process has the memory for ten minutes, and then goes. */
START_TEST(a_hand_over_that_got_stuck_lengthens_no_turn)
{
	struct job *stuck, *next;
	struct world w;

	world_begin(&w, 0);
	stuck = job_start(&w, 0, 100 * GIB, TURNS_BATCH, 1);
	next = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	for (int i = 0; i < 5000 && stuck->does != GETS; i++)
		world_tick(&w);
	job_stop(&w, next);
	w.exact = false;
	w.capacity[0] = 50 * GIB;
	turns_capacity(w.t, 0, w.capacity[0]);
	world_run(&w, 600000);
	ck_assert_int_ne(stuck->does, RUNS);
	w.capacity[0] = H200;
	turns_capacity(w.t, 0, w.capacity[0]);
	world_run(&w, 10000);
	ck_assert_int_eq(stuck->does, RUNS);
	next = job_start(&w, 0, 30 * GIB, TURNS_BATCH, 1);
	job_allocate(&w, next, 30 * GIB);
	world_run(&w, 30000);
	ck_assert_uint_eq(next->total, 60 * GIB);
	world_end(&w);
}
END_TEST

/* A process that is no member has come: nobody is stopped for what cannot fit beside it. */
START_TEST(one_that_cannot_fit_waits_aside)
{
	struct job *unfit, *runs, *waits;
	struct turns_view view;
	struct world w;

	world_begin(&w, QUANTUM);
	unfit = job_start(&w, 0, 110 * GIB, TURNS_BATCH, 1);
	runs = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	while (unfit->does != OUT)
		world_tick(&w);
	w.exact = false;
	w.capacity[0] = 90 * GIB;
	turns_capacity(w.t, 0, w.capacity[0]);
	turns_there(w.t, 0, 100 * GIB);
	world_run(&w, 1000);
	runs->stopped = 0;
	world_run(&w, 60000);
	ck_assert_int_eq(unfit->does, OUT);
	ck_assert_int_eq(runs->stopped, 0);
	ck_assert(turns_look(w.t, unfit->id, w.now, &view));
	ck_assert_int_eq(view.unfit_on, 0);
	ck_assert_uint_eq(view.needs, 110 * GIB);
	ck_assert_uint_eq(view.there, 100 * GIB);
	/* Those who fit take turns as ever. */
	waits = job_start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	world_run(&w, 60000);
	ck_assert_int_gt(runs->stopped, 0);
	ck_assert_int_gt(waits->stopped, 0);
	/* The process has gone. */
	w.capacity[0] = H200;
	turns_capacity(w.t, 0, w.capacity[0]);
	turns_there(w.t, 0, H200);
	until_it_runs(&w, unfit);
	ck_assert(turns_look(w.t, unfit->id, w.now, &view));
	ck_assert_int_eq(view.unfit_on, -1);
	world_end(&w);
}
END_TEST

/* Of one that queues many, at the end of each of its turns. */
START_TEST(the_time_of_kernels_that_run_on_counts)
{
	struct job *queues, *other;
	struct world w;
	double ratio;

	world_begin(&w, QUANTUM);
	queues = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	other = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	queues->lingers_ms = 1900;
	other->lingers_ms = 1;
	world_run(&w, 600000);
	ratio = (queues->served_ms + queues->drained_ms) / (other->served_ms + other->drained_ms);
	ck_assert_double_ge(ratio, 0.97);
	ck_assert_double_le(ratio, 1.03);
	world_end(&w);
}
END_TEST

/* The administrator's limit for that. */
START_TEST(kernels_have_no_longer_than_is_set)
{
	struct turns_settings settings = {.quantum_ms = 4000, .rest_ms = 3000};
	struct job *queues;
	struct world w;

	world_begin(&w, 4000);
	queues = job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	job_start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	turns_set(w.t, &settings);
	queues->lingers_ms = 3500;
	world_run(&w, 120000);
	ck_assert_int_eq(queues->does == RUNS || queues->does == DRAINS, 1);
	settings.rest_ms = 16000;
	turns_set(w.t, &settings);
	world_run(&w, 120000);
	ck_assert_double_ge(w.jobs[1].served_ms, 10000);
	world_end(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns_faults");
	TCase *cases = tcase_create("turns_faults");

	tcase_add_test(cases, kernels_that_do_not_end_are_left_alone_for_a_while);
	tcase_add_test(cases, long_kernels_are_waited_for);
	tcase_add_test(cases, a_copy_that_fails_loses_no_turn_for_good);
	tcase_add_test(cases, one_whose_copies_always_fail_runs);
	tcase_add_test(cases, one_that_ends_in_a_hand_over_leaves_its_memory);
	tcase_add_test(cases, one_that_is_stopped_delays_others_for_a_moment);
	tcase_add_test(cases, its_user_pauses_it);
	tcase_add_test(cases, one_that_has_nothing_is_paused);
	tcase_add_test(cases, its_user_pauses_it_for_a_moment);
	tcase_add_test(cases, what_the_books_keep_back_keeps_nobody_out);
	tcase_add_test(cases, one_that_a_signal_ends_is_served_before_all_others);
	tcase_add_test(cases, one_that_a_signal_ends_keeps_nobody_out_for_good);
	tcase_add_test(cases, one_that_a_signal_ends_gets_all_if_the_books_have_less);
	tcase_add_test(cases, one_that_cannot_take_its_memory_back_is_not_asked_all_the_time);
	tcase_add_test(cases, one_that_failed_to_give_gets_its_turn_when_another_ends);
	tcase_add_test(cases, a_hand_over_that_got_stuck_lengthens_no_turn);
	tcase_add_test(cases, one_that_cannot_fit_waits_aside);
	tcase_add_test(cases, the_time_of_kernels_that_run_on_counts);
	tcase_add_test(cases, kernels_have_no_longer_than_is_set);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
