/* SPDX-License-Identifier: Apache-2.0 */
/* How much of what members say they have can be true. */
#include "tools/daemon/turns/shown.h"

#include "tests/check_suite.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOTAL 1000

static struct shown shown;
static pid_t ours, others, gone;

static void setup(void)
{
	ours = getpid();
	others = getppid();
	gone = fork();
	if (!gone)
		_exit(0);
	ck_assert_int_eq(waitpid(gone, NULL, 0), gone);
}

static void begin(size_t used, int count, const struct nvml_holder *holders)
{
	struct sample sample = {.total = TOTAL, .free = TOTAL - used, .nholders = count};

	for (int i = 0; i < count; i++)
		sample.holders[i] = holders[i];
	shown_begin(&shown, &sample);
}

START_TEST(a_process_has_what_is_shown_for_it)
{
	begin(700, 2, (struct nvml_holder[]){{others, 400}, {ours, 200}});
	ck_assert_uint_eq(shown_bound(&shown, ours, 100), 200);
	ck_assert_uint_eq(shown_bound(&shown, others, 1000), 400);
	/* A second connection of a process claims what the first one has left. */
	ck_assert_uint_eq(shown_bound(&shown, ours, 1000), 100);
	ck_assert_uint_eq(shown_bound(&shown, ours, 1000), 0);
	ck_assert_uint_eq(shown_bound(&shown, others, 1000), 0);
}
END_TEST

START_TEST(those_that_are_not_listed_share_the_rest)
{
	begin(700, 1, (struct nvml_holder[]){{ours, 400}});
	ck_assert_uint_eq(shown_bound(&shown, others, 200), 300);
	ck_assert_uint_eq(shown_bound(&shown, 0, 1000), 100);
	ck_assert_uint_eq(shown_bound(&shown, others, 1000), 0);
	ck_assert_uint_eq(shown_bound(&shown, ours, 1000), 400);
}
END_TEST

/* NVML may list members under the PIDs of another namespace. */
START_TEST(a_holder_that_is_not_seen_may_be_a_member)
{
	begin(700, 1, (struct nvml_holder[]){{gone, 400}});
	ck_assert_uint_eq(shown_bound(&shown, ours, 500), 700);
	ck_assert_uint_eq(shown_bound(&shown, others, 500), 200);
}
END_TEST

/* Memory was allocated between the two questions to NVML. */
START_TEST(more_can_be_shown_than_is_used)
{
	begin(300, 1, (struct nvml_holder[]){{ours, 400}});
	ck_assert_uint_eq(shown_bound(&shown, ours, 500), 400);
	ck_assert_uint_eq(shown_bound(&shown, others, 500), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shown");
	TCase *cases = tcase_create("shown");

	tcase_add_checked_fixture(cases, setup, NULL);
	tcase_add_test(cases, a_process_has_what_is_shown_for_it);
	tcase_add_test(cases, those_that_are_not_listed_share_the_rest);
	tcase_add_test(cases, a_holder_that_is_not_seen_may_be_a_member);
	tcase_add_test(cases, more_can_be_shown_than_is_used);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
