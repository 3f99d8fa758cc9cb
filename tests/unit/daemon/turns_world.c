/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/daemon/turns_world.h"
#include "common/size.h"
#include "tests/check_suite.h"

#include <stdlib.h>

#define TICK_SIZE GIB /* moved in a tick by default: 51 GB/s */
#define NAP_TICKS 12  /* between two tries of an allocation: growth.h */

uint64_t world_mapped(const struct world *w, int gpu)
{
	uint64_t sum = 0;

	for (const struct job *j = w->jobs; j < w->jobs + JOBS; j++)
		if (j->id && j->gpu == gpu)
			sum += j->mapped;
	return sum;
}

uint64_t world_contexts(const struct world *w, int gpu)
{
	uint64_t sum = 0;

	for (const struct job *j = w->jobs; j < w->jobs + JOBS; j++)
		if (j->id && j->gpu == gpu && !j->context_out)
			sum += j->context;
	return sum;
}

/* What NVML says of the contexts. */
static void show_contexts(struct world *w)
{
	for (const struct job *j = w->jobs; j < w->jobs + JOBS; j++)
		if (j->id && j->context)
			turns_context(w->t, j->id, j->gpu, j->context_out ? 0 : j->context, w->now);
	for (int g = 0; g < 2; g++) {
		uint64_t contexts = world_contexts(w, g);

		if (!w->contexts)
			continue;
		turns_capacity(w->t, g, w->capacity[g] > contexts ? w->capacity[g] - contexts : 0);
		turns_there(w->t, g, w->capacity[g] > contexts ? w->capacity[g] - contexts : 1);
	}
}

/* Nobody else runs there, except by itself: one of the two must run alone. */
static bool is_alone(const struct world *w, const struct job *j)
{
	for (const struct job *x = w->jobs; x < w->jobs + JOBS; x++)
		if (x != j && x->id && x->gpu == j->gpu && x->does == RUNS && !x->came &&
		    !x->paused)
			return false;
	return true;
}

/* It came to run by itself, and it or another one there must run alone. */
static bool is_in_the_way(const struct world *w, const struct job *j)
{
	for (const struct job *x = w->jobs; x < w->jobs + JOBS; x++)
		if (x->id && x->gpu == j->gpu && x->restored)
			return true;
	return false;
}

uint64_t world_free(const struct world *w, int gpu)
{
	uint64_t mapped = world_mapped(w, gpu) + world_contexts(w, gpu);

	return mapped < w->capacity[gpu] ? w->capacity[gpu] - mapped : 0;
}

bool job_waits(const struct job *j)
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

void job_tell_need(struct world *w, struct job *j)
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
		ck_assert(!j->grow || !j->pinned);
		if (j->does == RUNS && !j->paused && !j->said_idle) {
			ck_assert_msg(somebody_waits_but(w, j) || is_in_the_way(w, j),
				      "stopped while nobody waits");
			j->stopped++;
		}
		j->gives_context = o->context;
		j->drained_at = w->now + (j->does != RUNS || j->paused ? 0
					  : j->lingers_ms > 0          ? j->lingers_ms
								       : rand() % 150);
		j->patience_until = w->now + o->timeout_ms;
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
		if (world_free(w, j->gpu) >= j->grow) {
			j->mapped += j->grow;
			j->total += j->grow;
			j->grow = 0;
			job_tell_need(w, j);
		} else {
			ck_assert_msg(!w->exact, "no memory for an allocation that may try");
			j->asks_at = w->now + NAP_TICKS * TICK_MS;
		}
		break;
	case TURNS_NO:
		j->grow = 0;
		j->refused++;
		break;
	case TURNS_WATCH:
		break;
	case TURNS_LIMIT:
		ck_assert_int_ne(o->timeout_ms, j->idle_ms);
		j->idle_ms = o->timeout_ms;
		j->limits++;
		break;
	}
}

void world_decide(struct world *w)
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

void job_want(struct world *w, struct job *j)
{
	if (j->said_want || j->paused || j->asleep || j->does != OUT)
		return;
	j->said_want = true;
	j->wants_since = w->now;
	turns_want(w->t, j->id, w->now);
}

