/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/in_use.h"
#include "common/system/forked.h"
#include "common/system/private_dir.h"
#include "common/protocol/protocol.h"
#include "common/protocol/rundir.h"
#include "common/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_SIZE 4096

DIR *snapshot_dir_list(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !entries)
		close(fd);
	return entries;
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

static int lock(int dir, int how, struct snapshot_error *error)
{
	if (!flock(dir, how | LOCK_NB))
		return 0;
	return snapshot_fail(error, -errno, "%s",
			     errno == EWOULDBLOCK ? "another process reads or writes this snapshot"
						  : error_text(errno));
}

static int open_locked(const char *path, int how, struct snapshot_error *error)
{
	int dir, ret;

	forked_watch_directory(path);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return snapshot_fail(error, -errno, "%s", error_text(errno));
	ret = lock(dir, how, error);
	if (!ret)
		return dir;
	close(dir);
	return ret;
}

int snapshot_dir_check_path(const char *path, size_t more, struct snapshot_error *error)
{
	size_t line = PROTOCOL_LINE - 2 - PROTOCOL_WORDS, len = strlen(path);
	size_t most = more < line ? line - more : 0;

	if (*path != '/')
		return snapshot_fail(error, -EINVAL, "expected an absolute path");
	for (const unsigned char *p = (const unsigned char *)path; *p; p++)
		if (*p < ' ' || *p == 0x7f)
			return snapshot_fail(error, -EINVAL,
					     "expected a path without line breaks and other "
					     "control characters");
	if (len > most)
		return snapshot_fail(error, -ENAMETOOLONG,
				     "expected a path of at most %zu bytes, found %zu", most, len);
	return 0;
}

int snapshot_dir_share(int dir, struct snapshot_error *error)
{
	return lock(dir, LOCK_SH, error);
}

int snapshot_dir_open(const char *path, struct snapshot_error *error)
{
	return open_locked(path, LOCK_SH, error);
}

/* A new directory is safe on disk only once its parent is synced. */
static int sync_parent(const char *path)
{
	char copy[PATH_MAX];
	int fd, ret;

	if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy))
		return -ENAMETOOLONG;
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = fsync(fd) ? -errno : 0;
	close(fd);
	return ret;
}

