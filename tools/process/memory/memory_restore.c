/* SPDX-License-Identifier: Apache-2.0 */
/* What a restore does with the files of memory_files.h. */
#include "checkpoint/snapshot/manifest_read.h"
#include "common/processes/maps.h"
#include "tools/process/memory/memory_file.h"
#include "tools/process/memory/memory_holders.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASIDE_SIZE 80

static bool read_names(struct memory_file *f, const json_t *names)
{
	char name[NAME_MAX + 2];
	json_t *value;
	size_t i;

	json_array_foreach(names, i, value) {
		snapshot_manifest_bytes(value, NULL, name, sizeof(name));
		if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") ||
		    !memory_file_add_name(f, name))
			return false;
	}
	return true;
}

static bool read_number(const json_t *object, const char *key, uint64_t most, uint64_t *number)
{
	const json_t *value = json_object_get(object, key);

	*number = json_integer_value(value);
	return json_is_integer(value) && json_integer_value(value) >= 0 && *number <= most;
}

static bool read_file(struct memory_file *f, const json_t *object)
{
	uint64_t dev, ino, made, mode, uid, gid, size;
	size_t names;

	*f = (struct memory_file){0};
	snapshot_manifest_bytes(object, "directory", f->directory, sizeof(f->directory));
	if (*f->directory != '/' || !read_names(f, json_object_get(object, "names")) || !f->nnames)
		return false;
	names = f->nnames;
	if (!read_names(f, json_object_get(object, "former")) ||
	    !read_number(object, "device", INT64_MAX, &dev) ||
	    !read_number(object, "inode", INT64_MAX, &ino) ||
	    !read_number(object, "made", INT64_MAX, &made) ||
	    !read_number(object, "mode", 01777, &mode) ||
	    !read_number(object, "uid", UINT32_MAX - 1, &uid) ||
	    !read_number(object, "gid", UINT32_MAX - 1, &gid) ||
	    !read_number(object, "size", INT64_MAX, &size))
		return false;
	for (f->nformer = f->nnames - names; names < f->nnames; names++)
		if (!maps_is_former(f->names[names]))
			return false;
	f->dev = dev;
	f->ino = ino;
	f->made = made;
	f->mode = mode;
	f->uid = uid;
	f->gid = gid;
	f->size = size;
	f->reserved = json_is_true(json_object_get(object, "reserved"));
	return true;
}

int memory_files_read(struct memory_files *files, const json_t *root, uid_t owner,
		      struct snapshot_error *error)
{
	const json_t *list = json_object_get(root, MEMORY_FILE_KEY);
	char boot[MEMORY_FILE_BOOT], here[MEMORY_FILE_BOOT];

	memory_file_boot(here);
	snapshot_manifest_bytes(root, "boot", boot, sizeof(boot));
	*files = (struct memory_files){
		.list = calloc(json_array_size(list) + 1, sizeof(*files->list))};
	if (!files->list)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	for (; files->n < json_array_size(list); files->n++) {
		struct memory_file *f = &files->list[files->n];

		if (!read_file(f, json_array_get(list, files->n)))
			return snapshot_fail(
				error, -EBADMSG,
				"host.json: " MEMORY_FILE_KEY " %zu is not as expected", files->n);
		if (f->uid != owner)
			return snapshot_fail(error, -EPERM,
					     "%s/%s belonged to user %u, and the job to user %u",
					     f->directory, f->names[0], f->uid, owner);
		/* After another boot, and on another machine, no file is the one of the list. */
		if (!*here || strcmp(boot, here) != 0)
			f->dev = 0;
	}
	return 0;
}

bool memory_files_has(const struct memory_files *files, const char *path)
{
	for (const struct memory_file *f = files->list; f < files->list + files->n; f++) {
		size_t length = strlen(f->directory);

		for (size_t i = 0; i < f->nnames; i++)
			if (!strncmp(path, f->directory, length) && path[length] == '/' &&
			    !strcmp(path + length + 1, f->names[i]))
				return true;
	}
	return false;
}

