/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of several processes in the books of cudawd: random lives of processes that do as
 * common/protocol/protocol.h says, or fail, and some cases by hand.
 */
#include "common/protocol/lines.h"
#include "tools/daemon/books.h"
#include "tools/daemon/parties.h"

#include "tests/check_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB       (1UL << 20)
#define CAPACITY  (100 * MIB)
#define GPUS      2
#define PROCESSES 8
#define JOBS      3
#define QUEUED    256

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
	bool tells;               /* its needs, and what it wants, a moment after the end */
	bool idle;
	int grows; /* that wait */
	uint64_t bytes, freed;
	int went_out, went_in;
};

static struct {
	struct parties *parties;
	struct proc procs[PROCESSES];
	double now;
	unsigned int seed;
	unsigned int failing; /* of 100 orders */
	struct {
		struct party_order order;
		char text[64];
	} queue[QUEUED];
	size_t n;
	int gone; /* that were let go */
} w;

static unsigned int draw(unsigned int n)
{
	return (unsigned int)rand_r(&w.seed) % n;
}

static struct proc *find(uint32_t id)
{
	for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++)
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

static void keep(const struct party_order *order, void *arg)
{
	(void)arg;
	ck_assert_uint_lt(w.n, QUEUED);
	w.queue[w.n].order = *order;
	if (order->text)
		snprintf(w.queue[w.n].text, sizeof(w.queue[0].text), "%s", order->text);
	w.n++;
}

static enum act next(enum act act)
{
	return draw(100) < w.failing ? FAILS : act;
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
	for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++)
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
		ck_assert(o->bytes >= sum(p->mapped) || sum(p->mapped) == p->mapped[0] ||
			  !p->mapped[0]);
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
		w.gone++;
		leave(p);
		break;
	default:
		break;
	}
}

static void decide(void)
{
	do {
		w.n = 0;
		parties_decide(w.parties, w.now, keep, NULL);
		parties_check(w.parties);
		for (size_t i = 0; i < w.n; i++)
			if (find(w.queue[i].order.id))
				carry_out(&w.queue[i].order, w.queue[i].text);
	} while (w.n);
}

static void give_memory(struct proc *p, uint64_t bytes)
{
	p->freed += bytes;
	for (int g = 0; g < GPUS; g++) {
		uint64_t part = bytes < p->mapped[g] ? bytes : p->mapped[g];

		p->mapped[g] -= part;
		bytes -= part;
	}
	parties_freed(w.parties, p->id, p->freed, w.now);
}

/* It is out; if it has failed, with a part of what it was to give. */
static void end_yield(struct proc *p, enum turns_end how)
{
	p->does = OUT;
	p->went_out++;
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

static void is_drained(uint32_t id)
{
	static const struct line held = {.id = REPORT_HELD, .word = {"drained"}, .text = ""};

	ck_assert_int_eq(parties_take(w.parties, id, &held, w.now), 0);
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
	for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++) {
		if (p->id && p->tells)
			tell(p);
		if (p->id && p->act && draw(2))
			act(p);
	}
	decide();
}

static void begin(unsigned int seed, unsigned int failing)
{
	const struct turns_settings settings = {.quantum_ms = 1000, .residence_ms = 100};

	memset(&w, 0, sizeof(w));
	w.seed = seed;
	w.failing = failing;
	w.now = 1000;
	w.parties = parties_new(&settings);
	ck_assert_ptr_nonnull(w.parties);
	for (int g = 0; g < GPUS; g++)
		turns_capacity(parties_turns(w.parties), g, CAPACITY);
}

static void end(void)
{
	parties_free(w.parties);
}

/* The processes of a job of which nothing is under way run, or are out, all of them. */
static void check_together(void)
{
	int runs[JOBS] = {0}, out[JOBS] = {0}, busy[JOBS] = {0};

	for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++) {
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
	begin(1, 0);
	join(&w.procs[0], 0, 40 * MIB);
	join(&w.procs[1], 0, 30 * MIB);
	join(&w.procs[2], 1, 30 * MIB);
	grow(&w.procs[2], 40);
	for (int i = 0; i < 2000; i++) {
		tick(10);
		check_together();
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_ge(w.procs[i].went_out, 1);
	ck_assert_int_eq(w.procs[0].went_out, w.procs[1].went_out);
	end();
}
END_TEST

/* Its process that cannot rest is why the whole job runs on. */
START_TEST(one_that_fails_keeps_its_job_running)
{
	begin(2, 0);
	join(&w.procs[0], 0, 40 * MIB);
	join(&w.procs[1], 0, 30 * MIB);
	join(&w.procs[2], 1, 30 * MIB);
	grow(&w.procs[2], 40);
	for (int i = 0; i < 100 && w.procs[1].does != YIELDS; i++)
		tick(10);
	ck_assert_int_eq(w.procs[1].does, YIELDS);
	w.procs[1].act = FAILS;
	for (int i = 0; i < 20; i++)
		tick(10);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(w.procs[i].does, RUNS);
		ck_assert_uint_eq(w.procs[i].mapped[0], w.procs[i].total[0]);
	}
	ck_assert_int_eq(w.gone, 0);
	end();
}
END_TEST

