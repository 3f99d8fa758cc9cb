/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether ranks come to rest together: a model of processes that launch work for their GPUs, where
 * the work of one waits for that of others. Random programs of several shapes; the time and the
 * calls that it takes are bounded.
 */
#include "tools/job/party/steps.h"

#include "tests/check_suite.h"

#include <stdio.h>
#include <string.h>

#define RANKS_MAX 16
#define LIMIT_MS  30000
#define PROGRAMS  200

/* As in checkpoint/gate/quiet.c, except the first. */
#define CALLS_PER_MS 3
#define STUCK_MS     3
#define IDLE_CPU_MS  5

/* What a call of a rank does. */
struct call {
	uint32_t group; /* ranks whose GPUs wait for each other here, as bits; 0: only its own */
	uint32_t key;   /* the same in all of them */
	uint32_t meet;  /* not 0: before it the CPU waits until all ranks have come to this one */
	int ms;         /* the GPU works so long on it */
};

struct rank {
	uint32_t made;      /* calls */
	uint32_t done;      /* by the GPU */
	int64_t busy_until; /* for the call that is next */
	bool said;          /* drained, as last reported */
	int64_t late_ms;    /* when what changed is reported */
	uint32_t met;
	uint32_t left; /* calls of the step that it makes */
	uint32_t came;
	int64_t moved_ms; /* when it last made one */
};

static bool pairs_are_known;

static struct model {
	void (*call)(int rank, uint32_t index, struct call *call);
	int n;
	uint32_t random;
	struct rank ranks[RANKS_MAX];
	uint32_t extra; /* calls of all since the beginning of the pause */
	int64_t now;
} m;

static uint32_t draw(uint32_t below)
{
	m.random = m.random * 1664525u + 1013904223u;
	return (m.random >> 8) % below;
}

/* A number that depends on nothing but what it is of. */
static uint32_t hash(uint32_t a, uint32_t b)
{
	uint32_t h = a * 2654435761u ^ b * 2246822519u;

	h = (h ^ h >> 15) * 3266489917u;
	return h ^ h >> 13;
}

static bool idle(const struct rank *r)
{
	return r->done == r->made;
}

/* True where the GPUs of all of the group have come to this call. */
static bool group_is_there(const struct call *c)
{
	for (int i = 0; i < m.n; i++) {
		struct call other;

		if (!(c->group >> i & 1))
			continue;
		m.call(i, m.ranks[i].done, &other);
		/* Who is beyond it has been there. */
		if (other.group && other.key == c->key && !idle(&m.ranks[i]))
			continue;
		return false;
	}
	return true;
}

/* The GPU of rank @i does what it can of one call. */
static bool work(int i)
{
	struct rank *r = &m.ranks[i];
	struct call c;

	if (idle(r))
		return false;
	m.call(i, r->done, &c);
	if (c.group) {
		if (!group_is_there(&c))
			return false;
		for (int j = 0; j < m.n; j++)
			if (c.group >> j & 1)
				m.ranks[j].done++;
		return true;
	}
	if (!r->busy_until)
		r->busy_until = m.now + c.ms;
	if (m.now < r->busy_until)
		return false;
	r->busy_until = 0;
	r->done++;
	return true;
}

static void work_all(void)
{
	bool moved;

	do {
		moved = false;
		for (int i = 0; i < m.n; i++)
			moved |= work(i);
	} while (moved);
}

/* The CPU of rank @i makes its next call, if it does not wait for another CPU. */
static bool make_call(int i)
{
	struct rank *r = &m.ranks[i];
	struct call c;

	m.call(i, r->made, &c);
	if (c.meet) {
		if (r->met < c.meet)
			r->met = c.meet;
		for (int j = 0; j < m.n; j++)
			if (m.ranks[j].met < c.meet)
				return false;
	}
	r->made++;
	return true;
}

/* A rank that comes to a meeting is seen there though it makes no call. */
static void come_to_meetings(void)
{
	struct call c;

	for (int i = 0; i < m.n; i++) {
		m.call(i, m.ranks[i].made, &c);
		if (c.meet > m.ranks[i].met)
			m.ranks[i].met = c.meet;
	}
}

/* Before the pause: every rank runs, up to @ahead calls before its GPU. */
static void run_freely(uint32_t ahead)
{
	for (uint32_t k = 0; k < 100 + 20 * ahead; k++) {
		int i = (int)draw((uint32_t)m.n);

		for (uint32_t burst = draw(ahead + 1); burst > 0; burst--)
			if (m.ranks[i].made - m.ranks[i].done < ahead)
				make_call(i);
		m.now += draw(3);
		work_all();
	}
}

/*
 * What rank @i does in a millisecond of its step: up to CALLS_PER_MS calls, each but the first
 * when its GPU is done with the last. True when the step is over.
 */
