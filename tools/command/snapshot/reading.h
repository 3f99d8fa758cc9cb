/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_READING_H
#define CUDAW_READING_H
/*
 * Reading all GPU memory of a snapshot and comparing it with its checksums, by threads, while the caller does
 * something else.
 */
#include "checkpoint/snapshot/open.h"
#include "checkpoint/snapshot/read.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct reading {
	const struct snapshot *snapshot;
	int memory; /* a memory file with the contents, as snapshot_read.into has them; -1: none */
	size_t size;
	struct snapshot_read what;
	struct snapshot_error error;
	pthread_t thread;
	bool apart, cancel; /* by @thread; which is to stop */
	bool full;          /* there was not host memory for all: @memory is -1 then */
	size_t done;        /* bytes */
	int result;
	double ms; /* that it took */
};

/*
 * Begin. With @keep the contents stay in a memory file, if the machine has host memory for it and for @beside
 * bytes, and still has while it is read.
 */
void reading_begin(struct reading *reading, const struct snapshot *snapshot, bool keep,
		   size_t beside);

/* Wait for it, with a progress line for @path, or stop it if criu_is_interrupted(). 0 or a negative errno, with reading->error. */
int reading_end(struct reading *reading, const char *path);

/* Stop it, and close the memory file. Also after reading_end(). */
void reading_drop(struct reading *reading);

#endif
