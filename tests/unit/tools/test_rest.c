/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks have said before their targets were given up, and after it. */
#include "tools/job/party/rest.h"
#include "common/protocol/lines.h"

#include "tests/check_suite.h"

static struct rest rest;

/* @rank says @peers, NULL: nothing, and @held. */
static void answer(size_t rank, const char *peers, const char *held, int64_t now_ms)
{
	const struct line comms = {.id = REPORT_COMMS, .text = peers};
	struct line line;

	ck_assert_int_eq(line_parse(&lines_from_job, held, &line), 0);
	if (peers)
		ck_assert_int_eq(rest_take(&rest, rank, &comms, now_ms), 0);
	ck_assert_int_eq(rest_take(&rest, rank, &line, now_ms), 0);
}

static void check_order(size_t rank, const char *text)
{
	char order[REACH_TEXT];

	ck_assert(rest_order(&rest, rank, order));
	ck_assert_str_eq(order, text);
}

/* Both have communicators, and by the counts not the same; rank 1 is stuck. */
static void give_targets_up(void)
{
	char order[REACH_TEXT];

	ck_assert_int_eq(rest_init(&rest, 2, 1, 0), 0);
	answer(0, "1:2:10", "held drained 0", 0);
	answer(1, "1:2:5000", "held stuck 0", 0);
	ck_assert_int_eq(rest_next(&rest, 1), REST_GO);
	ck_assert(!rest_order(&rest, 0, order) && !rest_order(&rest, 1, order));
}

/* The processes are told who shares their GPUs only if they have communicators. */
START_TEST(ranks_that_go_by_steps_have_peers)
{
	give_targets_up();
	ck_assert(rest_has_comms(&rest, 0) && rest_has_comms(&rest, 1));
	answer(1, "1:2:5001", "held drained 0", 2);
	ck_assert_int_eq(rest_next(&rest, 2), REST_READY);
	ck_assert(rest_has_comms(&rest, 0) && rest_has_comms(&rest, 1));
	rest_fini(&rest);
}
END_TEST

START_TEST(communicators_that_end_during_the_steps_are_no_peers)
{
	give_targets_up();
	answer(1, NULL, "held drained 0", 2);
	ck_assert(rest_has_comms(&rest, 0) && !rest_has_comms(&rest, 1));
	rest_fini(&rest);
}
END_TEST

/* Rank 0 does not come to its target, and is told to stop. What it said before is no answer. */
START_TEST(a_late_answer_is_not_that_of_the_last_order)
{
	ck_assert_int_eq(rest_init(&rest, 2, 1, 0), 0);
	answer(0, "1:2:10", "held drained 0", 0);
	answer(1, "1:2:13", "held stuck 0", 0);
	ck_assert_int_eq(rest_next(&rest, 1), REST_GO);
	check_order(0, "reach 1 1:13");
	ck_assert_int_eq(rest_next(&rest, 6000), REST_GO);
	check_order(0, "reach 2 1:0");
	answer(1, "1:2:13", "held drained 0", 6000);
	answer(0, "1:2:13", "held drained 0 1", 6000);
	ck_assert_int_eq(rest_next(&rest, 6000), REST_WAIT);
	answer(0, "1:2:14", "held drained 0 2", 6001);
	ck_assert_int_eq(rest_next(&rest, 6001), REST_READY);
	rest_fini(&rest);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rest");
	TCase *tc = tcase_create("rest");

	tcase_add_test(tc, ranks_that_go_by_steps_have_peers);
	tcase_add_test(tc, communicators_that_end_during_the_steps_are_no_peers);
	tcase_add_test(tc, a_late_answer_is_not_that_of_the_last_order);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