/* Read the beginning of a file; "" if there is none. */
static void read_head(int dir, const char *name, char head[HEAD_SIZE])
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, head, HEAD_SIZE - 1);

	head[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

static bool is_stopped(pid_t pid)
{
	struct rundir_process p;

	return rundir_process(pid, &p) && (p.state == 'T' || p.state == 't');
}

/*
 * A job that runs holds the lock while its memory is in a directory. A job that was stopped for its
 * image does not, if the process that stopped it was killed.
 */
static int check_process(int dir, const char *manifest, pid_t pid, struct snapshot_error *error)
{
	char head[HEAD_SIZE], *found;
	pid_t other;

	read_head(dir, manifest, head);
	if (*head && !strstr(head, SNAPSHOT_FORMAT))
		return snapshot_fail(
			error, -ENOTEMPTY,
			"expected a new or empty directory or a snapshot, found a %s in "
			"it that does not belong to one",
			manifest);
	found = strstr(head, "\"pid\":");
	other = found ? strtol(found + strlen("\"pid\":"), NULL, 10) : 0;
	if (other <= 0 || other == pid || !is_stopped(other))
		return 0;
	return snapshot_fail(error, -EBUSY,
			     "%d, which is stopped, may have its memory in it; 'cudaw resume %d' "
			     "first",
			     other, other);
}

/* Without a manifest or manifest.new, the file @part may not belong to a snapshot. */
static int check_manifests(int dir, const char *part, pid_t pid, struct snapshot_error *error)
{
	bool whole = !faccessat(dir, SNAPSHOT_MANIFEST, F_OK, AT_SYMLINK_NOFOLLOW);
	bool begun = !faccessat(dir, SNAPSHOT_MANIFEST_NEW, F_OK, AT_SYMLINK_NOFOLLOW);
	int ret = 0;

	if (*part && !whole && !begun)
		return snapshot_fail(
			error, -ENOTEMPTY,
			"expected a new or empty directory or a snapshot, found %s in it "
			"and no manifest",
			part);
	if (whole)
		ret = check_process(dir, SNAPSHOT_MANIFEST, pid, error);
	if (!ret && begun)
		ret = check_process(dir, SNAPSHOT_MANIFEST_NEW, pid, error);
	return ret;
}

static int check_entries(int dir, pid_t pid, struct snapshot_error *error)
{
	char part[SNAPSHOT_NAME_SIZE] = "";
	DIR *entries = snapshot_dir_list(dir);
	struct dirent *entry;
	enum snapshot_kind kind;
	uint32_t number;
	int ret = 0;

	if (!entries)
		return snapshot_fail(error, -errno, "%s", error_text(errno));
	while (!ret && (entry = readdir(entries))) {
		const char *name = entry->d_name;

		if (snapshot_parse_name(name, &kind, &number))
			strcpy(part, name);
		else if (!is_dots(name) && strcmp(name, SNAPSHOT_MANIFEST) &&
			 strcmp(name, SNAPSHOT_MANIFEST_NEW) && strcmp(name, SNAPSHOT_IN_USE))
			ret = snapshot_fail(error, -ENOTEMPTY,
					    "expected a new or empty directory or a snapshot, "
					    "found %s in it",
					    name);
	}
	closedir(entries);
	if (!ret)
		ret = check_manifests(dir, part, pid, error);
	return ret ? ret : snapshot_in_use_check(dir, pid, error);
}

/* Whether the process @pid of the user @owner may write in @dir, which is locked; it is closed to others. */
static int check_owned(int dir, uid_t owner, pid_t pid, struct snapshot_error *error)
{
	struct stat st;
	int ret = check_entries(dir, pid, error);

	if (!ret && (fstat(dir, &st) || st.st_uid != owner))
		ret = snapshot_fail(error, -EPERM, "it belongs to another user");
	if (!ret && fchmod(dir, 0700))
		ret = snapshot_fail(error, -errno, "%s", error_text(errno));
	return ret;
}

int snapshot_dir_create(const char *path, uid_t owner, pid_t pid, struct snapshot_error *error)
{
	int dir, ret = private_dir_make(AT_FDCWD, path);
	bool made = !ret;

	if (!made && ret != -EEXIST)
		return snapshot_fail(error, ret, "%s", error_text(-ret));
	dir = open_locked(path, LOCK_EX, error);
	if (dir < 0)
		return dir;
	ret = check_owned(dir, owner, pid, error);
	if (!ret && made) {
		ret = sync_parent(path);
		if (ret)
			snapshot_fail(error, ret, "%s", error_text(-ret));
	}
	if (!ret)
		return dir;
	snapshot_dir_close(dir);
	forked_leave_directory(path);
	return ret;
}

void snapshot_dir_close(int dir)
{
	/* A child that the program forked meanwhile shares the descriptor, and thus the lock. */
	flock(dir, LOCK_UN);
	close(dir);
}

int snapshot_dir_numbers(int dir, uint32_t count, uint32_t *first, struct snapshot_error *error)
{
	DIR *entries = snapshot_dir_list(dir);
	struct dirent *entry;
	enum snapshot_kind kind;
	uint32_t number, next = 1;

	if (!entries)
		return snapshot_fail(error, -errno, "%s", error_text(errno));
	while ((entry = readdir(entries)))
		if (snapshot_parse_name(entry->d_name, &kind, &number) && number >= next)
			next = number + 1;
	closedir(entries);
	if (next > SNAPSHOT_NUMBER_MAX - count)
		return snapshot_fail(error, -EOVERFLOW,
				     "no file numbers are left: use another directory");
	*first = next;
	return 0;
}

int snapshot_dir_commit(int dir, struct snapshot_error *error)
{
	/* The files that the manifest names must be on disk before the manifest. */
	if (fsync(dir) || renameat(dir, SNAPSHOT_MANIFEST_NEW, dir, SNAPSHOT_MANIFEST))
		return snapshot_fail(error, -errno, SNAPSHOT_MANIFEST ": %s", error_text(errno));
	return 0;
}

int snapshot_dir_sync(int dir, struct snapshot_error *error)
{
	return fsync(dir)
		       ? snapshot_fail(error, -errno, SNAPSHOT_MANIFEST ": %s", error_text(errno))
		       : 0;
}

void snapshot_dir_empty(int dir)
{
	DIR *entries = snapshot_dir_list(dir);
	struct dirent *entry;

	while (entries && (entry = readdir(entries)))
		if (!is_dots(entry->d_name))
			unlinkat(dir, entry->d_name, 0);
	if (entries)
		closedir(entries);
}

static int open_directory(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_part(int first, uint32_t index, int pid, int how, struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE], part[16];
	int parts, dir, ret;

	snapshot_name(SNAPSHOT_PARTS, index, name);
	snprintf(part, sizeof(part), "%d", pid);
	parts = open_directory(first, name);
	dir = parts < 0 ? -1 : open_directory(parts, part);
	ret = dir < 0 ? snapshot_fail(error, -errno, "%s", error_text(errno))
		      : lock(dir, how, error);
	if (parts >= 0)
		close(parts);
	if (!ret)
		return dir;
	if (dir >= 0)
		close(dir);
	return ret;
}

int snapshot_dir_open_part(int first, uint32_t index, int pid, struct snapshot_error *error)
{
	return open_part(first, index, pid, LOCK_SH, error);
}

int snapshot_dir_take_part(int first, uint32_t index, int pid, uid_t owner,
			   struct snapshot_error *error)
{
	int dir = open_part(first, index, pid, LOCK_EX, error), ret;

	if (dir < 0)
		return dir;
	ret = check_owned(dir, owner, pid, error);
	if (!ret)
		return dir;
	snapshot_dir_close(dir);
	return ret;
}

/* The manifest first: without it, files of these names are not taken for a snapshot's. */
static void link_files(int from, int to)
{
	DIR *entries = linkat(from, SNAPSHOT_MANIFEST, to, SNAPSHOT_MANIFEST, 0)
			       ? NULL
			       : snapshot_dir_list(from);
	struct dirent *entry;
	enum snapshot_kind kind;
	uint32_t number;

	while (entries && (entry = readdir(entries)))
		if (snapshot_parse_name(entry->d_name, &kind, &number))
			linkat(from, entry->d_name, to, entry->d_name, 0);
	if (entries)
		closedir(entries);
}

/* The directory of the part @name below the directory @parts of @dir; -1: it is not there, or not one @is_base. */
static int open_base(int dir, const char *parts, const char *name, bool (*is_base)(int dir))
{
	int of_all = open_directory(dir, parts);
	int part = of_all < 0 ? -1 : open_directory(of_all, name);

	if (of_all >= 0)
		close(of_all);
	if (part < 0 || is_base(part))
		return part;
	close(part);
	return -1;
}

/* The last directory of the part @name in the directory @whole that @is_base; -1: none. */
static int find_base(const char *whole, const char *name, bool (*is_base)(int dir))
{
	int dir = open(whole, O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = -1;
	DIR *entries = dir < 0 ? NULL : snapshot_dir_list(dir);
	struct dirent *entry;
	enum snapshot_kind kind;
	uint32_t number, last = 0;

	while (entries && (entry = readdir(entries))) {
		int part;

		if (!snapshot_parse_name(entry->d_name, &kind, &number) || kind != SNAPSHOT_PARTS ||
		    number < last)
			continue;
		part = open_base(dir, entry->d_name, name, is_base);
		if (part < 0)
			continue;
		if (found >= 0)
			close(found);
		found = part;
		last = number;
	}
	if (entries)
		closedir(entries);
	if (dir >= 0)
		close(dir);
	return found;
}

/* A new directory, open, whose name is safe on disk; -1: none. */
static int make_synced(const char *path)
{
	if (private_dir_make(AT_FDCWD, path))
		return -1;
	if (!sync_parent(path))
		return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rmdir(path);
	return -1;
}

/* The last part of an absolute path, which then ends before it. */
static char *cut_last(char *path)
{
	char *slash = strrchr(path, '/');

	*slash = '\0';
	return slash + 1;
}

void snapshot_dir_inherit(const char *path, bool (*is_base)(int dir))
{
	char whole[PATH_MAX], *name;
	int from, to;

	if (snprintf(whole, sizeof(whole), "%s", path) >= (int)sizeof(whole))
		return;
	name = cut_last(whole);
	cut_last(whole);
	from = find_base(whole, name, is_base);
	to = from < 0 ? -1 : make_synced(path);
	if (to >= 0) {
		link_files(from, to);
		close(to);
	}
	if (from >= 0)
		close(from);
}

static bool is_of_image(int dir, const char *name)
{
	static const char criu[] = ".img", memory[] = "shm-"; /* memory: FORMAT.md */
	size_t length = strlen(name), suffix = strlen(criu);
	struct stat st;

	return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	       ((length > suffix && !strcmp(name + length - suffix, criu)) ||
		!strncmp(name, memory, strlen(memory)) || !strcmp(name, "host.json"));
}

static bool is_image(int dir)
{
	DIR *entries = snapshot_dir_list(dir);
	struct dirent *entry;
	bool is = entries;

	while (is && (entry = readdir(entries)))
		is = is_dots(entry->d_name) || is_of_image(dir, entry->d_name);
	if (entries)
		closedir(entries);
	return is;
}

static uid_t owner_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? (uid_t)-1 : st.st_uid;
}

/*
 * A process image is a flat directory, of the user who has run CRIU: perhaps ours, as root has for another user's
 * snapshot. That user may have given its name to any directory of ours, so what has other files stays.
 */
static void remove_image(int dir, const char *name)
{
	int fd = open_directory(dir, name);
	uid_t owner = fd < 0 ? (uid_t)-1 : owner_of(fd);

	if (fd >= 0 && (owner == owner_of(dir) || owner == geteuid()) && is_image(fd))
		snapshot_dir_empty(fd);
	if (fd >= 0)
		close(fd);
	unlinkat(dir, name, AT_REMOVEDIR);
}

/*
 * A part, which is @owner's, is a flat directory, too. It stays if a process may have its memory in it, or reads or
 * writes it.
 */
static void remove_part(int parts, const char *name, uid_t owner)
{
	int fd = open_directory(parts, name);
	struct snapshot_error ignored;

	if (fd >= 0 && owner_of(fd) == owner && !lock(fd, LOCK_EX, &ignored) &&
	    !snapshot_in_use_check(fd, getpid(), &ignored)) {
		snapshot_dir_empty(fd);
		unlinkat(parts, name, AT_REMOVEDIR);
	}
	if (fd >= 0)
		snapshot_dir_close(fd);
}

static void remove_parts(int dir, const char *name)
{
	int fd = open_directory(dir, name);
	DIR *entries = fd < 0 ? NULL : snapshot_dir_list(fd);
	struct dirent *entry;

	while (entries && (entry = readdir(entries)))
		if (!is_dots(entry->d_name))
			remove_part(fd, entry->d_name, owner_of(dir));
	if (entries)
		closedir(entries);
	if (fd >= 0)
		close(fd);
	unlinkat(dir, name, AT_REMOVEDIR);
}

void snapshot_dir_clean(int dir,
			bool (*wanted)(const void *arg, enum snapshot_kind kind, uint32_t number),
			const void *arg)
{
	DIR *entries = snapshot_dir_list(dir);
	struct dirent *entry;
	enum snapshot_kind kind;
	uint32_t number;

	while (entries && (entry = readdir(entries))) {
		if (!snapshot_parse_name(entry->d_name, &kind, &number) ||
		    wanted(arg, kind, number))
			continue;
		if (kind == SNAPSHOT_HOST)
			remove_image(dir, entry->d_name);
		else if (kind == SNAPSHOT_PARTS)
			remove_parts(dir, entry->d_name);
		else
			unlinkat(dir, entry->d_name, 0);
	}
	if (entries)
		closedir(entries);
	unlinkat(dir, SNAPSHOT_MANIFEST_NEW, 0);
}
