/* SPDX-License-Identifier: Apache-2.0 */
/* Beacons: held by whoever has a descriptor, however it came there, until the last one is closed. */
#include "common/protocol/beacon.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char data[] = "what it says";
static struct beacon beacon;

static int made(void)
{
	int fd = beacon_make(data, sizeof(data), &beacon);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert(beacon_is_held(&beacon));
	return fd;
}

static void closed(int fd)
{
	close(fd);
	ck_assert(!beacon_is_held(&beacon));
}

START_TEST(it_is_read_any_number_of_times)
{
	int fd = made(), copy = dup(fd);
	char got[64];

	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(beacon_read(i % 2 ? fd : copy, got, sizeof(got)), sizeof(data));
		ck_assert_mem_eq(got, data, sizeof(data));
	}
	ck_assert_int_eq(beacon_read(fd, got, 3), sizeof(data));
	close(fd);
	ck_assert(beacon_is_held(&beacon));
	closed(copy);
}
END_TEST

static union {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
} control;
static char byte;
static struct iovec text = {&byte, 1};
static struct msghdr message = {.msg_iov = &text,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof(control)};

START_TEST(a_message_that_nobody_has_received_holds_it)
{
	int ends[2], fd = made();

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)),
					.cmsg_level = SOL_SOCKET,
					.cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(ends[0], &message, 0), 1);
	close(fd);
	ck_assert(beacon_is_held(&beacon));
	ck_assert_int_eq(recvmsg(ends[1], &message, 0), 1);
	memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	ck_assert(beacon_is_held(&beacon));
	closed(fd);
}
END_TEST

/* Ends when @gate is closed. */
static pid_t child_with(int fd, int gate[2], bool becomes_another_program)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	close(gate[1]);
	if (becomes_another_program) {
		fcntl(fd, F_SETFD, 0);
		dup2(gate[0], STDIN_FILENO);
		execlp("cat", "cat", NULL);
	}
	(void)!read(gate[0], &byte, 1);
	_exit(0);
}

START_TEST(a_child_holds_it_and_so_does_another_program)
{
	for (int exec = 0; exec < 2; exec++) {
		int gate[2], fd = made();
		pid_t pid;

		ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
		pid = child_with(fd, gate, exec);
		close(fd);
		ck_assert(beacon_is_held(&beacon));
		close(gate[1]);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
		ck_assert(!beacon_is_held(&beacon));
		close(gate[0]);
	}
}
END_TEST

START_TEST(those_that_were_given_away_need_no_descriptor)
{
	struct rlimit limit;
	int fd = made();
	struct beacon other;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = (rlim_t)fd + 1;
	setrlimit(RLIMIT_NOFILE, &limit);
	ck_assert_int_eq(beacon_make(data, sizeof(data), &other), -EMFILE);
	/* It cannot be known. */
	ck_assert(beacon_is_held(&beacon));
	closed(fd);
}
END_TEST

START_TEST(other_descriptors_are_none)
{
	int ends[2];
	char got[64];

	ck_assert_int_eq(beacon_read(-1, got, sizeof(got)), -ENOENT);
	ck_assert_int_eq(beacon_read(open("/dev/null", O_RDWR), got, sizeof(got)), -ENOENT);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(beacon_read(ends[0], got, sizeof(got)), -ENOENT);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	ck_assert_int_eq(send(ends[0], data, sizeof(data), 0), sizeof(data));
	ck_assert_int_eq(beacon_read(ends[1], got, sizeof(got)), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("beacon");
	TCase *tc = tcase_create("beacon");

	tcase_add_test(tc, it_is_read_any_number_of_times);
	tcase_add_test(tc, a_message_that_nobody_has_received_holds_it);
	tcase_add_test(tc, a_child_holds_it_and_so_does_another_program);
	tcase_add_test(tc, those_that_were_given_away_need_no_descriptor);
	tcase_add_test(tc, other_descriptors_are_none);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
