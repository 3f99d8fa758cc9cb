/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a process image's files: made by several threads, and held against what is there. */
#include "checkpoint/snapshot/host_image.h"

#include "tests/check_suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NUMBER 3
#define FILES  40 /* the first one is empty, each further one has 1000 bytes more */
#define TIMES  1000

static char base[] = "/tmp/test-host-image-XXXXXX";
static int dir, directory;
static struct snapshot_error error;

static void store(const char *name, size_t size, char what)
{
	static char data[FILES * 1000];
	int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_ge(fd, 0);
	memset(data, what, size);
	ck_assert_int_eq(write(fd, data, size), size);
	close(fd);
}

static const char *file_name(int i)
{
	static char name[16];

	snprintf(name, sizeof(name), "pages-%d.img", i);
	return name;
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(base));
	dir = open(base, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(host_image_make(dir, NUMBER, &error), 0);
	directory = host_image_open(dir, NUMBER, &error);
	ck_assert_int_ge(directory, 0);
}

static void teardown(void)
{
	DIR *files = fdopendir(directory);
	struct dirent *found;

	while ((found = readdir(files)))
		unlinkat(directory, found->d_name, 0);
	closedir(files);
	unlinkat(dir, "host-3", AT_REMOVEDIR);
	close(dir);
	rmdir(base);
}

static const struct host_facts facts = {.ms = 1.5, .stopped = (pid_t[]){7, 8}, .nstopped = 2};

static size_t seal(void)
{
	size_t bytes;

	ck_assert_msg(!host_image_seal(dir, NUMBER, &facts, &bytes, &error), "%s", error.text);
	return bytes;
}

static void good(void)
{
	for (int i = 0; i < FILES; i++)
		store(file_name(i), i * 1000, 'a' + i);
	ck_assert_uint_eq(seal(), FILES * (FILES - 1) / 2 * 1000);
}

static void is_refused_for(const char *text)
{
	size_t bytes;

	ck_assert_int_eq(host_image_check(dir, NUMBER, NULL, &bytes, &error), -EBADMSG);
	ck_assert_msg(strstr(error.text, text), "%s", error.text);
}

