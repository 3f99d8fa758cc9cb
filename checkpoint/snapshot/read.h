/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_READ_H
#define CUDAW_SNAPSHOT_READ_H
/*
 * Reading the chunks of a snapshot: by the command, and by the process that goes on from it.
 *
 * No chunk is used before its hash is checked. Failures name the file, the expected and the found
 * value. -EBADMSG: the snapshot is damaged or forged.
 */
#include "checkpoint/snapshot/index.h"

/* Memory that is to become a job's (fetch_filled()) has a multiple of this size. */
#define SNAPSHOT_BLOCK (16UL << 20)

struct snapshot_read {
	int dir;
	const struct snapshot_index *index;
	/*
	 * Called once for each chunk, by several threads, in any order, with its checked 2 MiB;
	 * @data is NULL for zeros. Returns 0, or a negative errno with @error filled in. NULL:
	 * chunks are only read and checked.
	 */
	int (*take)(void *arg, const struct snapshot_chunk *chunk, const void *data,
		    struct snapshot_error *error);
	void *arg;
	/*
	 * Where the contents stay, checked or not: 2 MiB for each place of the index, in that order;
	 * aligned for direct I/O. NULL: in buffers, for take() alone. If the machine has no host memory for what
	 * is left, *@full is set, and the rest is in buffers.
	 */
	char *into;
	bool *full;         /* with @into */
	size_t *done;       /* bytes of chunks done, added to atomically; may be NULL */
	const bool *cancel; /* set by other threads: stop; may be NULL */
};

/*
 * Read all chunks, past the page cache if the file system can do that. Returns 0 or a negative
 * errno.
 */
int snapshot_read(const struct snapshot_read *what, struct snapshot_error *error);

#endif
