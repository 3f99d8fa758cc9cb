/* SPDX-License-Identifier: Apache-2.0 */
/* Which file systems are memory. */
#include "common/system/memory_fs.h"

#include "tests/check_suite.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

static char base[64];

static void setup(void)
{
	strcpy(base, "/var/tmp/test-memory-fs-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
}

static const char *at(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	return path;
}

static void teardown(void)
{
	static const char *const mounted[] = {"over", "over-ram", "ram", "ramfs"};
	char command[128];

	for (size_t i = 0; i < sizeof(mounted) / sizeof(mounted[0]); i++)
		umount2(at(mounted[i]), MNT_DETACH);
	snprintf(command, sizeof(command), "rm -rf %s", base);
	ck_assert_int_eq(system(command), 0);
}

/* In the mounts of this process alone. False: it takes root. */
static bool can_mount(void)
{
	return !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

/* @upper is in the file system @on, and written as the kernel wants it. */
static bool mount_overlay(const char *on, const char *upper, const char *where)
{
	char options[512];

	snprintf(options, sizeof(options), "lowerdir=%s/low,upperdir=%s/%s/%s,workdir=%s/%s/work",
		 base, base, on, upper, base, on);
	return !mount("overlay", at(where), "overlay", 0, options);
}

START_TEST(files_of_tmpfs_are_memory)
{
	ck_assert_str_eq(memory_fs("/dev/shm"), "tmpfs");
	ck_assert_ptr_null(memory_fs("/proc"));
	ck_assert_ptr_null(memory_fs("/nonexistent"));
}
END_TEST

START_TEST(an_overlay_is_what_its_upper_directory_is)
{
	static const char *const made[] = {"low", "disk", "disk/up",  "disk/work",
					   "ram", "over", "over-ram", "ramfs"};

	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
		ck_assert_int_eq(mkdir(at(made[i]), 0700), 0);
	if (memory_fs(base) || !can_mount()) {
		printf("# nothing can be mounted here (it takes root, and a disk)\n");
		return;
	}
	ck_assert_int_eq(mount("none", at("ramfs"), "ramfs", 0, NULL), 0);
	ck_assert_str_eq(memory_fs(at("ramfs")), "ramfs");
	ck_assert_int_eq(mount("none", at("ram"), "tmpfs", 0, NULL), 0);
	ck_assert_int_eq(mkdir(at("ram/up"), 0700), 0);
	ck_assert_int_eq(mkdir(at("ram/work"), 0700), 0);
	if (!mount_overlay("ram", "up", "over-ram")) {
		printf("# the kernel has no overlay\n");
		return;
	}
	ck_assert_str_eq(memory_fs(at("over-ram")), "tmpfs");
	ck_assert_int_eq(umount(at("over-ram")), 0);
	ck_assert_int_eq(mkdir(at("ram/my up,1"), 0700), 0);
	ck_assert(mount_overlay("ram", "my up\\,1", "over-ram"));
	ck_assert_str_eq(memory_fs(at("over-ram")), "tmpfs");
	/* An overlay over an overlay is refused by some kernels. */
	if (mount_overlay("disk", "up", "over"))
		ck_assert_ptr_null(memory_fs(at("over")));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory_fs");
	TCase *tc = tcase_create("memory_fs");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, files_of_tmpfs_are_memory);
	tcase_add_test(tc, an_overlay_is_what_its_upper_directory_is);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
