/* SPDX-License-Identifier: Apache-2.0 */
/* A program that closes descriptors of ours, and has a file of its own under the same number. */
#include "checkpoint/host/claims.h"
#include "checkpoint/host/spill.h"

#include "tests/check_suite.h"

#define LOG_PREFIX "test: "
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 64 /* descriptors that are looked at */
#define SIZE 4096

static char directory[64];
static bool was_open[MOST];
static int mine, number; /* the program's file, and the number that it takes */

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void setup(void)
{
	strcpy(directory, "/var/tmp/test-ownfd-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	setenv("CUDAW_SPILL_DIR", directory, 1);
	setenv("CUDAW_RUNTIME_DIR", directory, 1);
	mine = open(directory, O_TMPFILE | O_RDWR, 0600);
	ck_assert_int_ge(mine, 0);
	for (int fd = 0; fd < MOST; fd++)
		was_open[fd] = is_open(fd);
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	ck_assert_int_eq(system(command), 0);
}

/* The descriptor that has been opened since setup() is the program's file from now on. */
static void rob(void)
{
	number = -1;
	for (int fd = 0; fd < MOST; fd++)
		if (is_open(fd) && !was_open[fd])
			number = fd;
	ck_assert_int_ge(number, 0);
	ck_assert_int_eq(dup2(mine, number), number);
}

static void is_left_alone(void)
{
	struct stat st;

	ck_assert(is_open(number));
	ck_assert_int_eq(fstat(number, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
}

START_TEST(a_spill_file)
{
	static char data[SIZE] __attribute__((aligned(SIZE)));

	ck_assert_int_eq(spill_open(SIZE, true), 0);
	ck_assert_int_eq(spill_write(data, SIZE, 0), 0);
	rob();
	ck_assert_int_eq(spill_write(data, SIZE, 0), -EBADF);
	ck_assert_int_eq(spill_read(data, SIZE, 0), -EBADF);
	spill_close();
	is_left_alone();
	ck_assert_int_eq(spill_open(SIZE, true), 0);
	ck_assert_int_eq(spill_write(data, SIZE, 0), 0);
	ck_assert_int_eq(spill_read(data, SIZE, 0), 0);
	spill_close();
	is_left_alone();
}
END_TEST

START_TEST(the_file_of_claims)
{
	ck_assert_uint_gt(claims_make(1 << 20, 0), 0);
	rob();
	claims_take(1);
	claims_drop();
	is_left_alone();
}
END_TEST

START_TEST(the_log)
{
	char path[sizeof(directory) + sizeof("/log")];
	struct stat st;

	snprintf(path, sizeof(path), "%s/log", directory);
	setenv("CUDAW_LOG_FILE", path, 1);
	pr_err("it is ours");
	rob();
	pr_err("it is the program's");
	is_left_alone();
	ck_assert_int_eq(unlink(path), 0);
	log_restored();
	pr_err("it is ours again");
	is_left_alone();
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_gt(st.st_size, 0);
}
END_TEST

/* A file at this number may be data, unless the program has its output there as well. */
START_TEST(the_standard_error)
{
	struct stat st;

	pr_err("it goes where it always went");
	ck_assert_int_eq(dup2(mine, STDERR_FILENO), STDERR_FILENO);
	pr_err("it may be data");
	ck_assert_int_eq(fstat(mine, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_int_eq(dup2(mine, STDOUT_FILENO), STDOUT_FILENO);
	pr_err("it is a log");
	ck_assert_int_eq(fstat(mine, &st), 0);
	ck_assert_int_gt(st.st_size, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ownfd_files");
	TCase *tc = tcase_create("closed by the program");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_spill_file);
	tcase_add_test(tc, the_file_of_claims);
	tcase_add_test(tc, the_log);
	tcase_add_test(tc, the_standard_error);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
