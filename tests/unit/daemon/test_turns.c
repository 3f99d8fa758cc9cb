/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books and the policy of turns, with jobs and GPUs that are simulated: each order is carried out
 * as a job does, at the rate of a bus, and after each event what turns.h promises is checked.
 */
#include "tools/daemon/turns.h"
#include "tests/check_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB       (UINT64_C(1) << 30)
#define H200      (138 * GIB)
#define TICK_MS   20.0
#define TICK_SIZE (GIB) /* moved in a tick: 51 GB/s */
#define JOBS      16
#define QUANTUM   10000.0

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCHEDULES 100
#else
#define SCHEDULES 1000
#endif

enum does {
	RUNS,
	DRAINS,
	GIVES,
	OUT,
	GETS,
};

struct job {
	uint32_t id; /* 0: not there */
	enum does does;
	int gpu;
	enum turns_class class;
	uint64_t mapped, total, room;
	uint64_t gives, freed; /* of the yield under way */
	double drained_at;     /* its kernels end then */
	bool lingers;          /* they do not end in time */
	bool breaks;           /* its copy fails half way */
	int fills_failed;      /* of a job that cannot take its memory back; -1: it can */
	bool silent;           /* it is stopped, and does nothing */
	bool paused;
	bool asleep; /* it makes no calls */
	bool said_idle, said_want;
	double work_until, sleep_ms, work_ms; /* of an interactive job; 0: it always works */
	uint64_t grow;                        /* bytes that an allocation waits for */
	int refused;                          /* allocations that failed */
	double served_ms;                     /* that it ran and worked */
	double wants_since, longest_wait;
	int stopped; /* yields while it ran and worked */
};

struct world {
	struct turns *t;
	struct job jobs[JOBS];
	uint64_t capacity[2];
	double now;
	uint64_t serial;
	bool exact; /* nobody takes memory beside the books */
};

static uint64_t mapped_on(const struct world *w, int gpu)
{
	uint64_t sum = 0;

	for (const struct job *j = w->jobs; j < w->jobs + JOBS; j++)
		if (j->id && j->gpu == gpu)
			sum += j->mapped;
	return sum;
}

static uint64_t free_on(const struct world *w, int gpu)
{
	uint64_t mapped = mapped_on(w, gpu);

	return mapped < w->capacity[gpu] ? w->capacity[gpu] - mapped : 0;
}

static bool waits(const struct job *j)
{
	return j->id && !j->paused && !j->silent && (j->grow || (j->does != RUNS && j->said_want));
}

static bool somebody_waits_but(const struct world *w, const struct job *but)
{
	for (const struct job *j = w->jobs; j < w->jobs + JOBS; j++)
		if (j != but && j->id && j->gpu == but->gpu && (j->grow || j->said_want))
			return true;
	return false;
}

static void tell_need(struct world *w, struct job *j)
{
	turns_need(w->t, j->id, j->gpu, j->mapped, j->total, w->now);
}

static void carry_out(struct world *w, const struct turns_order *o)
{
	struct job *j = w->jobs;

	while (j < w->jobs + JOBS && j->id != o->id)
		j++;
	ck_assert(j < w->jobs + JOBS);
	switch (o->kind) {
	case TURNS_YIELD:
		ck_assert_int_ne(j->does, DRAINS);
		ck_assert_int_ne(j->does, GIVES);
		if (j->does == RUNS && !j->paused && !j->said_idle) {
			ck_assert_msg(somebody_waits_but(w, j), "stopped while nobody waits");
			j->stopped++;
		}
		j->drained_at = w->now + (j->does == RUNS && !j->paused ? rand() % 150 : 0);
		j->gives = o->bytes;
		j->freed = j->room = 0;
		j->does = j->does == RUNS && !j->paused ? DRAINS : GIVES;
		break;
	case TURNS_ROOM:
		ck_assert(!j->paused);
		ck_assert(j->does == OUT || j->does == GETS);
		ck_assert_uint_ge(o->bytes, j->room);
		j->room = o->bytes;
		j->does = GETS;
		break;
	case TURNS_TRY:
		if (free_on(w, j->gpu) >= j->grow) {
			j->mapped += j->grow;
			j->total += j->grow;
			j->grow = 0;
			tell_need(w, j);
		} else {
			ck_assert_msg(!w->exact, "no memory for an allocation that may try");
			turns_grow(w->t, j->id, ++w->serial, j->gpu, j->grow, w->now);
		}
		break;
	case TURNS_NO:
		j->grow = 0;
		j->refused++;
		break;
	case TURNS_WATCH:
		break;
	}
}

