/* SPDX-License-Identifier: Apache-2.0 */
#include "common/processes/beside.h"
#include "tests/check_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static char name[BESIDE_SIZE];

START_TEST(a_library_is_found_by_its_file)
{
	char dir[] = "/tmp/test_beside.XXXXXX";
	void *map;
	int fd;

	ck_assert_int_eq(beside_driver(getpid(), name), 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chdir(dir), 0);
	fd = open("libnvcuvid.so.1", O_RDWR | O_CREAT, 0600);
	map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_int_eq(beside_driver(getpid(), name), 1);
	ck_assert_str_eq(name, "libnvcuvid.so.1");
	munmap(map, 4096);
	ck_assert_int_eq(beside_driver(getpid(), name), 0);
	unlink("libnvcuvid.so.1");
	rmdir(dir);
}
END_TEST

START_TEST(without_a_descriptor_nothing_is_said)
{
	struct rlimit limit, none;
	int found;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){0, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	found = beside_driver(getpid(), name);
	setrlimit(RLIMIT_NOFILE, &limit); /* a sanitizer needs descriptors at the end */
	ck_assert_int_eq(found, -EMFILE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("beside");
	TCase *tcase = tcase_create("beside");

	tcase_add_test(tcase, a_library_is_found_by_its_file);
	tcase_add_test(tcase, without_a_descriptor_nothing_is_said);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
