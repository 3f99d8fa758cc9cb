/* SPDX-License-Identifier: Apache-2.0 */
/* Which targets ranks get, and when they are given up. */
#include "tools/job/party/reach.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 8

static struct {
	struct steps steps;
	struct steps_rank ranks[RANKS];
	struct reach reach;
	struct reach_rank reaching[RANKS];
	int64_t now;
} m;

static void set_up(size_t n)
{
	steps_begin(&m.steps, m.ranks, n, 1, 0);
	reach_begin(&m.reach, m.reaching, n, 0);
}

/* @rank says @peers, NULL: nothing, and that it is held; @number is of its last order. */
static void answer(size_t rank, const char *peers, bool drained, uint32_t number)
{
	if (peers)
		ck_assert_int_eq(reach_take_comms(&m.reach, rank, peers, m.now), 0);
	if (reach_take_held(&m.reach, rank, number, m.now))
		steps_take(&m.steps, rank, drained, 0, m.now);
}

static enum reach_verdict after(int ms)
{
	m.now += ms;
	return reach_next(&m.reach, &m.steps, m.now);
}

static void check_order(size_t rank, const char *text)
{
	char order[REACH_TEXT];

	ck_assert(m.reaching[rank].ordered);
	reach_write(&m.reach, rank, order);
	ck_assert_str_eq(order, text);
}

START_TEST(those_behind_are_given_the_count_of_those_ahead)
{
	set_up(2);
	answer(0, "1:2:10", true, 0);
	ck_assert_int_eq(after(1), REACH_WAIT); /* not all have answered */
	answer(1, "4:0:13", false, 0);
	ck_assert_int_eq(after(1), REACH_GO);
	check_order(0, "reach 1 1:13");
	ck_assert(!m.reaching[1].ordered);
	ck_assert_int_eq(after(1), REACH_WAIT);
	/* This crossed the order. */
	answer(0, "1:2:10", true, 0);
	ck_assert(m.ranks[0].asked);
	answer(0, "1:2:13", true, 1);
	answer(1, "4:0:13", true, 0);
	ck_assert(steps_are_over(&m.steps));
}
END_TEST

START_TEST(a_rank_that_passes_a_target_raises_it)
{
	set_up(2);
	answer(0, "1:2:10 2:2:5", true, 0);
	answer(1, "1:2:11 2:2:4", false, 0);
	ck_assert_int_eq(after(1), REACH_GO);
	check_order(0, "reach 1 1:11 2:5");
	check_order(1, "reach 1 1:11 2:5");
	/* On its way to the 11th of the first, rank 0 needs two of the second. */
	ck_assert_int_eq(reach_take_comms(&m.reach, 0, "1:2:10 2:2:7", m.now), 0);
	ck_assert_int_eq(after(1), REACH_GO);
	ck_assert(m.reaching[0].ordered);
	check_order(1, "reach 2 1:11 2:7");
}
END_TEST

/* As of processes that have not read their ranks yet, or do not say them. */
START_TEST(pairs_of_a_pipeline_come_to_the_same_count)
{
	set_up(3);
	answer(0, "1:2:10s", true, 0);
	answer(1, "1:2:10s 2:2:9s", true, 0);
	answer(2, "1:2:10s", false, 0);
	ck_assert_int_eq(after(1), REACH_WAIT); /* by their places all have theirs */
	ck_assert_int_eq(after(60), REACH_WAIT);
	ck_assert_int_eq(after(1), REACH_GO);
	check_order(1, "reach 1 1:10 2:10");
	ck_assert(!m.reaching[0].ordered && !m.reaching[2].ordered);
}
END_TEST

