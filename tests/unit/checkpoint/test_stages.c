/* SPDX-License-Identifier: Apache-2.0 */
/* What a process does about those that share memory with it; here they are played, and time passes at once. */
#include "checkpoint/sharing/internal.h"
#include "checkpoint/sharing/sharers.h"
#include "vmem/internal.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MEMBERS 2

/* What it answers; an @error instead. */
static struct peer {
	int error;
	unsigned int asked;
	struct sharing_answer answer;
} peers[MEMBERS];

static double now_ms = 1000;
static void (*sleeps)(void);        /* what else happens meanwhile */
static sharers_answer_fn answer_of; /* of this process */
static bool cancelled;

double __wrap_clock_ms(void);
int __wrap_sharers_start(sharers_answer_fn answer, sharers_idle_fn idle);
int __wrap_sharers_begin(const struct sharing_process *to, struct sharing_request *request);
int __wrap_sharers_end(struct patience *patience, double asked_ms, int with,
		       struct sharing_answer *answer, int *fd);
int __wrap_sharers_ask(struct patience *patience, const struct sharing_process *to,
		       struct sharing_request *request, struct sharing_answer *answer, int *fd);

double __wrap_clock_ms(void)
{
	return now_ms;
}

/* libc's, as all that is linked here calls it. */
int usleep(useconds_t us)
{
	now_ms += us / 1000.0;
	if (sleeps)
		sleeps();
	return 0;
}

int __wrap_sharers_start(sharers_answer_fn answer, sharers_idle_fn idle)
{
	(void)idle;
	answer_of = answer;
	return 0;
}

static struct sharing_process process(int i)
{
	return (struct sharing_process){.pid = i + 1, .instance = {(unsigned char)(i + 1)}};
}

int __wrap_sharers_ask(struct patience *patience, const struct sharing_process *to,
		       struct sharing_request *request, struct sharing_answer *answer, int *fd)
{
	struct peer *peer = &peers[to->pid - 1];

	(void)patience;
	(void)request;
	*fd = -1;
	peer->asked++;
	if (!peer->error)
		*answer = peer->answer;
	return peer->error;
}

/* What this process answers to a member. */
static struct sharing_answer ask_as(int i, enum sharing_kind kind)
{
	struct sharing_process from = process(i);
	struct sharing_request request;
	struct sharing_answer answer;
	int fd = -1;

	sharing_request_begin(&request, kind);
	request.key[0] = 1;
	sharing_answer_begin(&answer);
	answer_of(&request, &from, &answer, &fd);
	ck_assert_int_lt(fd, 0);
	return answer;
}

static bool holds_memory(int i)
{
	return ask_as(i, SHARING_STATE).holds == SHARING_HOLDS_MEMORY;
}

/* The answer is under way until sharers_end(). */
int __wrap_sharers_begin(const struct sharing_process *to, struct sharing_request *request)
{
	(void)to;
	(void)request;
	ck_assert(holds_memory(0));
	return -1;
}

int __wrap_sharers_end(struct patience *patience, double asked_ms, int with,
		       struct sharing_answer *answer, int *fd)
{
	(void)patience;
	(void)asked_ms;
	(void)with;
	(void)answer;
	ck_assert(holds_memory(0));
	ck_assert(!holds_memory(1));
	*fd = -1;
	return -ESRCH;
}

static struct sharing_wait waiting(void)
{
	return (struct sharing_wait){.cancel = &cancelled};
}

/* All are at rest with this process, and have given its memory back. */
static void begin(void)
{
	struct object_name name;

	ck_assert(sharing_name(&name));
	for (int i = 0; i < MEMBERS; i++) {
		sharing_answer_begin(&peers[i].answer);
		peers[i].answer.stage = SHARING_RELEASED;
		sharing.members[i] = (struct sharing_member){.process = process(i)};
	}
	sharing.nmembers = MEMBERS;
	sharing.stage = SHARING_RELEASED;
}

static void all_are(enum sharing_stage stage)
{
	for (int i = 0; i < MEMBERS; i++)
		peers[i].answer.stage = stage;
}