static bool make_step(int i)
{
	struct rank *r = &m.ranks[i];
	struct call c;

	for (int k = 0; k < CALLS_PER_MS && r->left; k++) {
		if ((!idle(r) && r->came) || !make_call(i))
			break;
		m.call(i, r->made - 1, &c);
		r->left = c.group && pairs_are_known ? 0 : r->left - 1;
		r->came++;
		m.extra++;
		r->moved_ms = m.now;
		work_all();
	}
	if (!r->left && idle(r))
		return true;
	return m.now - r->moved_ms > (idle(r) ? IDLE_CPU_MS : STUCK_MS);
}

/* Rank @i says what is to be said by now. */
static void answer(struct steps *steps, int i)
{
	struct rank *r = &m.ranks[i];

	if (steps->ranks[i].asked) {
		if (!make_step(i))
			return;
	} else if (r->said || !idle(r)) {
		r->late_ms = m.now + draw(3);
		return;
	} else if (m.now < r->late_ms) {
		return;
	}
	r->said = idle(r);
	r->left = 0;
	steps_take(steps, (size_t)i, r->said, r->came, m.now);
	r->came = 0;
}

static void tell_launches(struct steps *steps)
{
	struct call c;

	for (int i = 0; i < m.n; i++)
		for (uint32_t k = 0; k < m.ranks[i].made; k++) {
			m.call(i, k, &c);
			steps->ranks[i].launches += c.group != 0;
		}
	steps_begin_waves(steps, m.now);
}

/* Hold all; returns how long it took until all were at rest at once. */
static int64_t come_to_rest(void)
{
	struct steps_rank ranks[RANKS_MAX];
	struct steps steps;
	int64_t begin = m.now;

	steps_begin(&steps, ranks, (size_t)m.n, m.random, m.now);
	if (pairs_are_known)
		tell_launches(&steps);
	for (;; m.now++) {
		enum steps_verdict verdict;
		int first = (int)draw((uint32_t)m.n);

		ck_assert_int_lt(m.now - begin, LIMIT_MS);
		come_to_meetings();
		work_all();
		for (int k = 0; k < m.n; k++)
			answer(&steps, (first + k) % m.n);
		verdict = steps_next(&steps, m.now);
		if (verdict == STEPS_READY)
			break;
		for (int i = 0; verdict == STEPS_GO && i < m.n; i++) {
			m.ranks[i].left = ranks[i].step;
			m.ranks[i].moved_ms = m.now;
		}
	}
	for (int i = 0; i < m.n; i++)
		ck_assert(idle(&m.ranks[i]));
	return m.now - begin;
}

static void check_programs(void (*call)(int, uint32_t, struct call *), int n, uint32_t ahead,
			   int64_t mean_limit_ms)
{
	int64_t sum = 0, most = 0, took;
	uint64_t extra = 0;

	for (uint32_t seed = 1; seed <= PROGRAMS; seed++) {
		memset(&m, 0, sizeof(m));
		m.call = call;
		m.random = seed;
		m.n = n ? n : 2 + (int)draw(4) * 2;
		run_freely(1 + draw(ahead));
		took = come_to_rest();
		sum += took;
		extra += m.extra;
		most = took > most ? took : most;
	}
	printf("# %lld ms and %llu calls in the mean, %lld ms at the most\n",
	       (long long)(sum / PROGRAMS), (unsigned long long)(extra / PROGRAMS),
	       (long long)most);
	ck_assert_int_le(sum / PROGRAMS, mean_limit_ms);
}

/* Calls of its own between two collectives, of which a rank has up to @most more than others. */
static void with_collectives(int rank, uint32_t index, struct call *c, uint32_t period,
			     uint32_t (*group)(int rank, uint32_t turn))
{
	uint32_t turn = index / period, place = index % period;

	memset(c, 0, sizeof(*c));
	if (place != hash((uint32_t)rank, turn) % period)
		return;
	c->group = group(rank, turn);
	c->key = turn * 64 + c->group % 61;
}

static uint32_t all_of_them(int rank, uint32_t turn)
{
	(void)rank, (void)turn;
	return (1u << m.n) - 1;
}

static void world(int rank, uint32_t index, struct call *c)
{
	with_collectives(rank, index, c, 7, all_of_them);
}

static void world_with_long_kernels(int rank, uint32_t index, struct call *c)
{
	with_collectives(rank, index, c, 7, all_of_them);
	c->ms = hash(index, (uint32_t)rank + 99) % 16 ? 0 : 40;
}

/* Pairs for three turns, then those of the same place in the pairs. */
static uint32_t pairs_and_strides(int rank, uint32_t turn)
{
	if (turn % 4 < 3)
		return 3u << (rank & ~1);
	return (rank % 2 ? 0xaaaau : 0x5555u) & ((1u << m.n) - 1);
}

static void groups(int rank, uint32_t index, struct call *c)
{
	with_collectives(rank, index, c, 5, pairs_and_strides);
}

