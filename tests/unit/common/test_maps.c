/* SPDX-License-Identifier: Apache-2.0 */
#include "common/processes/maps.h"
#include "tests/check_suite.h"
#include "tests/unit/few_descriptors.h"
#include "tests/unit/without_main.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SIZE 8192

/* Of this process, by its number and without. */
static void find(pid_t pid, const void *at, struct maps *maps)
{
	ck_assert_int_eq(maps_open(maps, pid), 0);
	while (maps_next(maps))
		if (maps->begin == (uintptr_t)at)
			return;
	ck_abort_msg("the mapping is not there");
}

START_TEST(a_mapping_has_all_its_facts)
{
	char file[] = "/tmp/test maps:XXXXXX";
	int fd = mkstemp(file);
	struct maps maps;
	struct stat st;
	void *map;

	ck_assert_int_eq(ftruncate(fd, 2 * SIZE), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, SIZE);
	ck_assert_ptr_ne(map, MAP_FAILED);
	find(_i ? getpid() : 0, map, &maps);
	ck_assert_uint_eq(maps.end - maps.begin, SIZE);
	ck_assert_uint_eq(maps.offset, SIZE);
	ck_assert_str_eq(maps.rights, "rw-s");
	ck_assert_uint_eq(maps.device, st.st_dev);
	ck_assert_uint_eq(maps.inode, st.st_ino);
	ck_assert_str_eq(maps.path, file);
	ck_assert_int_eq(maps_close(&maps), 0);
	unlink(file);
}
END_TEST

static int count_mappings(void)
{
	struct maps maps;
	int n = 0;

	maps_open(&maps, 0);
	while (maps_next(&maps))
		n++;
	maps_close(&maps);
	return n < 100 ? n : 100;
}

START_TEST(those_of_a_process_without_its_main_thread)
{
	ck_assert_int_gt(run_without_main(count_mappings), 5);
}
END_TEST

START_TEST(one_without_a_file_has_no_path)
{
	void *map = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct maps maps;

	find(0, map, &maps);
	ck_assert_ptr_null(maps.path);
	ck_assert_str_eq(maps.rights, "---p");
	while (maps_next(&maps))
		;
	ck_assert_int_eq(maps_close(&maps), 0);
}
END_TEST

/* At each of its characters, up to the space before the path. */
START_TEST(a_line_that_breaks_off_is_left_out)
{
	char line[] = "1000-3000 rw-s 00002000 fe:01 77 /a file",
	     whole[] = "5000-6000 r--p 0 0:0 0 ";
	char text[sizeof(line) + sizeof(whole)];

	for (size_t size = 1; size <= sizeof(line) - 1; size++) {
		struct maps maps = {.file = fmemopen(text, sizeof(text), "w+")};
		const bool is_left_out = size < strlen("1000-3000 rw-s 00002000 fe:01 77 ");

		fprintf(maps.file, "%.*s\n%s\n", (int)size, line, whole);
		rewind(maps.file);
		ck_assert(maps_next(&maps));
		ck_assert_uint_eq(maps.begin, is_left_out ? 0x5000 : 0x1000);
		ck_assert_uint_eq(maps.device, is_left_out ? 0 : makedev(0xfe, 1));
		ck_assert_int_eq(maps_close(&maps), 0);
	}
}
END_TEST

START_TEST(those_that_cannot_be_read)
{
	struct maps maps;

	ck_assert_int_eq(maps_open(&maps, INT_MAX), -ENOENT);
	ck_assert(!maps_next(&maps));
	ck_assert_int_eq(maps_close(&maps), -ENOENT);
}
END_TEST

/* Other threads of a program with few may have the last one for a moment. */
START_TEST(a_descriptor_is_awaited)
{
	struct maps maps;

	take_descriptors(_i);
	ck_assert_int_eq(maps_open(&maps, 0), _i ? 0 : -EMFILE);
	ck_assert(maps_next(&maps) == _i);
	ck_assert_int_eq(maps_close(&maps), _i ? 0 : -EMFILE);
	allow_descriptors(64);
}
END_TEST

START_TEST(a_file_is_found_by_its_path_or_name)
{
	char path[PATH_MAX];

	ck_assert_int_eq(maps_find(0, "libc.so", path), 1);
	ck_assert_str_eq(strrchr(path, '/'), "/libc.so.6");
	ck_assert_int_eq(maps_find(0, path, path), 1);
	ck_assert_int_eq(maps_find(0, "/libc.so", path), 0);
	ck_assert_int_eq(maps_find(0, "ibc.so", path), 0);
	ck_assert_int_eq(maps_find(INT_MAX, "libc.so", path), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("maps");
	TCase *tc = tcase_create("maps");

	tcase_add_loop_test(tc, a_mapping_has_all_its_facts, 0, 2);
	tcase_add_test(tc, one_without_a_file_has_no_path);
	tcase_add_test(tc, those_of_a_process_without_its_main_thread);
	tcase_add_test(tc, a_file_is_found_by_its_path_or_name);
	tcase_add_test(tc, a_line_that_breaks_off_is_left_out);
	tcase_add_test(tc, those_that_cannot_be_read);
	tcase_add_loop_test(tc, a_descriptor_is_awaited, 0, 2);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
