/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CALLER_H
#define CUDAW_CALLER_H
/*
 * The process at the other end of the control socket: tells whether it still exists after its
 * connection is closed. While a process image is made no connection may be open, and no other
 * descriptor for the process either. A process that this one cannot see (in another PID namespace)
 * counts as existing.
 *
 * A process image of this process that is started again still has the caller of the process that it
 * was made from. It finds that out by its own start time.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct caller {
	pid_t pid;          /* 0: in another PID namespace */
	uint64_t start;     /* rundir_start_time() of it */
	uint64_t own_start; /* of this process */
	unsigned int looks; /* calls of caller_is_gone() */
};

/* Find the process that has connected the socket @fd. */
void caller_find(int fd, struct caller *caller);

/*
 * True if it has ended. A zombie, or a process id that was given to another process, is noticed
 * only at every CALLER_LOOKSth call: that takes a file of /proc, which a process image must not
 * have open.
 */
#define CALLER_LOOKS 16
bool caller_is_gone(struct caller *caller);

/* True if both are the same process, as far as one can see. */
bool caller_is_same(const struct caller *a, const struct caller *b);

/* True if this process found it, and not the process that this one is an image of. */
bool caller_is_ours(const struct caller *caller);

#endif
