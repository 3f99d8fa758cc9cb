/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/turns/idleness.h"
#include "tests/check_suite.h"

#define PRICE 400.0

static struct idleness idle;
static double now;

static void gap_at(double price, double ms)
{
	double limit = idleness_limit(&idle, price);

	/* A shorter one is not noticed. */
	idle.told = limit;
	if (ms > limit) {
		idleness_begin(&idle, now + limit);
		idleness_begin(&idle, now + (limit + ms) / 2);
		idleness_end(&idle, price, now + ms);
	}
	now += ms + 100;
}

static void gap(double ms)
{
	gap_at(PRICE, ms);
}

static void gaps(int n, double ms)
{
	for (int i = 0; i < n; i++)
		gap(ms);
}

/* Before each case. */
static void begin(void)
{
	idle = (struct idleness){0};
	now = 1000000;
}

START_TEST(the_gpu_is_left_to_it_for_the_price_of_a_turn)
{
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE);
	ck_assert_double_eq(idleness_limit(&idle, 1), 200);
	ck_assert_double_eq(idleness_limit(&idle, 1e6), 5000);
	/* What ends without a beginning is no gap. */
	for (int i = 0; i < 10; i++)
		idleness_end(&idle, PRICE, now += 10000);
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE);
}
END_TEST

START_TEST(long_gaps_make_it_short)
{
	gaps(3, 3 * PRICE);
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE);
	gap(3 * PRICE);
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE / 8);
	ck_assert_double_eq(idleness_limit(&idle, 1), 25);
}
END_TEST

/* There and back take two hand-overs. */
START_TEST(a_gap_is_short_up_to_two_hand_overs)
{
	gaps(100, 2 * PRICE);
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE);
	gaps(3, 3 * PRICE);
	gap(1.5 * PRICE);
	gaps(3, 3 * PRICE);
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE);
	/* None of them was a mistake. */
	gap(3 * PRICE);
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE / 8);
}
END_TEST

/* The limit is never more than 5 s, but what is lost by a hand-over is. */
START_TEST(two_slow_hand_overs_are_as_long_as_they_are)
{
	for (int i = 0; i < 10; i++)
		gap_at(20000, 12000);
	ck_assert_double_eq(idleness_limit(&idle, 20000), 5000);
	for (int i = 0; i < 4; i++)
		gap_at(20000, 41000);
	ck_assert_double_eq(idleness_limit(&idle, 20000), 2500);
}
END_TEST

START_TEST(what_another_thing_ends_is_no_gap)
{
	gaps(3, 3 * PRICE);
	idle.told = PRICE;
	for (int i = 0; i < 10; i++) {
		idleness_begin(&idle, now += PRICE);
		idleness_forget(&idle);
		idleness_end(&idle, PRICE, now += i % 2 ? 1 : 10 * PRICE);
	}
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE);
	gap(3 * PRICE);
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE / 8);
}
END_TEST

START_TEST(mistakes_make_it_careful)
{
	for (int needed = 4; needed <= 64; needed *= 2) {
		gaps(needed - 1, 3 * PRICE);
		ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE);
		gap(3 * PRICE);
		ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE / 8);
		gap(PRICE);
		ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE);
	}
	gaps(64, 3 * PRICE);
	ck_assert_double_eq(idleness_limit(&idle, PRICE), PRICE / 8);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("idleness");
	TCase *tc = tcase_create("idleness");

	tcase_add_checked_fixture(tc, begin, NULL);
	tcase_add_test(tc, the_gpu_is_left_to_it_for_the_price_of_a_turn);
	tcase_add_test(tc, long_gaps_make_it_short);
	tcase_add_test(tc, a_gap_is_short_up_to_two_hand_overs);
	tcase_add_test(tc, two_slow_hand_overs_are_as_long_as_they_are);
	tcase_add_test(tc, what_another_thing_ends_is_no_gap);
	tcase_add_test(tc, mistakes_make_it_careful);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
