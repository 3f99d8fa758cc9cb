/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of several processes in the books of cudawd: random lives of processes that do as
 * common/protocol/protocol.h says, or fail, and some cases by hand.
 */
#include "tests/unit/daemon/parties_world.h"
#include "tools/daemon/turns/books.h"

#include "tests/check_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES 8
#define JOBS      3

enum does { RUNS, YIELDS, OUT, FILLS };

/* What a process does next, a while after it got an order. */
enum act { NOTHING, SAYS_HELD, FREES, ENDS_YIELD, ENDS_FILL, FAILS };

struct proc {
	uint32_t id; /* 0: there is none */
	int job;
	uint64_t total[GPUS], mapped[GPUS];
	enum does does;
	enum act act;
	bool holds, was_out, met; /* of a yield: the commit has come */
	bool tells; /* its needs once more, and what it wants, a moment after the end */
	bool idle;
	int grows; /* that wait */
	uint64_t bytes, freed;
	int went_out, went_in;
};

static struct proc procs[PROCESSES];
static unsigned int seed;
static unsigned int failing; /* of 100 orders */
static int gone;             /* that were let go */

static unsigned int draw(unsigned int n)
{
	return (unsigned int)rand_r(&seed) % n;
}

static struct proc *find(uint32_t id)
{
	for (struct proc *p = procs; p < procs + PROCESSES; p++)
		if (p->id == id)
			return p;
	return NULL;
}

static uint64_t sum(const uint64_t *bytes)
{
	uint64_t all = 0;

	for (int g = 0; g < GPUS; g++)
		all += bytes[g];
	return all;
}

static void tell_need(const struct proc *p)
{
	for (int g = 0; g < GPUS; g++)
		if (p->total[g])
			parties_need(w.parties, p->id, g, p->mapped[g], p->total[g], w.now);
}

static void join(struct proc *p, int job, uint64_t total)
{
	char name[8];

	snprintf(name, sizeof(name), "%06d", job);
	*p = (struct proc){.job = job, .total = {total}, .mapped = {total}};
	p->id = parties_join(w.parties, 1000, name, TURNS_BATCH, 1, w.now);
	ck_assert_uint_ne(p->id, 0);
	tell_need(p);
	parties_paused(w.parties, p->id, false, false, w.now);
}

/* An allocation that waits: its serial says what it is. */
static void grow_on(struct proc *p, uint32_t gpu, uint32_t mib)
{
	p->grows++;
	parties_grow(w.parties, p->id, gpu << 16 | mib, (int)gpu, mib * MIB, w.now);
}

static void grow(struct proc *p, uint32_t mib)
{
	grow_on(p, 0, mib);
}

static void leave(struct proc *p)
{
	parties_leave(w.parties, p->id, w.now);
	*p = (struct proc){0};
}

static enum act next(enum act act)
{
	return draw(100) < failing ? FAILS : act;
}

static void take_text(struct proc *p, const char *text)
{
	if (p->does != YIELDS && p->does != FILLS)
		return;
	p->met = !strcmp(text, "commit");
	if (p->met)
		p->act = p->does == YIELDS ? next(FREES) : ENDS_FILL;
	else
		p->act = strcmp(text, "abort") ? SAYS_HELD : FAILS;
}

/* Another job, or it is out itself, and a process that has joined is to follow. */
static bool somebody_waits(int job)
{
	for (struct proc *p = procs; p < procs + PROCESSES; p++)
		if (p->id && ((p->job != job && p->grows) || p->does != RUNS))
			return true;
	return false;
}

static bool has_one_gpu(const struct proc *p)
{
	int n = 0;

	for (int g = 0; g < GPUS; g++)
		n += p->total[g] > 0;
	return n <= 1;
}

/* As much as it may have, at once. What one with several GPUs has is known only a moment after the end: it waits. */
static void take_memory(struct proc *p)
{
	uint64_t left = p->bytes > sum(p->mapped) ? p->bytes - sum(p->mapped) : 0;

	for (int g = 0; g < GPUS; g++) {
		uint64_t missing = p->total[g] - p->mapped[g];
		uint64_t part = left < missing ? left : missing;

		p->mapped[g] += part;
		left -= part;
	}
}

