/* SPDX-License-Identifier: Apache-2.0 */
/* What a process answers to another one, of which it imports memory; here it asks itself. */
#include "checkpoint/sharing/internal.h"
#include "checkpoint/sharing/sharers.h"

#include "tests/check_suite.h"

#include <stdlib.h>

static struct sharing_answer ask_in(enum sharing_stage stage)
{
	struct sharing_request request;
	struct sharing_answer answer;
	struct patience patience = {0};
	int fd;

	sharing.stage = stage;
	sharing_request_begin(&request, SHARING_STATE);
	ck_assert_int_eq(sharers_ask(&patience, sharers_self(), &request, &answer, &fd), 0);
	ck_assert_int_eq(fd, -1);
	return answer;
}

/* The exporter must not wait for it: it may be paused, and does not know of the exporter then. */
START_TEST(one_at_rest_holds_nothing_that_it_only_waits_for)
{
	CUmemGenericAllocationHandle handle;
	struct object_name name;

	setenv("CUDAW_RUNTIME_DIR", "none", 1); /* its socket has no file then */
	ck_assert(sharing_name(&name));
	ck_assert_uint_eq(ask_in(SHARING_RUNNING).holds, 0);
	ck_assert_int_eq(sharing_import_begin(&name, &handle), CUDA_SUCCESS);
	ck_assert_uint_eq(ask_in(SHARING_RUNNING).holds, 1);
	ck_assert_uint_eq(ask_in(SHARING_PAUSING).holds, 1);
	for (int stage = SHARING_RESTING; stage < SHARING_STAGES; stage++)
		ck_assert_uint_eq(ask_in(stage).holds, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sharing");
	TCase *tc = tcase_create("sharing");

	tcase_add_test(tc, one_at_rest_holds_nothing_that_it_only_waits_for);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