/* By their places, the first of ranks 0 to 3 would be one. No order is given for that, and nothing waited for. */
START_TEST(ranks_tell_the_pairs_of_a_pipeline_apart)
{
	set_up(4);
	answer(0, "1:2:12:0s 2:4:1:0", true, 0);
	answer(1, "1:2:12:1s 2:2:11:0s 3:4:1:1", true, 0);
	answer(2, "1:2:11:1s 2:2:10:0s 3:4:1:2", true, 0);
	answer(3, "1:2:14:1s 2:4:1:3", false, 0);
	ck_assert_int_eq(after(0), REACH_GO);
	check_order(0, "reach 1 1:14 2:1");
	check_order(1, "reach 1 1:14 2:14 3:1");
	check_order(2, "reach 1 1:14 2:14 3:1");
	ck_assert(!m.reaching[3].ordered);
	answer(0, "1:2:14:0s 2:4:1:0", true, 1);
	answer(1, "1:2:14:1s 2:2:14:0s 3:4:1:1", true, 1);
	answer(2, "1:2:14:1s 2:2:14:0s 3:4:1:2", true, 1);
	ck_assert_int_eq(after(0), REACH_WAIT);
	answer(3, "1:2:14:1s 2:4:1:3", true, 0);
	ck_assert(steps_are_over(&m.steps));
}
END_TEST

/* Rank 2 is stuck, and so has not read the ranks of its communicators; it does, on its way to a target. */
START_TEST(ranks_that_are_read_late_tell_pairs_apart_at_once)
{
	set_up(3);
	answer(0, "1:2:10:0s", true, 0);
	answer(1, "1:2:10:1s 2:2:9:0s", true, 0);
	answer(2, "1:0:11s", false, 0);
	ck_assert_int_eq(after(0), REACH_GO);
	check_order(0, "reach 1 1:11");
	answer(0, "1:2:11:0s", false, 1);
	answer(2, "1:2:11:1s", true, 0);
	ck_assert_int_eq(after(0), REACH_GO);
	check_order(1, "reach 2 1:11 2:11");
}
END_TEST

/* Three stages of two ranks each. The first and the last have another communicator of the size of all others. */
START_TEST(other_communicators_keep_their_targets_beside_pairs)
{
	set_up(6);
	answer(0, "1:2:400:0 2:2:12:0s 3:2:10:0", true, 0);
	answer(1, "1:2:401:1 2:2:12:0s 3:2:10:0", true, 0);
	answer(2, "1:2:401:0 2:2:12:1s 4:2:11:0s", true, 0);
	answer(3, "1:2:401:1 2:2:12:1s 4:2:11:0s", true, 0);
	answer(4, "1:2:401:0 2:2:11:1s 3:2:11:1", true, 0);
	answer(5, "1:2:401:1 2:2:12:1s 3:2:11:1", false, 0);
	ck_assert_int_eq(after(0), REACH_GO);
	check_order(0, "reach 1 1:401 2:12 3:11");
	check_order(3, "reach 1 1:401 2:12 4:12");
	check_order(4, "reach 1 1:401 2:12 3:11");
	ck_assert(!m.reaching[5].ordered);
}
END_TEST

START_TEST(ranks_of_a_grid_leave_each_group_its_own_target)
{
	set_up(4);
	answer(0, "1:2:400:0 2:2:100:0", true, 0);
	answer(1, "1:2:401:1 2:2:100:0", true, 0);
	answer(2, "1:2:400:0 2:2:101:1", true, 0);
	answer(3, "1:2:400:1 2:2:100:1", false, 0);
	ck_assert_int_eq(after(0), REACH_GO);
	check_order(0, "reach 1 1:401 2:101");
	check_order(3, "reach 1 1:401 2:101");
}
END_TEST

/* It was at rest before, and says nothing. */
START_TEST(a_grid_keeps_its_targets_when_one_has_left)
{
	set_up(4);
	steps_leave(&m.steps, 3);
	answer(0, "1:2:400:0 2:2:100:0", true, 0);
	answer(1, "1:2:401:1 2:2:100:0", true, 0);
	answer(2, "1:2:400:0 2:2:101:1", false, 0);
	ck_assert_int_eq(after(0), REACH_GO);
	check_order(0, "reach 1 1:401 2:101");
	check_order(2, "reach 1 1:401 2:101");
}
END_TEST