static void decide(struct world *w)
{
	struct turns_order orders[8];
	size_t n;

	for (int rounds = 0; (n = turns_decide(w->t, w->now, orders, 8)); rounds++) {
		ck_assert_int_lt(rounds, 1000);
		for (size_t i = 0; i < n; i++)
			carry_out(w, &orders[i]);
		turns_check(w->t);
	}
	turns_check(w->t);
}

static void want(struct world *w, struct job *j)
{
	if (j->said_want || j->paused || j->asleep || j->does != OUT)
		return;
	j->said_want = true;
	j->wants_since = w->now;
	turns_want(w->t, j->id, w->now);
}

static void give(struct world *w, struct job *j)
{
	uint64_t part = j->gives - j->freed < TICK_SIZE ? j->gives - j->freed : TICK_SIZE;
	enum turns_end end = TURNS_OK;

	if (part > j->mapped)
		part = j->mapped;
	j->mapped -= part;
	j->freed += part;
	turns_freed(w->t, j->id, j->freed, w->now);
	if (j->breaks && j->freed > j->gives / 2 && j->mapped)
		end = TURNS_FAILED;
	else if (j->mapped && j->freed < j->gives)
		return;
	j->does = OUT;
	tell_need(w, j);
	turns_mapped(w->t, j->id, j->mapped, w->now);
	turns_ended(w->t, j->id, end, w->now);
	want(w, j);
}

static void get(struct world *w, struct job *j)
{
	uint64_t room = j->room < j->total ? j->room : j->total, part = free_on(w, j->gpu);

	if (j->fills_failed >= 0) {
		j->fills_failed++;
		j->does = OUT;
		turns_ended(w->t, j->id, TURNS_FAILED, w->now);
		return;
	}
	if (room > j->mapped + TICK_SIZE)
		room = j->mapped + TICK_SIZE;
	if (room > j->mapped + part) {
		ck_assert_msg(!w->exact, "more room than is free");
		room = j->mapped + part;
	}
	if (room > j->mapped) {
		j->mapped = room;
		turns_mapped(w->t, j->id, j->mapped, w->now);
	}
	if (j->mapped < j->total)
		return;
	j->does = RUNS;
	j->said_want = j->said_idle = false;
	if (w->now - j->wants_since > j->longest_wait)
		j->longest_wait = w->now - j->wants_since;
	j->work_until = w->now + j->work_ms;
	tell_need(w, j);
	turns_ended(w->t, j->id, TURNS_OK, w->now);
}

static void run_on(struct world *w, struct job *j)
{
	if (!j->sleep_ms)
		return;
	if (!j->asleep && w->now >= j->work_until) {
		j->asleep = true;
		j->work_until = w->now + j->sleep_ms;
	} else if (j->asleep && w->now >= j->work_until) {
		j->asleep = false;
		j->work_until = w->now + j->work_ms;
		if (j->does == RUNS && j->said_idle) {
			j->said_idle = false;
			turns_idle(w->t, j->id, false, w->now);
		}
		want(w, j);
	}
	if (j->asleep && j->does == RUNS && !j->said_idle &&
	    w->now > j->work_until - j->sleep_ms + 500) {
		j->said_idle = true;
		turns_idle(w->t, j->id, true, w->now);
	}
}

static void tick_job(struct world *w, struct job *j)
{
	if (!j->id || j->silent)
		return;
	run_on(w, j);
	switch (j->does) {
	case RUNS:
		if (!j->asleep && !j->paused && !j->grow)
			j->served_ms += TICK_MS;
		break;
	case DRAINS:
		if (j->lingers && w->now >= j->drained_at + 2000) {
			j->does = RUNS;
			turns_ended(w->t, j->id, TURNS_TIMEOUT, w->now);
		} else if (!j->lingers && w->now >= j->drained_at) {
			j->does = GIVES;
		}
		break;
	case GIVES:
		give(w, j);
		break;
	case GETS:
		get(w, j);
		break;
	case OUT:
		break;
	}
}

