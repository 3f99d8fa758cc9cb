/* SPDX-License-Identifier: Apache-2.0 */
/* Which environment counts in a program that changes it. */
#include "common/environment.h"

#include "tests/check_suite.h"

#include <stdlib.h>
#include <unistd.h>

START_TEST(without_a_copy_it_is_that_of_now)
{
	setenv("CUDAW_NAME", "a", 1);
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "a");
	unsetenv("CUDAW_NAME");
	ck_assert_ptr_null(environment_get("CUDAW_NAME"));
}
END_TEST

START_TEST(what_the_program_takes_out_or_changes_later_stays)
{
	setenv("CUDAW_NAME", "a", 1);
	setenv("CUDAW_NAME_OF_ANOTHER", "b", 1);
	environment_keep();
	setenv("CUDAW_NAME", "c", 1);
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "a");
	clearenv();
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "a");
	ck_assert_ptr_null(environment_get("CUDAW_NAM"));
	environment_keep();
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "a");
}
END_TEST

START_TEST(what_it_sets_before_the_next_copy_counts)
{
	environment_keep();
	setenv("CUDAW_NAME", "d", 1);
	environment_keep();
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "d");
}
END_TEST

START_TEST(of_two_with_a_name_the_first_counts)
{
	static char *both[] = {"CUDAW_NAME=e", "CUDAW_NAME=f", "no variable", NULL};

	environ = both;
	environment_keep();
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "e");
	environment_keep();
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "e");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("environment");
	TCase *tc = tcase_create("environment");

	tcase_add_test(tc, without_a_copy_it_is_that_of_now);
	tcase_add_test(tc, what_the_program_takes_out_or_changes_later_stays);
	tcase_add_test(tc, what_it_sets_before_the_next_copy_counts);
	tcase_add_test(tc, of_two_with_a_name_the_first_counts);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