START_TEST(communicators_of_one_rank_are_left_out)
{
	set_up(2);
	answer(0, "1:1:7:0 2:2:400:0 3:2:100:0", true, 0);
	answer(1, "1:1:9:0 2:2:401:1 3:2:100:1", false, 0);
	ck_assert_int_eq(after(0), REACH_GO);
	check_order(0, "reach 1 2:401 3:100");
	ck_assert(!m.reaching[1].ordered);
}
END_TEST

START_TEST(an_all_to_all_has_a_target_as_an_all_reduce)
{
	set_up(4);
	answer(0, "1:4:40:0s 2:4:10:0", true, 0);
	answer(1, "1:4:43:1s 2:4:10:1", true, 0);
	answer(2, "1:4:40:2s 2:4:10:2", true, 0);
	answer(3, "1:4:41:3s 2:4:10:3", false, 0);
	ck_assert_int_eq(after(0), REACH_GO);
	check_order(0, "reach 1 1:43 2:10");
	ck_assert(!m.reaching[1].ordered);
}
END_TEST

static void set_up_stages_that_share(void)
{
	set_up(3);
	answer(0, "1:3:100:0s 2:3:10:0", true, 0);
	answer(1, "1:3:202:1s 2:3:10:1", false, 0);
	answer(2, "1:3:98:2s 2:3:10:2", true, 0);
}

/* They have no target of their own. Before the next all-reduce all sends have met their receives. */
START_TEST(stages_that_also_meet_all_others_go_on_to_that)
{
	set_up_stages_that_share();
	ck_assert_int_eq(after(0), REACH_WAIT);
	ck_assert_int_eq(after(60), REACH_WAIT);
	ck_assert_int_eq(after(0), REACH_GO);
	for (size_t i = 0; i < 3; i++)
		check_order(i, "reach 1 2:11");
}
END_TEST

START_TEST(stages_of_which_one_is_only_busy_stay_where_they_are)
{
	set_up_stages_that_share();
	ck_assert_int_eq(after(0), REACH_WAIT);
	ck_assert_int_eq(after(20), REACH_WAIT);
	answer(1, "1:3:202:1s 2:3:10:1", true, 0);
	ck_assert(steps_are_over(&m.steps));
}
END_TEST

/* The launches were of an init. The stages run until that is sure, and then go by steps. */
START_TEST(stages_that_meet_all_others_no_more_go_by_steps)
{
	set_up_stages_that_share();
	ck_assert_int_eq(after(0), REACH_WAIT);
	ck_assert_int_eq(after(60), REACH_WAIT);
	ck_assert_int_eq(after(0), REACH_GO);
	ck_assert_int_eq(reach_take_comms(&m.reach, 0, "1:3:900:0s 2:3:10:0", m.now), 0);
	ck_assert_int_eq(after(4000), REACH_WAIT);
	ck_assert_int_eq(after(2000), REACH_OVER);
	check_order(0, "reach 2 1:0");
	ck_assert(m.steps.by_launches);
}
END_TEST

START_TEST(stages_that_share_a_communicator_get_no_target)
{
	set_up(3);
	answer(0, "1:3:100s", true, 0);
	answer(1, "1:3:202s", false, 0);
	answer(2, "1:3:98s", true, 0);
	ck_assert_int_eq(after(1), REACH_OVER);
	/* The stages at the ends are known by that. */
	ck_assert_int_eq(steps_next(&m.steps, m.now), STEPS_WAIT);
	m.now += 10;
	ck_assert_int_eq(steps_next(&m.steps, m.now), STEPS_GO);
	ck_assert_uint_eq(m.steps.anchor, 0);
	ck_assert_uint_eq(m.ranks[0].step, 0);
	ck_assert_uint_gt(m.ranks[2].step, 0);
}
END_TEST

START_TEST(unlike_groups_of_one_size_have_targets_of_their_own)
{
	set_up(4);
	for (size_t i = 0; i < 4; i++)
		answer(i, "1:2:400 2:2:100", i > 0, 0);
	ck_assert_int_eq(after(1), REACH_WAIT);
	ck_assert_int_eq(after(60), REACH_WAIT);
	for (int i = 0; i < 100; i++)
		ck_assert_int_ne(after(1), REACH_GO);
}
END_TEST

