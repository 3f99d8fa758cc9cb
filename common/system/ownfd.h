/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OWNFD_H
#define CUDAW_OWNFD_H
/*
 * Descriptors of ours in a program that may close them. Daemons and launchers close all descriptors
 * that they did not open (closefrom(3)), and their own files then get the same numbers. Our writes
 * would go into these files, and the program would lose the data that we read.
 *
 * So we remember which file is behind a descriptor, and check that before each use. We do not
 * notice a program that closes the descriptor between the check and the use.
 *
 * A process that CRIU restored from its image has new pipes and sockets behind the numbers. They
 * look lost until ownfd_take_restored() takes them.
 *
 * One thread sets a descriptor while others may read it. Async-signal-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ownfd {
	int fd; /* -1: none */
	dev_t device;
	ino_t inode;
	mode_t kind; /* as S_IFMT has it */
};

#define OWNFD_NONE       \
	{                \
		.fd = -1 \
	}

/* Set @own to @fd; -1: none. */
void ownfd_set(struct ownfd *own, int fd);

/* The descriptor; -1 if there is none, or the program has closed it. errno stays. */
int ownfd_get(const struct ownfd *own);

/* True if the program has closed it. */
bool ownfd_is_lost(const struct ownfd *own);

/*
 * In a restored process image: take the file behind a lost descriptor as ours if its kind is the
 * same.
 */
void ownfd_take_restored(struct ownfd *own);

/*
 * Write or read @size bytes at @offset. Writing returns 0 or a negative errno. Reading returns the bytes read, which are
 * fewer only at the end of the file, or a negative errno. -EBADF: there is none, or the program has closed it.
 */
int ownfd_write(const struct ownfd *own, const void *data, size_t size, uint64_t offset);
ssize_t ownfd_read(const struct ownfd *own, void *data, size_t size, uint64_t offset);

/* Close it, if it is still ours. @own is none then. */
void ownfd_close(struct ownfd *own);

#endif
