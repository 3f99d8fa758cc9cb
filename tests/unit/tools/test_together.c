/* SPDX-License-Identifier: Apache-2.0 */
/* When processes are asked again, and with which limit: they are played here, and so is the clock (--wrap). */
#include "tools/job/party/together.h"

#include "tests/check_suite.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS       2
#define ASKED_MAX   100
#define RUN_MOST_MS 800
#define REST_MS     1000 /* how long they take to find that they cannot pause yet */

static struct job_directory directory = {.path = "/nowhere"};
static struct job ranks[RANKS], *jobs[RANKS];
static double now_ms = 1000;

static struct {
	double limit_ms; /* that it names */
	double run_ms;   /* for how long the jobs ran before it */
	bool together;
	size_t n; /* processes */
} asked[ASKED_MAX];
static size_t nasked;

/* How one ends that is asked for the @k-th time. */
static enum end_code (*ends)(size_t k, const struct job *job);

void __wrap_jobs_ask(struct job **to, size_t n, const struct job_request *request);
double __wrap_clock_ms(void);
int __wrap_usleep(useconds_t us);

double __wrap_clock_ms(void)
{
	return now_ms;
}

int __wrap_usleep(useconds_t us)
{
	now_ms += us / 1000.0;
	asked[nasked].run_ms = us / 1000.0;
	return 0;
}

void __wrap_jobs_ask(struct job **to, size_t n, const struct job_request *request)
{
	const char *text, *limit;

	if (!n)
		return;
	ck_assert_uint_lt(nasked, ASKED_MAX);
	text = to[0]->party ? request->party_text : request->text;
	limit = strchr(text, ' ');
	asked[nasked].limit_ms = limit ? atof(limit + 1) : 0;
	asked[nasked].together = to[0]->party;
	asked[nasked].n = n;
	now_ms += REST_MS;
	for (size_t i = 0; i < n; i++)
		to[i]->end = ends(nasked, to[i]);
	nasked++;
}

static void begin(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		jobs[i] = &ranks[i];
		ranks[i] = (struct job){.pid = (pid_t)(100 + i),
					.directory = &directory,
					.described = true,
					.fd = -1};
		strcpy(ranks[i].status.id, "a00001");
		strcpy(ranks[i].status.state, "running");
	}
}

static void hold(bool on)
{
	(void)on;
}

static enum end_code rest_for_a_turn(size_t k, const struct job *job)
{
	(void)k, (void)job;
	return END_AGAIN;
}

/* The limit is that of the whole, and the jobs run for longer each time. */
static void check_limit(size_t n)
{
	const double begin_ms = now_ms, limit_ms = 10000;

	begin(n);
	ends = rest_for_a_turn;
	ck_assert_int_ne(together_pause(jobs, n, "snapshot", limit_ms, hold), 0);
	ck_assert_double_ge(now_ms, begin_ms + limit_ms);
	ck_assert_double_le(now_ms, begin_ms + limit_ms + RUN_MOST_MS + REST_MS);
	ck_assert_double_eq(asked[0].limit_ms, limit_ms);
	for (size_t k = 1; k < nasked; k++) {
		double left_ms = asked[k - 1].limit_ms - REST_MS - asked[k].run_ms;

		ck_assert(asked[k].together == (n > 1));
		ck_assert_double_eq(asked[k].run_ms, k < 4 ? 50 << k : RUN_MOST_MS);
		ck_assert_double_eq(asked[k].limit_ms, left_ms > 100 ? left_ms : 100);
	}
}

START_TEST(a_pause_is_asked_for_within_its_limit)
{
	check_limit(RANKS);
}
END_TEST

START_TEST(so_is_that_of_one_process)
{
	check_limit(1);
}
END_TEST

static enum end_code want_a_turn(size_t k, const struct job *job)
{
	return k || job == &ranks[0] ? END_OK : END_TURN;
}

static int resume(bool turns)
{
	begin(RANKS);
	ends = want_a_turn;
	return together_resume(jobs, RANKS, "restore", "restoring", turns, NULL);
}

START_TEST(a_turn_is_waited_for_one_by_one)
{
	ck_assert_int_eq(resume(true), 0);
	ck_assert_uint_eq(nasked, 2);
	ck_assert(asked[0].together && !asked[1].together);
	ck_assert_uint_eq(asked[1].n, 1);
}
END_TEST

START_TEST(or_is_good_enough)
{
	ck_assert_int_eq(resume(false), 0);
	ck_assert_uint_eq(nasked, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("together");
	TCase *tc = tcase_create("again");

	tcase_add_test(tc, a_pause_is_asked_for_within_its_limit);
	tcase_add_test(tc, so_is_that_of_one_process);
	tcase_add_test(tc, a_turn_is_waited_for_one_by_one);
	tcase_add_test(tc, or_is_good_enough);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