START_TEST(all_go_on_to_their_next_launch_together)
{
	set_up(2);
	answer(0, "1:2:3 2:9:70", false, 0);
	answer(1, "1:2:3 2:8:10", false, 0);
	ck_assert_int_eq(after(1), REACH_WAIT);
	ck_assert_int_eq(after(60), REACH_WAIT);
	ck_assert_int_eq(after(400), REACH_WAIT);
	ck_assert_int_eq(after(1), REACH_GO);
	check_order(0, "reach 1 1:4");
	check_order(1, "reach 1 1:4");
}
END_TEST

START_TEST(counts_that_are_far_apart_are_of_different_communicators)
{
	set_up(2);
	answer(0, "1:2:10", true, 0);
	answer(1, "1:2:5000", false, 0);
	ck_assert_int_eq(after(1), REACH_OVER);
	ck_assert_int_eq(after(1), REACH_OVER);
}
END_TEST

START_TEST(ranks_without_communicators_go_by_steps)
{
	set_up(2);
	answer(0, NULL, true, 0);
	answer(1, "1:1:5", false, 0);
	ck_assert_int_eq(after(0), REACH_OVER);
}
END_TEST

START_TEST(a_target_that_is_not_met_is_given_up)
{
	set_up(2);
	answer(0, "1:2:10", true, 0);
	answer(1, "1:2:13", false, 0);
	ck_assert_int_eq(after(1), REACH_GO);
	ck_assert_int_eq(after(4000), REACH_WAIT);
	ck_assert_int_eq(reach_take_comms(&m.reach, 0, "1:2:11", m.now), 0);
	ck_assert_int_eq(after(4000), REACH_WAIT);
	ck_assert_int_eq(after(4000), REACH_OVER);
	/* It is told to stop, and what it said before does not count as its answer. */
	check_order(0, "reach 2 1:0");
	answer(0, "1:2:13", true, 1);
	ck_assert(m.ranks[0].asked);
	answer(0, "1:2:13", true, 2);
	ck_assert(!m.ranks[0].asked);
}
END_TEST

/* What a rank has said of its communicators holds, also if it gets no more orders. */
START_TEST(targets_that_are_given_up_leave_the_communicators_known)
{
	set_up(2);
	answer(0, "1:2:10", true, 0);
	answer(1, "1:2:5000", false, 0);
	ck_assert_int_eq(after(1), REACH_OVER);
	ck_assert_uint_eq(m.reaching[0].n, 1);
	/* It has freed them since. */
	answer(0, NULL, true, 0);
	ck_assert_uint_eq(m.reaching[0].n, 0);
}
END_TEST

/* Rank 0 uses its first communicator no more, and all go on with the second. */
START_TEST(a_target_that_is_not_met_while_others_are_is_given_up)
{
	enum reach_verdict verdict = REACH_WAIT;
	char peers[32];

	set_up(2);
	answer(0, "1:2:1 2:2:100", true, 0);
	answer(1, "1:2:2 2:2:100", false, 0);
	ck_assert_int_eq(after(1), REACH_GO);
	for (int i = 1; i < 100 && verdict != REACH_OVER; i++) {
		snprintf(peers, sizeof(peers), "1:2:1 2:2:%d", 100 + 2 * i);
		ck_assert_int_eq(reach_take_comms(&m.reach, 0, peers, m.now), 0);
		verdict = after(50);
		snprintf(peers, sizeof(peers), "1:2:2 2:2:%d", 101 + 2 * i);
		answer(1, peers, false, m.reaching[1].number);
		if (verdict != REACH_OVER)
			verdict = after(50);
	}
	ck_assert_int_eq(verdict, REACH_OVER);
}
END_TEST

/* It has freed them, and no longer names them. */
START_TEST(a_rank_without_communicators_any_more_has_no_targets)
{
	set_up(2);
	answer(0, "1:2:10", true, 0);
	answer(1, "1:2:13", false, 0);
	ck_assert_int_eq(after(1), REACH_GO);
	answer(0, NULL, true, 1);
	ck_assert_int_eq(after(1), REACH_OVER);
	ck_assert(!m.ranks[0].asked);
}
END_TEST

