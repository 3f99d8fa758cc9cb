/* SPDX-License-Identifier: Apache-2.0 */
/* What a process does about those that share memory with it; here they are played, and time passes at once. */
#include "checkpoint/sharing/internal.h"
#include "checkpoint/sharing/sharers.h"

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
static void (*sleeps)(void); /* what else happens meanwhile */
static bool cancelled;

double __wrap_clock_ms(void);
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

static struct sharing_wait waiting(void)
{
	return (struct sharing_wait){.cancel = &cancelled};
}

/* All are at rest with this process, and have given its memory back. */
static void begin(void)
{
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

int main(void)
{
	Suite *suite = suite_create("stages");
	TCase *tc = tcase_create("stages");

	tcase_add_test(tc, one_that_waits_for_minutes_does_not_ask_all_the_time);
	tcase_add_test(tc, one_that_is_whole_sees_another_one_go_back);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