static void carry_out(const struct party_order *o, const char *text)
{
	struct proc *p = find(o->id);

	ck_assert_ptr_nonnull(p);
	switch (o->kind) {
	case PARTY_YIELD:
		ck_assert(p->does != YIELDS);
		ck_assert_msg(p->does != RUNS || p->idle || somebody_waits(p->job),
			      "stopped while nobody waits");
		/* One that is out has nothing to come to rest for. */
		p->act = p->does == RUNS ? next(o->hold ? SAYS_HELD : FREES) : FREES;
		p->was_out = p->does != RUNS;
		p->does = YIELDS;
		p->holds = o->hold;
		p->met = false;
		p->bytes = o->bytes < sum(p->mapped) ? o->bytes : sum(p->mapped);
		p->freed = 0;
		break;
	case PARTY_ROOM:
		if (p->does != OUT && p->does != FILLS)
			break;
		p->does = FILLS;
		p->holds = o->hold;
		p->bytes = o->bytes;
		if (has_one_gpu(p))
			take_memory(p);
		if (p->bytes >= sum(p->total))
			p->act = next(p->holds ? SAYS_HELD : ENDS_FILL);
		break;
	case PARTY_SAY:
		take_text(p, text);
		break;
	case PARTY_TRY:
		p->grows--;
		p->total[o->serial >> 16] += (o->serial & 0xffff) * MIB;
		p->mapped[o->serial >> 16] += (o->serial & 0xffff) * MIB;
		tell_need(p);
		break;
	case PARTY_NO:
		p->grows--;
		break;
	case PARTY_LET_GO:
		gone++;
		leave(p);
		break;
	default:
		break;
	}
}

static void decide(void)
{
	do {
		parties_decide_now();
		for (size_t i = 0; i < w.n; i++)
			if (find(w.queue[i].order.id))
				carry_out(&w.queue[i].order, w.queue[i].text);
	} while (w.n);
}

/* Of each GPU the same part or more. */
static void give_memory(struct proc *p, uint64_t bytes)
{
	uint64_t all = sum(p->mapped);

	for (int g = 0; g < GPUS && all; g++) {
		uint64_t part = (bytes * p->mapped[g] + all - 1) / all;

		p->mapped[g] -= part;
		p->freed += part;
	}
	parties_freed(w.parties, p->id, p->freed, w.now);
}

/* It is out; if it has failed, with a part of what it was to give. */
static void end_yield(struct proc *p, enum turns_end how)
{
	p->does = OUT;
	p->went_out++;
	tell_need(p);
	parties_mapped(w.parties, p->id, sum(p->mapped), w.now);
	parties_ended(w.parties, p->id, how, w.now);
	p->tells = true;
}

static void end_fill(struct proc *p)
{
	memcpy(p->mapped, p->total, sizeof(p->mapped));
	p->does = RUNS;
	p->idle = false;
	p->went_in++;
	parties_mapped(w.parties, p->id, sum(p->mapped), w.now);
	parties_ended(w.parties, p->id, TURNS_OK, w.now);
	p->tells = true;
}

static void act(struct proc *p)
{
	enum act what = p->act;

	p->act = NOTHING;
	switch (what) {
	case SAYS_HELD:
		is_drained(p->id);
		break;
	case FREES:
		if (has_one_gpu(p))
			give_memory(p, p->bytes / 2);
		p->act = next(ENDS_YIELD);
		break;
	case ENDS_YIELD:
		give_memory(p, p->bytes - p->freed);
		end_yield(p, TURNS_OK);
		break;
	case ENDS_FILL:
		end_fill(p);
		break;
	case FAILS:
		/* One that shares memory with others has no way back then. */
		if (p->does == YIELDS && (p->freed || (p->met && draw(2)))) {
			end_yield(p, TURNS_FAILED);
			break;
		}
		if (p->does == FILLS)
			parties_mapped(w.parties, p->id, sum(p->mapped), w.now);
		p->does = p->does == YIELDS && !p->was_out ? RUNS : OUT;
		parties_ended(w.parties, p->id, TURNS_FAILED, w.now);
		p->tells = true;
		break;
	case NOTHING:
		break;
	}
}