static void tick(struct world *w)
{
	w->now += TICK_MS;
	for (struct job *j = w->jobs; j < w->jobs + JOBS; j++) {
		tick_job(w, j);
		turns_check(w->t);
	}
	decide(w);
	for (int g = 0; g < 2 && w->exact; g++)
		ck_assert_uint_le(mapped_on(w, g), w->capacity[g]);
}

static void run_for(struct world *w, double ms)
{
	for (double end = w->now + ms; w->now < end;)
		tick(w);
}

static void begin(struct world *w, double quantum)
{
	const struct turns_settings settings = {.quantum_ms = quantum};

	*w = (struct world){.capacity = {H200, H200}, .now = 1000, .exact = true};
	w->t = turns_new(&settings);
	ck_assert_ptr_nonnull(w->t);
	for (int g = 0; g < 2; g++)
		turns_capacity(w->t, g, w->capacity[g]);
}

static void end(struct world *w)
{
	turns_free(w->t);
}

/* An allocation of @j: at once if the GPU has the memory, else it waits. */
static void allocate(struct world *w, struct job *j, uint64_t bytes)
{
	if (j->grow || j->does != RUNS || j->paused)
		return;
	if (free_on(w, j->gpu) >= bytes) {
		j->mapped += bytes;
		j->total += bytes;
		tell_need(w, j);
		return;
	}
	j->grow = bytes;
	if (j->said_idle)
		j->asleep = j->said_idle = false;
	turns_grow(w->t, j->id, ++w->serial, j->gpu, bytes, w->now);
}

/* It starts with nothing, and allocates all of its memory by GiB. */
static struct job *start(struct world *w, int gpu, uint64_t total, enum turns_class class,
			 int weight)
{
	struct job *j = w->jobs;

	while (j->id)
		j++;
	*j = (struct job){.gpu = gpu, .does = RUNS, .fills_failed = -1};
	j->id = turns_join(w->t, class, weight, w->now);
	ck_assert_uint_ne(j->id, 0);
	tell_need(w, j);
	for (int i = 0; i < 100000 && j->total < total && !j->refused; i++) {
		if (j->does == RUNS && !j->grow)
			allocate(w, j, total - j->total < GIB ? total - j->total : GIB);
		if (j->grow || j->does != RUNS)
			tick(w);
	}
	return j;
}

static void stop(struct world *w, struct job *j)
{
	turns_leave(w->t, j->id, w->now);
	*j = (struct job){.id = 0};
	decide(w);
}

/* What each of the first @n jobs ran from now on, in @ms. */
static void measure(struct world *w, int n, double ms, double *served)
{
	for (int i = 0; i < n; i++)
		served[i] = w->jobs[i].served_ms;
	run_for(w, ms);
	for (int i = 0; i < n; i++)
		served[i] = w->jobs[i].served_ms - served[i];
}

static double jain(const double *x, int n)
{
	double sum = 0, squares = 0;

	for (int i = 0; i < n; i++) {
		sum += x[i];
		squares += x[i] * x[i];
	}
	return sum * sum / (n * squares);
}

START_TEST(those_that_fit_together_are_left_alone)
{
	struct world w;

	begin(&w, 0);
	start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 60 * GIB, TURNS_INTERACTIVE, 1);
	run_for(&w, 300000);
	ck_assert_int_eq(w.jobs[0].stopped + w.jobs[1].stopped, 0);
	end(&w);
}
END_TEST

START_TEST(two_that_do_not_fit_take_turns)
{
	double served[2];
	struct world w;

	begin(&w, QUANTUM);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	measure(&w, 2, 300000, served);
	ck_assert_double_ge(jain(served, 2), 0.99);
	ck_assert_double_ge(served[0] + served[1], 0.90 * 300000);
	/* Not more often than the quantum says. */
	ck_assert_int_le(w.jobs[0].stopped, 17);
	ck_assert_int_ge(w.jobs[0].stopped, 12);
	end(&w);
}
END_TEST

START_TEST(only_what_must_move_moves)
{
	struct world w;

	begin(&w, QUANTUM);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	for (int i = 0; i < 3000; i++) {
		tick(&w);
		ck_assert_uint_ge(w.jobs[0].mapped, 57 * GIB);
		ck_assert_uint_ge(w.jobs[1].mapped, 57 * GIB);
	}
	end(&w);
}
END_TEST

