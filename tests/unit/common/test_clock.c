/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"
#include "tests/check_suite.h"

#include <fenv.h>
#include <math.h>

#define LOOKS 1000

/* They are the program's in its threads. */
START_TEST(floating_point_flags_stay)
{
	double begin = clock_ms();
	volatile double passed = 0;

	feclearexcept(FE_ALL_EXCEPT);
	for (int i = 0; i < LOOKS; i++) {
		struct timespec until = clock_timespec(clock_ms() + passed);

		passed = clock_ms() - begin;
		ck_assert_int_ge(until.tv_nsec, 0);
		ck_assert_uint_ge(clock_us_of(passed) + 1000, 1000);
		ck_assert_int_ge(clock_poll(passed), 0);
	}
	ck_assert_int_eq(fetestexcept(FE_ALL_EXCEPT), 0);
}
END_TEST

START_TEST(times_become_integers)
{
	struct timespec moment = clock_timespec(3600001.5);

	ck_assert_int_eq(moment.tv_sec, 3600);
	ck_assert_int_eq(moment.tv_nsec, 1500000);
	ck_assert_uint_eq(clock_us_of(2.25), 2250);
	ck_assert_uint_eq(clock_us_of(-1), 0);
	ck_assert_int_eq(clock_poll(0), 0);
	ck_assert_int_eq(clock_poll(2), 2);
	ck_assert_int_eq(clock_poll(2.25), 3);
	ck_assert_int_eq(clock_poll(-1), -1);
	ck_assert_int_eq(clock_poll(INFINITY), -1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clock");
	TCase *tc = tcase_create("clock");

	tcase_add_test(tc, floating_point_flags_stay);
	tcase_add_test(tc, times_become_integers);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
