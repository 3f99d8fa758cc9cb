/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/memory/memory_file.h"

#include "common/processes/proc.h"
#include "common/system/write_signals.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define COPY (1UL << 20)

int memory_file_open_directory(const char *path)
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

uint64_t memory_file_made(int dir, const char *name, int flags)
{
	struct statx st;

	if (statx(dir, name, flags, STATX_BTIME, &st) || !(st.stx_mask & STATX_BTIME))
		return 0;
	return st.stx_btime.tv_sec * UINT64_C(1000000000) + st.stx_btime.tv_nsec;
}

void memory_file_boot(char boot[MEMORY_FILE_BOOT])
{
	*boot = '\0';
	host_read_line("/proc/sys/kernel/random/boot_id", boot, MEMORY_FILE_BOOT);
}

bool memory_file_is(const struct memory_file *f, int dir, const char *name)
{
	struct stat st;

	return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && st.st_dev == f->dev &&
	       st.st_ino == f->ino;
}

bool memory_file_add_name(struct memory_file *f, const char *name)
{
	for (size_t i = 0; i < f->nnames; i++)
		if (!strcmp(f->names[i], name))
			return true;
	if (f->nnames == MEMORY_NAMES || strlen(name) > NAME_MAX)
		return false;
	strcpy(f->names[f->nnames++], name);
	return true;
}

int memory_file_fail(struct snapshot_error *error, const struct memory_file *f, size_t name,
		     int code)
{
	return snapshot_fail(error, code, "%s/%s: %s", f->directory, f->names[name],
			     error_text(-code));
}

int memory_file_open(const struct memory_file *f, int dir, int flags)
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

int memory_file_link(int fd, int dir, const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW) ? -errno : 0;
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

int memory_file_copy(int from, int to, off_t size, bool reserve)
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

void memory_file_content(size_t i, char name[32])
{
	snprintf(name, 32, "shm-%zu", i);
}
