/* SPDX-License-Identifier: Apache-2.0 */
/* Named files of /dev/shm that processes map: found, saved, and made again. */
#include "tools/process/memory/memory_files.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SHM       "/dev/shm"
#define SIZE      (1UL << 20)
#define FILES_MAX 200000 /* that a test makes, for an inode's number */

static struct memory_files files;
static struct snapshot_error error;
static char name[64], second[64], path[96], other[96], why[512];
static char images_path[] = "/tmp/cudaw-test-XXXXXX";
static int images;

static bool finds(void)
{
	static struct tree tree;
	struct process self;

	ck_assert(process_find(getpid(), &self));
	tree_find(&tree, &self, getuid());
	memory_files_free(&files);
	return memory_files_find(&files, &tree, why, sizeof(why));
}

static char *map_file(const char *at, int protection, int flags)
{
	int fd = open(at, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *start = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, SIZE))
		start = mmap(NULL, SIZE, protection, flags, fd, 0);
	close(fd);
	ck_assert_ptr_ne(start, MAP_FAILED);
	return start;
}

static void setup(void)
{
	snprintf(name, sizeof(name), "cudaw-test-%d", getpid());
	snprintf(second, sizeof(second), "cudaw-test-%d-again", getpid());
	snprintf(path, sizeof(path), SHM "/%s", name);
	snprintf(other, sizeof(other), SHM "/%s", second);
	ck_assert_ptr_nonnull(mkdtemp(images_path));
	images = open(images_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void teardown(void)
{
	memory_files_remove(&files);
	memory_files_free(&files);
	unlink(path);
	unlink(other);
	unlinkat(images, "shm-0", 0);
	rmdir(images_path);
	close(images);
}

/* What the links of map_files need: a user has it not. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	data[0].effective &= ~(1U << CAP_SYS_ADMIN);
	data[1].effective &= ~(1U << (CAP_CHECKPOINT_RESTORE - 32));
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
}

START_TEST(only_what_is_named_and_shared_is_found)
{
	char *shared;

	if (_i)
		drop_capabilities();
	map_file(path, PROT_READ, MAP_SHARED);
	map_file(path, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	ck_assert(finds());
	ck_assert_uint_eq(files.n, 0);
	shared = map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED);
	ck_assert_int_eq(link(path, other), 0);
	ck_assert_msg(finds(), "%s", why);
	ck_assert_uint_eq(files.n, 1);
	ck_assert_uint_eq(files.list[0].nnames, 2);
	ck_assert_uint_eq(files.list[0].nformer, 0);
	/* By its other name it is still there. */
	unlink(path);
	ck_assert_msg(finds(), "%s", why);
	ck_assert_uint_eq(files.list[0].nnames, 2);
	ck_assert_uint_eq(files.list[0].nformer, 1);
	ck_assert_str_eq(files.list[0].names[0], second);
	/* Without a name CRIU has its contents. */
	unlink(other);
	ck_assert(finds());
	ck_assert_uint_eq(files.n, 0);
	munmap(shared, SIZE);
}
END_TEST

/* As a snapshot leaves them that is killed while CRIU works. */
START_TEST(former_names_that_were_left_are_removed)
{
	char former[160];

	map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED);
	ck_assert_int_eq(link(path, other), 0);
	unlink(path);
	ck_assert_msg(finds(), "%s", why);
	ck_assert_int_eq(memory_files_name(&files, true, &error), 0);
	ck_assert_msg(finds(), "%s", why);
	ck_assert_uint_eq(files.list[0].nnames, 2);
	ck_assert_uint_eq(files.list[0].nformer, 1);
	ck_assert_str_eq(files.list[0].names[0], second);
	ck_assert_int_eq(memory_files_name(&files, false, &error), 0);
	snprintf(former, sizeof(former), "%s (deleted)", path);
	ck_assert_int_eq(access(former, F_OK), -1);
	/* The only name of a file is its name, whatever it says. */
	ck_assert_int_eq(rename(other, former), 0);
	ck_assert_msg(finds(), "%s", why);
	ck_assert_uint_eq(files.list[0].nformer, 0);
}
END_TEST

/* acl(5), as the kernel takes it: version 2; then what, rights and id of the owner, user 1, group, mask and others. */
static const uint16_t acl[] = {2,      0,      1,    6, 0xffff, 0xffff, 2,    4,
			       1,      0,      4,    4, 0xffff, 0xffff, 0x10, 4,
			       0xffff, 0xffff, 0x20, 0, 0xffff, 0xffff};