static void tell(struct proc *p)
{
	p->tells = false;
	tell_need(p);
	if (p->does == OUT)
		parties_want(w.parties, p->id, w.now);
}

static void tick(double ms)
{
	w.now += ms;
	for (struct proc *p = procs; p < procs + PROCESSES; p++) {
		if (p->id && p->tells)
			tell(p);
		if (p->id && p->act && draw(2))
			act(p);
	}
	decide();
}

/* Behind parties_begin(). */
static void begin(void)
{
	memset(procs, 0, sizeof(procs));
	seed = 1;
	failing = 0;
	gone = 0;
}

/* The processes of a job of which nothing is under way run, or are out, all of them. */
static void check_together(void)
{
	int runs[JOBS] = {0}, out[JOBS] = {0}, busy[JOBS] = {0};

	for (struct proc *p = procs; p < procs + PROCESSES; p++) {
		if (!p->id)
			continue;
		busy[p->job] += p->act || p->does == YIELDS || p->does == FILLS;
		runs[p->job] += p->does == RUNS;
		out[p->job] += p->does == OUT;
	}
	for (int j = 0; j < JOBS; j++)
		ck_assert_msg(busy[j] || !runs[j] || !out[j], "%d of job %d run, and %d are out",
			      runs[j], j, out[j]);
}

START_TEST(two_jobs_take_turns)
{
	join(&procs[0], 0, 40 * MIB);
	join(&procs[1], 0, 30 * MIB);
	join(&procs[2], 1, 30 * MIB);
	grow(&procs[2], 40);
	for (int i = 0; i < 2000; i++) {
		tick(10);
		check_together();
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_ge(procs[i].went_out, 1);
	ck_assert_int_eq(procs[0].went_out, procs[1].went_out);
}
END_TEST

/* Its process that cannot rest is why the whole job runs on. */
START_TEST(one_that_fails_keeps_its_job_running)
{
	join(&procs[0], 0, 40 * MIB);
	join(&procs[1], 0, 30 * MIB);
	join(&procs[2], 1, 30 * MIB);
	grow(&procs[2], 40);
	for (int i = 0; i < 100 && procs[1].does != YIELDS; i++)
		tick(10);
	ck_assert_int_eq(procs[1].does, YIELDS);
	procs[1].act = FAILS;
	for (int i = 0; i < 20; i++)
		tick(10);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(procs[i].does, RUNS);
		ck_assert_uint_eq(procs[i].mapped[0], procs[i].total[0]);
	}
	ck_assert_int_eq(gone, 0);
}
END_TEST

/* Neither is it made room for, nor does it keep its job from giving memory. */
START_TEST(what_an_ended_process_waited_for_is_forgotten)
{
	join(&procs[0], 0, 10 * MIB);
	join(&procs[1], 0, 50 * MIB);
	join(&procs[2], 1, 40 * MIB);
	grow(&procs[0], 40);
	parties_pinned(w.parties, procs[0].id, 40, w.now);
	tick(10);
	leave(&procs[0]);
	for (int i = 0; i < 500; i++)
		tick(10);
	ck_assert_int_eq(procs[2].went_out, 0);
	grow(&procs[2], 40);
	for (int i = 0; i < 500; i++)
		tick(10);
	ck_assert_uint_eq(procs[2].total[0], 80 * MIB);
}
END_TEST

/* The one that a signal ends has refused its own. */
START_TEST(a_signal_to_one_leaves_the_growth_of_others)
{
	join(&procs[0], 0, 20 * MIB);
	join(&procs[1], 0, 30 * MIB);
	join(&procs[2], 1, 50 * MIB);
	grow(&procs[0], 10);
	grow(&procs[1], 30);
	tick(10);
	parties_ends(w.parties, procs[0].id, w.now);
	for (int i = 0; i < 1000; i++)
		tick(10);
	ck_assert_uint_eq(procs[0].total[0], 20 * MIB);
	ck_assert_uint_eq(procs[1].total[0], 60 * MIB);
}
END_TEST

