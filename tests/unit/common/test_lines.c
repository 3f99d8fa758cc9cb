/* SPDX-License-Identifier: Apache-2.0 */
/* Lines from a socket. */
#include "common/lines.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];
static struct lines lines;

static void set_up(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
}

static void tell(const char *bytes, size_t size)
{
	ck_assert_int_eq(send(ends[1], bytes, size, 0), (ssize_t)size);
	ck_assert_int_eq(lines_read(&lines, ends[0], NULL), (int)size);
}

/* The next line is @want; NULL: none has come. */
static void check_next(const char *want)
{
	char *line;

	ck_assert_int_eq(lines_next(&lines, &line), 0);
	if (want)
		ck_assert_str_eq(line, want);
	else
		ck_assert_ptr_null(line);
}

START_TEST(lines_are_the_same_however_they_are_cut)
{
	static const char text[] = "status\n\npause 5 all\nlast\n";

	for (size_t i = 0; i < sizeof(text) - 1; i++)
		for (size_t k = i; k < sizeof(text) - 1; k++) {
			if (i)
				tell(text, i);
			if (k > i)
				tell(text + i, k - i);
			tell(text + k, sizeof(text) - 1 - k);
			check_next("status");
			check_next("");
			check_next("pause 5 all");
			check_next("last");
			check_next(NULL);
		}
}
END_TEST

START_TEST(a_line_stays_until_the_next_read)
{
	char *line;

	tell("a\nb", 3);
	ck_assert_int_eq(lines_next(&lines, &line), 0);
	check_next(NULL);
	ck_assert_str_eq(line, "a");
	tell("c\n", 2);
	check_next("bc");
}
END_TEST

START_TEST(the_longest_line)
{
	char longest[PROTOCOL_LINE];
	char *line;

	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\n';
	tell("before\n", 7);
	check_next("before");
	tell(longest, sizeof(longest));
	ck_assert_int_eq(lines_next(&lines, &line), 0);
	ck_assert_uint_eq(strlen(line), sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 'x';
	tell(longest, sizeof(longest) - 1);
	check_next(NULL);
	tell("x", 1);
	ck_assert_int_eq(lines_next(&lines, &line), -EMSGSIZE);
	ck_assert_ptr_null(line);
	ck_assert_str_eq(lines_fault(-EMSGSIZE), "a line is longer than 4096 bytes");
}
END_TEST

START_TEST(a_line_with_a_nul_byte)
{
	char *line;

	tell("good\nb\0d\ngood\n", 14);
	check_next("good");
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(lines_next(&lines, &line), -EBADMSG);
		ck_assert_ptr_null(line);
	}
	ck_assert_str_eq(lines_fault(-EBADMSG), "a line contains a NUL byte");
}
END_TEST

START_TEST(nothing_has_come_or_the_other_side_is_gone)
{
	ck_assert_int_eq(lines_read(&lines, ends[0], NULL), 0);
	close(ends[1]);
	ck_assert_int_eq(lines_read(&lines, ends[0], NULL), -ECONNRESET);
	ck_assert_int_eq(lines_read(&lines, -1, NULL), -EBADF);
}
END_TEST

/* Send a line with @count descriptors. */
static void send_with(int count)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = {0};
	struct iovec iov = {"a\n", 2};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
	for (int i = 0; i < count; i++)
		memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &ends[0], sizeof(int));
	ck_assert_int_eq(sendmsg(ends[1], &msg, 0), 2);
}

static int open_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 64; fd++)
		count += lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF;
	return count;
}

START_TEST(one_descriptor_is_kept_of_those_that_come)
{
	int before = open_descriptors(), token;

	for (int count = 1; count <= 4; count++) {
		send_with(count);
		ck_assert_int_eq(lines_read(&lines, ends[0], &token), 2);
		ck_assert_int_ge(token, 0);
		ck_assert_int_eq(close(token), 0);
		ck_assert_int_eq(open_descriptors(), before);
		send_with(count);
		ck_assert_int_eq(lines_read(&lines, ends[0], NULL), 2);
		ck_assert_int_eq(open_descriptors(), before);
	}
	ck_assert_int_eq(send(ends[1], "a\n", 2, 0), 2);
	ck_assert_int_eq(lines_read(&lines, ends[0], &token), 2);
	ck_assert_int_eq(token, -ENOENT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lines");
	TCase *tc = tcase_create("lines");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, lines_are_the_same_however_they_are_cut);
	tcase_add_test(tc, a_line_stays_until_the_next_read);
	tcase_add_test(tc, the_longest_line);
	tcase_add_test(tc, a_line_with_a_nul_byte);
	tcase_add_test(tc, nothing_has_come_or_the_other_side_is_gone);
	tcase_add_test(tc, one_descriptor_is_kept_of_those_that_come);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
