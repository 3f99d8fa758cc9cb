/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CHECK_SUITE_H
#define CUDAW_CHECK_SUITE_H
/*
 * How the Check programs assert and end: every test in a process of its own, one line of TAP for
 * each.
 *
 * Check writes the place of each assertion that holds to a file, to know where a test has crashed.
 * A test of a million assertions takes most of its time for these writes, so that only the places of
 * a process's first MARKS assertions are written.
 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#define MARKS 1000
/* The exit status after a crash or a hang, which is certain (CERTAIN_STATUS of tests/runner.py). */
#define CHECK_SUITE_CRASHED 3

static inline void check_suite_mark(const char *file, int line)
{
	static unsigned int marks;

	if (__atomic_fetch_add(&marks, 1, __ATOMIC_RELAXED) < MARKS)
		_mark_point(file, line);
}

#undef ck_assert_msg
#define ck_assert_msg(expr, ...)                                                        \
	((expr) ? check_suite_mark(__FILE__, __LINE__)                                  \
		: _ck_assert_failed(__FILE__, __LINE__, "Assertion '" #expr "' failed", \
				    ##__VA_ARGS__))

/* A test of @runner was ended by a signal, or did not end. */
static inline bool check_suite_crashed(SRunner *runner)
{
	TestResult **failures = srunner_failures(runner);
	int count = srunner_ntests_failed(runner);
	bool crashed = false;

	for (int i = 0; i < count; i++)
		crashed |= tr_rtype(failures[i]) == CK_ERROR;
	free(failures);
	return crashed;
}

/* Run @suite and free it; returns the program's exit status. */
static inline int check_suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int status;

	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	status = check_suite_crashed(runner)          ? CHECK_SUITE_CRASHED
		 : srunner_ntests_failed(runner) != 0 ? EXIT_FAILURE
						      : EXIT_SUCCESS;
	srunner_free(runner);
	return status;
}

#endif
