/* SPDX-License-Identifier: Apache-2.0 */
/* Who has connected a socket, and whether it is still there. */
#include "checkpoint/control/caller.h"
#include "common/protocol/rundir.h"

#include "tests/check_suite.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct caller caller;
static pid_t child;

/* A child that connects, and waits. */
static void setup(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(sa_family_t); /* the kernel chooses a name */
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd;

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&addr, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	len = sizeof(addr);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	child = fork();
	if (!child) {
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&addr, len))
			_exit(1);
		pause();
		_exit(0);
	}
	fd = accept(listener, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	caller_find(fd, &caller);
	close(fd);
	close(listener);
}

static void teardown(void)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static bool is_gone(void)
{
	bool gone = false;

	for (int i = 0; i < CALLER_LOOKS && !gone; i++)
		gone = caller_is_gone(&caller);
	return gone;
}

START_TEST(one_that_waits_is_there)
{
	ck_assert_int_eq(caller.pid, child);
	ck_assert(!is_gone());
	ck_assert(caller_is_ours(&caller));
}
END_TEST

START_TEST(one_that_has_ended_is_gone)
{
	siginfo_t info;

	kill(child, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
	ck_assert(is_gone());
	waitpid(child, NULL, 0);
	ck_assert(caller_is_gone(&caller));
	/* Had ended when it was looked at. */
	caller.start = 0;
	ck_assert(caller_is_gone(&caller));
}
END_TEST

START_TEST(another_process_with_its_id_is_not_it)
{
	const struct caller first = caller;

	ck_assert(caller_is_same(&caller, &first));
	caller.start--;
	ck_assert(!caller_is_same(&caller, &first));
	ck_assert(is_gone());
}
END_TEST

/* What cannot be asked says nothing, neither at first nor later. */
START_TEST(without_descriptors_it_counts_as_there)
{
	struct rlimit saved, none = {0, 0};

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &saved), 0);
	none.rlim_max = saved.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_uint_eq(rundir_start_time(child), RUNDIR_START_UNKNOWN);
	ck_assert(!is_gone());
	ck_assert(caller_is_ours(&caller));
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &saved), 0);
	caller.start = caller.own_start = RUNDIR_START_UNKNOWN;
	ck_assert(!is_gone());
	ck_assert(caller_is_ours(&caller));
	caller.start--;
	ck_assert(is_gone());
}
END_TEST

START_TEST(one_that_is_not_seen_counts_as_there)
{
	caller.pid = 0;
	ck_assert(!is_gone());
}
END_TEST

/* As in an image of this process that is started again. */
START_TEST(another_start_of_ours_is_noticed)
{
	const struct timespec ticks = {.tv_nsec = 30000000};
	int status;
	pid_t copy;

	nanosleep(&ticks, NULL);
	copy = fork();
	if (!copy)
		_exit(caller_is_ours(&caller));
	ck_assert_int_eq(waitpid(copy, &status, 0), copy);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("caller");
	TCase *tc = tcase_create("caller");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, one_that_waits_is_there);
	tcase_add_test(tc, one_that_has_ended_is_gone);
	tcase_add_test(tc, another_process_with_its_id_is_not_it);
	tcase_add_test(tc, without_descriptors_it_counts_as_there);
	tcase_add_test(tc, one_that_is_not_seen_counts_as_there);
	tcase_add_test(tc, another_start_of_ours_is_noticed);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
