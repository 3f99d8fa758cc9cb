/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WORKERS_H
#define CUDAW_WORKERS_H
/*
 * Threads that share a list of items: each takes the next one until none is left, one fails, or
 * somebody cancels. They live as long as the work.
 */
#include <stdbool.h>
#include <stddef.h>

struct workers {
	size_t count;       /* items */
	const bool *cancel; /* set by others: stop before the next item; may be NULL */

	/* Written by workers_run() and the workers. */
	size_t next;
	int result; /* 0, or the first failure: a negative errno */
};

/*
 * Run @work(@arg) in up to @threads threads, no more than items and processors, and wait for them.
 * Fewer threads that can be had do the work, the caller's if there are none, and that is logged as
 * a warning. Returns workers->result.
 */
int workers_run(struct workers *workers, size_t threads, void *(*work)(void *arg), void *arg);

/* How many threads workers_run() would use; for one, it makes none. */
size_t workers_threads(const struct workers *workers, size_t threads);

/* For @work: the next item in *@item; false when there is nothing more to do. */
bool workers_next(struct workers *workers, size_t *item);

/* For @work: false when the work is of no use any more, as one has failed or somebody cancels. */
bool workers_go_on(struct workers *workers);

/* For @work: nobody is to begin another item, because of @error (a negative errno). */
void workers_fail(struct workers *workers, int error);

#endif
