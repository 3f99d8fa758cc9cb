/* SPDX-License-Identifier: Apache-2.0 */
/* The file of CUDAW_SPILL_DIR keeps what is in it, or says that it is gone. */
#include "checkpoint/host/spill.h"
#include "tests/check_suite.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SIZE (64UL << 10)

/* The file may be open with O_DIRECT. */
static char part[SIZE] __attribute__((aligned(4096))), found[SIZE] __attribute__((aligned(4096)));
static int fd; /* the number that the file gets */

static void setup(void)
{
	setenv("CUDAW_SPILL_DIR", "/var/tmp", 1);
	signal(SIGXFSZ, SIG_IGN);
	fd = dup(0);
	close(fd);
	memset(part, 1, SIZE);
	ck_assert_int_eq(spill_open(SIZE), 0);
	ck_assert_int_eq(spill_write(part, SIZE, 0), 0);
}

static void check_part(void)
{
	ck_assert_int_eq(spill_read(found, SIZE, 0), 0);
	ck_assert_mem_eq(found, part, SIZE);
}

START_TEST(no_room_for_more_leaves_what_is_there)
{
	const struct rlimit limit = {2 * SIZE, RLIM_INFINITY};

	ck_assert_uint_gt(spill_space(), 2 * SIZE);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_uint_eq(spill_space(), 2 * SIZE);
	ck_assert_int_eq(spill_open(4 * SIZE), -EFBIG);
	check_part();
	ck_assert_int_eq(spill_open(2 * SIZE), 0);
	check_part();
}
END_TEST

/* A new file in its place would have zeros for the part. */
START_TEST(one_that_the_program_has_closed_is_not_made_anew)
{
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(spill_open(2 * SIZE), -EBADF);
	spill_close();
	ck_assert_int_eq(spill_open(SIZE), 0);
}
END_TEST

START_TEST(memory_is_no_disk)
{
	spill_close();
	setenv("CUDAW_SPILL_DIR", "/dev/shm", 1);
	ck_assert_uint_eq(spill_space(), 0);
	ck_assert_int_eq(spill_open(SIZE), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spill");
	TCase *tc = tcase_create("spill");

	tcase_add_checked_fixture(tc, setup, spill_close);
	tcase_add_test(tc, no_room_for_more_leaves_what_is_there);
	tcase_add_test(tc, one_that_the_program_has_closed_is_not_made_anew);
	tcase_add_test(tc, memory_is_no_disk);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