static void remove_one(struct memory_file *f, int dir)
{
	for (size_t i = 0; i < f->nnames; i++)
		if (memory_file_is(f, dir, f->names[i]))
			unlinkat(dir, f->names[i], 0);
}

static void remove_unheld(struct memory_file *f, int dir)
{
	if (!f->holder)
		remove_one(f, dir);
}

static void for_each(const struct memory_files *files, size_t n,
		     void (*act)(struct memory_file *f, int dir))
{
	for (size_t i = 0; i < n; i++) {
		int dir = memory_file_open_directory(files->list[i].directory);

		if (dir < 0)
			continue;
		act(&files->list[i], dir);
		close(dir);
	}
}

void memory_files_remove(const struct memory_files *files)
{
	memory_holders_find(files, NULL);
	for_each(files, files->n, remove_unheld);
}

static int refuse_name(const struct memory_file *f, size_t name, struct snapshot_error *error)
{
	return snapshot_fail(
		error, -EEXIST,
		"%s/%s is there, and the job needs its own: remove it if no other program needs it",
		f->directory, f->names[name]);
}

/* Names that are there may have been left by the job, which has ended since. */
static int check_names(struct memory_file *f, int dir, struct snapshot_error *error)
{
	bool there = false;
	struct stat st;

	for (size_t i = 0; i < f->nnames; i++) {
		if (fstatat(dir, f->names[i], &st, AT_SYMLINK_NOFOLLOW))
			continue;
		there = true;
		if (st.st_dev != f->dev || st.st_ino != f->ino || !S_ISREG(st.st_mode) ||
		    st.st_uid != f->uid ||
		    memory_file_made(dir, f->names[i], AT_SYMLINK_NOFOLLOW) != f->made)
			return refuse_name(f, i, error);
	}
	if (!there)
		f->dev = 0;
	return 0;
}

int memory_files_check(const struct memory_files *files, struct snapshot_error *error)
{
	const struct memory_file *held;
	int ret = 0;

	for (size_t i = 0; i < files->n && !ret; i++) {
		struct memory_file *f = &files->list[i];
		int dir = memory_file_open_directory(f->directory);

		ret = dir < 0 ? snapshot_fail(error, -ENOENT,
					      "expected %s to be a tmpfs of root's, for %s",
					      f->directory, f->names[0])
			      : check_names(f, dir, error);
		if (dir >= 0)
			close(dir);
	}
	held = ret ? NULL : memory_holders_find(files, NULL);
	if (held)
		ret = snapshot_fail(error, -EEXIST,
				    "process %d has %s/%s, and the job needs its own", held->holder,
				    held->directory, held->names[0]);
	return ret;
}

static void aside_name(const struct memory_file *f, size_t name, char text[ASIDE_SIZE])
{
	snprintf(text, ASIDE_SIZE, ".cudaw-restore-%d-%ju-%zu", getpid(), (uintmax_t)f->aside,
		 name);
}

static void put_back(struct memory_file *f, int dir)
{
	char aside[ASIDE_SIZE];

	for (size_t i = 0; i < f->nnames && f->aside; i++) {
		aside_name(f, i, aside);
		renameat2(dir, aside, dir, f->names[i], RENAME_NOREPLACE);
	}
	f->aside = 0;
}

static void drop_aside(struct memory_file *f, int dir)
{
	char aside[ASIDE_SIZE];

	for (size_t i = 0; i < f->nnames && f->aside; i++) {
		aside_name(f, i, aside);
		unlinkat(dir, aside, 0);
	}
	f->aside = 0;
}

