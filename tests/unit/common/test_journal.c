/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a runtime directory: its form, its bound, and files that are not to be written. */
#include "common/protocol/journal.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[] = "/tmp/test_journal-XXXXXX";
static int dir;

static void set_up(void)
{
	ck_assert_ptr_nonnull(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(dir, 0);
}

static void tear_down(void)
{
	unlinkat(dir, JOURNAL, 0);
	unlinkat(dir, JOURNAL_OLD, 0);
	unlinkat(dir, "other", 0);
	rmdir(path);
}

static int append(const char *text)
{
	return journal_append(dir, geteuid(),
			      &(struct journal_event){.kind = JOURNAL_FAILED,
						      .pid = 7,
						      .id = "abc123",
						      .operation = "pause",
						      .text = text});
}

static off_t size_of(const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ? -1 : st.st_size;
}

/* What the file has after its first member, which is the time. */
static const char *contents(void)
{
	static char text[JOURNAL_LINE];
	int fd = openat(dir, JOURNAL, O_RDONLY);
	ssize_t len = read(fd, text, sizeof(text) - 1);

	ck_assert_int_gt(len, 0);
	close(fd);
	text[len] = '\0';
	return strchr(text, ',');
}

START_TEST(an_event_is_a_line)
{
	struct journal_by by = {.uid = 5, .pid = getpid()};

	journal_find_command(&by);
	ck_assert_str_ne(by.command, "");
	strcpy(by.command, "say \"\n\xff");
	ck_assert_int_eq(journal_append(dir, geteuid(),
					&(struct journal_event){.kind = JOURNAL_PAUSE,
								.pid = 7,
								.id = "abc123",
								.name = "t",
								.by = &by}),
			 0);
	ck_assert_ptr_nonnull(strstr(contents(), "\"command\": \"say \\\"\\u000a\\u00ff\"}"));
	ck_assert_ptr_nonnull(strstr(contents(), "\"text\": null}\n"));
}
END_TEST

START_TEST(a_part_of_a_line_is_ended)
{
	int fd = openat(dir, JOURNAL, O_WRONLY | O_CREAT, 0600);

	ck_assert_int_eq(write(fd, ", {\"event\"", 10), 10);
	close(fd);
	ck_assert_int_eq(append("first"), 0);
	ck_assert_int_eq(append("second"), 0);
	ck_assert_ptr_nonnull(strstr(contents(), ", {\"event\"\n{\"unix_ms\""));
	ck_assert_ptr_nonnull(strstr(contents(), "\"first\"}\n{\"unix_ms\""));
	ck_assert_ptr_nonnull(strstr(contents(), "\"second\"}\n"));
}
END_TEST

START_TEST(the_file_is_put_aside)
{
	char filler[4096];
	int fd, before = 0;

	memset(filler, '\n', sizeof(filler));
	ck_assert_int_eq(append("first"), 0);
	fd = openat(dir, JOURNAL, O_WRONLY | O_APPEND);
	while (size_of(JOURNAL) < JOURNAL_BYTES)
		ck_assert_int_eq(write(fd, filler, sizeof(filler)), sizeof(filler));
	/* Another writer is at it: then it is not. */
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert_int_eq(append("second"), 0);
	ck_assert_int_eq(size_of(JOURNAL_OLD), -1);
	flock(fd, LOCK_UN);
	before = size_of(JOURNAL);
	ck_assert_int_eq(append("third"), 0);
	ck_assert_int_gt(size_of(JOURNAL_OLD), before);
	ck_assert_int_eq(size_of(JOURNAL), -1);
	ck_assert_int_eq(append("fourth"), 0);
	ck_assert_ptr_nonnull(strstr(contents(), "fourth"));
	close(fd);
}
END_TEST

START_TEST(a_text_that_is_too_long_is_left_out)
{
	static char text[JOURNAL_LINE + 1];

	memset(text, '\xe9', PATH_MAX - 1);
	ck_assert_int_eq(append(text), 0);
	ck_assert_ptr_nonnull(strstr(contents(), "\"operation\": \"pause\", \"text\": null}\n"));
	ck_assert_int_eq(unlinkat(dir, JOURNAL, 0), 0);
	memset(text, 'x', JOURNAL_LINE);
	ck_assert_int_eq(
		journal_append(dir, geteuid(),
			       &(struct journal_event){.kind = JOURNAL_FREED, .name = text}),
		-EMSGSIZE);
	ck_assert_int_eq(size_of(JOURNAL), 0);
}
END_TEST

START_TEST(other_files_are_not_written)
{
	int fd = openat(dir, "other", O_WRONLY | O_CREAT, 0600);

	close(fd);
	ck_assert_int_eq(symlinkat("other", dir, JOURNAL), 0);
	ck_assert_int_eq(append("link"), -ELOOP);
	ck_assert_int_eq(unlinkat(dir, JOURNAL, 0), 0);
	ck_assert_int_eq(linkat(dir, "other", dir, JOURNAL, 0), 0);
	ck_assert_int_eq(append("hard link"), -EPERM);
	ck_assert_int_eq(unlinkat(dir, JOURNAL, 0), 0);
	ck_assert_int_eq(mkfifoat(dir, JOURNAL, 0600), 0);
	ck_assert_int_eq(append("pipe"), -EPERM);
	ck_assert_int_eq(size_of("other"), 0);
}
END_TEST

START_TEST(umask_does_not_shut_it)
{
	struct stat st;

	umask(0777);
	ck_assert_int_eq(append("first"), 0);
	umask(0);
	ck_assert_int_eq(fstatat(dir, JOURNAL, &st, 0), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
}
END_TEST

START_TEST(root_leaves_the_file_to_its_owner)
{
	struct stat st;

	if (geteuid())
		return;
	ck_assert_int_eq(
		journal_append(dir, 12345,
			       &(struct journal_event){.kind = JOURNAL_SAVED, .id = "abc123"}),
		0);
	ck_assert_int_eq(fstatat(dir, JOURNAL, &st, 0), 0);
	ck_assert_int_eq(st.st_uid, 12345);
	/* A file of somebody else's there is none of ours. */
	ck_assert_int_eq(fchownat(dir, JOURNAL, 54321, -1, 0), 0);
	ck_assert_int_eq(
		journal_append(dir, 12345,
			       &(struct journal_event){.kind = JOURNAL_SAVED, .id = "abc123"}),
		-EPERM);
	ck_assert_int_eq(journal_open(dir, JOURNAL, 12345, O_RDONLY), -EPERM);
	/* Nor is one of root's that the owner has moved there, though it is empty. */
	ck_assert_int_eq(unlinkat(dir, JOURNAL, 0), 0);
	close(openat(dir, JOURNAL, O_WRONLY | O_CREAT, 0600));
	ck_assert_int_eq(
		journal_append(dir, 12345,
			       &(struct journal_event){.kind = JOURNAL_SAVED, .id = "abc123"}),
		-EPERM);
	ck_assert_int_eq(fstatat(dir, JOURNAL, &st, 0), 0);
	ck_assert_int_eq(st.st_uid, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("journal");
	TCase *tc = tcase_create("journal");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, an_event_is_a_line);
	tcase_add_test(tc, a_part_of_a_line_is_ended);
	tcase_add_test(tc, the_file_is_put_aside);
	tcase_add_test(tc, a_text_that_is_too_long_is_left_out);
	tcase_add_test(tc, other_files_are_not_written);
	tcase_add_test(tc, umask_does_not_shut_it);
	tcase_add_test(tc, root_leaves_the_file_to_its_owner);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
