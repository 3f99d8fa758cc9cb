/* SPDX-License-Identifier: Apache-2.0 */
/* What opens something gives no number of the standard streams, and closes what it cannot move. */
#include "tests/check_suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define FREE (STDERR_FILENO + 1) /* the first number that may be ours */

static int listener, client, pair[2], ends[2];
static DIR *dir;

static void set_up(void)
{
	struct sockaddr_un any = {.sun_family = AF_UNIX}, name;
	socklen_t size = sizeof(name);

	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	client = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&any, sizeof(sa_family_t)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&name, &size), 0);
	ck_assert_int_eq(connect(client, (struct sockaddr *)&name, size), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
}

static int by_open(void)
{
	return open("/dev/null", O_RDWR);
}

static int by_openat(void)
{
	return openat(AT_FDCWD, "/dev/null", O_RDWR);
}

static int by_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static int by_memfd(void)
{
	return memfd_create("test", 0);
}

static int by_temporary(void)
{
	char path[] = "/tmp/test-uncancelled-XXXXXX";
	int fd = mkostemp(path, 0);

	unlink(path);
	return fd;
}

static int by_accept(void)
{
	return accept4(listener, NULL, NULL, 0);
}

static int by_pipe(void)
{
	if (pipe2(ends, 0))
		return -1;
	return ends[0] < ends[1] ? ends[0] : ends[1];
}

static int by_fopen(void)
{
	FILE *file = fopen("/dev/null", "r");

	return file ? fileno(file) : -1;
}

static int by_opendir(void)
{
	dir = opendir("/");
	return dir ? dirfd(dir) : -1;
}

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static int by_message(void)
{
	union control control = {.align = {.cmsg_len = CMSG_LEN(sizeof(int)),
					   .cmsg_level = SOL_SOCKET,
					   .cmsg_type = SCM_RIGHTS}};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = CMSG_LEN(sizeof(int))};
	int fd;

	memcpy(CMSG_DATA(&control.align), &listener, sizeof(int));
	ck_assert_int_eq(sendmsg(pair[0], &msg, 0), 1);
	ck_assert_int_eq(recvmsg(pair[1], &msg, 0), 1);
	memcpy(&fd, CMSG_DATA(&control.align), sizeof(int));
	ck_assert_int_eq(fd < 0, msg.msg_flags & MSG_CTRUNC ? 1 : 0);
	errno = EMFILE;
	return fd;
}

static int (*const ways[])(void) = {by_open,   by_openat, by_socket, by_temporary, by_memfd,
				    by_accept, by_pipe,   by_fopen,  by_opendir,   by_message};

static void close_streams(void)
{
	for (int fd = 0; fd < FREE; fd++)
		close(fd);
}

/* Reports no failure while the streams are closed. */
static int streams_open(void)
{
	int n = 0;

	for (int fd = 0; fd < FREE; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void keep_streams(int kept[FREE])
{
	for (int fd = 0; fd < FREE; fd++)
		kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, FREE);
	close_streams();
}

static void restore_streams(const int kept[FREE])
{
	for (int fd = 0; fd < FREE; fd++)
		dup2(kept[fd], fd);
}

START_TEST(it_is_above_the_streams)
{
	int kept[FREE], fd, open_now;

	set_up();
	keep_streams(kept);
	fd = ways[_i]();
	open_now = streams_open();
	restore_streams(kept);
	ck_assert_int_ge(fd, FREE);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(open_now, 0);
	if (dir)
		closedir(dir);
}
END_TEST

START_TEST(without_a_number_it_is_closed)
{
	int kept[FREE], fd, error, open_now;
	struct rlimit saved, limit;

	set_up();
	keep_streams(kept);
	getrlimit(RLIMIT_NOFILE, &saved);
	/* All numbers above the streams are taken, or too high. */
	while ((fd = dup(listener)) < FREE)
		ck_assert_int_ge(fd, 0);
	limit = (struct rlimit){fd + 1, saved.rlim_max};
	setrlimit(RLIMIT_NOFILE, &limit);
	close_streams();
	fd = ways[_i]();
	error = errno;
	open_now = streams_open();
	setrlimit(RLIMIT_NOFILE, &saved);
	restore_streams(kept);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(error, EMFILE);
	ck_assert_int_eq(open_now, 0);
}
END_TEST

static int of_program = -1, coming;

/* In place of libc's. While files of the program's are coming, one takes the number that is asked for, by dup2(2). */
int fcntl(int fd, int command, ...)
{
	va_list list;
	long arg;

	va_start(list, command);
	arg = va_arg(list, long);
	va_end(list);
	if (command == F_GETFD && coming > 0) {
		coming--;
		dup2(of_program, fd);
	}
	return (int)syscall(SYS_fcntl, fd, command, arg);
}

static int is_of_program(int fd)
{
	struct stat own, there;

	return !fstat(of_program, &own) && !fstat(fd, &there) && own.st_ino == there.st_ino;
}

START_TEST(one_of_the_program_is_left_alone)
{
	int kept[FREE], fd, n = 0;

	of_program = memfd_create("the program's", 0);
	keep_streams(kept);
	coming = FREE;
	fd = memfd_create("ours", 0);
	for (int i = 0; i < FREE; i++)
		n += is_of_program(i);
	restore_streams(kept);
	/* It is tried again, until nothing of the program's comes between. */
	ck_assert_int_ge(fd, FREE);
	ck_assert(!is_of_program(fd));
	ck_assert_int_eq(n, FREE);
	ck_assert_int_eq(coming, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("uncancelled");
	TCase *tc = tcase_create("uncancelled");

	tcase_add_loop_test(tc, it_is_above_the_streams, 0, sizeof(ways) / sizeof(ways[0]));
	tcase_add_loop_test(tc, without_a_number_it_is_closed, 0, sizeof(ways) / sizeof(ways[0]));
	tcase_add_test(tc, one_of_the_program_is_left_alone);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