/* Free the names that the job has left. They can be put back until they are dropped. 0 or a negative errno. */
static int set_aside(struct memory_file *f, int dir)
{
	char aside[ASIDE_SIZE];

	f->aside = f->ino;
	for (size_t i = 0; i < f->nnames && f->dev; i++) {
		aside_name(f, i, aside);
		if (renameat2(dir, f->names[i], dir, aside, RENAME_NOREPLACE)) {
			if (errno != ENOENT)
				return -errno;
		} else if (!memory_file_is(f, dir, aside)) {
			return -ESTALE;
		}
	}
	return 0;
}

/* f->dev and f->ino are those of the new file then. */
static int make_one(struct memory_file *f, int dir, int from)
{
	int fd = openat(dir, f->names[0], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600),
	    ret;
	struct stat st;

	if (fd < 0)
		return -errno;
	ret = fstat(fd, &st) ? -errno : 0;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	if (!ret)
		ret = memory_file_copy(from, fd, f->size, f->reserved);
	if (!ret && fchmod(fd, f->mode))
		ret = -errno;
	for (size_t i = 1; i < f->nnames && !ret; i++)
		ret = memory_file_link(fd, dir, f->names[i]);
	if (ret)
		remove_one(f, dir);
	close(fd);
	return ret;
}

int memory_files_make(struct memory_files *files, int images, struct snapshot_error *error)
{
	char name[32];
	int ret = files->n ? memory_files_check(files, error) : 0;
	struct stat st;

	/* Only root's own image says what root is to make. */
	if (!ret && files->n && (fstat(images, &st) || st.st_uid != geteuid()))
		ret = snapshot_fail(error, -EPERM, "the process image belongs to another user");
	if (ret)
		return ret;
	for (; files->made < files->n; files->made++) {
		struct memory_file *f = &files->list[files->made];
		int dir = memory_file_open_directory(f->directory), from;

		memory_file_content(files->made, name);
		from = openat(images, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		ret = dir < 0 ? -ENOENT : from < 0 ? -errno : set_aside(f, dir);
		if (!ret)
			ret = make_one(f, dir, from);
		if (dir >= 0)
			close(dir);
		if (from >= 0)
			close(from);
		if (ret)
			return memory_file_fail(error, f, 0, ret);
	}
	return 0;
}

/*
 * The processes have mapped the file by its former names, and the kernel is to show these as before: it appends the
 * suffix once more to a name that is removed, so the name is removed without one.
 */
static void unname_mapped(const struct memory_file *f, int dir)
{
	char name[NAME_MAX + 1];

	for (size_t i = f->nnames - f->nformer; i < f->nnames; i++) {
		strcpy(name, f->names[i]);
		name[strlen(name) - strlen(MAPS_FORMER)] = '\0';
		if (memory_file_is(f, dir, f->names[i]))
			unlinkat(dir,
				 renameat2(dir, f->names[i], dir, name, RENAME_NOREPLACE)
					 ? f->names[i]
					 : name,
				 0);
	}
}

static int give_one(const struct memory_file *f, int dir)
{
	int fd = memory_file_open(f, dir, O_RDONLY), ret = 0;

	if (fd < 0)
		return fd;
	/* While it is root's, nobody else can take its names. */
	unname_mapped(f, dir);
	/* A change of the owner may clear bits of the mode. */
	if (fchown(fd, f->uid, f->gid) || fchmod(fd, f->mode))
		ret = -errno;
	close(fd);
	return ret;
}

int memory_files_give(const struct memory_files *files, struct snapshot_error *error)
{
	int ret = 0;

	for (size_t i = 0; i < files->n && !ret; i++) {
		int dir = memory_file_open_directory(files->list[i].directory);

		ret = dir < 0 ? -ENOENT : give_one(&files->list[i], dir);
		if (dir >= 0)
			close(dir);
		if (ret)
			memory_file_fail(error, &files->list[i], 0, ret);
	}
	if (!ret)
		for_each(files, files->n, drop_aside);
	return ret;
}

void memory_files_unmake(struct memory_files *files)
{
	for_each(files, files->made, remove_one);
	files->made = 0;
	for_each(files, files->n, put_back);
}
