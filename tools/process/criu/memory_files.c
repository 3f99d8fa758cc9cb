/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/memory_files.h"

#include "checkpoint/snapshot/manifest_read.h"
#include "common/system/memory_fs.h"
#include "common/system/proc.h"
#include "common/system/write_signals.h"
#include "common/text.h"
#include "tools/process/criu/memory_holders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define KEY        "shared_files"
#define FORMER     " (deleted)"
#define COPY       (1UL << 20)
#define BOOT_SIZE  64
#define ASIDE_SIZE 80

/* A shared, writable mapping of a file. */
struct mapping {
	const char *path, *link; /* the link leads to the file, also if nothing is at the path */
	struct stat st;
};

void memory_files_free(struct memory_files *files)
{
	free(files->list);
	*files = (struct memory_files){0};
}

/*
 * Call @take for each such mapping of the process until it returns false; that is returned. proc_pid_map_files(5):
 * the link leads to the file that is mapped, whatever its name is now.
 */
static bool each_mapping(pid_t pid, bool (*take)(void *arg, const struct mapping *m), void *arg)
{
	char path[96], area[64], rights[8], *line = NULL;
	bool goes_on = true;
	size_t room = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (maps && goes_on && getline(&line, &room, maps) > 0) {
		struct mapping m;
		int at = 0;

		if (sscanf(line, "%63s %7s %*s %*s %*s %n", area, rights, &at) != 2 || !at ||
		    line[at] != '/' || rights[1] != 'w' || rights[3] != 's')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/map_files/%s", pid, area);
		line[strcspn(line, "\n")] = '\0';
		m.path = line + at;
		m.link = path;
		if (!stat(path, &m.st) && S_ISREG(m.st.st_mode) && m.st.st_nlink && memory_fs(path))
			goes_on = take(arg, &m);
	}
	free(line);
	if (maps)
		fclose(maps);
	return goes_on;
}

/* Open a directory as the header says; -1: it is no such one. */
static int open_directory(const char *path)
{
	char real[PATH_MAX];
	struct stat st, up;
	struct statfs fs;
	int dir;

	if (!realpath(path, real) || strcmp(path, real))
		return -1;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir >= 0 && (fstatfs(dir, &fs) || fs.f_type != TMPFS_MAGIC || fstat(dir, &st) ||
			 fstatat(dir, "..", &up, 0) || up.st_dev == st.st_dev ||
			 (st.st_uid && st.st_uid != geteuid()) ||
			 (st.st_mode & (S_IWGRP | S_IWOTH) && !(st.st_mode & S_ISVTX)))) {
		close(dir);
		dir = -1;
	}
	return dir;
}

/* When the file was made, in ns since 1970; 0: an older kernel does not say it of a tmpfs. */
static uint64_t time_made(int dir, const char *name, int flags)
{
	struct statx st;

	if (statx(dir, name, flags, STATX_BTIME, &st) || !(st.stx_mask & STATX_BTIME))
		return 0;
	return st.stx_btime.tv_sec * UINT64_C(1000000000) + st.stx_btime.tv_nsec;
}

static void read_boot(char boot[BOOT_SIZE])
{
	*boot = '\0';
	host_read_line("/proc/sys/kernel/random/boot_id", boot, BOOT_SIZE);
}

/* Whether @name in @dir is the file. */
static bool is_it(const struct memory_file *f, int dir, const char *name)
{
	struct stat st;

	return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && st.st_dev == f->dev &&
	       st.st_ino == f->ino;
}

static bool add_name(struct memory_file *f, const char *name)
{
	for (size_t i = 0; i < f->nnames; i++)
		if (!strcmp(f->names[i], name))
			return true;
	if (f->nnames == MEMORY_NAMES || strlen(name) > NAME_MAX)
		return false;
	strcpy(f->names[f->nnames++], name);
	return true;
}

/*
 * All names that the file has in its directory. False: it has others elsewhere, or too many, or the process that maps
 * it has another file system there than we.
 */
static bool find_names(struct memory_file *f, size_t links)
{
	int fd = open_directory(f->directory);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool good = dir;

	while (good && (entry = readdir(dir)))
		if (entry->d_ino == f->ino && is_it(f, dirfd(dir), entry->d_name))
			good = add_name(f, entry->d_name);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return good && f->nnames == links;
}

struct search {
	struct memory_files *files;
	uid_t owner;
	const char *fault; /* why the one at @path cannot be carried */
	char path[256];
};