static void minutes_pass(void)
{
	cancelled = now_ms > 10 * 60000;
}

START_TEST(one_that_waits_for_minutes_does_not_ask_all_the_time)
{
	struct sharing_wait w = waiting();

	begin();
	sharing_rebuilt();
	sleeps = minutes_pass;
	ck_assert_int_eq(sharing_complete(&w), -ECANCELED);
	ck_assert_uint_lt(peers[0].asked, 10 * 60 * 11);
}
END_TEST

/* It may come again, which nobody can know of one that does not answer. */
START_TEST(one_that_is_whole_sees_another_one_go_back)
{
	struct sharing_wait w = waiting();

	begin();
	sharing_rebuilt();
	all_are(SHARING_WHOLE);
	ck_assert_int_eq(sharing_complete(&w), 0);
	ck_assert_int_eq(sharing_remains(&w), 0);
	peers[0].error = -EAGAIN;
	ck_assert_int_eq(sharing_remains(&w), 0);
	peers[1].answer.stage = SHARING_RELEASED;
	ck_assert_int_eq(sharing_remains(&w), -EAGAIN);
	peers[1].answer.stage = SHARING_WHOLE;
	for (int i = 0; i <= 100; i++) {
		ck_assert_int_eq(sharing_remains(&w), 0);
		now_ms += 100;
	}
	ck_assert_int_eq(sharing_remains(&w), -EHOSTUNREACH);
}
END_TEST

START_TEST(one_that_goes_back_waits_for_none_that_has_got_nothing)
{
	struct sharing_wait w = waiting();

	begin();
	sharing_rebuilt();
	ask_as(0, SHARING_EXPORT);
	sharing_back();
	peers[1].error = -EAGAIN;
	ck_assert_int_eq(sharing_gone_back(&w), 0);
	ck_assert_uint_eq(peers[0].asked, 1);
	ck_assert_uint_eq(peers[1].asked, 0);
	/* Those that have given it back are not asked again. */
	ck_assert_int_eq(sharing_gone_back(&w), 0);
	ck_assert_uint_eq(peers[0].asked, 1);
}
END_TEST

static void goes_on(void)
{
	if (peers[0].error)
		peers[0].answer.holds = SHARING_HOLDS_MEMORY;
	else if (peers[0].answer.holds == SHARING_HOLDS_MEMORY)
		peers[0].answer.holds = SHARING_HOLDS;
	if (now_ms > 5000)
		peers[0].error = 0;
}

START_TEST(one_that_goes_back_waits_for_one_that_may_have_its_memory)
{
	struct sharing_wait w = waiting();

	begin();
	sharing_rebuilt();
	ask_as(0, SHARING_EXPORT);
	sharing_back();
	peers[0].error = -EAGAIN;
	ck_assert_int_eq(sharing_gone_back(&w), -ETIME);
	sleeps = goes_on;
	now_ms = 1000;
	ck_assert_int_eq(sharing_gone_back(&w), 0);
	ck_assert_int_eq(peers[0].error, 0);
	ck_assert_uint_eq(peers[0].answer.holds, SHARING_HOLDS);
}
END_TEST

/* A member that has failed to give an import back is RELEASED all the same, and does not try again in the pause. */
START_TEST(one_that_pauses_does_not_wait_for_memory_that_another_one_keeps)
{
	struct sharing_wait w = waiting();

	begin();
	sharing.stage = SHARING_SAVED;
	sharing.members[0].holds = true;
	peers[0].answer.holds = SHARING_HOLDS_MEMORY;
	ck_assert_int_eq(sharing_released(&w), -ETIME);
	ck_assert(strstr(w.text, "process 1, which shares memory with this one, has not given"));
	ck_assert_double_lt(now_ms, 1100);
	/* A yield before it has waited already. */
	ck_assert_int_eq(sharing_released(&w), -ETIME);
	ck_assert_double_lt(now_ms, 1100);
	sharing_resume();
	ck_assert_int_eq(sharing_released(&w), -ETIME);
	ck_assert_double_gt(now_ms, 30000);
}
END_TEST

