/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CALLER_H
#define CUDAW_CALLER_H
/*
 * The process at the other end of the control socket, to see whether it is still there when its
 * connection is not: none may be open while a process image is made. No descriptor is kept, for the
 * same reason. One that this process cannot see (of another PID namespace) counts as there.
 *
 * An image of this process that is started again remembers a caller that means nothing there, and
 * knows that by its own start time.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct caller {
	pid_t pid;          /* 0: not seen from here */
	uint64_t start;     /* rundir_start_time() of it */
	uint64_t own_start; /* and of us */
	unsigned int looks; /* how often it was looked for */
};

/* Who has connected the socket @fd. */
void caller_find(int fd, struct caller *caller);

/*
 * It has ended. One that is a zombie, or whose id another process has by now, is found so at every
 * CALLER_LOOKSth call only: a file is read for it, and a process image is not to have that open.
 */
#define CALLER_LOOKS 16
bool caller_is_gone(struct caller *caller);

/* It was found by this process, and not by the one that this one is an image of. */
bool caller_is_ours(const struct caller *caller);

#endif