START_TEST(a_rank_that_left_needs_no_targets)
{
	set_up(3);
	answer(0, "1:3:10", true, 0);
	answer(1, "1:3:11", false, 0);
	answer(2, "1:3:20", true, 0);
	steps_leave(&m.steps, 2);
	ck_assert_int_eq(after(1), REACH_GO);
	check_order(0, "reach 1 1:11");
}
END_TEST

static const char *const malformed[] = {"1",     "1:2",    "x:1:1",   "1:1:1x",   "1:2:3ss",
					"1:2:-", "1:2:3:", "1:2:3:x", "1:2:3s:1", "1:2:3:4:5"};

START_TEST(a_line_that_is_malformed_is_refused)
{
	set_up(2);
	ck_assert_int_eq(reach_take_comms(&m.reach, 0, malformed[_i], 0), -EBADMSG);
}
END_TEST

/*
 * A pipeline whose pairs have communicators of their own, and which all meet at the end of a step. The ranks are
 * any number of launches ahead of each other, up to two steps.
 */
enum { BEFORE, BEHIND, WORLD, COMMS };

#define PARTS 4 /* of the input of a step */

static struct stage {
	int step[4 * PARTS + 1]; /* its launches, by their communicators */
	size_t n, at;
	unsigned long long made[COMMS], target[COMMS]; /* a target of 0: none */
	bool moves;                                    /* to its targets */
	int orders;
} stages[RANKS];

static bool has(size_t rank, int comm)
{
	return comm == BEFORE ? rank > 0 : comm == WORLD || rank < m.reach.n - 1;
}

static void plan_part(size_t rank, int from, int to)
{
	struct stage *s = &stages[rank];

	if (has(rank, from))
		s->step[s->n++] = from;
	if (has(rank, to))
		s->step[s->n++] = to;
}

/* All parts go forward and then back, or (@early) each goes back as soon as it has come to the end. */
static void plan(size_t rank, bool early)
{
	size_t behind = m.reach.n - 1 - rank, ahead = early && behind < PARTS ? behind : PARTS;

	stages[rank] = (struct stage){0};
	for (size_t i = 0; i < PARTS + ahead; i++) {
		if (i < PARTS)
			plan_part(rank, BEFORE, BEHIND);
		if (i >= ahead)
			plan_part(rank, BEHIND, BEFORE);
	}
	stages[rank].step[stages[rank].n++] = WORLD;
}

/* Returns true if that goes beyond a target. */
static bool launch(struct stage *s)
{
	int comm = s->step[s->at++ % s->n];

	return ++s->made[comm] > s->target[comm] && s->target[comm];
}

static const char *comms_of(size_t rank)
{
	static char text[128];
	const struct stage *s = &stages[rank];
	int len = 0;

	for (int comm = BEFORE; comm < WORLD; comm++)
		if (has(rank, comm))
			len += sprintf(text + len, "%d:2:%llu:%ds ", comm, s->made[comm],
				       comm == BEFORE);
	sprintf(text + len, "%d:%zu:%llu:%zu", WORLD, m.reach.n, s->made[WORLD], rank);
	return text;
}

static void obey(size_t rank)
{
	struct stage *s = &stages[rank];
	char order[REACH_TEXT], *at;

	reach_write(&m.reach, rank, order);
	memset(s->target, 0, sizeof(s->target));
	for (at = strchr(order + strlen("reach "), ' '); at; at = strchr(at, ' ')) {
		unsigned long comm = strtoul(at, &at, 10);

		s->target[comm] = strtoull(at + 1, &at, 10);
	}
	s->moves = true;
	s->orders++;
}

