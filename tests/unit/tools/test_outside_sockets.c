/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes and Unix sockets that are in the way of an image of processes. */
#include "tests/unit/tools/outside_world.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* A pipe that has a path: in the way of a process as soon as it has not both ends. */
START_TEST(pipes_with_a_path_have_both_ends_here)
{
	char path[] = "/tmp/cudaw-test-XXXXXX", text[64];
	int reads, writes, status;

	ck_assert_int_eq(close(mkstemp(path)), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	reads = open(path, O_RDONLY | O_NONBLOCK);
	writes = open(path, O_WRONLY);
	unlink(path);
	snprintf(text, sizeof(text), "descriptor %d of %d ", writes, getpid());
	ck_assert(!is_a_reason(text, getpid(), NULL));
	if (!fork()) {
		close(_i ? writes : reads);
		snprintf(text, sizeof(text), "descriptor %d of %d ", _i ? reads : writes, getpid());
		ck_assert(is_a_reason(text, getpid(), NULL));
		_exit(0);
	}
	ck_assert_int_gt(wait(&status), 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* Whether the socket to the parent is in the way if @job is the process that uses CUDA; also if TCP may be closed. */
static bool is_socket_in_the_way(pid_t job)
{
	struct tcp_sockets closable = {0};
	char text[160];
	bool is;

	snprintf(
		text, sizeof(text),
		"is a Unix socket to %d (cudawd), which is not part of the job: end that process, or let the "
		"program close the socket",
		getppid());
	is = is_a_reason(text, job, NULL);
	ck_assert_int_eq(is_a_reason(text, job, &closable), is);
	ck_assert_uint_eq(closable.n, 0);
	return is;
}

START_TEST(a_connection_to_cudawd_is_in_the_way_except_the_jobs_own)
{
	int ends[2], status;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	ck_assert_int_eq(prctl(PR_SET_NAME, "cudawd"), 0);
	if (!fork()) {
		close(ends[1]);
		ck_assert(!is_socket_in_the_way(getpid()));
		ck_assert(is_socket_in_the_way(getppid()));
		_exit(0);
	}
	close(ends[0]);
	ck_assert_int_gt(wait(&status), 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* A connection that nobody has accepted yet: the socket that listens at an abstract @name, and its other end. */
static void connect_unaccepted(const char *name, int ends[2])
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	socklen_t size = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);

	strcpy(at.sun_path + 1, name);
	for (int i = 0; i < 2; i++)
		ends[i] = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(ends[0], (void *)&at, size), 0);
	ck_assert_int_eq(listen(ends[0], 1), 0);
	ck_assert_int_eq(connect(ends[1], (void *)&at, size), 0);
}

/* CRIU takes the first one, refuses the next two after a pause, and loses the others. */
enum unaccepted {
	INSIDE,
	WITH_DATA,
	CLOSED,
	FROM_OUTSIDE,
	REQUEST /* for cudaw, which its sender makes again */
};

START_TEST(connections_by_unix_sockets_are_accepted)
{
	int ends[2], status;
	char name[64];

	if (!fork()) {
		ck_assert_int_eq(setpgid(0, 0), 0);
		snprintf(name, sizeof(name), "test_outside-%d/%d.sock", getpid(),
			 _i == REQUEST ? getpid() : 0);
		connect_unaccepted(name, ends);
		if (_i == WITH_DATA)
			ck_assert_int_eq(send(ends[1], "x", 1, 0), 1);
		if (_i >= FROM_OUTSIDE)
			share(ends, false);
		if (_i >= CLOSED)
			close(ends[1]);
		ck_assert_int_eq(
			is_a_reason("by a Unix socket that it has not accepted yet (try again)",
				    getpid(), NULL),
			_i != INSIDE && _i != REQUEST);
		kill(0, SIGKILL);
	}
	ck_assert_int_gt(wait(&status), 0);
	ck_assert_int_eq(WTERMSIG(status), SIGKILL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("outside_sockets");
	TCase *tc = tcase_create("outside_sockets");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, pipes_with_a_path_have_both_ends_here, 0, 2);
	tcase_add_test(tc, a_connection_to_cudawd_is_in_the_way_except_the_jobs_own);
	tcase_add_loop_test(tc, connections_by_unix_sockets_are_accepted, 0, REQUEST + 1);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