START_TEST(what_cannot_be_made_again_is_named)
{
	char directory[128], inside[160];

	map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED);
	ck_assert_int_eq(chmod(path, 04700), 0);
	ck_assert(!finds());
	ck_assert_ptr_nonnull(strstr(why, "it is a set-id file"));
	ck_assert_int_eq(chmod(path, 0600), 0);
	ck_assert_int_eq(chown(path, 65534, 65534), 0);
	ck_assert(!finds());
	ck_assert_ptr_nonnull(strstr(why, "it belongs to another user than the job"));
	ck_assert_int_eq(chown(path, 0, 0), 0);
	/* Not where the kernel has no such attributes in a tmpfs. */
	if (!setxattr(path, "system.posix_acl_access", acl, sizeof(acl), 0)) {
		ck_assert(!finds());
		ck_assert_ptr_nonnull(strstr(why, "it has an ACL"));
		ck_assert_int_eq(removexattr(path, "system.posix_acl_access"), 0);
	}
	snprintf(directory, sizeof(directory), "%s.d", path);
	snprintf(inside, sizeof(inside), "%s/x", directory);
	ck_assert_int_eq(mkdir(directory, 0700), 0);
	ck_assert_int_eq(link(path, inside), 0);
	ck_assert(!finds());
	ck_assert_ptr_nonnull(strstr(why, "with all of its names"));
	unlink(path);
	ck_assert(!finds());
	unlink(inside);
	rmdir(directory);
}
END_TEST

/*
 * A process that is not below this one maps the file, and has no descriptor of it. Returns a pipe: the process ends
 * when that is closed.
 */
static int map_outside(int protection, int flags, int *ended)
{
	int ready[2], until[2];
	char byte;

	ck_assert_int_eq(pipe2(ready, O_CLOEXEC) | pipe2(until, O_CLOEXEC), 0);
	if (!fork()) {
		if (fork())
			_exit(0);
		close(ready[0]);
		close(until[1]);
		map_file(path, protection, flags);
		_exit(write(ready[1], "", 1) != 1 || read(until[0], &byte, 1));
	}
	wait(NULL);
	close(ready[1]);
	close(until[0]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	*ended = ready[0];
	return until[1];
}

static const struct {
	int protection, flags;
} seen[] = {
	{PROT_READ, MAP_SHARED}, {PROT_READ, MAP_PRIVATE}, {PROT_READ | PROT_WRITE, MAP_SHARED}};

START_TEST(one_that_another_process_maps_stays)
{
	char *shared = map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED), byte;
	int ended, until;

	ck_assert_msg(finds(), "%s", why);
	until = map_outside(seen[_i].protection, seen[_i].flags, &ended);
	ck_assert(!finds());
	ck_assert_ptr_nonnull(strstr(why, "which is not part of the job, has a file in memory"));
	ck_assert_ptr_nonnull(strstr(why, path));
	munmap(shared, SIZE);
	memory_files_remove(&files);
	ck_assert_int_eq(access(path, F_OK), 0);
	close(until);
	ck_assert_int_eq(read(ended, &byte, 1), 0);
	memory_files_remove(&files);
	ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

START_TEST(one_that_is_cut_meanwhile_is_not_saved)
{
	map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED);
	ck_assert_msg(finds(), "%s", why);
	ck_assert_int_eq(truncate(path, 0) | truncate(path, SIZE), 0);
	ck_assert_int_eq(memory_files_save(&files, images, &error), -EBUSY);
	ck_assert_ptr_nonnull(strstr(error.text, "was written or cut"));
}
END_TEST

/* A file of the inode's number in another tmpfs in the place of /dev/shm, mapped until @until is closed. */
static void map_another(ino_t ino, int ready, int until)
{
	char *shared = NULL, byte;
	struct stat st;

	if (ino > FILES_MAX || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", SHM, "tmpfs", 0, "mode=1777"))
		_exit(1);
	do {
		if (shared)
			munmap(shared, SIZE);
		unlink(path);
		shared = map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED);
	} while (!stat(path, &st) && st.st_ino < ino);
	if (st.st_ino == ino && write(ready, "", 1) == 1 && read(until, &byte, 1) <= 0)
		_exit(0);
	_exit(1);
}

START_TEST(one_of_another_file_system_is_not_taken_for_it)
{
	int ready[2], until[2];
	struct stat st;
	char byte;
	pid_t child;

	munmap(map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED), SIZE);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC) | pipe2(until, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		close(ready[0]);
		close(until[1]);
		map_another(st.st_ino, ready[1], until[0]);
	}
	close(ready[1]);
	/* Not where no file system may be mounted, or the number is too small or large. */
	if (read(ready[0], &byte, 1) == 1) {
		ck_assert(!finds());
		ck_assert_ptr_nonnull(strstr(why, "it does not lie directly"));
	}
	close(until[1]);
	waitpid(child, NULL, 0);
}
END_TEST