/* Neither is it made room for, nor does it keep its job from giving memory. */
START_TEST(what_an_ended_process_waited_for_is_forgotten)
{
	begin(3, 0);
	join(&w.procs[0], 0, 10 * MIB);
	join(&w.procs[1], 0, 50 * MIB);
	join(&w.procs[2], 1, 40 * MIB);
	grow(&w.procs[0], 40);
	parties_pinned(w.parties, w.procs[0].id, 40, w.now);
	tick(10);
	leave(&w.procs[0]);
	for (int i = 0; i < 500; i++)
		tick(10);
	ck_assert_int_eq(w.procs[2].went_out, 0);
	grow(&w.procs[2], 40);
	for (int i = 0; i < 500; i++)
		tick(10);
	ck_assert_uint_eq(w.procs[2].total[0], 80 * MIB);
	end();
}
END_TEST

/* The one that a signal ends has refused its own. */
START_TEST(a_signal_to_one_leaves_the_growth_of_others)
{
	begin(4, 0);
	join(&w.procs[0], 0, 20 * MIB);
	join(&w.procs[1], 0, 30 * MIB);
	join(&w.procs[2], 1, 50 * MIB);
	grow(&w.procs[0], 10);
	grow(&w.procs[1], 30);
	tick(10);
	parties_ends(w.parties, w.procs[0].id, w.now);
	for (int i = 0; i < 1000; i++)
		tick(10);
	ck_assert_uint_eq(w.procs[0].total[0], 20 * MIB);
	ck_assert_uint_eq(w.procs[1].total[0], 60 * MIB);
	end();
}
END_TEST

/* The others have said once that they want to run. */
START_TEST(what_others_want_outlives_one_that_is_paused)
{
	begin(5, 0);
	join(&w.procs[0], 0, 40 * MIB);
	join(&w.procs[1], 0, 30 * MIB);
	join(&w.procs[2], 1, 30 * MIB);
	grow(&w.procs[2], 40);
	for (int i = 0; i < 1000 && w.procs[2].total[0] < 70 * MIB; i++)
		tick(10);
	ck_assert_int_eq(w.procs[0].does, OUT);
	parties_paused(w.parties, w.procs[1].id, true, false, w.now);
	for (int i = 0; i < 500; i++)
		tick(10);
	ck_assert_int_eq(w.procs[0].does, OUT);
	/* So does what it wants itself. */
	parties_paused(w.parties, w.procs[0].id, true, false, w.now);
	parties_paused(w.parties, w.procs[0].id, false, false, w.now);
	leave(&w.procs[1]);
	for (int i = 0; i < 500 && w.procs[0].does != RUNS; i++)
		tick(10);
	ck_assert_int_eq(w.procs[0].does, RUNS);
	end();
}
END_TEST

static bool is_ordered(enum party_order_kind kind, uint32_t id)
{
	w.n = 0;
	parties_decide(w.parties, w.now, keep, NULL);
	for (size_t i = 0; i < w.n; i++)
		if (w.queue[i].order.kind == kind && w.queue[i].order.id == id)
			return true;
	return false;
}

static void wait_for_order(enum party_order_kind kind, uint32_t id)
{
	for (int i = 0; !is_ordered(kind, id); i++) {
		ck_assert_int_lt(i, 2000);
		w.now += 10;
	}
}

/* What a process has on each of two GPUs. */
static void need_two(uint32_t id, uint64_t mapped, uint64_t total)
{
	for (int g = 0; g < 2; g++)
		parties_need(w.parties, id, g, mapped, total, w.now);
}

static void end_move(uint32_t id, uint64_t mapped)
{
	parties_mapped(w.parties, id, mapped, w.now);
	parties_ended(w.parties, id, TURNS_OK, w.now);
}

/* What it has on each of them is known at the end of a yield and of a fill, before it says so. */
START_TEST(one_on_two_gpus_takes_turns)
{
	uint32_t two, one;

	begin(6, 0);
	two = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	need_two(two, 60 * MIB, 60 * MIB);
	one = parties_join(w.parties, 1000, "one", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, one, 0, 40 * MIB, 40 * MIB, w.now);
	parties_grow(w.parties, one, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, two);
	end_move(two, 0);
	ck_assert(!is_ordered(PARTY_YIELD, two));
	need_two(two, 0, 60 * MIB);
	parties_need(w.parties, one, 0, 70 * MIB, 70 * MIB, w.now);
	parties_want(w.parties, two, w.now);
	wait_for_order(PARTY_YIELD, one);
	parties_freed(w.parties, one, 30 * MIB, w.now);
	end_move(one, 40 * MIB);
	parties_want(w.parties, one, w.now);
	ck_assert(is_ordered(PARTY_ROOM, two));
	end_move(two, 120 * MIB);
	/* The other one's turn has not come. */
	ck_assert(!is_ordered(PARTY_ROOM, one));
	parties_check(w.parties);
	end();
}
END_TEST

