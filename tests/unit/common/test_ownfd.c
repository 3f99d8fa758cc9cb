/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of ours that the program may close, and that a process image has other files behind.
 */
#include "common/system/ownfd.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct ownfd own = OWNFD_NONE;
static int ends[2], others[2];

static void setup(void)
{
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(others, O_CLOEXEC), 0);
	ownfd_set(&own, ends[1]);
}

static void teardown(void)
{
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(others[i]);
	}
}

START_TEST(it_is_ours)
{
	ck_assert_int_eq(ownfd_get(&own), ends[1]);
	ck_assert(!ownfd_is_lost(&own));
	ownfd_close(&own);
	ck_assert_int_eq(fcntl(ends[1], F_GETFD), -1);
	ck_assert_int_eq(ownfd_get(&own), -1);
	ck_assert(!ownfd_is_lost(&own));
}
END_TEST

START_TEST(another_file_is_not_ours)
{
	ck_assert_int_eq(dup2(others[1], ends[1]), ends[1]);
	errno = EINTR;
	ck_assert_int_eq(ownfd_get(&own), -1);
	ck_assert_int_eq(errno, EINTR);
	ck_assert(ownfd_is_lost(&own));
	ownfd_close(&own);
	ck_assert_int_ge(fcntl(ends[1], F_GETFD), 0);
}
END_TEST

START_TEST(a_restored_one_is_taken)
{
	ck_assert_int_eq(dup2(others[1], ends[1]), ends[1]);
	ownfd_take_restored(&own);
	ck_assert_int_eq(ownfd_get(&own), ends[1]);
	ownfd_close(&own);
	ck_assert_int_eq(fcntl(ends[1], F_GETFD), -1);
}
END_TEST

START_TEST(a_file_of_another_kind_is_not_taken)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	ck_assert_int_eq(dup2(null, ends[1]), ends[1]);
	close(null);
	ownfd_take_restored(&own);
	ck_assert(ownfd_is_lost(&own));
	close(ends[1]);
	ownfd_take_restored(&own);
	ck_assert(ownfd_is_lost(&own));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ownfd");
	TCase *tc = tcase_create("ownfd");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, it_is_ours);
	tcase_add_test(tc, another_file_is_not_ours);
	tcase_add_test(tc, a_restored_one_is_taken);
	tcase_add_test(tc, a_file_of_another_kind_is_not_taken);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