/* The list as host.json has it. */
static json_t *list_of(const struct memory_files *found)
{
	char *text = NULL;
	size_t size = 0;
	struct json_out out = {.file = open_memstream(&text, &size)};
	json_t *root;

	json_open(&out, NULL, '{');
	memory_files_put(&out, found);
	json_close(&out, '}');
	fclose(out.file);
	root = json_loadb(text, size, 0, NULL);
	ck_assert_ptr_nonnull(root);
	free(text);
	return root;
}

START_TEST(they_are_made_as_they_were)
{
	char *shared = map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED), back[8] = "",
	     former[160];
	struct memory_files again;
	struct stat st;
	json_t *root;
	int fd;

	ck_assert_int_eq(link(path, other), 0);
	ck_assert_int_eq(chmod(path, 0640), 0);
	unlink(path);
	strcpy(shared + SIZE / 2, "here");
	ck_assert_msg(finds(), "%s", why);
	ck_assert_int_eq(memory_files_save(&files, images, &error), 0);
	root = list_of(&files);
	ck_assert_int_eq(memory_files_read(&again, root, getuid(), &error), 0);
	json_decref(root);
	/* While somebody has them, they stay. */
	ck_assert_int_eq(memory_files_name(&files, true, &error), 0);
	ck_assert_int_eq(memory_files_name(&files, false, &error), 0);
	munmap(shared, SIZE);
	ck_assert_int_eq(memory_files_make(&again, images, &error), 0);
	ck_assert_uint_eq(again.made, 1);
	fd = open(other, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_nlink, 2);
	ck_assert_uint_eq(st.st_size, SIZE);
	ck_assert_uint_le(st.st_blocks, 16); /* the holes are holes */
	ck_assert_int_eq(pread(fd, back, sizeof(back), SIZE / 2), sizeof(back));
	ck_assert_str_eq(back, "here");
	close(fd);
	/* In the place of CRIU. */
	snprintf(former, sizeof(former), "%s (deleted)", path);
	shared = map_file(former, PROT_READ | PROT_WRITE, MAP_SHARED);
	/* It is open here alone, and is another file than the list's. */
	ck_assert_int_eq(memory_files_check(&files, &error), -EEXIST);
	ck_assert_int_eq(memory_files_give(&again, &error), 0);
	ck_assert_int_eq(stat(other, &st), 0);
	ck_assert_uint_eq(st.st_nlink, 1);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0640);
	/* So there may be many generations. */
	ck_assert_msg(finds(), "%s", why);
	ck_assert_uint_eq(files.list[0].nnames, 2);
	ck_assert_uint_eq(files.list[0].nformer, 1);
	ck_assert_str_eq(files.list[0].names[1], strrchr(former, '/') + 1);
	ck_assert_int_eq(access(path, F_OK), -1);
	memory_files_unmake(&again);
	ck_assert_int_eq(stat(other, &st), -1);
	memory_files_free(&again);
}
END_TEST

