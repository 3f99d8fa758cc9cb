/* SPDX-License-Identifier: Apache-2.0 */
/* The build id of a file. */
#include "common/find/buildid.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char directory[64];

static void setup(void)
{
	strcpy(directory, "/tmp/test-buildid-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	ck_assert_int_eq(system(command), 0);
}

/* Whatever an ELF file says, it is read within bounds (the sanitizers look). */
START_TEST(files_of_any_contents)
{
	char id[BUILDID_TEXT_SIZE], other[BUILDID_TEXT_SIZE], path[128];
	char *elf;
	size_t size;
	off_t found;

	ck_assert_int_eq(buildid_of_file("/proc/self/exe", id, &found), 0);
	ck_assert_uint_eq(strspn(id, "0123456789abcdef"), 40);
	ck_assert_int_eq(buildid_of_file("/etc/passwd", id, &found), -ENODATA);
	ck_assert_int_eq(buildid_of_file("/dev/null", id, &found), -EINVAL);
	ck_assert_int_eq(buildid_of_file("/nothing", id, &found), -ENOENT);

	snprintf(path, sizeof(path), "%s/elf", directory);
	elf = malloc(8192);
	size = 8192;
	int fd = open("/proc/self/exe", O_RDONLY);
	ck_assert_int_eq(read(fd, elf, size), 8192);
	close(fd);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	srand(1);
	for (int i = 0; i < 3000; i++) {
		size_t at = rand() % (i % 2 ? 1024 : 64);
		char before = elf[at];
		off_t end = rand() % size;

		elf[at] = i % 3 ? rand() : 0xff;
		ck_assert_int_eq(pwrite(fd, elf, end, 0), end);
		ck_assert_int_eq(ftruncate(fd, end), 0);
		buildid_of_file(path, other, &found);
		elf[at] = before;
	}
	close(fd);
	free(elf);
}
END_TEST

/* Devices and pipes may do something then; a socket fails in another way. */
START_TEST(only_files_are_opened)
{
	struct sockaddr_un place = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	char id[BUILDID_TEXT_SIZE];
	off_t size;

	snprintf(place.sun_path, sizeof(place.sun_path), "%s/socket", directory);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&place, sizeof(place)), 0);
	ck_assert_int_eq(buildid_of_file(place.sun_path, id, &size), -EINVAL);
	close(listener);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("buildid");
	TCase *tc = tcase_create("buildid");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, files_of_any_contents);
	tcase_add_test(tc, only_files_are_opened);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
