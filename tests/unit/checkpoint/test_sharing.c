/* SPDX-License-Identifier: Apache-2.0 */
/* What a process answers to another one, of which it imports memory; here it asks itself. */
#include "checkpoint/sharing/internal.h"
#include "checkpoint/sharing/sharers.h"

#include "tests/check_suite.h"

#include <sched.h>
#include <stdlib.h>

/* Of many importers, all but @idle hold memory; NULL: all. It is called @meanwhile, as that one is asked. */
static struct sharing_process *idle;
static void (*meanwhile)(void);

int __real_sharers_ask(struct patience *patience, const struct sharing_process *to,
		       struct sharing_request *request, struct sharing_answer *answer, int *fd);
int __wrap_sharers_ask(struct patience *patience, const struct sharing_process *to,
		       struct sharing_request *request, struct sharing_answer *answer, int *fd);

int __wrap_sharers_ask(struct patience *patience, const struct sharing_process *to,
		       struct sharing_request *request, struct sharing_answer *answer, int *fd)
{
	bool holds = !idle || !sharing_lists(idle, 1, to);

	if (sharers_is_self(to))
		return __real_sharers_ask(patience, to, request, answer, fd);
	*fd = -1;
	sharing_answer_begin(answer);
	answer->holds = holds ? SHARING_HOLDS_MEMORY : SHARING_HOLDS_NONE;
	if (!holds && meanwhile)
		meanwhile();
	return 0;
}

bool __wrap_sharers_is_gone(const struct sharing_process *process);

bool __wrap_sharers_is_gone(const struct sharing_process *process)
{
	(void)process;
	return false;
}

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

static enum sharing_result ask_for_memory(void)
{
	struct sharing_request request;
	struct sharing_answer answer;
	struct patience patience = {0};
	int fd;

	sharing_request_begin(&request, SHARING_EXPORT);
	ck_assert_int_eq(sharers_ask(&patience, sharers_self(), &request, &answer, &fd), 0);
	return answer.result;
}

/* As an importer does, once its first request has told it to come again. */
static enum sharing_result ask_until_decided(void)
{
	enum sharing_result result;

	ck_assert_int_eq(ask_for_memory(), SHARING_LATER);
	while ((result = ask_for_memory()) == SHARING_LATER)
		sched_yield();
	return result;
}

static void import_by_many(void)
{
	struct object_name name;

	setenv("CUDAW_RUNTIME_DIR", "none", 1);
	ck_assert(sharing_name(&name));
	sharing.nimporters = SHARING_PROCESSES;
	for (int i = 0; i < SHARING_PROCESSES; i++)
		sharing.importers[i] = (struct sharing_process){.pid = 1 << 30, .instance = {i}};
}

/* The memory that is asked for does not exist, which is looked for once there is room. */
START_TEST(importers_that_hold_nothing_make_room)
{
	struct sharing_process gone;

	import_by_many();
	gone = sharing.importers[200];
	idle = &gone;
	ck_assert_int_eq(ask_until_decided(), SHARING_UNKNOWN);
	ck_assert_uint_eq(sharing.nimporters, SHARING_PROCESSES);
	ck_assert(!sharing_lists(sharing.importers, SHARING_PROCESSES, &gone));
	ck_assert(sharing_lists(sharing.importers, SHARING_PROCESSES, sharers_self()));
}
END_TEST

START_TEST(importers_that_hold_memory_make_no_room)
{
	import_by_many();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(ask_until_decided(), SHARING_FAILED);
}
END_TEST

static void import_again(void)
{
	pthread_mutex_lock(&sharing.lock);
	ck_assert_int_eq(sharing_note_importer(idle), SHARING_OK);
	pthread_mutex_unlock(&sharing.lock);
}

/* A pause would not know of it. */
START_TEST(one_that_imports_again_as_it_is_asked_is_not_forgotten)
{
	struct sharing_process again;

	import_by_many();
	again = sharing.importers[200];
	idle = &again;
	meanwhile = import_again;
	ck_assert_int_eq(ask_until_decided(), SHARING_FAILED);
	ck_assert(sharing_lists(sharing.importers, SHARING_PROCESSES, &again));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sharing");
	TCase *tc = tcase_create("sharing");

	tcase_add_test(tc, one_at_rest_holds_nothing_that_it_only_waits_for);
	tcase_add_test(tc, importers_that_hold_nothing_make_room);
	tcase_add_test(tc, importers_that_hold_memory_make_no_room);
	tcase_add_test(tc, one_that_imports_again_as_it_is_asked_is_not_forgotten);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