/* Each gives to the next, as a pipeline does; those at the ends have fewer calls. */
static void pipeline(int rank, uint32_t index, struct call *c)
{
	bool first = rank == 0, last = rank == m.n - 1;
	uint32_t period = first || last ? 1 : 2, turn = index / period;
	int left = first || (!last && index % 2) ? rank : rank - 1;

	memset(c, 0, sizeof(*c));
	c->group = 3u << left;
	c->key = turn * 64 + (uint32_t)left;
}

/*
 * Batches pass a pipeline of which all stages use one communicator forward and then back, with calls
 * of their own in between.
 */
static void there_and_back(int rank, uint32_t index, struct call *c)
{
	bool first = rank == 0, last = rank == m.n - 1;
	uint32_t parts = first || last ? 1 : 2, own = 2, batches = 4;
	uint32_t period = 2 * batches * (parts + own), place = index % period;
	uint32_t batch = place / (parts + own), part = place % (parts + own);
	bool back = batch >= batches, before;

	memset(c, 0, sizeof(*c));
	if (part > 0 && part <= own)
		return;
	before = parts == 1 ? last : (part == 0) != back;
	c->group = 3u << (before ? rank - 1 : rank);
	c->key = (index / period * 2 * batches + batch) * 64 + (before ? rank - 1 : rank);
}

/* Rank 0 launches its part before the CPUs meet, the others after it. */
static void meetings(int rank, uint32_t index, struct call *c)
{
	uint32_t turn = index / 7, place = index % 7;

	with_collectives(rank, index, c, 7, all_of_them);
	if (turn % 10 < 9)
		return;
	c->group = place == 3 ? all_of_them(rank, turn) : 0;
	c->key = turn * 64;
	if (place == (rank ? 3 : 5))
		c->meet = 1 + turn / 10;
}

START_TEST(ranks_of_one_group)
{
	check_programs(world, 0, 20, 1000);
}
END_TEST

START_TEST(ranks_that_are_far_ahead)
{
	check_programs(world, 0, 1000, 3000);
}
END_TEST

START_TEST(ranks_whose_kernels_take_long)
{
	check_programs(world_with_long_kernels, 0, 100, 3000);
}
END_TEST

START_TEST(ranks_of_several_groups)
{
	check_programs(groups, 0, 50, 3000);
}
END_TEST

START_TEST(ranks_of_a_pipeline)
{
	check_programs(pipeline, 0, 20, 3000);
}
END_TEST

/* _i: they make known which launches wait for others. */
START_TEST(ranks_of_long_pipelines)
{
	pairs_are_known = _i;
	check_programs(pipeline, 16, 20, 3000);
	for (int n = 4; n <= 16; n *= 2)
		check_programs(there_and_back, n, 40, _i ? 2000 : 10000);
}
END_TEST

START_TEST(ranks_whose_cpus_wait_too)
{
	check_programs(meetings, 0, 50, 3000);
}
END_TEST

/* The kernel of a stuck rank ends before the rank sees its order. */
START_TEST(a_report_that_comes_before_the_answer)
{
	static const struct {
		bool drained;
		uint32_t came;
		int64_t at; /* 0: it has come with the report */
		int64_t next;
		enum steps_verdict verdict;
	} answers[] = {
		{true, 0, 1002, 1002, STEPS_READY}, {true, 1, 1002, 1002, STEPS_READY},
		{false, 1, 1002, 1002, STEPS_WAIT}, {false, 0, 0, 1001, STEPS_WAIT},
		{false, 0, 0, 1200, STEPS_READY},
	};
	struct steps_rank ranks[2];
	struct steps steps;

	steps_begin(&steps, ranks, 2, 1, 0);
	steps_take(&steps, 0, true, 0, 0);
	steps_take(&steps, 1, false, 0, 0);
	ck_assert_int_eq(steps_next(&steps, 1000), STEPS_GO);
	steps_take(&steps, 1, true, 0, 1000);
	steps_take(&steps, 0, true, 1, 1001);
	ck_assert_int_eq(steps_next(&steps, 1001), STEPS_WAIT);
	if (answers[_i].at)
		steps_take(&steps, 1, answers[_i].drained, answers[_i].came, answers[_i].at);
	ck_assert_int_eq(steps_next(&steps, answers[_i].next), answers[_i].verdict);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("steps");
	TCase *tc = tcase_create("steps");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, ranks_of_one_group);
	tcase_add_test(tc, ranks_that_are_far_ahead);
	tcase_add_test(tc, ranks_whose_kernels_take_long);
	tcase_add_test(tc, ranks_of_several_groups);
	tcase_add_test(tc, ranks_of_a_pipeline);
	tcase_add_loop_test(tc, ranks_of_long_pipelines, 0, 2);
	tcase_add_test(tc, ranks_whose_cpus_wait_too);
	tcase_add_loop_test(tc, a_report_that_comes_before_the_answer, 0, 5);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
