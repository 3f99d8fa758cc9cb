/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_LIMITED_H
#define CUDAW_LIMITED_H
/*
 * Work in a child process that may hang, as on a mount or a page of memory that another user
 * serves. The child inherits nothing but one end of a socket pair: should the kernel not let it be
 * killed, it keeps neither a connection of ours open, nor our output.
 */
#include <sys/types.h>

#define LIMITED_MS 3000 /* enough on a busy machine, short for a person who waits */

struct limited {
	pid_t pid;
	int fd; /* ours of the socket pair: SOCK_SEQPACKET */
};

/*
 * Start a child that calls @work with @arg and the other end of the socket pair, and then exits.
 * Returns 0 or a negative errno.
 */
int limited_begin(struct limited *limited, void (*work)(void *arg, int fd), void *arg);

/*
 * Wait for a message of the child, at most LIMITED_MS in which this process listens: time in which
 * it is stopped itself does not count. Each change of *@progress begins the time anew, unless
 * @progress is NULL. Returns 0, also if the child has ended, or -ETIMEDOUT.
 */
int limited_wait(const struct limited *limited, const volatile unsigned int *progress);

/* Kill the child if it still runs, and close our end. */
void limited_end(struct limited *limited);

/*
 * Call @work in a child. It returns a descriptor or a negative errno. Returns the same here, or
 * -ETIMEDOUT if the child did not return within LIMITED_MS.
 */
int limited_open(int (*work)(void *arg), void *arg);

#endif