START_TEST(weights_divide_the_time)
{
	double served[3], sum = 0;
	struct world w;

	begin(&w, QUANTUM);
	for (int i = 0; i < 3; i++)
		start(&w, 0, 80 * GIB, TURNS_BATCH, i == 1 ? 2 : 1);
	run_for(&w, 60000);
	measure(&w, 3, 1200000, served);
	for (int i = 0; i < 3; i++)
		sum += served[i];
	ck_assert_double_eq_tol(served[1] / sum, 0.5, 0.02);
	ck_assert_double_eq_tol(served[0] / sum, 0.25, 0.02);
	end(&w);
}
END_TEST

START_TEST(a_large_one_is_not_starved_by_small_ones)
{
	double served[3];
	struct world w;

	begin(&w, QUANTUM);
	start(&w, 0, 130 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	measure(&w, 3, 900000, served);
	for (int i = 0; i < 3; i++) {
		ck_assert_double_ge(served[i], 0.20 * 900000);
		ck_assert_double_le(w.jobs[i].longest_wait, 4 * QUANTUM + 20000);
	}
	end(&w);
}
END_TEST

START_TEST(many_share_fairly)
{
	double served[6];
	struct world w;

	begin(&w, QUANTUM);
	for (int i = 0; i < 6; i++)
		start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	run_for(&w, 60000);
	for (int i = 0; i < 6; i++)
		w.jobs[i].longest_wait = 0;
	measure(&w, 6, 1800000, served);
	ck_assert_double_ge(jain(served, 6), 0.99);
	for (int i = 0; i < 6; i++)
		ck_assert_double_le(w.jobs[i].longest_wait, 8 * QUANTUM);
	end(&w);
}
END_TEST

START_TEST(nobody_waits_for_long_among_many_sizes)
{
	struct world w;

	begin(&w, 30000);
	for (int i = 0; i < 8; i++)
		start(&w, 0, (20 + 110 * i / 7) * GIB, TURNS_BATCH, 1);
	for (int i = 0; i < 8; i++)
		w.jobs[i].longest_wait = 0;
	run_for(&w, 3000000);
	/* A turn of each, one more, and hand-overs. */
	for (int i = 0; i < 8; i++)
		ck_assert_double_le(w.jobs[i].longest_wait, 10 * 30000);
	end(&w);
}
END_TEST

START_TEST(an_interactive_one_is_served_at_once)
{
	struct job *notebook;
	double served[2];
	struct world w;

	begin(&w, 0);
	start(&w, 0, 110 * GIB, TURNS_BATCH, 1);
	notebook = start(&w, 0, 40 * GIB, TURNS_INTERACTIVE, 1);
	notebook->work_ms = 2000;
	notebook->sleep_ms = 30000;
	notebook->longest_wait = 0;
	run_for(&w, 60000);
	notebook->longest_wait = 0;
	measure(&w, 2, 600000, served);
	ck_assert_double_le(notebook->longest_wait, 1000);
	ck_assert_double_ge(served[0], 0.85 * 600000);
	ck_assert_double_ge(served[1], 10 * 2000);
	end(&w);
}
END_TEST

START_TEST(two_that_grow_at_once_both_go_on)
{
	struct world w;
	struct job *a, *b;

	begin(&w, QUANTUM);
	a = start(&w, 0, 69 * GIB, TURNS_BATCH, 1);
	b = start(&w, 0, 69 * GIB, TURNS_BATCH, 1);
	allocate(&w, a, 20 * GIB);
	allocate(&w, b, 20 * GIB);
	decide(&w);
	run_for(&w, 3 * QUANTUM);
	ck_assert_uint_eq(a->total, 89 * GIB);
	ck_assert_uint_eq(b->total, 89 * GIB);
	ck_assert_int_eq(a->refused + b->refused, 0);
	end(&w);
}
END_TEST

START_TEST(what_no_turn_can_give_is_refused)
{
	struct world w;
	struct job *j;

	begin(&w, QUANTUM);
	j = start(&w, 0, 130 * GIB, TURNS_BATCH, 1);
	allocate(&w, j, 9 * GIB);
	decide(&w);
	ck_assert_int_eq(j->refused, 1);
	allocate(&w, j, 8 * GIB);
	ck_assert_uint_eq(j->total, 138 * GIB);
	end(&w);
}
END_TEST

START_TEST(kernels_that_do_not_end_are_left_alone_for_a_while)
{
	struct world w;
	struct job *stubborn, *other;

	begin(&w, QUANTUM);
	stubborn = start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	other = start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	stubborn->lingers = true;
	start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	run_for(&w, 120000);
	ck_assert_int_le(stubborn->stopped, 6);
	ck_assert_int_ge(stubborn->stopped, 2);
	/* The other two take turns beside it. */
	ck_assert_int_ge(other->stopped, 3);
	ck_assert_double_ge(w.jobs[2].served_ms, 20000);
	end(&w);
}
END_TEST

START_TEST(a_copy_that_fails_loses_no_turn_for_good)
{
	struct world w;

	begin(&w, QUANTUM);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	w.jobs[0].breaks = true;
	run_for(&w, 200000);
	ck_assert_double_ge(w.jobs[0].served_ms, 20000);
	ck_assert_double_ge(w.jobs[1].served_ms, 20000);
	end(&w);
}
END_TEST

START_TEST(one_that_ends_in_a_hand_over_leaves_its_memory)
{
	for (int who = 0; who < 2; who++) {
		struct world w;
		int ticks = 0;

		begin(&w, QUANTUM);
		start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
		start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
		while (w.jobs[0].does != GIVES || w.jobs[1].does != GETS) {
			tick(&w);
			ck_assert_int_lt(ticks++, 10000);
		}
		stop(&w, &w.jobs[who]);
		run_for(&w, 3000);
		ck_assert_int_eq(w.jobs[1 - who].does, RUNS);
		end(&w);
	}
}
END_TEST

START_TEST(one_that_is_stopped_delays_others_for_a_moment)
{
	struct world w;

	begin(&w, QUANTUM);
	for (int i = 0; i < 3; i++)
		start(&w, 0, 60 * GIB, TURNS_BATCH, 1);
	run_for(&w, 30000);
	w.jobs[0].silent = true;
	run_for(&w, 30000);
	measure(&w, 3, 100000, (double[3]){0});
	ck_assert_double_ge(w.jobs[1].served_ms, 40000);
	ck_assert_double_ge(w.jobs[2].served_ms, 40000);
	w.jobs[0].silent = false;
	run_for(&w, 60000);
	ck_assert(w.jobs[0].does == RUNS || w.jobs[1].does == RUNS);
	end(&w);
}
END_TEST

START_TEST(its_user_pauses_it)
{
	struct world w;
	struct job *a, *b;

	begin(&w, QUANTUM);
	a = start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	b = start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	for (int i = 0; i < SCHEDULES; i++) {
		run_for(&w, rand() % 3000);
		a->mapped = a->room = 0;
		a->paused = true;
		a->said_want = false;
		if (a->does == GETS)
			a->does = OUT;
		tell_need(&w, a);
		turns_mapped(w.t, a->id, 0, w.now);
		turns_paused(w.t, a->id, true, w.now);
		turns_check(w.t);
		run_for(&w, 3000);
		ck_assert_uint_eq(a->mapped, 0);
		ck_assert_int_eq(a->does, OUT);
		ck_assert_int_eq(b->does, RUNS);
		a->paused = false;
		turns_paused(w.t, a->id, false, w.now);
		want(&w, a);
	}
	run_for(&w, 3 * QUANTUM);
	ck_assert_int_gt(a->stopped, 0);
	end(&w);
}
END_TEST

START_TEST(a_newcomer_needs_not_wait_for_a_whole_turn)
{
	struct world w;
	double began;

	begin(&w, 60000);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	run_for(&w, 100000);
	began = w.now;
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	ck_assert_double_le(w.now - began, 10000);
	end(&w);
}
END_TEST

START_TEST(the_lower_class_never_stops_the_higher_one)
{
	struct world w;

	begin(&w, QUANTUM);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 80 * GIB, TURNS_INTERACTIVE, 1);
	run_for(&w, 100000);
	ck_assert_int_eq(w.jobs[1].stopped, 0);
	end(&w);
}
END_TEST

