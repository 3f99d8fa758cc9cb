/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WORKERS_H
#define CUDAW_WORKERS_H
/*
 * Threads that share a list of items: each takes the next item until none is left, an item fails,
 * or another thread cancels the work. They live as long as the work.
 */
#include <stdbool.h>
#include <stddef.h>

struct workers {
	size_t count;       /* items */
	const bool *cancel; /* set by other threads: stop before the next item; may be NULL */

	/* Written by workers_run() and the workers. */
	size_t next;
	int result; /* 0, or the first failure: a negative errno */
};

/*
 * Run @work(@arg) in up to @threads threads, at most one per item and per processor, and wait for
 * them. If fewer threads can be made, a warning says so, and these do the work, or the caller if
 * there are none. Returns workers->result.
 */
int workers_run(struct workers *workers, size_t threads, void *(*work)(void *arg), void *arg);

/* How many threads workers_run() would use. If that is 1, the caller does the work. */
size_t workers_threads(const struct workers *workers, size_t threads);

/* For @work: put the next item in *@item. False if there is nothing more to do. */
bool workers_next(struct workers *workers, size_t *item);

/* For @work: false if the work has become useless, because an item failed or it was cancelled. */
bool workers_go_on(struct workers *workers);

/* For @work: no thread begins another item, because of @error (a negative errno). */
void workers_fail(struct workers *workers, int error);

#endif