/* On which of them it has what it took before it failed it says a moment later. */
START_TEST(one_on_two_gpus_keeps_what_a_failed_fill_took)
{
	struct turns *t;
	uint32_t two;

	begin(6, 0);
	t = parties_turns(w.parties);
	two = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	need_two(two, 0, 60 * MIB);
	parties_paused(w.parties, two, false, true, w.now);
	wait_for_order(PARTY_YIELD, two);
	end_move(two, 0);
	parties_paused(w.parties, two, false, false, w.now);
	parties_want(w.parties, two, w.now);
	wait_for_order(PARTY_ROOM, two);
	parties_mapped(w.parties, two, 60 * MIB, w.now);
	parties_ended(w.parties, two, TURNS_FAILED, w.now);
	ck_assert(!is_ordered(PARTY_ROOM, two));
	for (int g = 0; g < 2; g++)
		ck_assert_int_eq(books_free(t, g), 40 * MIB);
	parties_need(w.parties, two, 0, 0, 60 * MIB, w.now);
	ck_assert_int_eq(books_free(t, 0), 100 * MIB);
	end();
}
END_TEST

/* The bytes of the order that it has. */
static uint64_t ordered_bytes(enum party_order_kind kind, uint32_t id)
{
	for (size_t i = 0; i < w.n; i++)
		if (w.queue[i].order.kind == kind && w.queue[i].order.id == id)
			return w.queue[i].order.bytes;
	ck_abort_msg("no such order");
}

/* 30 MiB are missing on the first GPU: of its two processes each gives its part, and that on the other GPU nothing. */
START_TEST(each_gives_what_its_gpu_lacks)
{
	uint32_t large, small, far, one;

	begin(6, 0);
	large = parties_join(w.parties, 1000, "many", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, large, 0, 40 * MIB, 40 * MIB, w.now);
	small = parties_join(w.parties, 1000, "many", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, small, 0, 20 * MIB, 20 * MIB, w.now);
	far = parties_join(w.parties, 1000, "many", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, far, 1, 60 * MIB, 60 * MIB, w.now);
	one = parties_join(w.parties, 1000, "one", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, one, 0, 40 * MIB, 40 * MIB, w.now);
	parties_grow(w.parties, one, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, large);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, large) >> 20, 20);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, small) >> 20, 10);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, far), 0);
	end();
}
END_TEST

static uint32_t join_on(const char *job, int gpu, uint64_t mapped, uint64_t total)
{
	uint32_t id = parties_join(w.parties, 1000, job, TURNS_BATCH, 1, w.now);

	parties_need(w.parties, id, gpu, mapped * MIB, total * MIB, w.now);
	return id;
}

/* Two jobs of two processes, each with a GPU: the second one gets room on both while the first one still gives. */
START_TEST(room_comes_while_others_give)
{
	uint32_t giver[2], taker[2];

	begin(6, 0);
	for (int g = 0; g < 2; g++)
		giver[g] = join_on("gives", g, 70, 70);
	for (int g = 0; g < 2; g++) {
		taker[g] = join_on("takes", g, 0, 60);
		parties_paused(w.parties, taker[g], false, true, w.now);
	}
	wait_for_order(PARTY_YIELD, taker[0]);
	for (int g = 0; g < 2; g++) {
		end_move(taker[g], 0);
		parties_paused(w.parties, taker[g], false, false, w.now);
		parties_want(w.parties, taker[g], w.now);
	}
	wait_for_order(PARTY_YIELD, giver[0]);
	for (int g = 0; g < 2; g++)
		is_drained(giver[g]);
	wait_for_order(PARTY_SAY, giver[0]);
	parties_freed(w.parties, giver[0], 10 * MIB, w.now);
	/* The other one may fail, so that both run on. */
	ck_assert(!is_ordered(PARTY_ROOM, taker[0]));
	parties_freed(w.parties, giver[1], 20 * MIB, w.now);
	wait_for_order(PARTY_ROOM, taker[0]);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, taker[0]) >> 20, 40);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, taker[1]) >> 20, 50);
	parties_freed(w.parties, giver[0], 30 * MIB, w.now);
	wait_for_order(PARTY_ROOM, taker[0]);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, taker[0]) >> 20, 60);
	/* That fails late: it is out all the same, since others have what it has freed. */
	parties_mapped(w.parties, giver[1], 50 * MIB, w.now);
	parties_ended(w.parties, giver[1], TURNS_FAILED, w.now);
	ck_assert(!is_ordered(PARTY_ROOM, giver[0]));
	ck_assert(parties_is_out(w.parties, giver[1]));
	parties_check(w.parties);
	end();
}
END_TEST

static void fail_move(uint32_t id)
{
	wait_for_order(PARTY_YIELD, id);
	parties_ended(w.parties, id, TURNS_TIMEOUT, w.now);
}

/* Two processes of a job are to go out for an allocation of another job, and the first one has done so, or failed. */
static void begin_two(uint32_t *first, uint32_t *second, uint32_t *other, enum turns_end end)
{
	*first = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, *first, 0, 30 * MIB, 30 * MIB, w.now);
	*second = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, *second, 0, 30 * MIB, 30 * MIB, w.now);
	*other = parties_join(w.parties, 1000, "other", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, *other, 0, 40 * MIB, 40 * MIB, w.now);
	parties_grow(w.parties, *other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, *first);
	if (end == TURNS_OK)
		end_move(*first, 0);
	else
		parties_ended(w.parties, *first, end, w.now);
}

