/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/quota_file.h"
#include "common/gpu/gpu.h"
#include "common/protocol/rundir.h"
#include "common/system/forks.h"
#include "common/system/ownfd.h"
#include "common/system/write_signals.h"
#include "common/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS    16               /* that are read at once */
#define LOCK_AT ((off_t)1 << 40) /* behind all rows */
#define TRIES   1000             /* to open it while no other thread forks */

/* Zeros are a free one, too. */
struct row {
	char gpu[48];
	uint64_t quota, bytes;
};

static struct rundir_home home; /* "" for a path: not known yet */
static char name[RUNDIR_ID_SIZE + sizeof(RUNDIR_QUOTA_SUFFIX)];
static char path[sizeof(home.path) + sizeof(name)]; /* of the file that was opened last */
static struct ownfd file = OWNFD_NONE;
static long places[GPU_MAX]; /* the number of the row for each GPU, and 1; 0: none */

static struct flock lock_of(short type, off_t start, off_t size)
{
	return (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = size};
}

static int set_lock(int fd, short type, off_t start, off_t size)
{
	struct flock lock = lock_of(type, start, size);

	return fcntl(fd, F_OFD_SETLK, &lock) ? -errno : 0;
}

/* The first byte is locked by who owns the row, and all of it once the row says what he has. */
static int lock_row(int fd, short type, long number, size_t size)
{
	return set_lock(fd, type, number * (off_t)sizeof(struct row), (off_t)size);
}

/*
 * By another opening than @fd, and alone: a lock of the whole file (lock_all()), which has no end, is none of its rows.
 * Returns 0, 1 or a negative errno.
 */
static int is_counted(int fd, long number)
{
	struct flock lock = lock_of(F_WRLCK, (number + 1) * (off_t)sizeof(struct row) - 1, 1);

	return fcntl(fd, F_OFD_GETLK, &lock) ? -errno : lock.l_type != F_UNLCK && lock.l_len;
}

/* From its beginning to any end: nobody has a row, or is about to take one. */
static int lock_all(int fd)
{
	return set_lock(fd, F_WRLCK, 0, 0);
}

/* What @other in @dir is called is the file behind @fd. If it is another file, errno is 0. */
static bool is_named(int dir, const char *other, int fd)
{
	struct stat here, open;

	if (fstatat(dir, other, &here, AT_SYMLINK_NOFOLLOW) || fstat(fd, &open))
		return false;
	errno = 0;
	return here.st_ino == open.st_ino && here.st_dev == open.st_dev;
}

/*
 * The file is no longer where others look for it. False if that cannot be known, as in another root directory. The
 * number of its links would not tell it everywhere: NFS gives a removed file that is open another name.
 */
static bool is_removed(int fd)
{
	return !is_named(AT_FDCWD, path, fd) && (!errno || errno == ENOENT) &&
	       rundir_sees_home(&home);
}

/* The open file, unless somebody has removed it, as those do who clean /tmp; -1: none. */
static int current(void)
{
	int fd = ownfd_get(&file);

	return fd >= 0 && !is_removed(fd) ? fd : -1;
}

int quota_file_find(const char **why)
{
	int error = *home.path ? 0 : rundir_find_home(&home, why);

	if (error)
		home.path[0] = '\0';
	return error;
}

static int create_directory(const char **why)
{
	int error = quota_file_find(why);

	return error ? error : rundir_create_home(&home, why);
}

/* The file behind @fd may have been removed, and @other in @dir may be the name of another one, which stays. */
static void remove_unused(int dir, const char *other, int fd)
{
	if (!lock_all(fd) && is_named(dir, other, fd))
		unlinkat(dir, other, 0);
}

/* The directory may be one that the user has other files in. */
static bool is_account(const char *other)
{
	char id[RUNDIR_ID_SIZE];

	snprintf(id, sizeof(id), "%.*s", RUNDIR_ID_SIZE - 1, other);
	return rundir_is_id(id) && !strcmp(other + sizeof(id) - 1, RUNDIR_QUOTA_SUFFIX);
}

static bool is_own_file(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == home.user;
}

static void look_at(int dir, const char *other)
{
	int fd = openat(dir, other, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	if (is_own_file(fd))
		remove_unused(dir, other, fd);
	close(fd);
}

/* The accounts of jobs whose last processes were killed. */
static void sweep(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!entries) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(entries)))
		if (is_account(entry->d_name) && strcmp(entry->d_name, name) != 0)
			look_at(dir, entry->d_name);
	closedir(entries);
}

/* The child of a fork that came meanwhile has the file without knowing it: then another opening is made. */
static int open_alone(int dir)
{
	for (int tries = 0;; tries++) {
		unsigned long mark = forks_mark();
		int fd = rundir_open_lock(dir, name);

		ownfd_set(&file, fd);
		if (fd < 0 || !forks_came_since(mark) || tries == TRIES)
			return fd < 0 ? fd : 0;
		ownfd_close(&file);
	}
}

int quota_file_open(const char *id, const char **why)
{
	int dir, error;

	if (current() >= 0)
		return 0;
	quota_file_close(); /* the program may have closed it */
	dir = create_directory(why);
	if (dir < 0)
		return dir;
	snprintf(name, sizeof(name), "%s" RUNDIR_QUOTA_SUFFIX, id);
	snprintf(path, sizeof(path), "%s/%s", home.path, name);
	rundir_see_home(&home);
	error = open_alone(dir);
	if (error)
		*why = error_text(-error);
	else
		sweep(dir);
	close(dir);
	return error;
}

