/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/host/spill.h"
#include "common/system/hostmem.h"
#include "common/system/memory_fs.h"
#include "common/system/ownfd.h"
#include "common/system/shortage.h"
#include "common/settings.h"
#include "common/size.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOG_PREFIX "spill: "
#include "common/log.h"

#define LEAST 4096UL /* what is written is multiples of this */

static struct ownfd spill = OWNFD_NONE;
static char *buffer;

/* NULL: none, or one that would take memory instead of giving some. */
static const char *directory(void)
{
	const char *dir = setting_text(SETTING_SPILL_DIR), *memory = dir ? memory_fs(dir) : NULL;

	if (memory)
		pr_err_once(
			"CUDAW_SPILL_DIR=%s is on %s, which is memory: nothing is written there",
			dir, memory);
	return memory ? NULL : dir;
}

/* A larger file would be a signal to the program (SIGXFSZ). */
static size_t largest_file(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX
										  : limit.rlim_cur;
}

size_t spill_space(void)
{
	const char *dir = directory();
	size_t space, largest = largest_file();
	struct statvfs st;
	int error;

	if (!dir)
		return 0;
	error = statvfs(dir, &st) ? errno : st.f_flag & ST_RDONLY ? EROFS : 0;
	if (error) {
		pr_err("CUDAW_SPILL_DIR=%s: %s", dir, error_text(error));
		return 0;
	}
	space = st.f_bavail * st.f_frsize;
	return size_min(space, largest);
}

/* For file systems that have no files without a name, such as NFS: it goes at once, or there is none. */
static int open_named(const char *dir, int flags)
{
	char path[PATH_MAX];
	int fd, error;

	if (snprintf(path, sizeof(path), "%s/.cudaw-spill-XXXXXX", dir) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(path, flags);
	if (fd < 0 || !unlink(path))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Other threads of a program with few descriptors may have the last one for a moment. */
static int open_unnamed(const char *dir, int flags)
{
	int tries = 0, fd;

	do {
		fd = open(dir, O_TMPFILE | O_RDWR | flags, 0600);
		if (fd < 0 && errno == EOPNOTSUPP)
			fd = open_named(dir, flags);
	} while (fd < 0 && shortage_wait(-errno, &tries));
	return fd;
}

/* Past the page cache; not at the start, as the device may want larger multiples than those of spill_write(). */
static int try_direct(void)
{
	return fcntl(ownfd_get(&spill), F_SETFL, O_DIRECT)
		       ? -errno
		       : spill_write(buffer + LEAST, LEAST, LEAST);
}

/*
 * Where the page cache is between, a write returns when the disk has the data: the kernel may find out later that
 * there is no room, when the memory on the GPU is gone. 0 or errno.
 */
static int open_file(const char *dir)
{
	int error;

	ownfd_set(&spill, open_unnamed(dir, O_CLOEXEC));
	if (ownfd_get(&spill) < 0)
		return errno;
	error = -try_direct();
	if (error != EINVAL)
		return error;
	spill_close();
	ownfd_set(&spill, open_unnamed(dir, O_CLOEXEC | O_DSYNC));
	return ownfd_get(&spill) < 0 ? errno : 0;
}

/* Some file systems cannot. 0 or errno. */
static int reserve(size_t size, bool surely)
{
	int error = fallocate(ownfd_get(&spill), 0, 0, (off_t)size) ? errno : 0;

	return error == EOPNOTSUPP && !surely ? 0 : error;
}

static int make_buffer(void)
{
	char *made = buffer ? buffer : hostmem_reserve(SPILL_BUFFER);
	int ret = made ? hostmem_populate(made, SPILL_BUFFER) : -errno;

	if (!ret)
		buffer = made;
	else if (!buffer)
		hostmem_release(made, SPILL_BUFFER);
	return ret;
}

char *spill_buffer(void)
{
	return buffer;
}

int spill_open(size_t size, bool surely)
{
	const char *dir = directory();
	bool fresh = spill.fd < 0;
	int error;

	if (!dir)
		return -ENOENT;
	/* The program has closed it, and what is out with it. */
	if (ownfd_is_lost(&spill))
		return -EBADF;
	error = -make_buffer();
	if (!error && fresh)
		error = open_file(dir);
	if (!error)
		error = reserve(size, surely);
	if (error)
		pr_err("CUDAW_SPILL_DIR=%s: no file of %zu bytes: %s", dir, size,
		       error_text(error));
	/* Another one may have a part of the job, and keeps that. */
	if (error && fresh)
		spill_close();
	return -error;
}

void spill_close(void)
{
	ownfd_close(&spill);
}

int spill_write(const void *data, size_t size, uint64_t offset)
{
	return ownfd_write(&spill, data, size, offset);
}

int spill_read(void *data, size_t size, uint64_t offset)
{
	ssize_t n = ownfd_read(&spill, data, size, offset);

	return n < 0 ? n : (size_t)n < size ? -EIO : 0;
}
