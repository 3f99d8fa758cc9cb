/* SPDX-License-Identifier: Apache-2.0 */
/* Which environment counts in a program that changes it. */
#include "common/environment.h"

#include "tests/check_suite.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
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

/* They may be secrets, and are no business of ours. */
START_TEST(others_are_not_kept)
{
	setenv("TOKEN", "a", 1);
	ck_assert_str_eq(environment_get("TOKEN"), "a");
	environment_keep();
	ck_assert_ptr_null(environment_get("TOKEN"));
}
END_TEST

START_TEST(limits_and_paths_are_kept)
{
	static const char *const names[] = {
		"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0",
		"CUDA_DEVICE_MEMORY_LIMIT_63", "LD_LIBRARY_PATH", "VIRTUAL_ENV"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		setenv(names[i], names[i], 1);
	environment_keep();
	clearenv();
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ck_assert_str_eq(environment_get(names[i]), names[i]);
}
END_TEST

/* The program may change its directory before or after the copy. */
START_TEST(a_relative_path_leads_from_the_directory_of_the_copy)
{
	setenv("CUDAW_SPILL_DIR", "spill", 1);
	setenv("CUDAW_LOG_FILE", "/log", 1);
	setenv("CUDAW_NAME", "name", 1);
	ck_assert_int_eq(chdir("/usr"), 0);
	environment_keep();
	ck_assert_int_eq(chdir("/"), 0);
	environment_keep();
	ck_assert_str_eq(environment_get("CUDAW_SPILL_DIR"), "/usr/spill");
	ck_assert_str_eq(environment_get("CUDAW_LOG_FILE"), "/log");
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "name");
}
END_TEST

START_TEST(a_long_value_is_kept)
{
	static char path[100000];

	memset(path, 'p', sizeof(path) - 1);
	setenv("LD_LIBRARY_PATH", path, 1);
	environment_keep();
	setenv("CUDAW_NAME", "a", 1);
	environment_keep();
	clearenv();
	ck_assert_str_eq(environment_get("LD_LIBRARY_PATH"), path);
	ck_assert_str_eq(environment_get("CUDAW_NAME"), "a");
}
END_TEST

/* Which getenv(3) gets over. The linker's array, so that nothing is freed. */
static char variable[] = "CUDAW_NAME=e", *variables[] = {variable, NULL};
static bool done;

static void *take_out_and_set(void *unused)
{
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		__atomic_store_n(&variables[0], NULL, __ATOMIC_RELAXED);
		__atomic_store_n(&variables[0], variable, __ATOMIC_RELAXED);
	}
	return unused;
}

START_TEST(another_thread_may_take_one_out_meanwhile)
{
	pthread_t thread;

	environ = variables;
	environment_keep();
	ck_assert_int_eq(pthread_create(&thread, NULL, take_out_and_set, NULL), 0);
	for (int i = 0; i < 20000; i++)
		environment_keep();
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
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
	tcase_add_test(tc, others_are_not_kept);
	tcase_add_test(tc, limits_and_paths_are_kept);
	tcase_add_test(tc, a_relative_path_leads_from_the_directory_of_the_copy);
	tcase_add_test(tc, a_long_value_is_kept);
	tcase_add_test(tc, another_thread_may_take_one_out_meanwhile);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
