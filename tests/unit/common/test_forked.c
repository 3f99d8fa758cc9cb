/* SPDX-License-Identifier: Apache-2.0 */
/* What the child of a fork lets go of. */
#include "common/system/forked.h"

#include "tests/check_suite.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE  8192UL
#define FILES 300

static char base[] = "/tmp/test-forked-XXXXXX";

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(base));
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", base);
	ck_assert_int_eq(system(command), 0);
}

/* A new file of SIZE bytes, all 'x'. */
static int open_file(const char *name)
{
	char path[PATH_MAX], text[SIZE];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", base, name);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	memset(text, 'x', SIZE);
	ck_assert_int_eq(write(fd, text, SIZE), SIZE);
	return fd;
}

static char *map(int fd, int prot)
{
	char *ptr = mmap(NULL, SIZE, prot, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(ptr, MAP_FAILED);
	return ptr;
}

static void check_link(int fd, const char *want)
{
	char link[64], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	ck_assert_int_gt(n, 0);
	path[n] = '\0';
	ck_assert_str_eq(path, want);
}

static void let_go(void)
{
	char prefix[64];

	snprintf(prefix, sizeof(prefix), "%s/nvidia", base);
	forked_watch(prefix);
	forked_let_go();
}

START_TEST(devices_go)
{
	int fd = open_file("nvidia0");
	char *write_only = map(fd, PROT_WRITE), *both = map(fd, PROT_READ | PROT_WRITE);

	let_go();
	check_link(fd, "/dev/null");
	for (size_t i = 0; i < SIZE; i++)
		ck_assert(!write_only[i] && !both[i]);
	both[SIZE - 1] = 'y';
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
}
END_TEST

START_TEST(all_else_stays)
{
	char want[PATH_MAX];
	int fd = open_file("other-nvidia0");
	char *ptr = map(fd, PROT_READ);

	let_go();
	snprintf(want, sizeof(want), "%s/other-nvidia0", base);
	check_link(fd, want);
	for (size_t i = 0; i < SIZE; i++)
		ck_assert_int_eq(ptr[i], 'x');
	close(fd);
}
END_TEST

START_TEST(what_is_to_be_inherited_stays)
{
	char want[PATH_MAX];
	int fd = open_file("nvidiactl");

	ck_assert_int_eq(fcntl(fd, F_SETFD, 0), 0);
	let_go();
	snprintf(want, sizeof(want), "%s/nvidiactl", base);
	check_link(fd, want);
	close(fd);
}
END_TEST

/* More than is read of the lists at once. */
START_TEST(all_of_many_go)
{
	char *ptr[FILES];
	int fd[FILES];

	for (int i = 0; i < FILES; i++) {
		char name[200];

		snprintf(name, sizeof(name), "nvidia-%0150d", i);
		fd[i] = open_file(name);
		ptr[i] = map(fd[i], PROT_READ);
	}
	let_go();
	for (int i = 0; i < FILES; i++) {
		check_link(fd[i], "/dev/null");
		ck_assert_int_eq(*ptr[i], 0);
	}
}
END_TEST

/* Of the directories that were watched the last two count, and their neighbours never. */
START_TEST(directories_go_with_what_is_in_them)
{
	const char *names[] = {"one", "two", "three", "two-and-a-half"};
	char path[PATH_MAX];
	int fd[4], inside[4], others[4];

	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", base, names[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
		if (i < 3)
			forked_watch_directory(path);
		fd[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		snprintf(path, sizeof(path), "%s/data-1", names[i]);
		inside[i] = open_file(path);
		snprintf(path, sizeof(path), "%s/data", names[i]);
		others[i] = open_file(path);
	}
	snprintf(path, sizeof(path), "%s/%s", base, names[2]);
	forked_leave_directory(path);
	forked_let_go();
	for (int i = 0; i < 4; i++) {
		bool gone = i == 1;

		snprintf(path, sizeof(path), "%s/%s", base, names[i]);
		check_link(fd[i], gone ? "/dev/null" : path);
		strcat(path, "/data-1");
		check_link(inside[i], gone ? "/dev/null" : path);
		path[strlen(path) - strlen("-1")] = '\0';
		check_link(others[i], path);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("forked");
	TCase *tcase = tcase_create("forked");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, devices_go);
	tcase_add_test(tcase, all_else_stays);
	tcase_add_test(tcase, what_is_to_be_inherited_stays);
	tcase_add_test(tcase, all_of_many_go);
	tcase_add_test(tcase, directories_go_with_what_is_in_them);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