START_TEST(memory_that_was_reserved_is_so_again)
{
	char *shared = map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct memory_files again;
	struct stat st;
	json_t *root;

	ck_assert_int_eq(posix_fallocate(fd, 0, SIZE), 0);
	close(fd);
	ck_assert_msg(finds(), "%s", why);
	ck_assert_int_eq(memory_files_save(&files, images, &error), 0);
	root = list_of(&files);
	ck_assert_int_eq(memory_files_read(&again, root, getuid(), &error), 0);
	json_decref(root);
	munmap(shared, SIZE);
	ck_assert_int_eq(memory_files_make(&again, images, &error), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_ge(st.st_blocks, SIZE / 512);
	memory_files_unmake(&again);
	memory_files_free(&again);
}
END_TEST

START_TEST(what_the_job_left_comes_back_if_a_restore_fails)
{
	char *shared = map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED), back[8] = "";
	struct memory_files again;
	struct stat before, st;
	json_t *root;
	int fd;

	ck_assert_int_eq(link(path, other), 0);
	ck_assert_msg(finds(), "%s", why);
	ck_assert_int_eq(memory_files_save(&files, images, &error), 0);
	root = list_of(&files);
	ck_assert_int_eq(memory_files_read(&again, root, getuid(), &error), 0);
	json_decref(root);
	strcpy(shared, "later");
	munmap(shared, SIZE);
	ck_assert_int_eq(stat(path, &before), 0);
	ck_assert_int_eq(memory_files_make(&again, images, &error), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_ne(st.st_ino, before.st_ino);
	memory_files_unmake(&again);
	fd = open(other, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_ino, before.st_ino);
	ck_assert_uint_eq(st.st_nlink, 2);
	ck_assert_int_eq(pread(fd, back, sizeof(back), 0), sizeof(back));
	ck_assert_str_eq(back, "later");
	close(fd);
	memory_files_free(&again);
}
END_TEST

static const struct {
	const char *key;
	bool outer;
	const char *value; /* in JSON */
} others[] = {{"boot", true, "\"x\""},
	      {"device", false, "1"},
	      {"inode", false, "1"},
	      {"made", false, "1"}};

/* Its name has a file that is not the one of the list, though much is the same. */
START_TEST(another_file_is_not_replaced)
{
	struct memory_files read;
	json_t *root;

	map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED);
	ck_assert_msg(finds(), "%s", why);
	root = list_of(&files);
	json_object_set_new(
		others[_i].outer ? root : json_array_get(json_object_get(root, "shared_files"), 0),
		others[_i].key, json_loads(others[_i].value, JSON_DECODE_ANY, NULL));
	ck_assert_int_eq(memory_files_read(&read, root, getuid(), &error), 0);
	ck_assert_int_eq(memory_files_check(&read, &error), -EEXIST);
	memory_files_free(&read);
	json_decref(root);
}
END_TEST

static const struct {
	const char *key;
	const char *value; /* in JSON */
	int result;        /* of reading the list, or of the check */
} forged[] = {
	{"names", "[]", -EBADMSG},
	{"device", "-1", -EBADMSG},
	{"names", "[\"../x\"]", -EBADMSG},
	{"names", "[\"..\"]", -EBADMSG},
	{"names", "[\"a/b\"]", -EBADMSG},
	{"names", "[5]", -EBADMSG},
	{"former", "[\"/etc/x\"]", -EBADMSG},
	{"former", "[\"x\"]", -EBADMSG},
	{"mode", "2541", -EBADMSG},
	{"mode", "-1", -EBADMSG},
	{"uid", "4294967295", -EBADMSG},
	{"uid", "65534", -EPERM},
	{"size", "\"x\"", -EBADMSG},
	{"size", "-1", -EBADMSG},
	{"directory", "\"dev/shm\"", -EBADMSG},
	{"directory", "\"/etc\"", -ENOENT},
	{"directory", "\"/dev/shm/../../etc\"", -ENOENT},
	{"directory", "\"/proc/self/root/dev/shm\"", -ENOENT},
};

START_TEST(a_forged_list_is_refused)
{
	struct memory_files read;
	json_t *root;
	int ret;

	map_file(path, PROT_READ | PROT_WRITE, MAP_SHARED);
	ck_assert_msg(finds(), "%s", why);
	unlink(path);
	root = list_of(&files);
	json_object_set_new(json_array_get(json_object_get(root, "shared_files"), 0),
			    forged[_i].key, json_loads(forged[_i].value, JSON_DECODE_ANY, NULL));
	ret = memory_files_read(&read, root, getuid(), &error);
	if (!ret)
		ret = memory_files_check(&read, &error);
	ck_assert_int_eq(ret, forged[_i].result);
	memory_files_free(&read);
	json_decref(root);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tools_memory_files");
	TCase *tc = tcase_create("tools_memory_files");

	if (geteuid()) {
		printf("1..0 # SKIP the files of mappings cannot be looked at (it takes root)\n");
		return 77;
	}
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, only_what_is_named_and_shared_is_found, 0, 2);
	tcase_add_test(tc, former_names_that_were_left_are_removed);
	tcase_add_test(tc, what_cannot_be_made_again_is_named);
	tcase_add_test(tc, one_of_another_file_system_is_not_taken_for_it);
	tcase_add_loop_test(tc, one_that_another_process_maps_stays, 0,
			    sizeof(seen) / sizeof(seen[0]));
	tcase_add_test(tc, one_that_is_cut_meanwhile_is_not_saved);
	tcase_add_test(tc, they_are_made_as_they_were);
	tcase_add_test(tc, memory_that_was_reserved_is_so_again);
	tcase_add_test(tc, what_the_job_left_comes_back_if_a_restore_fails);
	tcase_add_loop_test(tc, another_file_is_not_replaced, 0,
			    sizeof(others) / sizeof(others[0]));
	tcase_add_loop_test(tc, a_forged_list_is_refused, 0, sizeof(forged) / sizeof(forged[0]));
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