/* Neither one that was idle for long nor one that is new has a claim to the time before. */
START_TEST(the_past_gives_one_turn_of_credit)
{
	double served[2];
	struct world w;

	begin(&w, QUANTUM);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	run_for(&w, 600000);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	measure(&w, 2, 60000, served);
	ck_assert_double_ge(served[0], 0.3 * 60000);
	w.jobs[1].sleep_ms = 600000;
	run_for(&w, 590000);
	w.jobs[1].sleep_ms = w.jobs[1].work_until = 0;
	w.jobs[1].asleep = false;
	want(&w, &w.jobs[1]);
	measure(&w, 2, 60000, served);
	ck_assert_double_ge(served[0], 0.3 * 60000);
	ck_assert_double_ge(served[1], 0.3 * 60000);
	end(&w);
}
END_TEST

START_TEST(one_that_cannot_take_its_memory_back_is_not_asked_all_the_time)
{
	struct world w;

	begin(&w, QUANTUM);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	while (w.jobs[0].does != GETS)
		tick(&w);
	w.jobs[0].fills_failed = 0;
	run_for(&w, 60000);
	ck_assert_int_ge(w.jobs[0].fills_failed, 3);
	ck_assert_int_le(w.jobs[0].fills_failed, 8);
	ck_assert_double_ge(w.jobs[1].served_ms, 20000);
	w.jobs[0].fills_failed = -1;
	run_for(&w, 60000);
	ck_assert_int_eq(w.jobs[0].does == RUNS || w.jobs[1].does == RUNS, 1);
	end(&w);
}
END_TEST

