/* SPDX-License-Identifier: Apache-2.0 */
/* The journals of runtime directories: what their owners can do to a reader. */
#include "tools/job/journals.h"

#include "tests/check_suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE "{\"event\": \"freed\", \"id\": \"abc123\"}\n"

static char path[] = "/tmp/test_journals-XXXXXX";
static struct journals journals;
static int journal;

static void set_up(void)
{
	char file[sizeof(path) + sizeof(JOURNAL)];

	ck_assert_ptr_nonnull(mkdtemp(path));
	snprintf(file, sizeof(file), "%s/%s", path, JOURNAL);
	journal = open(file, O_RDWR | O_APPEND | O_CREAT, 0600);
	ck_assert_int_ge(journal, 0);
	journals_init(&journals, true);
	ck_assert_int_eq(journals_add(&journals, path, getuid()), 0);
}

static void remove_directory(void)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY);

	unlinkat(dir, JOURNAL, 0);
	close(dir);
	rmdir(path);
}

static void tear_down(void)
{
	journals_free(&journals);
	close(journal);
	remove_directory();
}

static void add(const char *line)
{
	ck_assert_int_eq(write(journal, line, strlen(line)), strlen(line));
}

static void count(void *arg, const struct journal_seen *seen)
{
	if (seen->kind == JOURNAL_FREED)
		++*(int *)arg;
}

/* As an owner who writes as fast as we read. */
static void add_more(void *arg, const struct journal_seen *seen)
{
	int *times = arg;

	count(times, seen);
	ck_assert_int_lt(*times, 10000);
	for (int i = 0; i < 1000; i++)
		add(LINE);
}

START_TEST(a_file_that_grows_is_read_to_an_end)
{
	int times = 0;

	add(LINE);
	journals_read(&journals, add_more, &times);
	ck_assert_int_eq(times, 1);
}
END_TEST

START_TEST(a_file_of_terabytes)
{
	int times = 0;

	ck_assert_int_eq(ftruncate(journal, (off_t)4 << 40), 0);
	add("\n" LINE);
	journals_read(&journals, count, &times);
	ck_assert_int_eq(times, 1);
}
END_TEST

START_TEST(a_directory_that_is_removed)
{
	int times = 0;

	add(LINE);
	ck_assert(journals_are_watched(&journals));
	remove_directory();
	journals_read(&journals, count, &times);
	ck_assert_uint_eq(journals.n, 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(journals_add(&journals, path, getuid()), 0);
	ck_assert(journals_are_watched(&journals));
}
END_TEST

static void take_texts(void *arg, const struct journal_seen *seen)
{
	ck_assert_str_eq(seen->id, "abc123");
	ck_assert_str_eq(seen->name, "na\xc3\xafve");
	ck_assert_str_eq(seen->text, "/srv/donn\xc3\xa9"
				     "es/\xff");
	ck_assert_str_eq(seen->by_command, "cudaw \xe2\x82\xac");
	++*(int *)arg;
}

/* A journal has them as numbers of bytes. */
START_TEST(texts_come_as_they_were_written)
{
	struct journal_by by = {.pid = 1, .command = "cudaw \xe2\x82\xac"};
	struct journal_event event = {.kind = JOURNAL_SNAPSHOT,
				      .id = "abc123",
				      .name = "na\xc3\xafve",
				      .by = &by,
				      .text = "/srv/donn\xc3\xa9"
					      "es/\xff"};
	int dir = open(path, O_RDONLY | O_DIRECTORY), times = 0;

	ck_assert_int_eq(journal_append(dir, getuid(), &event), 0);
	close(dir);
	journals_read(&journals, take_texts, &times);
	ck_assert_int_eq(times, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("journals");
	TCase *tc = tcase_create("journals");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_file_that_grows_is_read_to_an_end);
	tcase_add_test(tc, a_file_of_terabytes);
	tcase_add_test(tc, a_directory_that_is_removed);
	tcase_add_test(tc, texts_come_as_they_were_written);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
