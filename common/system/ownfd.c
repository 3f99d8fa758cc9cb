/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/ownfd.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

void ownfd_set(struct ownfd *own, int fd)
{
	struct stat st;

	/* Until the end, others find no descriptor, or the old one with another file. */
	__atomic_store_n(&own->fd, -1, __ATOMIC_SEQ_CST);
	if (fd < 0 || fstat(fd, &st))
		return;
	own->device = st.st_dev;
	own->inode = st.st_ino;
	own->kind = st.st_mode & S_IFMT;
	__atomic_store_n(&own->fd, fd, __ATOMIC_SEQ_CST);
}

int ownfd_get(const struct ownfd *own)
{
	int fd = __atomic_load_n(&own->fd, __ATOMIC_SEQ_CST), saved_errno = errno;
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) || st.st_dev != own->device || st.st_ino != own->inode))
		fd = -1;
	errno = saved_errno;
	return fd;
}

bool ownfd_is_lost(const struct ownfd *own)
{
	return own->fd >= 0 && ownfd_get(own) < 0;
}

void ownfd_take_restored(struct ownfd *own)
{
	struct stat st;

	if (ownfd_is_lost(own) && !fstat(own->fd, &st) && (st.st_mode & S_IFMT) == own->kind)
		ownfd_set(own, own->fd);
}

int ownfd_write(const struct ownfd *own, const void *data, size_t size, uint64_t offset)
{
	size_t at = 0;

	while (at < size) {
		ssize_t n = pwrite(ownfd_get(own), (const char *)data + at, size - at, offset + at);

		if (n == 0)
			return -ENOSPC;
		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? n : 0;
	}
	return 0;
}

ssize_t ownfd_read(const struct ownfd *own, void *data, size_t size, uint64_t offset)
{
	size_t at = 0;

	while (at < size) {
		ssize_t n = pread(ownfd_get(own), (char *)data + at, size - at, offset + at);

		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? n : 0;
	}
	return at;
}

void ownfd_close(struct ownfd *own)
{
	int fd = ownfd_get(own);

	if (fd >= 0)
		close(fd);
	ownfd_set(own, -1);
}