START_TEST(what_was_sealed_is_whole)
{
	json_t *root, *list;
	struct stat st;
	size_t bytes;

	good();
	ck_assert_msg(!host_image_check(dir, NUMBER, NULL, &bytes, &error), "%s", error.text);
	ck_assert_uint_eq(bytes, FILES * (FILES - 1) / 2 * 1000);
	ck_assert_int_eq(fstatat(directory, file_name(7), &st, 0), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	ck_assert_int_eq(host_image_facts(dir, NUMBER, &root, &error), 0);
	list = json_object_get(root, "stopped");
	ck_assert_int_eq(json_integer_value(json_array_get(list, 1)), 8);
	json_decref(root);
}
END_TEST

static int flushes; /* until one finds no memory */

/* Comes before the C library's. */
int fflush(FILE *file)
{
	if (flushes && !--flushes)
		return EOF;
	return fflush_unlocked(file);
}

/* The first flush is before the seal, the second one after it. */
START_TEST(a_list_that_is_not_whole_is_no_seal)
{
	size_t bytes;

	for (int i = 1; i <= 2; i++) {
		flushes = i;
		ck_assert_int_eq(host_image_seal(dir, NUMBER, &facts, &bytes, &error), -ENOMEM);
		ck_assert_str_eq(error.text, "out of memory");
		ck_assert_int_eq(faccessat(directory, "host.json", F_OK, 0), -1);
	}
}
END_TEST

START_TEST(an_empty_directory_is_whole)
{
	size_t bytes = 1;

	ck_assert_uint_eq(seal(), 0);
	ck_assert_msg(!host_image_check(dir, NUMBER, NULL, &bytes, &error), "%s", error.text);
	ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(a_damaged_file_is_refused)
{
	good();
	store(file_name(7), 7000, 'x');
	is_refused_for("host-3: pages-7.img: damaged: expected checksum ");
}
END_TEST

static bool go_on(void *arg)
{
	return !*(bool *)arg;
}

START_TEST(a_file_that_becomes_shorter_is_no_crash)
{
	bool stop = false;
	struct hash128 hash;
	int fd;

	store(file_name(7), 7000, 'x');
	fd = openat(directory, file_name(7), O_RDONLY);
	ck_assert_int_eq(hash_file(fd, 7000, go_on, &stop, &hash), 0);
	ck_assert_int_eq(hash_file(fd, 7001, go_on, &stop, &hash), -ENODATA);
	stop = true;
	ck_assert_int_eq(hash_file(fd, 7000, go_on, &stop, &hash), -ECANCELED);
	close(fd);
}
END_TEST

START_TEST(a_file_of_another_size_is_refused)
{
	good();
	store(file_name(7), 6999, 'a' + 7);
	is_refused_for("host-3: pages-7.img: expected 7000 bytes, found 6999");
}
END_TEST

START_TEST(a_missing_file_is_refused)
{
	good();
	unlinkat(directory, file_name(0), 0);
	is_refused_for("host-3: expected 40 files, found 39");
}
END_TEST

START_TEST(a_file_too_many_is_refused)
{
	good();
	store("more.img", 5, 'a');
	is_refused_for("host-3: more.img: it is not in host.json");
}
END_TEST

/* Several threads have something to say, at times at once: one does, of what it has seen. */
START_TEST(many_that_are_no_files_are_refused)
{
	size_t bytes;

	good();
	for (int i = 0; i < FILES; i++) {
		unlinkat(directory, file_name(i), 0);
		ck_assert_int_eq(mkfifoat(directory, file_name(i), 0600), 0);
	}
	for (int i = 0; i < TIMES; i++)
		is_refused_for(".img: it is not a regular file");
	ck_assert_int_eq(host_image_seal(dir, NUMBER, &facts, &bytes, &error), -EBADMSG);
	ck_assert_msg(strstr(error.text, ".img: it is not a regular file"), "%s", error.text);
}
END_TEST

static void *cancel_soon(void *cancel)
{
	usleep(20000);
	__atomic_store_n((bool *)cancel, true, __ATOMIC_RELAXED);
	return NULL;
}

/* A file that takes a minute to read; most of a sparse one's pages are zeros. */
START_TEST(a_check_can_be_called_off)
{
	bool cancel = false;
	pthread_t other;
	size_t bytes;
	int fd;

	good();
	fd = openat(directory, file_name(7), O_WRONLY);
	ck_assert_int_eq(ftruncate(fd, 100L << 30), 0);
	close(fd);
	ck_assert_int_eq(pthread_create(&other, NULL, cancel_soon, &cancel), 0);
	ck_assert_int_eq(host_image_check(dir, NUMBER, &cancel, &bytes, &error), -ECANCELED);
	ck_assert_str_eq(error.text, "host-3: Operation canceled");
	pthread_join(other, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("host_image");
	TCase *tcase = tcase_create("host_image");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 20);
	tcase_add_test(tcase, what_was_sealed_is_whole);
	tcase_add_test(tcase, a_list_that_is_not_whole_is_no_seal);
	tcase_add_test(tcase, an_empty_directory_is_whole);
	tcase_add_test(tcase, a_damaged_file_is_refused);
	tcase_add_test(tcase, a_file_of_another_size_is_refused);
	tcase_add_test(tcase, a_file_that_becomes_shorter_is_no_crash);
	tcase_add_test(tcase, a_missing_file_is_refused);
	tcase_add_test(tcase, a_file_too_many_is_refused);
	tcase_add_test(tcase, many_that_are_no_files_are_refused);
	tcase_add_test(tcase, a_check_can_be_called_off);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