static bool refuse(struct search *s, const struct mapping *m, const char *fault)
{
	s->fault = fault;
	format_copy(s->path, sizeof(s->path), m->path);
	return false;
}

/* Whether the file at @link has extended attributes, as an ACL is one, except labels that the kernel gives itself. */
static bool has_attributes(const char *link)
{
	static const char label[] = "security.";
	char names[1024];
	ssize_t length = listxattr(link, names, sizeof(names));

	for (char *name = names; name < names + length; name += strlen(name) + 1)
		if (strncmp(name, label, strlen(label)) != 0)
			return true;
	return length < 0 && errno != ENOTSUP;
}

static bool add_file(struct search *s, const struct mapping *m, struct memory_file **added)
{
	struct memory_files *files = s->files;
	struct memory_file *list = realloc(files->list, (files->n + 1) * sizeof(*list)), *f;
	size_t length = strrchr(m->path, '/') - m->path;

	if (!list)
		return refuse(s, m, "out of memory");
	files->list = list;
	if (m->st.st_uid != s->owner)
		return refuse(s, m, "it belongs to another user than the job");
	f = &list[files->n];
	*f = (struct memory_file){.dev = m->st.st_dev,
				  .ino = m->st.st_ino,
				  .made = time_made(AT_FDCWD, m->link, 0),
				  .mode = m->st.st_mode & 07777,
				  .uid = m->st.st_uid,
				  .gid = m->st.st_gid,
				  .written = m->st.st_mtim,
				  .size = m->st.st_size,
				  .reserved = m->st.st_size &&
					      m->st.st_blocks >= (m->st.st_size + 511) / 512};
	if (length >= sizeof(f->directory))
		return refuse(s, m, "its path is too long");
	memcpy(f->directory, m->path, length);
	if (!find_names(f, m->st.st_nlink))
		return refuse(
			s, m,
			"it does not lie directly in a tmpfs of root's with all of its names");
	if (f->mode & (S_ISUID | S_ISGID))
		return refuse(s, m, "it is a set-id file");
	if (has_attributes(m->link))
		return refuse(s, m, "it has an ACL or other attributes");
	files->n++;
	*added = f;
	return true;
}

/* The kernel's suffix of a mapping's path whose file has no longer that name. */
static bool is_former(const char *name)
{
	size_t length = strlen(name), suffix = strlen(FORMER);

	return length > suffix && !strcmp(name + length - suffix, FORMER);
}

/*
 * A mapping shows the name. If it is a former one and there all the same, a snapshot or restore that was killed has left
 * it; or somebody has chosen such a name for a file that has another: then it is lost. False: it cannot be carried.
 */
static bool add_shown(struct memory_file *f, const char *name)
{
	size_t names = f->nnames - f->nformer, all = f->nnames, i = 0;

	if (!add_name(f, name))
		return false;
	if (f->nnames > all) {
		f->nformer++;
		return is_former(name);
	}
	while (strcmp(f->names[i], name) != 0)
		i++;
	if (i < names && names > 1 && is_former(name)) {
		memmove(f->names[i], f->names[i + 1], (names - 1 - i) * sizeof(f->names[0]));
		strcpy(f->names[names - 1], name);
		f->nformer++;
	}
	return true;
}

static bool take_mapping(void *arg, const struct mapping *m)
{
	struct search *s = arg;
	struct memory_file *f = memory_holders_file(s->files, m->st.st_dev, m->st.st_ino);
	const char *name = strrchr(m->path, '/') + 1;

	if (!f && !add_file(s, m, &f))
		return false;
	if (strncmp(m->path, f->directory, strlen(f->directory)) ||
	    name != m->path + strlen(f->directory) + 1 || !add_shown(f, name))
		return refuse(s, m, "its former name cannot be carried");
	return true;
}

bool memory_files_alone(const struct memory_files *files, const struct tree *tree, char *why,
			size_t size)
{
	const struct memory_file *f = memory_holders_find(files, tree);

	if (f)
		snprintf(
			why, size,
			"process %d, which is not part of the job, has a file in memory that the job maps, %s/%s",
			f->holder, f->directory, f->names[0]);
	return !f;
}

bool memory_files_find(struct memory_files *files, const struct tree *tree, char *why, size_t size)
{
	struct search search = {.files = files, .owner = tree->owner};

	*files = (struct memory_files){0};
	for (size_t i = 0; i < tree->n; i++)
		if (!each_mapping(tree->pids[i], take_mapping, &search)) {
			snprintf(why, size, "%d maps %s, a file in memory: %s", tree->pids[i],
				 search.path, search.fault);
			return false;
		}
	return memory_files_alone(files, tree, why, size);
}

