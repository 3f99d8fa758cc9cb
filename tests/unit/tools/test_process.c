/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is, and that a signal reaches it and no other. */
#include "tools/process/process.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STRANGER 12345

static pid_t child;

static void wait_for_signal(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

static void setup(void)
{
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		wait_for_signal();
}

static void teardown(void)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

START_TEST(a_process_is_found)
{
	struct process process;

	ck_assert(process_find(child, &process));
	ck_assert_int_eq(process.pid, child);
	ck_assert_int_eq(process.own_pid, child);
	ck_assert_uint_eq(process.uid, getuid());
	ck_assert(process_is_there(&process));
	ck_assert(process_is_of(&process, getuid()));
	ck_assert(!process_is_of(&process, STRANGER));
	ck_assert(!process_find(0, &process));
	ck_assert(!process_find(-1, &process));
}
END_TEST

START_TEST(one_that_has_ended_is_not)
{
	struct process process, now;

	ck_assert(process_find(child, &process));
	kill(child, SIGKILL);
	/* Nobody has waited for it. */
	ck_assert_int_eq(waitid(P_PID, child, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	ck_assert(!process_find(child, &now));
	ck_assert(!process_is_there(&process));
	ck_assert_int_eq(process_signal(&process, getuid(), 0), -ESRCH);
}
END_TEST

START_TEST(a_signal_reaches_it)
{
	struct process process;
	int status;

	ck_assert(process_can_signal());
	ck_assert(process_find(child, &process));
	ck_assert_int_eq(process_signal(&process, getuid(), SIGUSR1), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WTERMSIG(status), SIGUSR1);
}
END_TEST

/* Its number is that of another process by now. */
START_TEST(no_signal_reaches_another)
{
	struct process process;

	ck_assert(process_find(child, &process));
	process.start++;
	ck_assert(!process_is_there(&process));
	ck_assert_int_eq(process_signal(&process, getuid(), SIGKILL), -ESRCH);
	ck_assert_int_eq(waitpid(child, NULL, WNOHANG), 0);
}
END_TEST

START_TEST(nor_one_of_another_user)
{
	struct process process;

	ck_assert(process_find(child, &process));
	ck_assert_int_eq(process_signal(&process, STRANGER, SIGKILL), -EPERM);
	ck_assert_int_eq(waitpid(child, NULL, WNOHANG), 0);
}
END_TEST

/* A child that has made itself another user's, wholly (-1) or except its real user. */
static void be_user_of(struct process *process, uid_t real, uid_t effective)
{
	int ready[2];
	char byte;

	teardown();
	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		if (setresuid(real, effective, effective) || write(ready[1], "", 1) != 1)
			_exit(1);
		wait_for_signal();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	ck_assert(process_find(child, process));
}

START_TEST(all_its_users_count)
{
	struct process process;

	if (getuid()) {
		printf("# no process can become another user's (it takes root)\n");
		return;
	}
	be_user_of(&process, STRANGER, STRANGER);
	ck_assert_uint_eq(process.uid, STRANGER);
	ck_assert(process_is_of(&process, STRANGER));
	ck_assert(process_is_of(&process, 0));
	/* As a program with the set-user-ID bit of root is. */
	be_user_of(&process, STRANGER, 0);
	ck_assert_uint_eq(process.uid, STRANGER);
	ck_assert(!process_is_of(&process, STRANGER));
	ck_assert_int_eq(process_signal(&process, STRANGER, SIGKILL), -EPERM);
}
END_TEST

START_TEST(one_in_other_pid_namespaces)
{
	struct clone_args args = {.flags = CLONE_NEWPID, .exit_signal = SIGCHLD};
	struct process process;

	teardown();
	child = syscall(SYS_clone3, &args, sizeof(args));
	if (child < 0) {
		printf("# no PID namespace can be made\n");
		setup();
		return;
	}
	if (!child)
		wait_for_signal();
	ck_assert(process_find(child, &process));
	ck_assert_int_eq(process.pid, child);
	ck_assert_int_eq(process.own_pid, 1);
}
END_TEST

/* No process has it then, and kill(2) does not tell. */
START_TEST(an_id_is_taken_while_it_is_that_of_a_process_group)
{
	pid_t leader = child;

	ck_assert_int_eq(setpgid(leader, leader), 0);
	ck_assert(process_id_is_taken(leader));
	setup();
	ck_assert_int_eq(setpgid(child, leader), 0);
	kill(leader, SIGKILL);
	ck_assert_int_eq(waitpid(leader, NULL, 0), leader);
	ck_assert_int_eq(kill(leader, 0), -1);
	ck_assert_int_eq(errno, ESRCH);
	ck_assert(process_id_is_taken(leader));
	teardown();
	ck_assert(!process_id_is_taken(leader));
}
END_TEST

START_TEST(an_id_is_taken_if_nobody_can_tell)
{
	struct rlimit saved, none = {0, 0};
	bool taken;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &saved), 0);
	none.rlim_max = saved.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	taken = process_id_is_taken(child);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &saved), 0);
	ck_assert(taken);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tools_process");
	TCase *tc = tcase_create("tools_process");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_process_is_found);
	tcase_add_test(tc, one_that_has_ended_is_not);
	tcase_add_test(tc, a_signal_reaches_it);
	tcase_add_test(tc, no_signal_reaches_another);
	tcase_add_test(tc, nor_one_of_another_user);
	tcase_add_test(tc, all_its_users_count);
	tcase_add_test(tc, one_in_other_pid_namespaces);
	tcase_add_test(tc, an_id_is_taken_while_it_is_that_of_a_process_group);
	tcase_add_test(tc, an_id_is_taken_if_nobody_can_tell);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