START_TEST(a_turn_is_given_away)
{
	struct world w;

	begin(&w, 120000);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	start(&w, 0, 80 * GIB, TURNS_BATCH, 1);
	for (int i = 0; i < 10; i++) {
		int runs = w.jobs[0].does == RUNS ? 0 : 1;

		run_for(&w, 3000);
		ck_assert_int_eq(w.jobs[runs].does, RUNS);
		turns_give(w.t, w.jobs[runs].id, w.now);
		run_for(&w, 2000);
		ck_assert_int_eq(w.jobs[1 - runs].does, RUNS);
	}
	end(&w);
}
END_TEST

static struct job *any_job(struct world *w)
{
	struct job *j = &w->jobs[rand() % JOBS];

	return j->id ? j : NULL;
}

static void pause_or_resume(struct world *w, struct job *j)
{
	if (j->does == DRAINS || j->does == GIVES)
		return;
	j->paused = !j->paused;
	if (j->paused) {
		j->mapped = j->room = 0;
		j->said_want = false;
		if (j->does == GETS)
			j->does = OUT;
		tell_need(w, j);
	}
	turns_paused(w->t, j->id, j->paused, w->now);
	if (!j->paused && j->does == RUNS) {
		/* Its lease was never taken: it takes its memory as without a daemon. */
		j->mapped = j->total < free_on(w, j->gpu) ? j->total : free_on(w, j->gpu);
		j->total = j->mapped;
		tell_need(w, j);
	}
	want(w, j);
}

/* Something happens. */
static void happen(struct world *w)
{
	struct job *j = any_job(w);

	switch (rand() % 12) {
	case 0:
		for (j = w->jobs; j < w->jobs + JOBS && j->id;)
			j++;
		if (j == w->jobs + JOBS)
			return;
		*j = (struct job){.gpu = rand() % 2,
				  .fills_failed = -1,
				  .class = rand() % 4 ? TURNS_BATCH : TURNS_INTERACTIVE};
		j->id = turns_join(w->t, j->class, 1 + rand() % 3, w->now);
		if (rand() % 3 == 0) {
			j->work_ms = 100 + rand() % 3000;
			j->sleep_ms = 100 + rand() % 10000;
		}
		break;
	case 1:
		if (j && rand() % 2)
			stop(w, j);
		break;
	case 2:
	case 3:
	case 4:
		if (j)
			allocate(w, j, (1 + rand() % 40) * GIB);
		break;
	case 5:
		if (j && rand() % 4 == 0)
			pause_or_resume(w, j);
		break;
	case 6:
		if (j)
			j->lingers = rand() % 4 == 0;
		break;
	case 7:
		if (j)
			j->breaks = rand() % 4 == 0;
		break;
	case 8:
		if (j)
			turns_give(w->t, j->id, w->now);
		break;
	case 9:
		if (j)
			j->silent = rand() % 8 == 0;
		break;
	case 10: {
		int g = rand() % 2;

		w->exact = false;
		w->capacity[g] = H200 - rand() % 40 * GIB;
		turns_capacity(w->t, g, w->capacity[g]);
		break;
	}
	default:
		break;
	}
}