static void move(size_t rank)
{
	struct stage *s = &stages[rank];

	s->moves = false;
	for (int comm = 0; comm < COMMS; comm++)
		s->moves |= s->made[comm] < s->target[comm];
	if (!s->moves)
		answer(rank, comms_of(rank), false, m.reaching[rank].number);
	else if (launch(s))
		ck_assert_int_eq(reach_take_comms(&m.reach, rank, comms_of(rank), 0), 0);
}

/* No time passes meanwhile. */
static void come_to_rest(void)
{
	bool any = true;

	for (size_t rank = 0; rank < m.reach.n; rank++)
		answer(rank, comms_of(rank), false, 0);
	while (any) {
		enum reach_verdict verdict = after(0);

		ck_assert_int_ne(verdict, REACH_OVER);
		any = verdict == REACH_GO;
		for (size_t rank = 0; rank < m.reach.n; rank++) {
			if (verdict == REACH_GO && m.reaching[rank].ordered)
				obey(rank);
			any |= stages[rank].moves;
			if (stages[rank].moves)
				move(rank);
		}
	}
}

START_TEST(a_pipeline_comes_to_rest_by_one_order_a_rank)
{
	srandom((unsigned int)_i);
	set_up(2 + _i % (RANKS - 1));
	for (size_t rank = 0; rank < m.reach.n; rank++) {
		plan(rank, _i % 2);
		for (size_t n = (20 + (size_t)random() % 200 / 100.0) * stages[rank].n; n; n--)
			launch(&stages[rank]);
	}
	come_to_rest();
	for (size_t rank = 0; rank < m.reach.n; rank++) {
		if (has(rank, BEHIND))
			ck_assert_uint_eq(stages[rank].made[BEHIND], stages[rank + 1].made[BEFORE]);
		ck_assert_uint_eq(stages[rank].made[WORLD], stages[0].made[WORLD]);
		ck_assert_int_le(stages[rank].orders, 1);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reach");
	TCase *tc = tcase_create("reach");

	tcase_add_test(tc, those_behind_are_given_the_count_of_those_ahead);
	tcase_add_test(tc, a_rank_that_passes_a_target_raises_it);
	tcase_add_test(tc, pairs_of_a_pipeline_come_to_the_same_count);
	tcase_add_test(tc, ranks_tell_the_pairs_of_a_pipeline_apart);
	tcase_add_test(tc, ranks_that_are_read_late_tell_pairs_apart_at_once);
	tcase_add_test(tc, other_communicators_keep_their_targets_beside_pairs);
	tcase_add_test(tc, a_grid_keeps_its_targets_when_one_has_left);
	tcase_add_test(tc, communicators_of_one_rank_are_left_out);
	tcase_add_test(tc, ranks_of_a_grid_leave_each_group_its_own_target);
	tcase_add_test(tc, an_all_to_all_has_a_target_as_an_all_reduce);
	tcase_add_test(tc, stages_that_also_meet_all_others_go_on_to_that);
	tcase_add_test(tc, stages_of_which_one_is_only_busy_stay_where_they_are);
	tcase_add_test(tc, stages_that_meet_all_others_no_more_go_by_steps);
	tcase_add_test(tc, stages_that_share_a_communicator_get_no_target);
	tcase_add_test(tc, unlike_groups_of_one_size_have_targets_of_their_own);
	tcase_add_test(tc, all_go_on_to_their_next_launch_together);
	tcase_add_test(tc, counts_that_are_far_apart_are_of_different_communicators);
	tcase_add_test(tc, ranks_without_communicators_go_by_steps);
	tcase_add_test(tc, a_target_that_is_not_met_is_given_up);
	tcase_add_test(tc, targets_that_are_given_up_leave_the_communicators_known);
	tcase_add_test(tc, a_target_that_is_not_met_while_others_are_is_given_up);
	tcase_add_test(tc, a_rank_without_communicators_any_more_has_no_targets);
	tcase_add_test(tc, a_rank_that_left_needs_no_targets);
	tcase_add_loop_test(tc, a_pipeline_comes_to_rest_by_one_order_a_rank, 0, 140);
	tcase_add_loop_test(tc, a_line_that_is_malformed_is_refused, 0,
			    sizeof(malformed) / sizeof(malformed[0]));
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
