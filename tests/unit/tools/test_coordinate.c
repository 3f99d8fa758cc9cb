/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the mend of a pause waits: the jobs are played here, and so is the clock (--wrap). All say ten times
 * a second how far they are, as they do while they wait for another process.
 */
#include "tools/job/party/coordinate.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANKS      3
#define LINE_MS    100
#define SILENCE_MS 10000
#define MOST_MS    600000 /* after that, the mend has no limit */

static struct job_directory directory = {.path = "/nowhere"};
static struct job ranks[RANKS], *jobs[RANKS];
static double now_ms = 1000;
static double asked_ms; /* when the mend asked */

/* What rank 0, 1, ... says during the mend, so many ms after it was asked. */
static void (*says)(size_t rank, double ms, char *line, size_t size);

void __wrap_jobs_ask(struct job **asked, size_t n, const struct job_request *request);
double __wrap_clock_ms(void);

double __wrap_clock_ms(void)
{
	return now_ms;
}

static void take(struct job *job, const struct job_request *request, const char *text)
{
	struct line line;

	ck_assert_int_eq(line_parse(&lines_from_job, text, &line), 0);
	job->end = line.end;
	if (line.id == REPORT_END || request->line(job, &line))
		job->fd = -1;
}

void __wrap_jobs_ask(struct job **asked, size_t n, const struct job_request *request)
{
	size_t open = n;
	char line[64];

	if (!request->party_text)
		return;
	asked_ms = now_ms;
	for (size_t i = 0; i < n; i++) {
		asked[i]->fd = 0;
		asked[i]->end = END_NONE;
		asked[i]->progress = (struct job_progress){0};
	}
	while (open) {
		now_ms += LINE_MS;
		ck_assert_double_lt(now_ms, asked_ms + MOST_MS);
		open = 0;
		for (size_t i = 0; i < n; i++) {
			if (asked[i]->fd < 0)
				continue;
			says(asked[i] - ranks, now_ms - asked_ms, line, sizeof(line));
			take(asked[i], request, line);
			request->tick(asked, n);
			open += asked[i]->fd >= 0;
		}
	}
}

/* All are at rest, and are told to pause, and are paused. */
static void pause_all(enum coordinate_what what)
{
	static const struct line drained = {.id = REPORT_HELD, .word = {"drained"}, .text = ""};
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	for (size_t i = 0; i < RANKS; i++) {
		ranks[i] = (struct job){.pid = (pid_t)(100 + i),
					.directory = &directory,
					.described = true,
					.fd = ends[0]};
		strcpy(ranks[i].status.id, "a00001");
		strcpy(ranks[i].status.state, "running");
		jobs[i] = &ranks[i];
	}
	ck_assert_int_eq(coordinate_begin(jobs, RANKS, what), 0);
	for (size_t i = 0; i < RANKS; i++)
		ck_assert_int_eq(coordinate_take(jobs[i], &drained), 0);
	coordinate_tick(jobs, RANKS, 0);
	for (size_t i = 0; i < RANKS; i++) {
		ck_assert(coordinate_is_over(jobs[i]));
		ranks[i].fd = -1;
		ranks[i].end = END_OK;
	}
}

/* The last one ends then. */
static void pause_all_but_the_last(void)
{
	pause_all(COORDINATE_PAUSE);
	ranks[RANKS - 1].end = END_NONE;
	ranks[RANKS - 1].error = -ECONNRESET;
}

/* How long the mend took. */
static double mended(void (*as)(size_t rank, double ms, char *line, size_t size))
{
	says = as;
	pause_all_but_the_last();
	coordinate_mend(jobs, RANKS, SILENCE_MS);
	return now_ms - asked_ms;
}

static void check_waits_for(const struct job *job, pid_t pid)
{
	char words[64];

	snprintf(words, sizeof(words), "waits for process %d,", pid);
	ck_assert_int_eq(job->end, END_TIMEOUT);
	ck_assert_msg(strstr(job->message, words), "it says '%s', not '%s'", job->message, words);
	ck_assert(!coordinate_gave_up(job));
}

static void wait_for_another(size_t rank, double ms, char *line, size_t size)
{
	(void)rank, (void)ms;
	snprintf(line, size, "progress share 0 0");
}

/* They wait for the one that has ended, or is stopped. */
START_TEST(a_wait_for_others_has_a_limit)
{
	ck_assert_double_le(mended(wait_for_another), SILENCE_MS + 2 * LINE_MS);
	for (size_t i = 0; i < RANKS - 1; i++)
		check_waits_for(&ranks[i], ranks[RANKS - 1].pid);
}
END_TEST

/* Rank 0 copies for a minute, and rank 1 waits for it; then it does as well. */
static void copy_for_a_minute(size_t rank, double ms, char *line, size_t size)
{
	if (rank == 0 && ms < 60000)
		snprintf(line, size, "progress copy %d 1000000", (int)ms);
	else
		wait_for_another(rank, ms, line, size);
}

START_TEST(one_that_gets_further_is_waited_for)
{
	double took = mended(copy_for_a_minute);

	ck_assert_double_ge(took, 60000 + SILENCE_MS - 2 * LINE_MS);
	ck_assert_double_le(took, 60000 + SILENCE_MS + 2 * LINE_MS);
}
END_TEST