static int fail(struct snapshot_error *error, const struct memory_file *f, size_t name, int code)
{
	return snapshot_fail(error, code, "%s/%s: %s", f->directory, f->names[name],
			     error_text(-code));
}

/* The file that has the first of the names now must be that of the list. A descriptor or a negative errno. */
static int open_file(const struct memory_file *f, int dir, int flags)
{
	int fd = openat(dir, f->names[0], flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && st.st_dev == f->dev && st.st_ino == f->ino)
		return fd;
	close(fd);
	return -ESTALE;
}

/* One more name for the file open as @fd. 0 or a negative errno. */
static int link_file(int fd, int dir, const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

static int name_one(const struct memory_file *f, int dir, struct snapshot_error *error)
{
	int fd = f->nformer ? open_file(f, dir, O_PATH) : -1, ret = 0;

	if (f->nformer && fd < 0)
		return fail(error, f, 0, fd);
	for (size_t i = f->nnames - f->nformer; i < f->nnames && !ret; i++) {
		ret = link_file(fd, dir, f->names[i]);
		if (ret)
			ret = is_it(f, dir, f->names[i]) ? 0 : fail(error, f, i, ret);
	}
	if (fd >= 0)
		close(fd);
	return ret;
}

static void unname_one(const struct memory_file *f, int dir)
{
	for (size_t i = f->nnames - f->nformer; i < f->nnames; i++)
		if (is_it(f, dir, f->names[i]))
			unlinkat(dir, f->names[i], 0);
}

int memory_files_name(const struct memory_files *files, bool have, struct snapshot_error *error)
{
	int ret = 0;

	for (size_t i = 0; i < files->n && !ret; i++) {
		int dir = open_directory(files->list[i].directory);

		if (dir < 0)
			ret = fail(error, &files->list[i], 0, -ENOENT);
		else if (have)
			ret = name_one(&files->list[i], dir, error);
		else
			unname_one(&files->list[i], dir);
		if (dir >= 0)
			close(dir);
	}
	return ret;
}

static int copy_part(int from, int to, off_t at, off_t end, char *buffer)
{
	while (at < end) {
		size_t want = (size_t)(end - at) < COPY ? (size_t)(end - at) : COPY;
		ssize_t len = pread(from, buffer, want, at);

		if (len <= 0)
			return len ? -errno : -ENODATA;
		len = pwrite(to, buffer, len, at);
		if (len <= 0)
			return len ? -errno : -ENOSPC;
		at += len;
	}
	return 0;
}

/* Where there are no data stays a hole. */
static int copy_data(int from, int to, off_t size, bool reserve, char *buffer)
{
	off_t at = 0, end;
	int ret = ftruncate(to, size) || (reserve && fallocate(to, 0, 0, size)) ? -errno : 0;

	while (!ret && at < size) {
		at = lseek(from, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : -errno;
		end = lseek(from, at, SEEK_HOLE);
		ret = end < 0 ? -errno : copy_part(from, to, at, end < size ? end : size, buffer);
		at = end;
	}
	return ret;
}

/* Copy @size bytes; @reserve: with memory for all of them. 0 or a negative errno. */
static int copy(int from, int to, off_t size, bool reserve)
{
	char *buffer = malloc(COPY);
	struct write_signals signals;
	int ret;

	write_signals_block(&signals);
	ret = buffer ? copy_data(from, to, size, reserve, buffer) : -ENOMEM;
	write_signals_unblock(&signals);
	free(buffer);
	return ret;
}

static void content_name(size_t i, char name[32])
{
	snprintf(name, 32, "shm-%zu", i);
}

/* Whether nobody has written or cut it since it was found, when all processes of the job were stopped. */
static bool is_unchanged(const struct memory_file *f, int fd)
{
	struct stat st;

	return !fstat(fd, &st) && (size_t)st.st_size == f->size &&
	       st.st_mtim.tv_sec == f->written.tv_sec && st.st_mtim.tv_nsec == f->written.tv_nsec;
}

static int save_one(const struct memory_file *f, int dir, int images, const char *name)
{
	int from = open_file(f, dir, O_RDONLY), to, ret;

	if (from < 0)
		return from;
	to = openat(images, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ret = to < 0 ? -errno : copy(from, to, f->size, false);
	if (!is_unchanged(f, from))
		ret = -EBUSY;
	close(from);
	if (to >= 0)
		close(to);
	return ret;
}

int memory_files_save(const struct memory_files *files, int images, struct snapshot_error *error)
{
	char name[32];

	for (size_t i = 0; i < files->n; i++) {
		const struct memory_file *f = &files->list[i];
		int dir = open_directory(f->directory), ret;

		content_name(i, name);
		ret = dir < 0 ? -ENOENT : save_one(f, dir, images, name);
		if (dir >= 0)
			close(dir);
		if (ret == -EBUSY)
			return snapshot_fail(
				error, ret,
				"%s/%s was written or cut by a process that is not part of the job",
				f->directory, f->names[0]);
		if (ret)
			return fail(error, f, 0, ret);
	}
	return 0;
}

static void put_names(struct json_out *out, const char *key, const struct memory_file *f,
		      size_t from, size_t to)
{
	json_open(out, key, '[');
	for (; from < to; from++)
		json_text(out, NULL, f->names[from]);
	json_close(out, ']');
}

void memory_files_put(struct json_out *out, const void *arg)
{
	const struct memory_files *files = arg;
	char boot[BOOT_SIZE];

	read_boot(boot);
	json_text(out, "boot", boot);
	json_open(out, KEY, '[');
	for (const struct memory_file *f = files->list; f < files->list + files->n; f++) {
		json_open(out, NULL, '{');
		json_text(out, "directory", f->directory);
		put_names(out, "names", f, 0, f->nnames - f->nformer);
		put_names(out, "former", f, f->nnames - f->nformer, f->nnames);
		json_number(out, "device", f->dev);
		json_number(out, "inode", f->ino);
		json_number(out, "made", f->made);
		json_number(out, "mode", f->mode);
		json_number(out, "uid", f->uid);
		json_number(out, "gid", f->gid);
		json_number(out, "size", f->size);
		json_bool(out, "reserved", f->reserved);
		json_close(out, '}');
	}
	json_close(out, ']');
}

static bool read_names(struct memory_file *f, const json_t *names)
{
	char name[NAME_MAX + 2];
	json_t *value;
	size_t i;

	json_array_foreach(names, i, value) {
		snapshot_manifest_bytes(value, NULL, name, sizeof(name));
		if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") ||
		    !add_name(f, name))
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
		if (!is_former(f->names[names]))
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
	const json_t *list = json_object_get(root, KEY);
	char boot[BOOT_SIZE], here[BOOT_SIZE];

	read_boot(here);
	snapshot_manifest_bytes(root, "boot", boot, sizeof(boot));
	*files = (struct memory_files){
		.list = calloc(json_array_size(list) + 1, sizeof(*files->list))};
	if (!files->list)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	for (; files->n < json_array_size(list); files->n++) {
		struct memory_file *f = &files->list[files->n];

		if (!read_file(f, json_array_get(list, files->n)))
			return snapshot_fail(error, -EBADMSG,
					     "host.json: " KEY " %zu is not as expected", files->n);
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
		if (is_it(f, dir, f->names[i]))
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
		int dir = open_directory(files->list[i].directory);

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
		    time_made(dir, f->names[i], AT_SYMLINK_NOFOLLOW) != f->made)
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
		int dir = open_directory(f->directory);

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
		} else if (!is_it(f, dir, aside)) {
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
		ret = copy(from, fd, f->size, f->reserved);
	if (!ret && fchmod(fd, f->mode))
		ret = -errno;
	for (size_t i = 1; i < f->nnames && !ret; i++)
		ret = link_file(fd, dir, f->names[i]);
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
		int dir = open_directory(f->directory), from;

		content_name(files->made, name);
		from = openat(images, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		ret = dir < 0 ? -ENOENT : from < 0 ? -errno : set_aside(f, dir);
		if (!ret)
			ret = make_one(f, dir, from);
		if (dir >= 0)
			close(dir);
		if (from >= 0)
			close(from);
		if (ret)
			return fail(error, f, 0, ret);
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
		name[strlen(name) - strlen(FORMER)] = '\0';
		if (is_it(f, dir, f->names[i]))
			unlinkat(dir,
				 renameat2(dir, f->names[i], dir, name, RENAME_NOREPLACE)
					 ? f->names[i]
					 : name,
				 0);
	}
}

static int give_one(const struct memory_file *f, int dir)
{
	int fd = open_file(f, dir, O_RDONLY), ret = 0;

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
		int dir = open_directory(files->list[i].directory);

		ret = dir < 0 ? -ENOENT : give_one(&files->list[i], dir);
		if (dir >= 0)
			close(dir);
		if (ret)
			fail(error, &files->list[i], 0, ret);
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
