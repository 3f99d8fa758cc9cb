/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_INDEX_H
#define CUDAW_SNAPSHOT_INDEX_H
/*
 * Reading the index of a snapshot: by the command, which also reads the manifest, and by the
 * process that goes on from the snapshot, which has the rest in its own memory.
 *
 * Nothing is used before it is checked: sizes before memory is allocated for them, the index by its
 * checksum and then entry by entry. Failures name the file, the expected and the found value.
 * -EBADMSG: the snapshot is damaged or forged; -ENOTSUP: it is newer than this cudaw.
 */
#include "checkpoint/snapshot/format.h"

#include <stddef.h>
#include <stdint.h>

struct snapshot_index {
	struct snapshot_header header;
	struct hash128 file_hash; /* of the whole file; the manifest has it too */
	struct snapshot_chunk *chunks;
	size_t nchunks;
	/* Indices of all chunks with data, by their place on disk; equal chunks are neighbours. */
	uint32_t *order;
	size_t norder;
	/* For each place on disk, the first of its chunks in @order; and the end of @order. */
	uint32_t *places;
	size_t nplaces;
};

/*
 * Read and check index-@number. Returns 0 or a negative errno. The caller frees @index after a
 * success.
 */
int snapshot_index_load(int dir, uint32_t number, struct snapshot_index *index,
			struct snapshot_error *error);
void snapshot_index_free(struct snapshot_index *index);

#endif
