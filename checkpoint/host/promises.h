/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROMISES_H
#define CUDAW_PROMISES_H
/*
 * Promises: how many bytes of a shared memory each process is about to take.
 *
 * A promise is a record lock (fcntl(2), F_SETLK) on a file of the runtime directory: its start
 * stands for the memory, and its length is the number of MiB. The file itself stays empty:
 *
 *	bit 62		always set, so that the first bytes are free for other locks
 *	bits 34 to 61	the area: which part of the memory, by a number of the caller's
 *	bits 24 to 33	the slot: each process takes one that is free
 *	bits 0 to 23	0; the lock has at most 2^24 bytes, a promise 16 TiB
 *
 * The kernel drops such a lock with its process, however that ends and whatever its PID namespace.
 * A child does not inherit it. Nothing is written to the file, so a full file system does not
 * matter. A promise only ever becomes smaller, by unlocking its end, so that threads may do that in
 * any order.
 *
 * A process drops its locks on a file when it closes any descriptor of that file, so it must have
 * only one.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct promise {
	int fd; /* the caller's, open as long as anything is promised */
	off_t start;
	uint64_t left; /* bytes; atomic */
};

/*
 * Promise @bytes of @area, of which the low 28 bits count, in the file @fd. A process has one
 * promise per file. Returns 0; or a negative errno, and nothing is promised.
 */
int promise_make(struct promise *promise, int fd, uint64_t area, uint64_t bytes);

/* Lower the promise by @bytes, or to nothing if less is left. Any thread. */
void promise_lower(struct promise *promise, uint64_t bytes);

/* The sums of other processes' promises in the file @fd. Returns 0 or a negative errno. */
int promise_others(int fd, uint64_t area, uint64_t *in_area, uint64_t *in_all);

#endif
