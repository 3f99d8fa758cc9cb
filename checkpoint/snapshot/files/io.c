/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/files/io.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int snapshot_io_open(int dir, const char *name, int flags)
{
	int fd;

	/*
	 * O_NONBLOCK: a file of a forged snapshot may be a pipe, and opening it would wait for its
	 * other end.
	 */
	flags |= O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	fd = openat(dir, name, flags | O_DIRECT, 0600);
	if (fd < 0 && errno == EINVAL)
		fd = openat(dir, name, flags & ~O_EXCL, 0600);
	if (fd < 0)
		return -errno;
	/* The mode is not up to the program's umask(2). */
	if (flags & O_CREAT)
		fchmod(fd, 0600);
	/* With O_NONBLOCK, io_uring would not wait for the disk. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

/* malloc() would keep the memory in the program. */
char *snapshot_io_buffer(void)
{
	void *buffer = mmap(NULL, SNAPSHOT_CHUNK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return buffer == MAP_FAILED ? NULL : buffer;
}

void snapshot_io_free_buffer(char *buffer)
{
	if (buffer)
		munmap(buffer, SNAPSHOT_CHUNK);
}

/*
 * Some file systems accept O_DIRECT, but then refuse the request. True if a retry without it makes
 * sense.
 */
static bool turn_direct_off(const struct ownfd *file)
{
	int fd = ownfd_get(file), flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_DIRECT) && !fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

int snapshot_io_write(const struct ownfd *file, const void *data, size_t size, uint64_t offset)
{
	int ret;

	do
		ret = ownfd_write(file, data, size, offset);
	while (ret == -EINVAL && turn_direct_off(file));
	return ret;
}

ssize_t snapshot_io_read(const struct ownfd *file, void *data, size_t size, uint64_t offset)
{
	ssize_t ret;

	do
		ret = ownfd_read(file, data, size, offset);
	while (ret == -EINVAL && turn_direct_off(file));
	return ret;
}

/* Put the file's size in *@size. Fails if it is not a regular file, or larger than @most. */
static int check_file(int fd, const char *name, size_t most, size_t *size,
		      struct snapshot_error *error)
{
	struct stat st;

	if (fstat(fd, &st))
		return snapshot_fail(error, -errno, "%s: %s", name, error_text(errno));
	if (!S_ISREG(st.st_mode))
		return snapshot_fail(error, -EBADMSG, "%s: it is not a regular file", name);
	if ((size_t)st.st_size > most)
		return snapshot_fail(error, -EBADMSG, "%s: expected at most %zu bytes, found %zu",
				     name, most, (size_t)st.st_size);
	*size = st.st_size;
	return 0;
}

int snapshot_io_read_file(int dir, const char *name, size_t most, char **data, size_t *size,
			  struct snapshot_error *error)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct ownfd file;
	size_t expected = 0;
	ssize_t n;
	char *text;
	int ret;

	if (fd < 0)
		return snapshot_fail(error, -errno, "%s: %s", name, error_text(errno));
	ownfd_set(&file, fd);
	ret = check_file(fd, name, most, &expected, error);
	if (ret)
		goto out;
	text = malloc(expected + 1);
	if (!text) {
		ret = snapshot_fail(error, -ENOMEM, "%s: no memory for %zu bytes", name, expected);
		goto out;
	}
	n = snapshot_io_read(&file, text, expected, 0);
	if (n != (ssize_t)expected) {
		ret = snapshot_fail(error, n < 0 ? n : -EBADMSG,
				    "%s: expected %zu bytes, found %zd", name, expected, n);
		free(text);
		goto out;
	}
	text[expected] = '\0';
	*data = text;
	*size = expected;
out:
	ownfd_close(&file);
	return ret;
}

int snapshot_io_write_file(int dir, const char *name, const void *data, size_t size,
			   struct snapshot_error *error)
{
	struct ownfd file;
	struct stat st;
	int fd, ret;

	/*
	 * An existing file may be a pipe, which would wait for its other end, or may have other
	 * names.
	 */
	if (!fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) &&
	    (!S_ISREG(st.st_mode) || st.st_nlink > 1))
		unlinkat(dir, name, 0);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		    0600);
	if (fd < 0)
		return snapshot_fail(error, -errno, "%s: %s", name, error_text(errno));
	fchmod(fd, 0600);
	ownfd_set(&file, fd);
	ret = snapshot_io_write(&file, data, size, 0);
	if (!ret && fsync(fd))
		ret = -errno;
	ownfd_close(&file);
	return ret ? snapshot_fail(error, ret, "%s: %s", name, error_text(-ret)) : 0;
}
