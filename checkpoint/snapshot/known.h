/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_KNOWN_H
#define CUDAW_SNAPSHOT_KNOWN_H
/*
 * Which contents are stored already: by the snapshot that is being written, or by the one before
 * it in the same directory. A hash table from a chunk's hash to the first chunk that has it.
 *
 * Files are never changed, so what is no longer needed of an old one stays until nothing of it is.
 * A file of which less than half is needed is therefore left behind: its chunks do not count as
 * known and are written anew. So a directory holds at most twice what its snapshot needs. Nor do
 * those of a file that is too short, or was modified after the manifest was written: nobody would
 * find that before the job has given its memory away. What a disk changes by itself is not seen.
 *
 * The caller serialises the calls.
 */
#include "checkpoint/snapshot/read.h"

struct snapshot_known {
	const struct snapshot_index *old;
	struct snapshot_chunk *chunks; /* of the new snapshot */
	size_t nchunks;
	bool *usable;    /* of the old chunks */
	uint32_t *slots; /* 0: empty; else 1 + an old chunk, or 1 + old->nchunks + a new one */
	size_t mask;
	uint32_t *same; /* for each new chunk: 0, or as in slots what it is equal to */
};

enum snapshot_novelty {
	SNAPSHOT_NEW,         /* nobody has stored it: the caller is to */
	SNAPSHOT_SEEN_HERE,   /* equal to another chunk of this snapshot */
	SNAPSHOT_SEEN_BEFORE, /* stored by the snapshot before */
};

/* Begin with what @old, of the directory @dir, has; it may be empty. 0 or -ENOMEM. */
int snapshot_known_init(struct snapshot_known *known, int dir, const struct snapshot_index *old);

/* The chunks of the new snapshot, for what follows but snapshot_known_has(). 0 or -ENOMEM. */
int snapshot_known_plan(struct snapshot_known *known, struct snapshot_chunk *chunks,
			size_t nchunks);

/*
 * The chunk that the snapshot before had at @address with @digest; NULL: none that is to be kept.
 */
const struct snapshot_chunk *snapshot_known_has(const struct snapshot_known *known,
						uint64_t address, struct hash128 digest);

/* Look up chunk @i by its hash; it is known from now on. */
enum snapshot_novelty snapshot_known_add(struct snapshot_known *known, size_t i);

/*
 * Look up chunk @i in the snapshot before, by its address and digest, and take over its hash.
 * SNAPSHOT_NEW where that has nothing of the kind.
 */
enum snapshot_novelty snapshot_known_digest(struct snapshot_known *known, size_t i);

/* When every new chunk is stored: give those that are equal to others their places. */
void snapshot_known_settle(struct snapshot_known *known);

void snapshot_known_free(struct snapshot_known *known);

#endif
