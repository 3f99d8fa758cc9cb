/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_READ_H
#define CUDAW_SNAPSHOT_READ_H
/*
 * Reading the index and the chunks of a snapshot: by the command, which also reads the manifest,
 * and by the process that goes on from it, which has what else it needs in its own memory.
 *
 * Nothing is believed before it is checked: sizes before memory is taken for them, the index by
 * its checksum and then entry by entry, each chunk by its hash before anybody sees it. Failures
 * name the file, what was expected and what was found. -EBADMSG: the snapshot is damaged or
 * forged; -ENOTSUP: it is newer than this cudaw.
 */
#include "checkpoint/snapshot/format.h"

struct snapshot_index {
	struct snapshot_header header;
	struct hash128 file_hash; /* of the whole file; the manifest has it too */
	struct snapshot_chunk *chunks;
	size_t nchunks;
	/* Indices of all chunks with data, by their place on disk; equal chunks are neighbours. */
	uint32_t *order;
	size_t norder;
};

/* Read and check index-@number. 0 or a negative errno; @index is to be freed after a success. */
int snapshot_index_load(int dir, uint32_t number, struct snapshot_index *index,
			struct snapshot_error *error);
void snapshot_index_free(struct snapshot_index *index);

struct snapshot_read {
	int dir;
	const struct snapshot_index *index;
	/*
	 * Called once for each chunk, by several threads, in any order, with its 2 MiB, which have
	 * been checked; @data is NULL for zeros. 0 or a negative errno, with @error filled in.
	 * NULL: chunks are read and checked, no more.
	 */
	int (*take)(void *arg, const struct snapshot_chunk *chunk, const void *data,
		    struct snapshot_error *error);
	void *arg;
	size_t *done;       /* bytes of chunks taken, added to atomically; may be NULL */
	const bool *cancel; /* set by others: stop; may be NULL */
};

/* Read all chunks, past the page cache where the file system can. 0 or a negative errno. */
int snapshot_read(const struct snapshot_read *what, struct snapshot_error *error);

#endif
