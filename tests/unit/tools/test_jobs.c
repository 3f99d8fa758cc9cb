/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations with a job, which a thread of this process plays. */
#include "tools/job/jobs.h"
#include "common/protocol/rundir.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_MS 10000

static char path[] = "/tmp/cudaw-test-jobs-XXXXXX";
static struct job_directory directory = {.path = path};
static int listener;
static pthread_t peer;
static int64_t frozen_ms; /* from each look at the clock to the next one */
static int looks, answers_after;

double __wrap_clock_ms(void);

double __wrap_clock_ms(void)
{
	return 1000 + frozen_ms * __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
}

/* Takes the request, gives the answer @arg, and hangs up. */
static void *answer(void *arg)
{
	char request[64];
	int fd = accept(listener, NULL, NULL);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_gt(recv(fd, request, sizeof(request), 0), 0);
	while (__atomic_load_n(&looks, __ATOMIC_RELAXED) < answers_after)
		usleep(1000);
	ck_assert_int_eq(send(fd, arg, strlen(arg), 0), (ssize_t)strlen(arg));
	close(fd);
	return NULL;
}

/* Gives an order, which comes too late. */
static int line(struct job *job, const struct line *line)
{
	ck_assert_int_eq(line->id, REPORT_HELD);
	ck_assert_str_eq(line->word[0], "drained");
	ck_assert_int_eq(pthread_join(peer, NULL), 0);
	job_say(job, "commit");
	return 0;
}

/* The conversation with a job that gives @text as its answer. */
static struct job ask(const char *text)
{
	static const struct job_request request = {
		.text = "hold", .limit_ms = LIMIT_MS, .line = line};
	static struct rundir_home home;
	const char *why;
	struct job job = {.own_pid = getpid(), .directory = &directory}, *jobs[] = {&job};

	ck_assert_ptr_nonnull(mkdtemp(path));
	directory.owner = getuid();
	setenv("CUDAW_RUNTIME_DIR", path, 1);
	ck_assert_int_eq(rundir_find_home(&home, &why), 0);
	listener = rundir_listen(RUNDIR_CONTROL, &home, false);
	ck_assert_int_ge(listener, 0);
	ck_assert_int_eq(pthread_create(&peer, NULL, answer, (void *)text), 0);
	jobs_ask(jobs, 1, &request);
	close(listener);
	rundir_unlink(RUNDIR_CONTROL, &home);
	rmdir(path);
	return job;
}

/* As a job whose time is over just before all are told to go on. */
START_TEST(an_order_that_comes_too_late_hides_no_answer)
{
	struct job job = ask("held drained 0\nend timeout kernels did not end in time\n");

	ck_assert_int_eq(job.end, END_TIMEOUT);
	ck_assert_str_eq(job.message, "kernels did not end in time");
	ck_assert_int_eq(job.error, 0);
}
END_TEST

/* It lives: this process plays it. */
START_TEST(a_job_that_hangs_up_before_its_answer)
{
	struct job job = ask("held drained 0\n");

	ck_assert_int_eq(job.end, END_NONE);
	ck_assert_int_eq(job.error, -JOB_LEFT);
}
END_TEST

/* By the clock, the command was stopped for longer than it waits. */
START_TEST(a_stall_of_the_command_gives_nobody_up)
{
	struct job job;

	frozen_ms = LIMIT_MS - 1;
	answers_after = 5;
	job = ask("held drained 0\nend ok\n");
	ck_assert_int_eq(job.error, 0);
	ck_assert_int_eq(job.end, END_OK);
}
END_TEST

START_TEST(one_that_a_debugger_has_stopped)
{
	struct job job = {.seen = true, .pid = fork()};
	int status;

	if (!job.pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGUSR1);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(job.pid, &status, 0), job.pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert(process_find(job.pid, &job.process));
	ck_assert(!job_is_stopped(&job));
	job.error = -ETIMEDOUT;
	ck_assert(job_is_stopped(&job));
	kill(job.pid, SIGKILL);
	waitpid(job.pid, &status, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("jobs");
	TCase *tc = tcase_create("jobs");

	tcase_add_test(tc, an_order_that_comes_too_late_hides_no_answer);
	tcase_add_test(tc, a_job_that_hangs_up_before_its_answer);
	tcase_add_test(tc, a_stall_of_the_command_gives_nobody_up);
	tcase_add_test(tc, one_that_a_debugger_has_stopped);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
