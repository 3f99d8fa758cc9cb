/* SPDX-License-Identifier: Apache-2.0 */
/* What counts of a wait, by a clock that is set here: each look comes so much later than the one before. */
#include "common/limits.h"
#include "common/patience.h"

#include "tests/check_suite.h"

#include <fenv.h>
#include <unistd.h>

#define FROZEN_MS 3000

static int64_t now = 1000000, step_ms;

double __real_clock_ms(void);
double __wrap_clock_ms(void);

double __wrap_clock_ms(void)
{
	return now += step_ms;
}

START_TEST(the_first_look_begins)
{
	struct patience patience = {0};

	step_ms = FROZEN_MS;
	ck_assert_int_eq(patience_ms(&patience), 0);
}
END_TEST

START_TEST(short_gaps_count)
{
	struct patience patience = {0};

	step_ms = 30;
	patience_ms(&patience);
	for (int i = 1; i <= 100; i++)
		ck_assert_int_eq(patience_ms(&patience), 30 * i);
}
END_TEST

/* As of a process that was stopped, or whose cgroup was frozen. */
START_TEST(a_frozen_slice_counts_as_one)
{
	struct patience patience = {0};

	step_ms = 50;
	patience_ms(&patience);
	ck_assert_int_eq(patience_ms(&patience), 50);
	step_ms = FROZEN_MS;
	ck_assert_int_eq(patience_ms(&patience), 50 + PATIENCE_SLICE_MS);
	step_ms = 50;
	ck_assert_int_eq(patience_ms(&patience), 100 + PATIENCE_SLICE_MS);
	step_ms = FROZEN_MS;
	ck_assert_int_eq(patience_slice_ms(&patience, 1000), 1100 + PATIENCE_SLICE_MS);
}
END_TEST

START_TEST(time_is_skipped_or_counts_in_full)
{
	struct patience patience = {0};

	step_ms = FROZEN_MS;
	patience_ms(&patience);
	patience_count(&patience);
	ck_assert_int_eq(patience.waited_ms, FROZEN_MS);
	patience_skip(&patience);
	ck_assert_int_eq(patience_ms(&patience), FROZEN_MS);
}
END_TEST

START_TEST(a_poll_ends_with_what_it_waits_for)
{
	struct patience patience = {0};
	struct pollfd fd = {.events = POLLIN};
	int ends[2];

	step_ms = FROZEN_MS;
	ck_assert_int_eq(pipe(ends), 0);
	fd.fd = ends[0];
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	ck_assert_int_eq(patience_poll(&patience, &fd, 1, 0), 1);
	ck_assert_int_eq(patience_poll(&patience, &fd, 1, FROZEN_MS), 1);
}
END_TEST

/* By the clock, the first slice is longer than the limit. */
START_TEST(a_poll_outlasts_a_freeze)
{
	struct patience patience = {0};
	int64_t begin;

	step_ms = FROZEN_MS;
	begin = patience_ms(&patience);
	ck_assert_int_eq(patience_poll(&patience, NULL, 0, 6 * PATIENCE_SLICE_MS), 0);
	ck_assert_int_ge(patience_ms(&patience) - begin, 6 * PATIENCE_SLICE_MS);
	ck_assert_int_ge(now, 1000000 + 6 * FROZEN_MS);
}
END_TEST

START_TEST(a_limit_of_ours_outlasts_a_freeze)
{
	double begin;

	step_ms = FROZEN_MS;
	limits_begin(false);
	begin = limits_ms();
	ck_assert_double_eq(limits_ms(), begin + FROZEN_MS);
	limits_begin(true);
	begin = limits_ms();
	ck_assert_double_gt(begin, 0);
	ck_assert_double_eq(limits_ms(), begin + PATIENCE_SLICE_MS);
	limits_sleep(3 * PATIENCE_SLICE_MS);
	ck_assert_double_ge(limits_ms(), begin + 4 * PATIENCE_SLICE_MS);
}
END_TEST

/* They are the program's in its threads. */
START_TEST(floating_point_flags_stay)
{
	struct patience patience = {0};

	step_ms = 1;
	feclearexcept(FE_ALL_EXCEPT);
	__real_clock_ms();
	patience_poll(&patience, NULL, 0, 3);
	patience_count(&patience);
	ck_assert_int_eq(fetestexcept(FE_ALL_EXCEPT), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("patience");
	TCase *tc = tcase_create("patience");

	tcase_add_test(tc, the_first_look_begins);
	tcase_add_test(tc, short_gaps_count);
	tcase_add_test(tc, a_frozen_slice_counts_as_one);
	tcase_add_test(tc, time_is_skipped_or_counts_in_full);
	tcase_add_test(tc, a_poll_ends_with_what_it_waits_for);
	tcase_add_test(tc, a_poll_outlasts_a_freeze);
	tcase_add_test(tc, a_limit_of_ours_outlasts_a_freeze);
	tcase_add_test(tc, floating_point_flags_stay);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
