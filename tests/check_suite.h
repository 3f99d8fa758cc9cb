/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CHECK_SUITE_H
#define CUDAW_CHECK_SUITE_H
/* How the Check programs end: every test in a process of its own, one line of TAP for each. */
#include <check.h>

/* Run @suite and free it; returns the program's exit status. */
static inline int check_suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

#endif