static void fail_in_time(size_t rank, double ms, char *line, size_t size)
{
	if (rank == 0 && ms > SILENCE_MS - 2 * LINE_MS)
		snprintf(line, size, "end failed");
	else if (rank == 1 && ms > SILENCE_MS + 3000)
		snprintf(line, size, "end failed");
	else
		wait_for_another(rank, ms, line, size);
}

/* Rank 1 finds by itself that rank 0 has failed, and says so better. */
START_TEST(the_limit_begins_again_with_an_end)
{
	mended(fail_in_time);
	for (size_t i = 0; i < RANKS - 1; i++) {
		ck_assert_int_eq(ranks[i].end, END_FAILED);
		ck_assert(!coordinate_gave_up(&ranks[i]));
	}
}
END_TEST

/* Rank 0 lacks memory, which has a limit of its own, and rank 1 waits for that of rank 0. */
static void lack_memory(size_t rank, double ms, char *line, size_t size)
{
	if (rank == 0)
		snprintf(line, size, "progress waiting 0 0");
	else
		wait_for_another(rank, ms, line, size);
}

START_TEST(so_has_a_wait_for_one_that_lacks_memory)
{
	ck_assert_double_le(mended(lack_memory), 2 * SILENCE_MS + 2 * LINE_MS);
	ck_assert_msg(strstr(ranks[0].message, "waits for GPU memory"), "it says '%s'",
		      ranks[0].message);
	check_waits_for(&ranks[1], ranks[0].pid);
}
END_TEST

static void be_paused_by_another(size_t rank, double ms, char *line, size_t size)
{
	(void)rank, (void)ms;
	snprintf(line, size, "end busy");
}

START_TEST(one_that_another_request_pauses_was_not_spared)
{
	mended(be_paused_by_another);
	for (size_t i = 0; i < RANKS - 1; i++)
		ck_assert(!coordinate_gave_up(&ranks[i]));
}
END_TEST

/* No further descriptor can be opened, or again as many as before. */
static void deny_descriptors(bool deny)
{
	static struct rlimit before;
	struct rlimit now;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
	if (deny)
		before = now;
	now.rlim_cur = deny ? 0 : before.rlim_cur;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &now), 0);
}

/* Without a token of all, an end of the command would pause or resume some of them. */
START_TEST(none_is_asked_without_a_token)
{
	const enum coordinate_what what = _i ? COORDINATE_RESUME : COORDINATE_PAUSE;

	pause_all_but_the_last();
	coordinate_end(jobs, RANKS);
	deny_descriptors(true);
	ck_assert_int_eq(coordinate_begin(jobs, RANKS, what), -EMFILE);
	deny_descriptors(false);
	ck_assert_ptr_null(jobs[0]->party);
}
END_TEST

static void be_not_asked(size_t rank, double ms, char *line, size_t size)
{
	(void)rank, (void)ms, (void)line, (void)size;
	ck_abort_msg("it is asked to resume, but not with the others");
}

START_TEST(those_that_cannot_be_asked_together_stay_paused)
{
	pause_all_but_the_last();
	says = be_not_asked;
	deny_descriptors(true);
	coordinate_mend(jobs, RANKS, SILENCE_MS);
	deny_descriptors(false);
	for (size_t i = 0; i < RANKS - 1; i++) {
		ck_assert_int_eq(ranks[i].end, END_FAILED);
		ck_assert_msg(strstr(ranks[i].message, "it stays paused: "), "it says '%s'",
			      ranks[i].message);
		ck_assert(!coordinate_gave_up(&ranks[i]));
	}
}
END_TEST

static ino_t file_of(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

/* They are asked to resume by the pact that each of them has already, unless one has ended. */
START_TEST(all_that_are_lent_resume_by_one_pact)
{
	ino_t lent;

	pause_all(COORDINATE_LEND);
	lent = file_of(ranks[0].pact);
	ck_assert_int_eq(ranks[0].pact, ranks[RANKS - 1].pact);
	ck_assert(file_of(ranks[0].token) != lent);
	coordinate_end(jobs, RANKS);
	ck_assert_int_eq(coordinate_begin(jobs, RANKS - (size_t)_i, COORDINATE_RESUME), 0);
	ck_assert_int_eq(file_of(ranks[0].token) == lent, !_i);
	coordinate_end(jobs, RANKS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("coordinate");
	TCase *tc = tcase_create("mend");

	tcase_add_test(tc, a_wait_for_others_has_a_limit);
	tcase_add_test(tc, one_that_gets_further_is_waited_for);
	tcase_add_test(tc, the_limit_begins_again_with_an_end);
	tcase_add_test(tc, so_has_a_wait_for_one_that_lacks_memory);
	tcase_add_test(tc, one_that_another_request_pauses_was_not_spared);
	tcase_add_loop_test(tc, none_is_asked_without_a_token, 0, 2);
	tcase_add_test(tc, those_that_cannot_be_asked_together_stay_paused);
	tcase_add_loop_test(tc, all_that_are_lent_resume_by_one_pact, 0, 2);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
