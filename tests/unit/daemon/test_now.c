/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of the daemon, by that of the machine, which is set here. */
#include "tools/daemon/now.h"

#include "tests/check_suite.h"

#include <stdint.h>

static int64_t machine_ms = 1000;

double __wrap_clock_ms(void);

double __wrap_clock_ms(void)
{
	return machine_ms;
}

static double after(int64_t ms)
{
	double before = now_ms();

	machine_ms += ms;
	return now_ms() - before;
}

START_TEST(it_begins_behind_all_moments_that_have_not_come)
{
	ck_assert_double_gt(now_ms(), 0);
}
END_TEST

/* Members of which it has heard just before it was stopped are not silent when it goes on. */
START_TEST(it_stands_while_the_daemon_is_stopped)
{
	ck_assert_double_eq(after(70), 70);
	ck_assert_double_eq(after(3600000), 100);
}
END_TEST

/* What NVML has shown before is old. */
START_TEST(it_says_once_that_it_has_stood)
{
	after(900);
	ck_assert(!now_has_stood());
	after(1100);
	after(10);
	ck_assert(now_has_stood());
	ck_assert(!now_has_stood());
}
END_TEST

START_TEST(a_wait_without_a_limit_counts)
{
	double before = now_ms();

	machine_ms += 3600000;
	now_waited();
	ck_assert_double_eq(now_ms() - before, 3600000);
	ck_assert(!now_has_stood());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("now");
	TCase *tc = tcase_create("now");

	tcase_add_test(tc, it_begins_behind_all_moments_that_have_not_come);
	tcase_add_test(tc, it_stands_while_the_daemon_is_stopped);
	tcase_add_test(tc, it_says_once_that_it_has_stood);
	tcase_add_test(tc, a_wait_without_a_limit_counts);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
