/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_KNOWN_H
#define CUDAW_SNAPSHOT_KNOWN_H
/*
 * The contents that are already stored, by the snapshot being written or by the previous one in the
 * same directory. A hash table leads from a chunk's hash to the first chunk with that hash.
 *
 * Files are never changed, so unneeded parts of an old file stay as long as any part of it is
 * needed. A file of which less than half is needed is therefore dropped: its chunks do not count as
 * known, and are written again. So a directory has at most twice the bytes that its snapshot needs.
 * The chunks of a file that is too short, or was modified after the manifest was written, do not
 * count as known either: otherwise the damage would show only after the job has given up its
 * memory. Changes by the disk itself are not seen.
 *
 * The caller serialises the calls.
 */
#include "checkpoint/snapshot/index.h"

struct snapshot_known {
	const struct snapshot_index *old;
	struct snapshot_chunk *chunks; /* of the new snapshot */
	size_t nchunks;
	bool *usable;    /* of the old chunks */
	uint32_t *slots; /* 0: empty; otherwise 1 + an old chunk, or 1 + old->nchunks + a new one */
	size_t mask;
	uint32_t *same; /* for each new chunk: 0, or its equal, as in slots */
};

enum snapshot_novelty {
	SNAPSHOT_NEW,         /* not stored: the caller stores it */
	SNAPSHOT_SEEN_HERE,   /* equal to another chunk of this snapshot */
	SNAPSHOT_SEEN_BEFORE, /* stored by the previous snapshot */
};

/* Begin with the contents of @old, in the directory @dir; it may be empty. Returns 0 or -ENOMEM. */
int snapshot_known_init(struct snapshot_known *known, int dir, const struct snapshot_index *old);

/*
 * Set the chunks of the new snapshot, which all functions below need except snapshot_known_has().
 * Returns 0 or -ENOMEM.
 */
int snapshot_known_plan(struct snapshot_known *known, struct snapshot_chunk *chunks,
			size_t nchunks);

/* The chunk of the previous snapshot at @address with @digest; NULL if there is none to keep. */
const struct snapshot_chunk *snapshot_known_has(const struct snapshot_known *known,
						uint64_t address, struct hash128 digest);

/* Look up chunk @i by its hash, and make it known. */
enum snapshot_novelty snapshot_known_add(struct snapshot_known *known, size_t i);

/*
 * Look up chunk @i in the previous snapshot, by its address and digest, and take over its hash.
 * SNAPSHOT_NEW if there is no such chunk.
 */
enum snapshot_novelty snapshot_known_digest(struct snapshot_known *known, size_t i);

/* When every new chunk is stored: set the places of chunks that are equal to others. */
void snapshot_known_settle(struct snapshot_known *known);

void snapshot_known_free(struct snapshot_known *known);

#endif