/* Both are out, and there is room for both. */
static void have_room(uint32_t *first, uint32_t *second)
{
	uint32_t other;

	begin_two(first, second, &other, TURNS_OK);
	end_move(*second, 0);
	parties_want(w.parties, *first, w.now);
	parties_leave(w.parties, other, w.now);
	wait_for_order(PARTY_ROOM, *second);
}

/* 30 MiB are missing on the first GPU, of whose processes each gives its part. */
static void give_two(uint32_t giver[2], int gpu, uint32_t *other)
{
	begin(6, 0);
	giver[0] = join_on("gives", 0, 40, 40);
	giver[1] = join_on("gives", gpu, 20, 20);
	*other = join_on("other", 0, 40, 40);
	parties_grow(w.parties, *other, 1, 0, (gpu ? 50 : 30) * MIB, w.now);
	wait_for_order(PARTY_YIELD, giver[0]);
	for (int i = 0; i < 2; i++)
		is_drained(giver[i]);
	wait_for_order(PARTY_SAY, giver[0]);
}

/* It waits for the others before it says that it is out, if they share memory. */
START_TEST(one_that_gives_nothing_keeps_no_room_back)
{
	uint32_t giver[2], other;

	give_two(giver, 1, &other);
	parties_freed(w.parties, giver[0], 30 * MIB, w.now);
	ck_assert(is_ordered(PARTY_TRY, other));
	end();
}
END_TEST

/* The other one has freed all, and says nothing more: it waits for this one. */
START_TEST(one_that_is_left_alone_keeps_no_room_back)
{
	uint32_t giver[2], other;

	give_two(giver, 0, &other);
	parties_freed(w.parties, giver[0], 20 * MIB, w.now);
	ck_assert(!is_ordered(PARTY_TRY, other));
	parties_leave(w.parties, giver[1], w.now);
	ck_assert(is_ordered(PARTY_TRY, other));
	end();
}
END_TEST

/* The others are out, and have given memory. It runs on, or is at rest, and then those come back, and it does. */
START_TEST(one_that_fails_before_it_gives_brings_all_back)
{
	for (int rests = 0; rests < 2; rests++) {
		uint32_t giver[2], other;

		give_two(giver, 0, &other);
		parties_freed(w.parties, giver[0], 20 * MIB, w.now);
		if (rests)
			parties_mapped(w.parties, giver[1], 20 * MIB, w.now);
		parties_ended(w.parties, giver[1], TURNS_FAILED, w.now);
		ck_assert(!is_ordered(PARTY_TRY, other));
		ck_assert_int_eq(parties_is_out(w.parties, giver[1]), rests);
		end_move(giver[0], 20 * MIB);
		ck_assert(is_ordered(PARTY_ROOM, giver[0]));
		ck_assert_uint_eq(w.n, 1U + (unsigned int)rests);
		end();
	}
}
END_TEST

/* What it takes back is its own, also when it is alone. */
START_TEST(one_that_is_left_of_two_comes_back)
{
	uint32_t giver[2], other;

	give_two(giver, 0, &other);
	parties_freed(w.parties, giver[0], 20 * MIB, w.now);
	parties_ended(w.parties, giver[1], TURNS_FAILED, w.now);
	end_move(giver[0], 20 * MIB);
	parties_leave(w.parties, giver[1], w.now);
	ck_assert(is_ordered(PARTY_ROOM, giver[0]));
	parties_mapped(w.parties, giver[0], 25 * MIB, w.now);
	ck_assert(!is_ordered(PARTY_TRY, other));
	ck_assert_int_eq(books_free(parties_turns(w.parties), 0), 20 * MIB);
	end();
}
END_TEST

/* They are called off, and may have taken their room by then. */
START_TEST(room_counts_until_it_is_given_back)
{
	struct turns *t;
	uint32_t first, second;

	begin(12, 0);
	t = parties_turns(w.parties);
	have_room(&first, &second);
	parties_need(w.parties, first, 0, 0, 30 * MIB, w.now);
	parties_paused(w.parties, first, true, false, w.now);
	wait_for_order(PARTY_YIELD, second);
	parties_freed(w.parties, first, 10 * MIB, w.now);
	parties_freed(w.parties, second, 10 * MIB, w.now);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	ck_assert_int_le(books_free(t, 0), CAPACITY - 40 * MIB);
	end_move(first, 0);
	end_move(second, 0);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	ck_assert_int_eq(books_free(t, 0), CAPACITY);
	end();
}
END_TEST

/* It could not put back what it had unmapped: nobody has got anything, and it does not run. */
START_TEST(one_that_gives_nothing_and_rests_gets_its_turn)
{
	uint32_t one, other;

	begin(6, 0);
	one = join_on("one", 0, 60, 60);
	other = join_on("other", 0, 40, 40);
	parties_grow(w.parties, other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, one);
	parties_mapped(w.parties, one, 60 * MIB, w.now);
	parties_ended(w.parties, one, TURNS_FAILED, w.now);
	ck_assert(!is_ordered(PARTY_YIELD, one));
	parties_want(w.parties, one, w.now);
	parties_leave(w.parties, other, w.now);
	wait_for_order(PARTY_ROOM, one);
	end();
}
END_TEST