/* One of the higher class that is never idle keeps the others out for good. */
static bool is_kept_out(const struct world *w, const struct job *j)
{
	for (const struct job *x = w->jobs; x < w->jobs + JOBS; x++)
		if (x->id && x->gpu == j->gpu && x->class > j->class && !x->sleep_ms)
			return true;
	return false;
}

static bool ran_again(const struct world *w, const struct job *j)
{
	return !j->id || j->served_ms > 0 || !waits(j) || j->total > H200 || is_kept_out(w, j);
}

/* Those that can run do in the end, when nothing happens any more. */
static void settle(struct world *w)
{
	for (int g = 0; g < 2; g++) {
		w->capacity[g] = H200;
		turns_capacity(w->t, g, H200);
	}
	for (struct job *j = w->jobs; j < w->jobs + JOBS; j++) {
		j->silent = j->lingers = j->breaks = false;
		if (j->id && j->paused && j->does != DRAINS && j->does != GIVES)
			pause_or_resume(w, j);
		j->served_ms = 0;
	}
	for (int i = 0; i < 40; i++) {
		bool all = true;

		run_for(w, 10000);
		for (struct job *j = w->jobs; j < w->jobs + JOBS; j++)
			all &= ran_again(w, j);
		if (all)
			return;
	}
	for (struct job *j = w->jobs; j < w->jobs + JOBS; j++)
		ck_assert_msg(ran_again(w, j), "a job of %lu GiB never ran again", j->total / GIB);
}

START_TEST(any_schedule)
{
	for (int i = 0; i < SCHEDULES; i++) {
		struct world w;

		srand(SCHEDULES * _i + i);
		begin(&w, rand() % 2 ? 0 : 1000 + rand() % 20000);
		for (int n = 20 + rand() % 60; n > 0; n--) {
			happen(&w);
			decide(&w);
			run_for(&w, rand() % 1000);
		}
		settle(&w);
		end(&w);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns");
	TCase *cases = tcase_create("turns");
	TCase *schedules = tcase_create("schedules");

	tcase_set_timeout(schedules, 120);
	tcase_add_test(cases, those_that_fit_together_are_left_alone);
	tcase_add_test(cases, two_that_do_not_fit_take_turns);
	tcase_add_test(cases, only_what_must_move_moves);
	tcase_add_test(cases, weights_divide_the_time);
	tcase_add_test(cases, a_large_one_is_not_starved_by_small_ones);
	tcase_add_test(cases, many_share_fairly);
	tcase_add_test(cases, nobody_waits_for_long_among_many_sizes);
	tcase_add_test(cases, an_interactive_one_is_served_at_once);
	tcase_add_test(cases, two_that_grow_at_once_both_go_on);
	tcase_add_test(cases, what_no_turn_can_give_is_refused);
	tcase_add_test(cases, kernels_that_do_not_end_are_left_alone_for_a_while);
	tcase_add_test(cases, a_copy_that_fails_loses_no_turn_for_good);
	tcase_add_test(cases, one_that_ends_in_a_hand_over_leaves_its_memory);
	tcase_add_test(cases, one_that_is_stopped_delays_others_for_a_moment);
	tcase_add_test(cases, its_user_pauses_it);
	tcase_add_test(cases, a_newcomer_needs_not_wait_for_a_whole_turn);
	tcase_add_test(cases, the_lower_class_never_stops_the_higher_one);
	tcase_add_test(cases, the_past_gives_one_turn_of_credit);
	tcase_add_test(cases, one_that_cannot_take_its_memory_back_is_not_asked_all_the_time);
	tcase_add_test(cases, a_turn_is_given_away);
	tcase_add_loop_test(schedules, any_schedule, 0, 10);
	suite_add_tcase(suite, cases);
	suite_add_tcase(suite, schedules);
	return check_suite_run(suite);
}