void quota_file_close(void)
{
	ownfd_close(&file);
	memset(places, 0, sizeof(places));
}

void quota_file_end(void)
{
	int fd = current(), dir;
	const char *why;

	dir = fd < 0 ? fd : rundir_open(home.path, home.user, &why);
	if (dir < 0)
		return;
	remove_unused(dir, name, fd);
	close(dir);
}

int quota_file_lock(void)
{
	int fd = ownfd_get(&file), error = fd < 0 ? -EBADF : set_lock(fd, F_WRLCK, LOCK_AT, 1);

	return error ? error : current() < 0 ? -ESTALE : 0;
}

void quota_file_unlock(void)
{
	int fd = ownfd_get(&file);

	if (fd >= 0)
		set_lock(fd, F_UNLCK, LOCK_AT, 1);
}

bool quota_file_has(int dev)
{
	return places[dev] && current() >= 0;
}

static bool is_own(long number)
{
	for (int dev = 0; dev < GPU_MAX; dev++)
		if (places[dev] == number + 1)
			return true;
	return false;
}

/* Own a free row. Behind the end there may be rows that were taken and not yet written. */
static int claim(int fd, int dev)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	for (long i = 0; i <= st.st_size / (off_t)sizeof(struct row) + GPU_MAX; i++)
		if (!is_own(i) && !lock_row(fd, F_WRLCK, i, 1)) {
			places[dev] = i + 1;
			break;
		}
	if (!places[dev])
		return -EBUSY;
	return current() < 0 ? -ESTALE : 0;
}

static void unclaim(int fd, int dev)
{
	lock_row(fd, F_UNLCK, places[dev] - 1, sizeof(struct row));
	places[dev] = 0;
}

/* Returns 0 or a negative errno. */
static int put(int fd, int dev, const struct row *row)
{
	struct write_signals before;
	ssize_t len;
	int error;

	write_signals_block(&before);
	len = pwrite(fd, row, sizeof(*row), (places[dev] - 1) * (off_t)sizeof(*row));
	error = len < 0 ? -errno : len == sizeof(*row) ? 0 : -EIO;
	write_signals_unblock(&before);
	return error;
}

int quota_file_write(int dev, const char *gpu, size_t quota, size_t bytes)
{
	struct row row = {.quota = quota, .bytes = bytes};
	int fd = ownfd_get(&file), error = fd < 0 ? -EBADF : 0;
	bool had = places[dev];

	snprintf(row.gpu, sizeof(row.gpu), "%s", gpu);
	if (!error && !had)
		error = claim(fd, dev);
	if (error)
		return error;
	error = put(fd, dev, &row);
	if (!error && !had)
		error = lock_row(fd, F_WRLCK, places[dev] - 1, sizeof(row));
	if (error && !had)
		unclaim(fd, dev);
	return error;
}

void quota_file_leave(int dev)
{
	const struct row none = {0};
	int fd = ownfd_get(&file);

	if (fd >= 0 && places[dev]) {
		put(fd, dev, &none);
		unclaim(fd, dev);
	}
	places[dev] = 0;
}

static int add(int fd, bool open, long number, const struct row *row, const char *gpu,
	       struct quota_sum *sum)
{
	bool own = open && is_own(number);
	int counted;

	if (!row->bytes || strncmp(row->gpu, gpu, sizeof(row->gpu)) != 0)
		return 0;
	counted = own ? 1 : is_counted(fd, number);
	if (counted <= 0)
		return counted;
	*(own ? &sum->own : &sum->others) += row->bytes;
	sum->quota = row->quota;
	return 0;
}

/* @open: it is our opening, which has our locks. */
static int add_all(int fd, bool open, const char *gpu, struct quota_sum *sum)
{
	struct row rows[ROWS];
	long n = ROWS;
	int error = 0;

	for (long at = 0; n == ROWS && !error; at += n) {
		ssize_t len = pread(fd, rows, sizeof(rows), at * (off_t)sizeof(*rows));

		if (len < 0)
			return -errno;
		n = len / (long)sizeof(*rows);
		for (long i = 0; i < n && !error; i++)
			error = add(fd, open, at + i, &rows[i], gpu, sum);
	}
	return error;
}

/* Returns a descriptor or a negative errno. A reader makes no directory. */
static int open_to_read(const char *id, const char **why)
{
	int dir = quota_file_find(why), fd;
	char found[sizeof(name)];

	if (!dir && !rundir_sees_home(&home)) {
		*why = "this process has another root directory or mount namespace now";
		dir = -EXDEV;
	}
	dir = dir ? dir : rundir_open(home.path, home.user, why);
	if (dir < 0)
		return dir;
	snprintf(found, sizeof(found), "%s" RUNDIR_QUOTA_SUFFIX, id);
	fd = openat(dir, found, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		fd = -errno;
		*why = error_text(-fd);
	}
	close(dir);
	return fd;
}

int quota_file_sum(const char *id, const char *gpu, struct quota_sum *sum, const char **why)
{
	int own = current(), fd = own < 0 ? open_to_read(id, why) : own, error;

	*sum = (struct quota_sum){0};
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	error = add_all(fd, fd == own, gpu, sum);
	if (error)
		*why = error_text(-error);
	if (own < 0)
		close(fd);
	return error;
}