/* It did not take its room, so that others have it; it has begun to take it, and may have less now. */
START_TEST(one_is_told_that_it_has_less_room)
{
	uint32_t one, other;

	begin(6, 0);
	one = join_on("one", 0, 0, 60);
	parties_paused(w.parties, one, false, true, w.now);
	other = join_on("other", 0, 30, 30);
	wait_for_order(PARTY_YIELD, one);
	end_move(one, 0);
	parties_shown(w.parties, one, 0, 0, w.now, w.now);
	parties_paused(w.parties, one, false, false, w.now);
	parties_want(w.parties, one, w.now);
	wait_for_order(PARTY_ROOM, one);
	w.now += 31000;
	parties_grow(w.parties, other, 1, 0, 20 * MIB, w.now);
	wait_for_order(PARTY_TRY, other);
	parties_need(w.parties, other, 0, 50 * MIB, 50 * MIB, w.now);
	wait_for_order(PARTY_ROOM, one);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, one) >> 20, 50);
	end();
}
END_TEST

/*
 * On the other GPU the first one was let allocate. It may have memory there for a while; later it has nothing: the
 * driver had no memory after all, say.
 */
static void give_after_growth(double later_ms, uint64_t bytes)
{
	uint32_t first, second, other;

	begin(6, 0);
	first = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, first, 0, 40 * MIB, 40 * MIB, w.now);
	second = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, second, 0, 20 * MIB, 20 * MIB, w.now);
	parties_grow(w.parties, first, 1, 1, 10 * MIB, w.now);
	wait_for_order(PARTY_TRY, first);
	w.now += later_ms;
	other = parties_join(w.parties, 1000, "other", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, other, 0, 40 * MIB, 40 * MIB, w.now);
	parties_grow(w.parties, other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, first);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, first), bytes);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, second) >> 20, 10);
	end();
}

START_TEST(one_whose_growth_failed_gives_its_part)
{
	give_after_growth(0, TURNS_ALL);
	give_after_growth(3000, 20 * MIB);
}
END_TEST

/* The room that was too little for both is enough for the other one. */
START_TEST(one_of_two_ends_while_they_get_room)
{
	begin(7, 0);
	join(&w.procs[0], 0, 20 * MIB);
	join(&w.procs[1], 0, 40 * MIB);
	join(&w.procs[2], 1, 40 * MIB);
	grow(&w.procs[2], 30);
	for (int i = 0; i < 1000 && w.procs[2].total[0] < 70 * MIB; i++)
		tick(10);
	for (int i = 0; i < 1000 && w.procs[2].does != YIELDS; i++)
		tick(10);
	ck_assert_int_eq(w.procs[0].does, OUT);
	leave(&w.procs[1]);
	for (int i = 0; i < 100; i++)
		tick(10);
	ck_assert_int_eq(w.procs[0].does, RUNS);
	end();
}
END_TEST

/* It has less room than it needs, and a process that joins is to go out as well: that gives it no more room. */
START_TEST(one_joins_while_the_job_has_too_little_room)
{
	uint32_t first, second, other, third, fourth;

	begin(6, 0);
	begin_two(&first, &second, &other, TURNS_OK);
	end_move(second, 0);
	parties_need(w.parties, first, 0, 0, 30 * MIB, w.now);
	parties_need(w.parties, second, 0, 0, 30 * MIB, w.now);
	/* With two GPUs it gets its room at once. */
	parties_need(w.parties, second, 1, 0, 1 * MIB, w.now);
	wait_for_order(PARTY_TRY, other);
	third = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	wait_for_order(PARTY_YIELD, third);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, third), TURNS_ALL);
	parties_leave(w.parties, other, w.now);
	join_on("other", 0, 10, 10);
	parties_want(w.parties, first, w.now);
	/* There is room for the three, but not for the next one, which follows. */
	ck_assert(!is_ordered(PARTY_ROOM, first));
	end_move(third, 0);
	fourth = join_on("two", 0, 50, 50);
	wait_for_order(PARTY_YIELD, fourth);
	end_move(fourth, 0);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	parties_check(w.parties);
	end();
}
END_TEST

/* The one that is out already comes back at once, and nobody is let go. */
START_TEST(one_that_is_out_comes_back_if_the_other_one_fails)
{
	uint32_t first, second, other;

	begin(9, 0);
	begin_two(&first, &second, &other, TURNS_OK);
	parties_ended(w.parties, second, TURNS_NOMEM, w.now);
	ck_assert(is_ordered(PARTY_ROOM, first));
	for (size_t i = 0; i < w.n; i++)
		ck_assert_int_eq(w.queue[i].order.kind, PARTY_ROOM);
	end_move(first, 30 * MIB);
	ck_assert(!is_ordered(PARTY_LET_GO, second));
	ck_assert(!is_ordered(PARTY_YIELD, first));
	parties_check(w.parties);
	end();
}
END_TEST