static uint64_t rate(const struct job *j)
{
	return j->rate ? j->rate : TICK_SIZE;
}

/* It needed host memory, and has all of its own still. */
static void give_nothing(struct world *w, struct job *j)
{
	j->nomem--;
	j->does = j->mapped == j->total ? RUNS : OUT;
	turns_ended(w->t, j->id, TURNS_NOMEM, w->now);
	job_want(w, j);
}

static void give(struct world *w, struct job *j)
{
	uint64_t part = j->gives - j->freed < rate(j) ? j->gives - j->freed : rate(j);
	enum turns_end end = TURNS_OK;

	if (part > size_less(j->mapped, j->keeps))
		part = size_less(j->mapped, j->keeps);
	j->mapped -= part;
	j->freed += part;
	turns_freed(w->t, j->id, j->freed, w->now);
	if ((j->breaks && j->freed > j->gives / 2 && j->mapped) ||
	    (j->keeps && j->mapped <= j->keeps && j->freed < j->gives))
		end = TURNS_FAILED;
	else if (j->mapped && j->freed < j->gives)
		return;
	j->does = OUT;
	j->came = false;
	if (j->gives_context && !j->mapped && !j->keeps_context && !j->context_out) {
		j->context_out = j->restored = true;
		w->contexts_given++;
		j->total += j->context;
	}
	if (j->gives_context && j->context_out)
		turns_restored(w->t, j->id, true, w->now);
	job_tell_need(w, j);
	turns_mapped(w->t, j->id, j->mapped, w->now);
	turns_ended(w->t, j->id, end, w->now);
	job_want(w, j);
}

static void get(struct world *w, struct job *j)
{
	uint64_t room = j->room < j->total ? j->room : j->total, part = world_free(w, j->gpu);

	if (j->fills_failed >= 0) {
		j->fills_failed++;
		j->does = OUT;
		turns_ended(w->t, j->id, TURNS_FAILED, w->now);
		return;
	}
	if (room > j->mapped + rate(j))
		room = j->mapped + rate(j);
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
	if (j->context_out) {
		j->context_out = false;
		j->mapped -= j->context;
		j->total -= j->context;
	}
	j->does = RUNS;
	j->said_want = j->said_idle = false;
	if (w->now - j->wants_since > j->longest_wait)
		j->longest_wait = w->now - j->wants_since;
	j->work_until = w->now + j->work_ms;
	job_tell_need(w, j);
	turns_ended(w->t, j->id, TURNS_OK, w->now);
}

static void run_on(struct world *w, struct job *j)
{
	if (!j->sleep_ms)
		return;
	if (!j->asleep && j->does == RUNS && w->now >= j->work_until) {
		j->asleep = true;
		j->work_until = w->now + j->sleep_ms;
	} else if (j->asleep && w->now >= j->work_until) {
		j->asleep = false;
		j->work_until = w->now + j->work_ms;
		if (j->does == RUNS && j->said_idle) {
			j->said_idle = false;
			turns_busy(w->t, j->id, w->now);
		}
		job_want(w, j);
	}
	if (j->asleep && j->does == RUNS && !j->said_idle &&
	    w->now > j->work_until - j->sleep_ms + j->idle_ms) {
		j->said_idle = true;
		turns_idle(w->t, j->id, true, w->now);
	}
}

/* Its try found no memory. */
static void ask_again(struct world *w, struct job *j)
{
	if (!j->asks_at || w->now < j->asks_at || j->paused)
		return;
	j->asks_at = 0;
	turns_grow(w->t, j->id, ++w->serial, j->gpu, j->grow, w->now);
}

static bool works(const struct job *j)
{
	return j->id && j->does == RUNS && !j->asleep && !j->paused && !j->grow;
}

static int working(const struct world *w, int gpu)
{
	int n = 0;

	for (const struct job *j = w->jobs; j < w->jobs + JOBS; j++)
		n += works(j) && j->gpu == gpu;
	return n;
}