/* The first one has gone on, and is about to. */
START_TEST(one_that_waits_for_two_does_not_if_one_of_them_keeps_its_memory)
{
	struct sharing_wait w = waiting();

	begin();
	sharing.stage = SHARING_SAVED;
	for (int i = 0; i < MEMBERS; i++) {
		sharing.members[i].holds = true;
		peers[i].answer.holds = SHARING_HOLDS_MEMORY;
	}
	peers[0].answer.stage = SHARING_REBUILT;
	ck_assert_int_eq(sharing_released(&w), -ETIME);
	ck_assert(strstr(w.text, "process 2, which shares memory with this one, has not given"));
	ck_assert_double_lt(now_ms, 1100);
}
END_TEST

/* The rest is released later. */
START_TEST(one_that_has_failed_to_resume_says_so_still)
{
	struct sharing_wait w = waiting();

	begin();
	sharing_rebuilt();
	sharing_back();
	sharing_failed();
	ck_assert_int_eq(sharing_released(&w), 0);
	ck_assert_uint_eq(ask_as(0, SHARING_STATE).vote, SHARING_OFF);
}
END_TEST

static CUresult import_memory(CUmemGenericAllocationHandle *handle, void *fd,
			      CUmemAllocationHandleType type)
{
	(void)fd;
	(void)type;
	*handle = 1;
	return CUDA_SUCCESS;
}

static unsigned int failures; /* of the next releases */

static CUresult release_memory(CUmemGenericAllocationHandle handle)
{
	(void)handle;
	return failures && failures-- ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static const struct cuda_driver importer = {.cuMemImportFromShareableHandle = import_memory,
					    .cuMemRelease = release_memory};

static void import_from(int i)
{
	const struct object_name name = {.pid = i + 1, .instance = {(unsigned char)(i + 1)}};
	CUmemGenericAllocationHandle handle;

	vm.drv = &importer;
	ck_assert_int_eq(sharing_import_begin(&name, &handle), CUDA_SUCCESS);
	ck_assert_int_eq(objects_import(handle, 0, VMEM_GRANULE, 1), CUDA_SUCCESS);
}

START_TEST(an_import_that_cannot_be_given_back_keeps_no_other)
{
	begin();
	for (int i = 0; i < MEMBERS; i++)
		import_from(i);
	failures = 1;
	ck_assert_int_eq(objects_release_imports(NULL), CUDA_ERROR_UNKNOWN);
	ck_assert(holds_memory(0));
	ck_assert(!holds_memory(1));
}
END_TEST

/* It may be in the socket of one that is stopped just then. */
START_TEST(memory_that_is_on_its_way_counts_as_held)
{
	struct sharing_wait w = waiting();

	begin();
	import_from(0);
	ck_assert(holds_memory(0));
	ck_assert_int_eq(objects_release_imports(NULL), CUDA_SUCCESS);
	ck_assert(!holds_memory(0));
	sharing_rebuilt();
	ck_assert_int_eq(sharing_get_imports(&w), -ESRCH);
	ck_assert(!holds_memory(0));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stages");
	TCase *tc = tcase_create("stages");

	tcase_add_test(tc, one_that_waits_for_minutes_does_not_ask_all_the_time);
	tcase_add_test(tc, one_that_is_whole_sees_another_one_go_back);
	tcase_add_test(tc, one_that_goes_back_waits_for_none_that_has_got_nothing);
	tcase_add_test(tc, one_that_goes_back_waits_for_one_that_may_have_its_memory);
	tcase_add_test(tc, one_that_pauses_does_not_wait_for_memory_that_another_one_keeps);
	tcase_add_test(tc, one_that_waits_for_two_does_not_if_one_of_them_keeps_its_memory);
	tcase_add_test(tc, one_that_has_failed_to_resume_says_so_still);
	tcase_add_test(tc, an_import_that_cannot_be_given_back_keeps_no_other);
	tcase_add_test(tc, memory_that_is_on_its_way_counts_as_held);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