/* Also if nobody else is out. */
START_TEST(one_that_fails_half_way_comes_back)
{
	uint32_t first, second, other;

	begin(9, 0);
	begin_two(&first, &second, &other, TURNS_NOMEM);
	parties_freed(w.parties, second, 10 * MIB, w.now);
	parties_mapped(w.parties, second, 20 * MIB, w.now);
	parties_ended(w.parties, second, TURNS_FAILED, w.now);
	ck_assert(is_ordered(PARTY_ROOM, second));
	end_move(second, 30 * MIB);
	ck_assert(!is_ordered(PARTY_LET_GO, first));
	parties_check(w.parties);
	end();
}
END_TEST

START_TEST(the_memory_of_one_that_joins_in_a_hand_over_counts)
{
	uint32_t first, second, other, third;

	begin(9, 0);
	begin_two(&first, &second, &other, TURNS_OK);
	third = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, third, 1, 60 * MIB, 60 * MIB, w.now);
	ck_assert_int_eq(books_free(parties_turns(w.parties), 1), 40 * MIB);
	/* What is out may have to come back. */
	parties_need(w.parties, first, 0, 0, 30 * MIB, w.now);
	ck_assert_int_eq(books_free(parties_turns(w.parties), 0), 0);
	end();
}
END_TEST

/* Another one joined meanwhile, and cannot follow. What the first one has given is not its own any more. */
START_TEST(one_that_has_given_memory_does_not_come_back)
{
	uint32_t first, second, other;

	begin(9, 0);
	first = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, first, 0, 60 * MIB, 60 * MIB, w.now);
	other = parties_join(w.parties, 1000, "other", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, other, 0, 40 * MIB, 40 * MIB, w.now);
	parties_grow(w.parties, other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, first);
	parties_freed(w.parties, first, 30 * MIB, w.now);
	wait_for_order(PARTY_TRY, other);
	second = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	end_move(first, 30 * MIB);
	fail_move(second);
	/* Once more, and nobody else is asked for anything. */
	ck_assert(is_ordered(PARTY_YIELD, second));
	ck_assert_uint_eq(w.n, 1);
	parties_ended(w.parties, second, TURNS_TIMEOUT, w.now);
	ck_assert(is_ordered(PARTY_LET_GO, second));
	parties_check(w.parties);
	end();
}
END_TEST

/*
 * One is out when it joins, as an earlier daemon has left it, and the other one runs, and cannot rest
 * without it. The first one gives nothing, and gets its turn all the same.
 */
START_TEST(one_that_was_out_gets_its_turn_when_the_other_is_let_go)
{
	uint32_t out, runs;

	begin(8, 0);
	out = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, out, 0, 0, 30 * MIB, w.now);
	parties_paused(w.parties, out, false, true, w.now);
	runs = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, runs, 0, 30 * MIB, 30 * MIB, w.now);
	fail_move(runs);
	end_move(out, 0);
	parties_paused(w.parties, out, false, false, w.now);
	parties_want(w.parties, out, w.now);
	fail_move(runs);
	end_move(out, 0);
	wait_for_order(PARTY_LET_GO, runs);
	parties_leave(w.parties, runs, w.now);
	wait_for_order(PARTY_ROOM, out);
	end_move(out, 30 * MIB);
	parties_check(w.parties);
	end();
}
END_TEST

START_TEST(one_that_cannot_give_is_not_idle)
{
	struct turns_view view;
	uint32_t idle, grows;

	begin(9, 0);
	idle = parties_join(w.parties, 1000, "idle", TURNS_INTERACTIVE, 1, w.now);
	parties_need(w.parties, idle, 0, 60 * MIB, 60 * MIB, w.now);
	grows = parties_join(w.parties, 1000, "grows", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, grows, 0, 30 * MIB, 30 * MIB, w.now);
	parties_grow(w.parties, grows, 1, 0, 30 * MIB, w.now);
	parties_idle(w.parties, idle, true, w.now);
	fail_move(idle);
	w.now += 10;
	ck_assert(!is_ordered(PARTY_YIELD, idle));
	parties_look(w.parties, idle, w.now, &view);
	ck_assert_str_eq(view.state, "runs");
	end();
}
END_TEST

/* No call has come. */
START_TEST(others_of_its_job_end_no_gap_of_one)
{
	double limit;
	uint32_t idle;

	begin(9, 0);
	idle = parties_join(w.parties, 1000, "job", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, idle, 0, 60 * MIB, 60 * MIB, w.now);
	limit = parties_idle_limit(w.parties, idle);
	parties_idle(w.parties, idle, true, w.now);
	for (int i = 0; i < 10; i++) {
		w.now += 60000;
		parties_leave(w.parties,
			      parties_join(w.parties, 1000, "job", TURNS_BATCH, 1, w.now), w.now);
		ck_assert(!is_ordered(PARTY_LIMIT, idle));
	}
	for (int i = 0; i < 4; i++) {
		ck_assert_double_eq(parties_idle_limit(w.parties, idle), limit);
		w.now += 60000;
		parties_idle(w.parties, idle, false, w.now);
		parties_idle(w.parties, idle, true, w.now);
		ck_assert_int_eq(is_ordered(PARTY_LIMIT, idle), i == 3);
	}
	end();
}
END_TEST

