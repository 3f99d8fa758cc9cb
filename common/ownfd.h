/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OWNFD_H
#define CUDAW_OWNFD_H
/*
 * Descriptors of ours in a program that may close them: daemons and launchers close all that they
 * did not open themselves (closefrom(3)), and get the same numbers for their own files next. What
 * we then write would come into these files, and what we read would be lost to the program.
 *
 * So we remember which file is behind a descriptor, and look before each use. A program that closes
 * it between the look and the use is not noticed.
 *
 * A process image (CRIU) that is started again has a pipe and a socket of its own behind the
 * numbers: they look lost until whoever knows that it is an image takes them.
 *
 * One thread sets a descriptor, others may look at it meanwhile; async-signal-safe.
 */
#include <stdbool.h>
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

/* From now on @own is @fd; -1: none. */
void ownfd_set(struct ownfd *own, int fd);

/* The descriptor; -1 where there is none, or the program has closed it. errno stays. */
int ownfd_get(const struct ownfd *own);

/* True where the program has closed it. */
bool ownfd_is_lost(const struct ownfd *own);

/*
 * In an image that was started again: what is behind a lost one is ours, if it is of the same kind.
 */
void ownfd_take_restored(struct ownfd *own);

/* Close it, if it is ours still; @own is none then. */
void ownfd_close(struct ownfd *own);

#endif