/* The others have said once that they want to run. */
START_TEST(what_others_want_outlives_one_that_is_paused)
{
	join(&procs[0], 0, 40 * MIB);
	join(&procs[1], 0, 30 * MIB);
	join(&procs[2], 1, 30 * MIB);
	grow(&procs[2], 40);
	for (int i = 0; i < 1000 && procs[2].total[0] < 70 * MIB; i++)
		tick(10);
	ck_assert_int_eq(procs[0].does, OUT);
	parties_paused(w.parties, procs[1].id, true, false, w.now);
	for (int i = 0; i < 500; i++)
		tick(10);
	ck_assert_int_eq(procs[0].does, OUT);
	/* So does what it wants itself. */
	parties_paused(w.parties, procs[0].id, true, false, w.now);
	parties_paused(w.parties, procs[0].id, false, false, w.now);
	leave(&procs[1]);
	for (int i = 0; i < 500 && procs[0].does != RUNS; i++)
		tick(10);
	ck_assert_int_eq(procs[0].does, RUNS);
}
END_TEST

/* @_i: a signal ends the other one, so that its job gets its turn at once when the first one is resumed. */
START_TEST(one_that_is_paused_keeps_its_job_from_waiting)
{
	struct turns_view view;

	join(&procs[0], 0, 40 * MIB);
	join(&procs[1], 0, 30 * MIB);
	join(&procs[2], 1, 30 * MIB);
	parties_paused(w.parties, procs[1].id, true, false, w.now);
	grow(&procs[2], 40);
	for (int i = 0; i < 1000 && procs[2].total[0] < 70 * MIB; i++)
		tick(10);
	if (_i)
		parties_ends(w.parties, procs[0].id, w.now);
	/* The turn of the third one has just begun, or is over. */
	for (int i = 0; i < (_i ? 10 : 500); i++)
		tick(10);
	ck_assert_int_eq(procs[0].does, OUT);
	ck_assert(parties_look(w.parties, procs[0].id, w.now, &view));
	ck_assert_str_eq(view.state, "paused");
	ck_assert_double_eq(view.wait_ms, 0);
	parties_paused(w.parties, procs[1].id, false, false, w.now);
	for (int i = 0; i < (_i ? 50 : 1000) && procs[0].does != RUNS; i++)
		tick(10);
	ck_assert_int_eq(procs[0].does, RUNS);
	/* The signal has given it one turn. */
	for (int i = 0; i < 1000 && procs[0].does != OUT; i++)
		tick(10);
	parties_paused(w.parties, procs[1].id, true, false, w.now);
	for (int i = 0; i < 10; i++)
		tick(10);
	parties_want(w.parties, procs[0].id, w.now);
	parties_paused(w.parties, procs[1].id, false, false, w.now);
	for (int i = 0; i < 50; i++)
		tick(10);
	ck_assert_int_eq(procs[0].does, OUT);
}
END_TEST

/* The room that was too little for both is enough for the other one. */
START_TEST(one_of_two_ends_while_they_get_room)
{
	join(&procs[0], 0, 20 * MIB);
	join(&procs[1], 0, 40 * MIB);
	join(&procs[2], 1, 40 * MIB);
	grow(&procs[2], 30);
	for (int i = 0; i < 1000 && procs[2].total[0] < 70 * MIB; i++)
		tick(10);
	for (int i = 0; i < 1000 && procs[2].does != YIELDS; i++)
		tick(10);
	ck_assert_int_eq(procs[0].does, OUT);
	leave(&procs[1]);
	for (int i = 0; i < 100; i++)
		tick(10);
	ck_assert_int_eq(procs[0].does, RUNS);
}
END_TEST

/* A process of the job gives or takes memory: if it fails, the others take theirs back. */
static bool is_moving(int job)
{
	for (struct proc *p = procs; p < procs + PROCESSES; p++)
		if (p->id && p->job == job && (p->does == YIELDS || p->does == FILLS))
			return true;
	return false;
}

