/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TESTS_FEW_DESCRIPTORS_H
#define CUDAW_TESTS_FEW_DESCRIPTORS_H
/*
 * A test without free descriptors, until its third wait for one (common/system/shortage.h), or for good. At its end it
 * allows some again: sanitizers need them.
 */
#include "tests/check_suite.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

static struct {
	bool come;
	int waits;
} few;

static void allow_descriptors(rlim_t count)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = count;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* @come: some are there from the third wait on. */
static void take_descriptors(bool come)
{
	few.come = come;
	few.waits = 0;
	allow_descriptors(3);
}

int usleep(useconds_t us)
{
	(void)us;
	if (++few.waits == 3 && few.come)
		allow_descriptors(64);
	return 0;
}

#endif
