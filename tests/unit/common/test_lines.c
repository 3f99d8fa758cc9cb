/* SPDX-License-Identifier: Apache-2.0 */
/* Lines from a socket, and what is in them. */
#include "common/protocol/lines.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdio.h>
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

#define UUID "GPU-63756461-772d-7369-6d75-6c6174656400"

static const struct parsed {
	const struct line_table *table;
	const char *text;
	int id, numbers, words;
	const char *rest;
} parsed[] = {
	{&lines_to_job, "pause", REQUEST_PAUSE, 0, 0, ""},
	{&lines_to_job, "pause all", REQUEST_PAUSE, 0, 1, ""},
	{&lines_to_job, "pause 5 all", REQUEST_PAUSE, 1, 1, ""},
	{&lines_to_job, "pause 5x", REQUEST_PAUSE, 0, 1, ""},
	{&lines_to_job, "yield 5 hold", REQUEST_YIELD, 1, 1, ""},
	{&lines_to_job, "yield 5 6 hold", REQUEST_YIELD, 2, 1, ""},
	{&lines_to_job, "reach 1 1:2 3:4", ORDER_REACH, 1, 0, "1:2 3:4"},
	{&lines_to_job, "behind 5 a name", TURN_BEHIND, 1, 0, "a name"},
	{&lines_to_job, "unfit - 0 0", TURN_UNFIT, 2, 1, ""},
	{&lines_to_job, "release", TO_JOB, 0, 0, ""},
	{&lines_from_job, "command ", REPORT_COMMAND, 0, 0, ""},
	{&lines_from_job, "name  a", REPORT_NAME, 0, 0, " a"},
	{&lines_from_job, "held drained 1 2", REPORT_HELD, 2, 1, ""},
	{&lines_from_job, "gpu 0 " UUID " NVIDIA H200", STATUS_GPU, 1, 1, "NVIDIA H200"},
	{&lines_from_job, "pool 9223372036854775807", STATUS_POOL, 1, 0, ""},
	{&lines_from_job, "end ok", REPORT_END, 0, 1, ""},
	{&lines_from_job, "end busy a b", REPORT_END, 0, 1, "a b"},
	{&lines_from_job, "need x", FROM_JOB, 0, 0, ""},
	{&lines_to_daemon, "grow 1 " UUID " 2", MEMBER_GROW, 2, 1, ""},
	{&lines_to_daemon, "weight 1125899906842624", MEMBER_WEIGHT, 1, 0, ""},
	{&lines_to_daemon, "events", COMMAND_EVENTS, 0, 0, ""},
	{&lines_from_daemon, "gpu " UUID " 1 2 3 4", LISTED_GPU, 4, 1, ""},
	{&lines_from_daemon, "gpu " UUID " 1 2 3 4 open", LISTED_GPU, 4, 2, ""},
	{&lines_from_daemon, "event 1 2 joined 3 4 a1 - text of it", LISTED_EVENT, 4, 3,
	 "text of it"},
};

START_TEST(a_line_is_parsed)
{
	const struct parsed *p = &parsed[_i];
	struct line line;

	ck_assert_int_eq(line_parse(p->table, p->text, &line), 0);
	ck_assert_int_eq(line.id, p->id);
	ck_assert_int_eq(line.numbers, p->numbers);
	ck_assert_int_eq(line.words, p->words);
	ck_assert_str_eq(line.text, p->rest);
}
END_TEST

static const struct malformed {
	const struct line_table *table;
	const char *text;
} malformed[] = {
	{&lines_to_job, ""},
	{&lines_to_job, " pause"},
	{&lines_to_job, "pause "},
	{&lines_to_job, "pause  5"},
	{&lines_to_job, "pause 5 all more"},
	{&lines_to_job, "step -1"},
	{&lines_to_job, "step 0x1"},
	{&lines_to_job, "yield 9223372036854775808"},
	{&lines_from_job, "id"},
	{&lines_from_job, "end"},
	{&lines_from_job, "end  ok"},
	{&lines_from_job, "progress drain 1"},
	{&lines_to_daemon, "weight 1125899906842625"},
	{&lines_to_daemon, "need GPU-1 1 2"},
	{&lines_to_daemon, "drain " UUID "0"},
	{&lines_from_daemon, "member 1 2 3"},
};

