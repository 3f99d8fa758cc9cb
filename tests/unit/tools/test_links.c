/* SPDX-License-Identifier: Apache-2.0 */
/* Which symbolic links root follows on its way to a file of a user's job. */
#include "tools/process/criu/links.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define USER 12345

static char base[] = "/tmp/test-links-XXXXXX";

/* Paths in the base directory; each of a call's is its own. */
static const char *in_base(const char *name)
{
	static char paths[4][PATH_MAX];
	static int next;
	char *path = paths[next++ % 4];

	snprintf(path, PATH_MAX, "%s/%s", base, name);
	return path;
}

static void setup(void)
{
	FILE *file;

	ck_assert_ptr_nonnull(mkdtemp(base));
	ck_assert_int_eq(mkdir(in_base("dir"), 0755), 0);
	file = fopen(in_base("dir/file"), "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	ck_assert_int_eq(symlink("../dir", in_base("dir/here")), 0);
	ck_assert_int_eq(symlink(in_base("dir/here/file"), in_base("away")), 0);
	ck_assert_int_eq(symlink("loop", in_base("loop")), 0);
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", base);
	ck_assert_int_eq(system(command), 0);
}

/* The file is found at @path. */
static void finds(const char *path)
{
	struct stat st, file;
	char link[PATH_MAX];

	ck_assert_int_eq(stat(in_base("dir/file"), &file), 0);
	ck_assert_int_eq(links_stat(path, &st, link), 0);
	ck_assert_uint_eq(st.st_ino, file.st_ino);
	ck_assert_str_eq(link, "");
}

static void fails(const char *path, int error, const char *named)
{
	struct stat st;
	char link[PATH_MAX];

	ck_assert_int_eq(links_stat(path, &st, link), -error);
	ck_assert_str_eq(link, named);
}

START_TEST(without_links_it_is_stat)
{
	finds(in_base("dir/file"));
	finds(in_base("dir/../dir//./file"));
	fails(in_base("dir/gone"), ENOENT, "");
	fails(in_base("dir/file/x"), ENOTDIR, "");
}
END_TEST

START_TEST(the_links_of_users_are_named)
{
	/* Those of root are a user's then. */
	for (int i = 0; i < 2 && !geteuid(); i++)
		ck_assert_int_eq(lchown(in_base(i ? "away" : "dir/here"), USER, -1), 0);
	fails(in_base("away"), ELOOP, in_base("away"));
	fails(in_base("dir/here/file"), ELOOP, in_base("dir/here"));
}
END_TEST

START_TEST(the_links_of_root_are_followed)
{
	if (geteuid())
		return;
	finds(in_base("away"));
	finds(in_base("dir/here/here/file"));
	fails(in_base("loop"), ELOOP, "");
	ck_assert_int_eq(lchown(in_base("dir/here"), USER, -1), 0);
	fails(in_base("away"), ELOOP, in_base("dir/here"));
}
END_TEST

/* Who may write the directory can have moved a link there. */
START_TEST(where_users_write_they_are_not)
{
	if (geteuid())
		return;
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(chown(in_base("dir"), i ? 0 : USER, -1), 0);
		ck_assert_int_eq(chmod(in_base("dir"), (mode_t[]){0755, 0775, 01777}[i]), 0);
		fails(in_base("dir/here/file"), ELOOP, in_base("dir/here"));
		finds(in_base("dir/file"));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("links");
	TCase *tcase = tcase_create("links");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, without_links_it_is_stat);
	tcase_add_test(tcase, the_links_of_users_are_named);
	tcase_add_test(tcase, the_links_of_root_are_followed);
	tcase_add_test(tcase, where_users_write_they_are_not);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