/* It runs beside nobody then; two would run beside each other. */
START_TEST(the_context_of_one_process_may_go)
{
	for (int processes = 1; processes <= 2; processes++) {
		uint32_t big, small[2];

		begin(13, 0);
		turns_capacity(parties_turns(w.parties), 0, CAPACITY);
		for (int i = 0; i < processes; i++) {
			small[i] = parties_join(w.parties, 1000, "small", TURNS_BATCH, 1, w.now);
			parties_context_after(w.parties, small[i], 100);
			parties_need(w.parties, small[i], 0, 10 * MIB, 10 * MIB, w.now);
			parties_context(w.parties, small[i], 0, 10 * MIB, w.now);
		}
		big = parties_join(w.parties, 1000, "big", TURNS_BATCH, 1, w.now);
		parties_need(w.parties, big, 0, 0, CAPACITY, w.now);
		parties_paused(w.parties, big, false, true, w.now);
		wait_for_order(PARTY_YIELD, big);
		end_move(big, 0);
		parties_paused(w.parties, big, false, false, w.now);
		parties_want(w.parties, big, w.now);
		turns_there(parties_turns(w.parties), 0, CAPACITY - 5 * MIB);
		for (int i = 0; i < 1000 && !is_ordered(PARTY_YIELD, small[0]); i++)
			w.now += 10;
		ck_assert_int_eq(w.n > 0, processes == 1);
		ck_assert(processes == 2 || w.queue[0].order.context);
		end();
	}
}
END_TEST

/* A launcher without memory does so at the second request, and nothing is freed. */
START_TEST(one_that_was_out_gets_its_turn_when_the_other_follows)
{
	uint32_t out, runs;

	begin(10, 0);
	runs = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	out = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, out, 0, 0, 30 * MIB, w.now);
	parties_paused(w.parties, out, false, true, w.now);
	fail_move(runs);
	end_move(out, 0);
	parties_paused(w.parties, out, false, false, w.now);
	parties_want(w.parties, out, w.now);
	wait_for_order(PARTY_YIELD, runs);
	end_move(runs, 0);
	wait_for_order(PARTY_ROOM, out);
	parties_check(w.parties);
	end();
}
END_TEST

/* A trim has called off the fill of one that had its memory back, and the commit has come to nobody. */
START_TEST(one_that_is_held_again_runs_with_its_job)
{
	uint32_t first, second;

	begin(12, 0);
	have_room(&first, &second);
	is_drained(first);
	ck_assert(!is_ordered(PARTY_SAY, first));
	is_drained(second);
	ck_assert(is_ordered(PARTY_SAY, first));
	end_move(second, 30 * MIB);
	ck_assert(!is_ordered(PARTY_SAY, first));
	is_drained(first);
	ck_assert(is_ordered(PARTY_SAY, first));
	ck_assert_str_eq(w.queue[0].text, "commit");
	end_move(first, 30 * MIB);
	parties_check(w.parties);
	end();
}
END_TEST

/* The first one has its memory, and gives it again. Meanwhile a third one joins, and there is room for it, too. */
START_TEST(room_does_not_stop_the_undoing_of_a_fill)
{
	uint32_t first, second, third;

	begin(12, 0);
	have_room(&first, &second);
	is_drained(first);
	parties_ended(w.parties, second, TURNS_FAILED, w.now);
	wait_for_order(PARTY_YIELD, first);
	third = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, third, 0, 10 * MIB, 10 * MIB, w.now);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	end_move(first, 0);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	ck_assert(!is_ordered(PARTY_ROOM, first));
	parties_check(w.parties);
	end();
}
END_TEST

/* Its user pauses it while it has room. It is out as before, and gets room again. */
START_TEST(one_that_gives_nothing_while_it_has_room_gets_it_again)
{
	uint32_t one, other;

	begin(13, 0);
	one = parties_join(w.parties, 1000, "one", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, one, 0, 0, 60 * MIB, w.now);
	parties_paused(w.parties, one, false, true, w.now);
	other = parties_join(w.parties, 1000, "other", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, other, 0, 30 * MIB, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, one);
	end_move(one, 0);
	parties_paused(w.parties, one, false, false, w.now);
	parties_want(w.parties, one, w.now);
	wait_for_order(PARTY_ROOM, one);
	parties_paused(w.parties, one, true, false, w.now);
	wait_for_order(PARTY_YIELD, one);
	parties_ended(w.parties, one, TURNS_FAILED, w.now);
	parties_paused(w.parties, one, false, false, w.now);
	parties_want(w.parties, one, w.now);
	wait_for_order(PARTY_ROOM, one);
	parties_check(w.parties);
	end();
}
END_TEST

