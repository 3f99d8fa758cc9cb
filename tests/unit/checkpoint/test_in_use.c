/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file in-use: what one that was written here, on another machine, before a reboot or in another
 * PID namespace means for a writer.
 */
#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/in_use.h"

#include "tests/check_suite.h"
#include "tests/unit/time_namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MACHINE      "0123456789abcdef0123456789abcdef"
#define BOOT         "11111111-2222-3333-4444-555555555555"
#define FIRST_PID_NS 0xeffffffcUL

static char base[64], directory[80], path[96];
static struct snapshot_error error;

/* The words of the file. */
static struct words {
	int pid;
	unsigned long long start;
	unsigned long dev, ino, ns_dev, ns_ino;
	char boot[65], machine[65], host[65];
} mine;

static void setup(void)
{
	char text[512];
	FILE *file;
	int dir;

	strcpy(base, "/tmp/test-in-use-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	snprintf(directory, sizeof(directory), "%s/s", base);
	snprintf(path, sizeof(path), "%s/" SNAPSHOT_IN_USE, directory);
	dir = snapshot_dir_create(directory, geteuid(), getpid(), &error);
	ck_assert_int_ge(dir, 0);
	ck_assert_int_eq(snapshot_in_use_set(dir, &error), 0);
	snapshot_dir_close(dir);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_int_eq(sscanf(text, SNAPSHOT_FORMAT " %d %llu %lu %lu %64s %lu %lu %64s %64s\n",
				&mine.pid, &mine.start, &mine.dev, &mine.ino, mine.boot,
				&mine.ns_dev, &mine.ns_ino, mine.machine, mine.host),
			 9);
}

static void teardown(void)
{
	unlink(path);
	rmdir(directory);
	rmdir(base);
}

static void put(const char *text)
{
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

static void put_words(const struct words *w)
{
	char text[512];

	snprintf(text, sizeof(text), SNAPSHOT_FORMAT " %d %llu %lu %lu %s %lu %lu %s %s\n", w->pid,
		 w->start, w->dev, w->ino, w->boot, w->ns_dev, w->ns_ino, w->machine, w->host);
	put(text);
}

/* What a writer for @pid is told; a directory that it may use is closed again. */
static int opened_for(pid_t pid)
{
	int dir = snapshot_dir_create(directory, geteuid(), pid, &error);

	if (dir < 0)
		return dir;
	snapshot_dir_close(dir);
	return 0;
}

static void assert_refused(pid_t pid, const char *why)
{
	ck_assert_int_eq(opened_for(pid), -EBUSY);
	ck_assert_msg(strstr(error.text, why), "%s", error.text);
	ck_assert_int_eq(access(path, F_OK), 0);
}

/* Nobody has it, and the file is gone. */
static void assert_free(void)
{
	ck_assert_msg(!opened_for(1), "%s", error.text);
	ck_assert_int_eq(access(path, F_OK), -1);
}

static pid_t ended(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

START_TEST(it_is_the_process_s_own)
{
	char why[64];

	ck_assert_int_eq(opened_for(getpid()), 0);
	snprintf(why, sizeof(why), "%d may have its memory in it; 'cudaw resume", getpid());
	assert_refused(1, why);
	mine.start += 2;
	put_words(&mine);
	assert_free();
}
END_TEST

START_TEST(a_process_that_was_killed_has_none)
{
	mine.pid = ended();
	put_words(&mine);
	assert_free();
}
END_TEST

/* Its file system has another number there. The process that has the id here is another one. */
START_TEST(another_machine_keeps_it)
{
	strcpy(mine.boot, BOOT);
	strcpy(mine.machine, MACHINE);
	strcpy(mine.host, "elsewhere");
	mine.dev++;
	put_words(&mine);
	assert_refused(1, "another machine, or before a reboot, on elsewhere, may have its memory");
	assert_refused(getpid(), "remove in-use if it has ended");
	mine.pid = ended();
	put_words(&mine);
	assert_refused(getpid(), "another machine");
}
END_TEST

START_TEST(nothing_outlives_a_reboot)
{
	strcpy(mine.boot, BOOT);
	put_words(&mine);
	/* In a container nothing says for sure that it is the same machine. */
	if (mine.ns_ino == FIRST_PID_NS && strcmp(mine.machine, "-"))
		assert_free();
	else
		assert_refused(1, "another machine, or before a reboot");
}
END_TEST

START_TEST(what_may_be_another_machine_keeps_it)
{
	struct words theirs = mine;

	strcpy(theirs.boot, BOOT);
	strcpy(theirs.machine, "-");
	put_words(&theirs);
	assert_refused(1, "another machine");
	theirs = mine;
	strcpy(theirs.boot, BOOT);
	strcpy(theirs.host, "elsewhere");
	put_words(&theirs);
	assert_refused(1, "another machine");
	theirs = mine;
	strcpy(theirs.boot, BOOT);
	theirs.ns_ino = FIRST_PID_NS - 1;
	put_words(&theirs);
	assert_refused(1, "another machine");
}
END_TEST

START_TEST(another_pid_namespace_keeps_it)
{
	mine.ns_ino++;
	put_words(&mine);
	assert_refused(1, "of another PID namespace (a container) may have its memory in it");
	assert_refused(getpid(), "remove in-use if it has ended");
	mine.pid = ended();
	put_words(&mine);
	assert_refused(1, "of another PID namespace");
}
END_TEST

/* 0: it is kept. */
static int look_as_another(void)
{
	return opened_for(1) == -EBUSY && !access(path, F_OK) ? 0 : 1;
}

/* As a job has that CRIU has restored. */
START_TEST(another_time_namespace_keeps_it)
{
	int status = run_in_time_namespace(look_as_another);

	ck_assert(!status || status == TIME_NAMESPACE_NONE);
}
END_TEST

START_TEST(a_copy_is_nobody_s)
{
	struct words theirs = mine;

	theirs.ino++;
	put_words(&theirs);
	assert_free();
	strcpy(theirs.boot, BOOT);
	put_words(&theirs);
	assert_free();
	theirs = mine;
	theirs.dev++;
	put_words(&theirs);
	assert_free();
}
END_TEST

START_TEST(that_of_an_early_writer_is_understood)
{
	char text[256];

	snprintf(text, sizeof(text), SNAPSHOT_FORMAT " %d %llu %lu %lu\n", mine.pid, mine.start,
		 mine.dev, mine.ino);
	put(text);
	assert_refused(1, "may have its memory in it; 'cudaw resume");
	ck_assert_int_eq(opened_for(getpid()), 0);
	snprintf(text, sizeof(text), SNAPSHOT_FORMAT " %d %llu %lu %lu\n", ended(), mine.start,
		 mine.dev, mine.ino);
	put(text);
	assert_free();
}
END_TEST

START_TEST(another_file_is_not_removed)
{
	put("cudaw snapshot of my own\n");
	ck_assert_int_eq(opened_for(1), -ENOTEMPTY);
	ck_assert_int_eq(access(path, F_OK), 0);
	put("");
	assert_free();
}
END_TEST

/* Only the mark of this process is its own to remove. */
START_TEST(a_mark_is_removed_by_its_process)
{
	int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct words theirs = mine;

	snapshot_in_use_clear(dir, 1);
	ck_assert_int_eq(access(path, F_OK), 0);
	theirs.ns_ino++;
	put_words(&theirs);
	snapshot_in_use_clear(dir, getpid());
	ck_assert_int_eq(access(path, F_OK), 0);
	put_words(&mine);
	snapshot_in_use_clear(dir, getpid());
	ck_assert_int_eq(access(path, F_OK), -1);
	close(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("in_use");
	TCase *tc = tcase_create("in_use");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, it_is_the_process_s_own);
	tcase_add_test(tc, a_process_that_was_killed_has_none);
	tcase_add_test(tc, another_machine_keeps_it);
	tcase_add_test(tc, nothing_outlives_a_reboot);
	tcase_add_test(tc, what_may_be_another_machine_keeps_it);
	tcase_add_test(tc, another_pid_namespace_keeps_it);
	tcase_add_test(tc, another_time_namespace_keeps_it);
	tcase_add_test(tc, a_copy_is_nobody_s);
	tcase_add_test(tc, that_of_an_early_writer_is_understood);
	tcase_add_test(tc, another_file_is_not_removed);
	tcase_add_test(tc, a_mark_is_removed_by_its_process);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
