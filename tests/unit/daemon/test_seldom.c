/* SPDX-License-Identifier: Apache-2.0 */
/* What users can cause is said again and again, but not as often as they cause it. */
#include "tools/daemon/hooks/seldom.h"

#include "tests/check_suite.h"

static struct seldom seldom;

/* How often something is said that happens each @ms milliseconds, from @from_ms to @to_ms. */
static int said(double from_ms, double to_ms, double ms)
{
	int times = 0;

	for (double now_ms = from_ms; now_ms < to_ms; now_ms += ms)
		times += seldom_may(&seldom, now_ms);
	return times;
}

START_TEST(the_first_is_said)
{
	ck_assert(seldom_may(&seldom, 5));
	ck_assert(!seldom_may(&seldom, 5));
	ck_assert(!seldom_may(&seldom, 1004));
	ck_assert_uint_eq(seldom.unsaid, 2);
	ck_assert(seldom_may(&seldom, 1005));
	ck_assert(!seldom_may(&seldom, 3004));
	ck_assert(seldom_may(&seldom, 3005));
}
END_TEST

START_TEST(a_day_of_failures)
{
	const double day_ms = 24 * 3600e3;

	ck_assert_int_le(said(0, day_ms, 100), 1400);
	ck_assert_int_le(said(day_ms, 2 * day_ms, 1500), 1400);
}
END_TEST

START_TEST(after_a_silence)
{
	said(0, 3600e3, 100);
	ck_assert_int_eq(said(7200e3, 7200e3 + 3100, 100), 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("seldom");
	TCase *tc = tcase_create("seldom");

	tcase_add_test(tc, the_first_is_said);
	tcase_add_test(tc, a_day_of_failures);
	tcase_add_test(tc, after_a_silence);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