static void tick_job(struct world *w, struct job *j)
{
	if (!j->id || j->silent)
		return;
	run_on(w, j);
	switch (j->does) {
	case RUNS:
		ask_again(w, j);
		if (!works(j))
			break;
		j->served_ms += TICK_MS;
		j->had_ms += TICK_MS / working(w, j->gpu);
		break;
	case DRAINS:
		j->drained_ms += TICK_MS;
		if (w->now >= j->drained_at) {
			j->does = GIVES;
		} else if (w->now >= j->patience_until) {
			j->does = RUNS;
			turns_ended(w->t, j->id, TURNS_TIMEOUT, w->now);
		}
		break;
	case GIVES:
		if (j->nomem)
			give_nothing(w, j);
		else
			give(w, j);
		break;
	case GETS:
		get(w, j);
		break;
	case OUT:
		break;
	}
}

void world_tick(struct world *w)
{
	w->now += TICK_MS;
	for (struct job *j = w->jobs; j < w->jobs + JOBS; j++) {
		tick_job(w, j);
		turns_check(w->t);
	}
	show_contexts(w);
	world_decide(w);
	for (int g = 0; g < 2 && w->exact; g++)
		ck_assert_uint_le(world_mapped(w, g) + world_contexts(w, g), w->capacity[g]);
	for (const struct job *j = w->jobs; j < w->jobs + JOBS; j++)
		if (j->id && j->restored && j->does == RUNS && !j->came && !j->paused)
			ck_assert_msg(is_alone(w, j), "one that must run alone does not");
}

void world_run(struct world *w, double ms)
{
	for (double end = w->now + ms; w->now < end;)
		world_tick(w);
}

void world_begin(struct world *w, double quantum)
{
	const struct turns_settings settings = {
		.quantum_ms = quantum, .idle_ms = 500, .rest_ms = 16000};

	*w = (struct world){.capacity = {H200, H200}, .now = 1000, .exact = true};
	w->t = turns_new(&settings);
	ck_assert_ptr_nonnull(w->t);
	for (int g = 0; g < 2; g++)
		turns_capacity(w->t, g, w->capacity[g]);
}

void world_end(struct world *w)
{
	turns_free(w->t);
}

void job_allocate(struct world *w, struct job *j, uint64_t bytes)
{
	if (j->grow || j->does != RUNS || j->paused)
		return;
	if (world_free(w, j->gpu) >= bytes) {
		j->mapped += bytes;
		j->total += bytes;
		job_tell_need(w, j);
		return;
	}
	j->grow = bytes;
	if (j->said_idle)
		j->asleep = j->said_idle = false;
	turns_grow(w->t, j->id, ++w->serial, j->gpu, bytes, w->now);
}

struct job *job_start(struct world *w, int gpu, uint64_t total, enum turns_class class, int weight)
{
	struct job *j = w->jobs;

	while (j->id)
		j++;
	*j = (struct job){.gpu = gpu, .does = RUNS, .fills_failed = -1, .came = true};
	j->id = turns_join(w->t, class, weight, w->now);
	ck_assert_uint_ne(j->id, 0);
	j->idle_ms = turns_idle_limit(w->t, j->id);
	job_tell_need(w, j);
	for (int i = 0; i < 100000 && j->total < total && !j->refused; i++) {
		if (j->does == RUNS && !j->grow)
			job_allocate(w, j, total - j->total < GIB ? total - j->total : GIB);
		if (j->grow || j->does != RUNS)
			world_tick(w);
	}
	return j;
}

void job_stop(struct world *w, struct job *j)
{
	turns_leave(w->t, j->id, w->now);
	*j = (struct job){.id = 0};
	world_decide(w);
}

double job_shortest_turn(struct world *w, const struct job *j, double ms)
{
	double began = 0, shortest = 0, end = w->now + ms;

	while (w->now < end) {
		bool ran = j->does == RUNS;

		world_tick(w);
		if (!ran && j->does == RUNS)
			began = w->now;
		if (!ran || j->does == RUNS || began <= 0)
			continue;
		if (shortest <= 0 || w->now - began < shortest)
			shortest = w->now - began;
	}
	return shortest;
}

void world_measure(struct world *w, int n, double ms, double *served)
{
	for (int i = 0; i < n; i++)
		served[i] = w->jobs[i].served_ms;
	world_run(w, ms);
	for (int i = 0; i < n; i++)
		served[i] = w->jobs[i].served_ms - served[i];
}