/* It gives no end of its fill then. What both have got is taken back, and their turn comes when it may. */
START_TEST(one_that_is_paused_while_its_job_gets_room)
{
	uint32_t first, second, other;

	begin(11, 0);
	begin_two(&first, &second, &other, TURNS_OK);
	end_move(second, 0);
	parties_want(w.parties, first, w.now);
	parties_need(w.parties, other, 0, 70 * MIB, 70 * MIB, w.now);
	wait_for_order(PARTY_YIELD, other);
	parties_freed(w.parties, other, 70 * MIB, w.now);
	end_move(other, 0);
	parties_need(w.parties, other, 0, 0, 70 * MIB, w.now);
	parties_want(w.parties, other, w.now);
	wait_for_order(PARTY_ROOM, second);
	is_drained(second);
	parties_paused(w.parties, first, true, false, w.now);
	wait_for_order(PARTY_YIELD, second);
	end_move(first, 0);
	end_move(second, 0);
	wait_for_order(PARTY_ROOM, other);
	end_move(other, 70 * MIB);
	parties_paused(w.parties, first, false, false, w.now);
	parties_want(w.parties, first, w.now);
	parties_want(w.parties, second, w.now);
	wait_for_order(PARTY_YIELD, other);
	end_move(other, 0);
	wait_for_order(PARTY_ROOM, second);
	parties_check(w.parties);
	end();
}
END_TEST

/* A process of the job gives or takes memory: if it fails, the others take theirs back. */
static bool is_moving(int job)
{
	for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++)
		if (p->id && p->job == job && (p->does == YIELDS || p->does == FILLS))
			return true;
	return false;
}

/* The memory of GPU 0 that one more process can have, in a job that can run with it. */
static bool has_place(int job)
{
	uint64_t has = MIB, needs = MIB;

	for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++) {
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

		for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++)
			has += p->id ? p->mapped[g] : 0;
		ck_assert_msg(has <= CAPACITY, "%lu MiB are on GPU %d of %lu", has / MIB, g,
			      CAPACITY / MIB);
	}
}

/* Whoever is out runs again when nothing happens any more. */
static void settle(void)
{
	int out = 1;

	w.failing = 0;
	for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++)
		p->went_in = 0;
	for (int i = 0; i < 20000 && out; i++) {
		tick(20);
		check_memory();
		out = 0;
		for (struct proc *p = w.procs; p < w.procs + PROCESSES; p++)
			out += p->id && p->does != RUNS && !p->went_in;
	}
	ck_assert_msg(!out, "%d processes never ran again", out);
}

/* NVML knows nothing of one that joins, unless it says so. */
START_TEST(what_is_shown_of_its_processes_counts_together)
{
	struct proc *first = w.procs, *second = w.procs + 1;
	struct turns *t;

	begin(1, 0);
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
	end();
}
END_TEST

START_TEST(any_lives)
{
	begin((unsigned int)_i + 1, _i % 2 ? 10 : 0);
	for (int i = 0; i < 600; i++) {
		live(&w.procs[draw(PROCESSES)]);
		tick(20);
		check_together();
		check_memory();
	}
	settle();
	end();
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
	tcase_add_test(cases, one_on_two_gpus_takes_turns);
	tcase_add_test(cases, one_on_two_gpus_keeps_what_a_failed_fill_took);
	tcase_add_test(cases, each_gives_what_its_gpu_lacks);
	tcase_add_test(cases, one_whose_growth_failed_gives_its_part);
	tcase_add_test(cases, room_comes_while_others_give);
	tcase_add_test(cases, one_that_gives_nothing_keeps_no_room_back);
	tcase_add_test(cases, one_that_is_left_alone_keeps_no_room_back);
	tcase_add_test(cases, one_that_fails_before_it_gives_brings_all_back);
	tcase_add_test(cases, one_that_is_left_of_two_comes_back);
	tcase_add_test(cases, room_counts_until_it_is_given_back);
	tcase_add_test(cases, one_that_gives_nothing_and_rests_gets_its_turn);
	tcase_add_test(cases, one_is_told_that_it_has_less_room);
	tcase_add_test(cases, one_joins_while_the_job_has_too_little_room);
	tcase_add_test(cases, one_of_two_ends_while_they_get_room);
	tcase_add_test(cases, one_that_is_out_comes_back_if_the_other_one_fails);
	tcase_add_test(cases, one_that_fails_half_way_comes_back);
	tcase_add_test(cases, the_memory_of_one_that_joins_in_a_hand_over_counts);
	tcase_add_test(cases, one_that_has_given_memory_does_not_come_back);
	tcase_add_test(cases, one_that_was_out_gets_its_turn_when_the_other_is_let_go);
	tcase_add_test(cases, others_of_its_job_end_no_gap_of_one);
	tcase_add_test(cases, the_context_of_one_process_may_go);
	tcase_add_test(cases, one_that_was_out_gets_its_turn_when_the_other_follows);
	tcase_add_test(cases, one_that_cannot_give_is_not_idle);
	tcase_add_test(cases, one_that_is_paused_while_its_job_gets_room);
	tcase_add_test(cases, one_that_is_held_again_runs_with_its_job);
	tcase_add_test(cases, room_does_not_stop_the_undoing_of_a_fill);
	tcase_add_test(cases, one_that_gives_nothing_while_it_has_room_gets_it_again);
	tcase_add_test(cases, what_is_shown_of_its_processes_counts_together);
	tcase_add_loop_test(lives, any_lives, 0, 300);
	tcase_set_timeout(lives, 60);
	suite_add_tcase(suite, cases);
	suite_add_tcase(suite, lives);
	return check_suite_run(suite);
}