START_TEST(a_line_is_malformed)
{
	struct line line;

	ck_assert_int_eq(line_parse(malformed[_i].table, malformed[_i].text, &line), -EBADMSG);
}
END_TEST

START_TEST(words_of_any_length)
{
	char text[256] = "waits ", *word = text + strlen(text);
	struct line line;

	memset(word, 'w', LINE_WORD - 1);
	strcpy(word + LINE_WORD - 1, " 1 2");
	ck_assert_int_eq(line_parse(&lines_from_job, text, &line), 0);
	ck_assert_uint_eq(strlen(line.word[0]), LINE_WORD - 1);
	strcpy(word + LINE_WORD - 1, "w 1 2");
	ck_assert_int_eq(line_parse(&lines_from_job, text, &line), -EBADMSG);
}
END_TEST

START_TEST(codes_of_an_end)
{
	struct line line;
	char text[64];

	for (int end = END_NONE + 1; end < ENDS; end++) {
		snprintf(text, sizeof(text), "end %s", end_names[end]);
		ck_assert_int_eq(line_parse(&lines_from_job, text, &line), 0);
		ck_assert_int_eq(line.end, end);
	}
	ck_assert_int_eq(line_parse(&lines_from_job, "end later", &line), 0);
	ck_assert_int_eq(line.end, END_FAILED);
	ck_assert_str_eq(line.word[0], "later");
}
END_TEST

/* @end: END_NONE for a line that is no "end" */
static size_t written(char line[PROTOCOL_LINE], enum end_code end, const char *fmt, ...)
{
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	len = end ? lines_write_end(line, end, fmt, ap) : lines_write(line, fmt, ap);
	va_end(ap);
	return len;
}

#define WRITES(text, ...)                                                    \
	do {                                                                 \
		ck_assert_uint_eq(written(line, __VA_ARGS__), strlen(text)); \
		ck_assert_mem_eq(line, text, strlen(text));                  \
	} while (0)

START_TEST(lines_that_are_written)
{
	char line[PROTOCOL_LINE], longer[PROTOCOL_LINE + 2];
	size_t len;

	WRITES("need 1 2\n", END_NONE, "need %d %d", 1, 2);
	WRITES("name a b\n", END_NONE, "name %s", "a\nb");
	WRITES("end ok\n", END_OK, NULL);
	WRITES("end ok\n", END_OK, "%s", "");
	WRITES("end busy it is so\n", END_BUSY, "it %s", "is\nso");
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	for (int end = END_NONE; end <= END_NONE + 1; end++) {
		len = written(line, end, "%s", longer);
		ck_assert_uint_lt(len, PROTOCOL_LINE);
		ck_assert_uint_ge(len, PROTOCOL_LINE - 1);
		ck_assert_int_eq(line[len - 1], '\n');
		ck_assert_int_eq(line[len - 2], 'x');
	}
}
END_TEST

/* Nothing is read or written beyond what is there. */
static void check_any(const struct line_table *table, const char *bytes, size_t size)
{
	char *text = strndup(bytes, size);
	struct line line;

	if (!line_parse(table, text, &line)) {
		ck_assert_int_le(line.id, table->n);
		ck_assert_int_le(line.numbers, LINE_NUMBERS);
		ck_assert_int_le(line.words, LINE_WORDS);
		ck_assert(!*line.text || (line.text > text && line.text < text + strlen(text)));
	}
	free(text);
}

START_TEST(a_line_is_cut_or_changed)
{
	static const char others[] = " \tx0:9-/=\377";
	const struct parsed *p = &parsed[_i];
	size_t len = strlen(p->text);
	char changed[128];

	for (size_t i = 0; i < len; i++) {
		check_any(p->table, p->text, i);
		for (const char *other = others; *other; other++) {
			strcpy(changed, p->text);
			changed[i] = *other;
			check_any(p->table, changed, len);
		}
	}
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
	tcase_add_loop_test(tc, a_line_is_parsed, 0, sizeof(parsed) / sizeof(parsed[0]));
	tcase_add_loop_test(tc, a_line_is_malformed, 0, sizeof(malformed) / sizeof(malformed[0]));
	tcase_add_test(tc, words_of_any_length);
	tcase_add_test(tc, codes_of_an_end);
	tcase_add_test(tc, lines_that_are_written);
	tcase_add_loop_test(tc, a_line_is_cut_or_changed, 0, sizeof(parsed) / sizeof(parsed[0]));
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
