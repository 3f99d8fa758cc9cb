/* SPDX-License-Identifier: Apache-2.0 */
/* When a process that shares memory counts as gone: it must have none any more. */
#include "checkpoint/sharing/sharers.h"
#include "common/protocol/rundir.h"

#include "tests/check_suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* In memory that a process and its child have in common. */
static struct {
	pid_t thread;
} * shared;

static void *answers(void *arg)
{
	__atomic_store_n(&shared->thread, gettid(), __ATOMIC_RELEASE);
	pause();
	return arg;
}

/* A process with a thread that would answer. Its first thread goes on in @rest(). */
static struct sharing_process start(void (*rest)(void))
{
	struct sharing_process p = {0};
	pthread_t thread;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	p.pid = fork();
	if (!p.pid) {
		pthread_create(&thread, NULL, answers, NULL);
		while (!__atomic_load_n(&shared->thread, __ATOMIC_ACQUIRE))
			usleep(1000);
		rest();
	}
	while (!__atomic_load_n(&shared->thread, __ATOMIC_ACQUIRE))
		usleep(1000);
	memcpy(p.instance, &shared->thread, sizeof(shared->thread));
	return p;
}

static void end(const struct sharing_process *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	ck_assert(sharers_is_gone(p));
}

static void go_on(void)
{
	pause();
}

static void end_first_thread(void)
{
	pthread_exit(NULL);
}

static void become_another(void)
{
	raise(SIGSTOP);
	execlp("sleep", "sleep", "600", NULL);
}

START_TEST(one_that_lives_is_not_gone)
{
	struct sharing_process p = start(go_on);

	ck_assert(!sharers_is_gone(&p));
	kill(p.pid, SIGSTOP);
	ck_assert_int_eq(waitpid(p.pid, NULL, WUNTRACED), p.pid);
	ck_assert(!sharers_is_gone(&p));
	end(&p);
}
END_TEST

START_TEST(a_zombie_is_gone)
{
	struct sharing_process p = start(go_on);
	siginfo_t info;

	kill(p.pid, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert(sharers_is_gone(&p));
	end(&p);
}
END_TEST

static bool first_thread_has_ended(pid_t pid)
{
	struct rundir_process process;

	ck_assert(rundir_process(pid, &process));
	ck_assert(!process.ended);
	return process.state == 'Z';
}

START_TEST(one_whose_first_thread_has_ended_is_not_gone)
{
	struct sharing_process p = start(end_first_thread);

	while (!first_thread_has_ended(p.pid))
		usleep(1000);
	ck_assert(!sharers_is_gone(&p));
	end(&p);
}
END_TEST

/* It has the same PID and start time. */
START_TEST(one_that_became_another_program_is_gone)
{
	struct sharing_process p = start(become_another);

	ck_assert_int_eq(waitpid(p.pid, NULL, WUNTRACED), p.pid);
	ck_assert(!sharers_is_gone(&p));
	kill(p.pid, SIGCONT);
	while (!sharers_is_gone(&p))
		usleep(1000);
	ck_assert_int_eq(kill(p.pid, 0), 0);
	end(&p);
}
END_TEST

START_TEST(another_process_with_its_pid_is_not_it)
{
	struct sharing_process p = start(go_on), before = p;
	pid_t elsewhere = getpid(); /* a thread that lives, and is not of that process */

	memcpy(before.instance, &elsewhere, sizeof(elsewhere));
	ck_assert(sharers_is_gone(&before));
	end(&p);
}
END_TEST

/* A look at the clock of the waits counts for PATIENCE_SLICE_MS at most, whatever the machine does. */
START_TEST(those_that_do_not_answer_are_waited_for_at_the_same_time)
{
	struct patience patience = {0};
	double asked_ms = patience_ms(&patience), before;
	struct sharing_answer answer;
	int silent[2][2], fd;

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, silent[i]), 0);
	ck_assert_int_eq(sharers_end(&patience, asked_ms, silent[0][0], &answer, &fd), -EAGAIN);
	before = patience.waited_ms;
	ck_assert_int_eq(sharers_end(&patience, asked_ms, silent[1][0], &answer, &fd), -EAGAIN);
	ck_assert_double_ge(before, 1000);
	ck_assert_double_le(patience.waited_ms - before, 5 * PATIENCE_SLICE_MS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("peer");
	TCase *tc = tcase_create("gone");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, one_that_lives_is_not_gone);
	tcase_add_test(tc, a_zombie_is_gone);
	tcase_add_test(tc, one_whose_first_thread_has_ended_is_not_gone);
	tcase_add_test(tc, one_that_became_another_program_is_gone);
	tcase_add_test(tc, those_that_do_not_answer_are_waited_for_at_the_same_time);
	tcase_add_test(tc, another_process_with_its_pid_is_not_it);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
