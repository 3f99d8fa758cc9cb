/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROMISES_H
#define CUDAW_PROMISES_H
/*
 * Promises: how many bytes of a memory that processes share each of them is about to take.
 *
 * A promise is a record lock (fcntl(2), F_SETLK) on a file of the runtime directory: where it
 * begins says which memory is meant, and its length is the number of MiB. The file itself stays
 * empty:
 *
 *	bit 62		always set, so that the first bytes are free for other locks
 *	bits 34 to 61	the area: which part of the memory, by a number of the caller's
 *	bits 24 to 33	the slot: each process takes one that is free
 *	bits 0 to 23	0; the lock has at most 2^24 bytes, a promise 16 TiB
 *
 * The kernel drops such a lock with its process, whatever way that ends and whatever PID namespace
 * it is in. Its child does not inherit it. No store into the file can fail, as there is none: a
 * full file system does not matter. A promise is only ever made smaller, by unlocking its end, so
 * that threads may do that in any order.
 *
 * A process drops its locks on a file when it closes any descriptor of that file: it must have one
 * only.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct promise {
	int fd; /* the caller's, open for as long as anything is promised */
	off_t start;
	uint64_t left; /* bytes; atomic */
};

/*
 * Promise @bytes of @area, of which the low 28 bits count, in the file @fd. One promise a file and
 * process. Returns 0; or a negative errno, and nothing is promised.
 */
int promise_make(struct promise *promise, int fd, uint64_t area, uint64_t bytes);

/* @bytes of it, or all that is left, are promised no more. Any thread. */
void promise_lower(struct promise *promise, uint64_t bytes);

/* What other processes promise in the file @fd: 0 or a negative errno. */
int promise_others(int fd, uint64_t area, uint64_t *in_area, uint64_t *in_all);

#endif
