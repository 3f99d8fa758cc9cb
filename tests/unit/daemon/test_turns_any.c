/* SPDX-License-Identifier: Apache-2.0 */
/* Random schedules of all that may happen. */
#include "tests/unit/daemon/turns_world.h"
#include "tests/check_suite.h"

#include <stdlib.h>

static struct turns_settings settings;

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
		job_tell_need(w, j);
	}
	turns_paused(w->t, j->id, j->paused, w->now);
	if (!j->paused && j->does == RUNS) {
		/* Its lease was never taken: it takes its memory as without a daemon. */
		j->mapped = j->total < world_free(w, j->gpu) ? j->total : world_free(w, j->gpu);
		j->total = j->mapped;
		j->came = true;
		job_tell_need(w, j);
	}
	job_want(w, j);
}

/* It may give its context: never, or after a while; and it may turn out that it cannot. */
static void begin_context(struct world *w, struct job *j)
{
	j->context = (1 + rand() % 3) * GIB;
	j->keeps_context = rand() % 4 == 0;
	j->never_gives = rand() % 4 == 0;
	turns_context_after(w->t, j->id, j->never_gives ? 0 : 1 + rand() % 30000);
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
				  .came = true,
				  .class = rand() % 4 ? TURNS_BATCH : TURNS_INTERACTIVE};
		j->id = turns_join(w->t, j->class, 1 + rand() % 3, w->now);
		j->idle_ms = turns_idle_limit(w->t, j->id);
		if (w->contexts)
			begin_context(w, j);
		if (rand() % 3 == 0) {
			j->work_ms = 100 + rand() % 3000;
			j->sleep_ms = 100 + rand() % 10000;
		}
		break;
	case 1:
		if (j && rand() % 2)
			job_stop(w, j);
		break;
	case 2:
	case 3:
	case 4:
		if (j)
			job_allocate(w, j, (1 + rand() % 40) * GIB);
		break;
	case 5:
		if (j && rand() % 4 == 0)
			pause_or_resume(w, j);
		break;
	case 6:
		if (j)
			j->lingers_ms = rand() % 4 ? 0 : rand() % 20000;
		break;
	case 7:
		if (j)
			j->breaks = rand() % 4 == 0;
		break;
	case 8:
		if (j && j->does == OUT && !j->paused && rand() % 2) {
			turns_ends(w->t, j->id, w->now);
			j->said_want = true;
		} else if (j) {
			turns_give(w->t, j->id, w->now);
		}
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
		/* As a caching allocator does. */
		if (j && w->contexts)
			job_allocate(w, j, world_free(w, j->gpu));
		break;
	}
}

/*
 * Those of the higher class that are never idle keep one out for good that does not fit beside them, unless it may go
 * first.
 */
static bool is_kept_out(const struct world *w, const struct job *j)
{
	uint64_t bytes = j->total + j->grow + world_contexts(w, j->gpu);
	bool above = false, alone = j->restored;

	if (settings.batch_after_ms > 0)
		return false;
	for (const struct job *x = w->jobs; x < w->jobs + JOBS; x++) {
		if (!x->id || x->gpu != j->gpu || x->class <= j->class || x->sleep_ms > x->idle_ms)
			continue;
		above = true;
		alone |= x->restored;
		bytes += x->total + x->grow;
	}
	return above && (alone || bytes > H200);
}

/* It fits beside the contexts that stay. */
static bool fits(const struct world *w, const struct job *j)
{
	uint64_t bytes = j->total + (j->context_out ? 0 : j->context);

	for (const struct job *x = w->jobs; x < w->jobs + JOBS; x++)
		if (x != j && x->id && x->gpu == j->gpu && (x->never_gives || x->keeps_context))
			bytes += x->context;
	return bytes <= H200;
}

static bool ran_again(const struct world *w, const struct job *j)
{
	return !j->id || j->served_ms > 0 || !job_waits(j) || !fits(w, j) || is_kept_out(w, j);
}

/* Those that can run do in the end, when nothing happens any more. */
static void settle(struct world *w)
{
	for (int g = 0; g < 2; g++) {
		w->capacity[g] = H200;
		turns_capacity(w->t, g, H200);
	}
	for (struct job *j = w->jobs; j < w->jobs + JOBS; j++) {
		j->silent = j->breaks = false;
		j->lingers_ms = 0;
		if (j->id && j->paused && j->does != DRAINS && j->does != GIVES)
			pause_or_resume(w, j);
		j->served_ms = 0;
	}
	for (int i = 0; i < 40; i++) {
		bool all = true;

		world_run(w, 10000);
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
	int given = 0;

	for (int i = 0; i < SCHEDULES; i++) {
		struct world w;

		srand(SCHEDULES * _i + i);
		settings = (struct turns_settings){.quantum_ms =
							   rand() % 2 ? 0 : 1000 + rand() % 20000,
						   .idle_ms = 500,
						   .rest_ms = 16000,
						   .batch_after_ms = rand() % 2 * 5000};
		world_begin(&w, 0);
		turns_set(w.t, &settings);
		/* The context of a newcomer is there unasked. */
		w.contexts = rand() % 2;
		w.exact = !w.contexts;
		for (int n = 20 + rand() % 60; n > 0; n--) {
			happen(&w);
			world_decide(&w);
			world_run(&w, rand() % 1000);
		}
		settle(&w);
		given += w.contexts_given;
		world_end(&w);
	}
	/* Few schedules may have none. */
	ck_assert(given > 0 || SCHEDULES < 1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns_any");
	TCase *cases = tcase_create("turns_any");

	tcase_set_timeout(cases, 120);
	tcase_add_loop_test(cases, any_schedule, 0, 10);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