/* The memory of GPU 0 that one more process can have, in a job that can run with it. */
static bool has_place(int job)
{
	uint64_t has = MIB, needs = MIB;

	for (struct proc *p = procs; p < procs + PROCESSES; p++) {
		has += p->id ? is_moving(p->job) ? p->total[0] : p->mapped[0] : 0;
		needs += p->id && p->job == job ? p->total[0] : 0;
	}
	return has <= CAPACITY && needs <= CAPACITY;
}

static void live(struct proc *p)
{
	int job = (int)draw(JOBS);

	if (!p->id && !draw(4) && has_place(job))
		join(p, job, MIB);
	else if (p->id && !draw(60))
		leave(p);
	else if (!p->id || p->does != RUNS)
		return;
	else if (!draw(4))
		grow_on(p, draw(GPUS), 1 + draw(40));
	else if (!p->grows && !draw(4)) {
		p->idle = !p->idle;
		parties_idle(w.parties, p->id, p->idle, w.now);
	}
}

/* No more is on a GPU than it has. */
static void check_memory(void)
{
	for (int g = 0; g < GPUS; g++) {
		uint64_t has = 0;

		for (struct proc *p = procs; p < procs + PROCESSES; p++)
			has += p->id ? p->mapped[g] : 0;
		ck_assert_msg(has <= CAPACITY, "%lu MiB are on GPU %d of %lu", has / MIB, g,
			      CAPACITY / MIB);
	}
}

/* Whoever is out runs again when nothing happens any more. */
static void settle(void)
{
	int out = 1;

	failing = 0;
	for (struct proc *p = procs; p < procs + PROCESSES; p++)
		p->went_in = 0;
	for (int i = 0; i < 20000 && out; i++) {
		tick(20);
		check_memory();
		out = 0;
		for (struct proc *p = procs; p < procs + PROCESSES; p++)
			out += p->id && p->does != RUNS && !p->went_in;
	}
	ck_assert_msg(!out, "%d processes never ran again", out);
}

/* NVML knows nothing of one that joins, unless it says so. */
START_TEST(what_is_shown_of_its_processes_counts_together)
{
	struct proc *first = procs, *second = procs + 1;
	struct turns *t;

	t = parties_turns(w.parties);
	join(first, 1, 40 * MIB);
	parties_shown(w.parties, first->id, 0, 10 * MIB, w.now, w.now);
	ck_assert_int_eq(books_free(t, 0), 90 * MIB);
	join(second, 1, 40 * MIB);
	ck_assert_int_eq(books_free(t, 0), 20 * MIB);
	parties_shown(w.parties, second->id, 0, 15 * MIB, w.now, w.now);
	ck_assert_int_eq(books_free(t, 0), 75 * MIB);
	leave(second);
	ck_assert_int_eq(books_free(t, 0), 90 * MIB);
}
END_TEST

START_TEST(any_lives)
{
	seed = (unsigned int)_i + 1;
	failing = _i % 2 ? 10 : 0;
	for (int i = 0; i < 600; i++) {
		live(&procs[draw(PROCESSES)]);
		tick(20);
		check_together();
		check_memory();
	}
	settle();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("parties");
	TCase *cases = tcase_create("cases"), *lives = tcase_create("lives");

	tcase_add_test(cases, two_jobs_take_turns);
	tcase_add_test(cases, one_that_fails_keeps_its_job_running);
	tcase_add_test(cases, what_an_ended_process_waited_for_is_forgotten);
	tcase_add_test(cases, a_signal_to_one_leaves_the_growth_of_others);
	tcase_add_test(cases, what_others_want_outlives_one_that_is_paused);
	tcase_add_loop_test(cases, one_that_is_paused_keeps_its_job_from_waiting, 0, 2);
	tcase_add_test(cases, one_of_two_ends_while_they_get_room);
	tcase_add_test(cases, what_is_shown_of_its_processes_counts_together);
	tcase_add_loop_test(lives, any_lives, 0, 300);
	tcase_set_timeout(lives, 60);
	for (int i = 0; i < 2; i++) {
		tcase_add_checked_fixture(i ? lives : cases, parties_begin, parties_end);
		tcase_add_checked_fixture(i ? lives : cases, begin, NULL);
		suite_add_tcase(suite, i ? lives : cases);
	}
	return check_suite_run(suite);
}
