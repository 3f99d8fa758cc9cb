/* SPDX-License-Identifier: Apache-2.0 */
/* The process at the other end of a socket, and not another one that has its PID. */
#include "common/processes/pidfd.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int connection;
static pid_t child, other;

/* A child that connects, and waits. This process keeps its end of the connection open. */
static void setup(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(sa_family_t); /* the kernel chooses a name */
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&addr, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	len = sizeof(addr);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	child = fork();
	if (!child) {
		if (connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&addr, len))
			_exit(1);
		pause();
		_exit(0);
	}
	connection = accept(listener, NULL, NULL);
	ck_assert_int_ge(connection, 0);
}

static void end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void teardown(void)
{
	end(child);
	end(other);
}

static bool has_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

START_TEST(one_that_runs)
{
	int pidfd = pidfd_of_peer(connection, child);

	ck_assert_int_gt(pidfd, STDERR_FILENO);
	ck_assert(!has_ended(pidfd));
	ck_assert(pidfd_peer_runs(connection));
	kill(child, SIGKILL);
	ck_assert_int_eq(poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1, 10000), 1);
}
END_TEST

START_TEST(its_descriptor_is_none_of_the_standard_streams)
{
	close(STDIN_FILENO);
	ck_assert_int_gt(pidfd_of_peer(connection, child), STDERR_FILENO);
}
END_TEST

/* A child with the number @pid. It takes root. */
static pid_t fork_as(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
	pid_t made = syscall(SYS_clone3, &args, sizeof(args));

	if (made)
		return made;
	pause();
	_exit(0);
}

/* False: SO_PEERPIDFD is missing. */
static bool kernel_knows(void)
{
	return pidfd_of_peer(connection, 0) != -ENOSYS;
}

START_TEST(another_process_with_its_id_is_not_it)
{
	int pidfd;

	if (!kernel_knows())
		return;
	end(child);
	other = fork_as(child);
	child = 0;
	if (other < 0)
		return;
	pidfd = pidfd_of_peer(connection, other);
	ck_assert(pidfd < 0 ? pidfd == -ESRCH : has_ended(pidfd));
	ck_assert(!pidfd_peer_runs(connection));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pidfd");
	TCase *cases = tcase_create("pidfd");

	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_test(cases, one_that_runs);
	tcase_add_test(cases, its_descriptor_is_none_of_the_standard_streams);
	tcase_add_test(cases, another_process_with_its_id_is_not_it);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
