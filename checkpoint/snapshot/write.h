/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_WRITE_H
#define CUDAW_SNAPSHOT_WRITE_H
/*
 * Writing a snapshot: by the job itself, in three steps.
 *
 *	snapshot_begin()	lock the directory, see that the disk has room
 *	snapshot_write()	the chunks, by several threads; then the index; all synced
 *	snapshot_finish()	the manifest, and the commit: the one moment at which the old
 *				snapshot of that directory ends and the new one begins
 *
 * Whoever fails or is killed before that moment leaves the old snapshot, or none, as it was. After
 * it, files that the new manifest does not name are removed.
 *
 * A chunk of zeros is not stored, and chunks with equal contents are stored once. An incremental
 * snapshot does not store what the one it replaces has stored either, wherever that was on the
 * GPU. Equal means: the same 128-bit hash.
 *
 * One thread at a time uses a writer.
 */
#include "checkpoint/snapshot/format.h"

#include <stdbool.h>
#include <stddef.h>

struct snapshot_writer;

/* GPU memory that is to be saved, in host memory or where source.read gets it from. */
struct snapshot_run {
	uint64_t address; /* a multiple of SNAPSHOT_CHUNK, as size is */
	size_t size;
	const char *host; /* aligned to SNAPSHOT_ALIGN; NULL: to be read at @offset */
	uint64_t offset;
	bool nothing; /* as if there were no run */
};

struct snapshot_region {
	uint64_t address; /* as above */
	size_t size;
	int device;
};

/*
 * All that is to be in a snapshot. Regions and runs are in ascending order and do not overlap; a
 * run lies in one region. What no run covers is zeros, unless its digest is that of other
 * contents: then snapshot_has() is to be true of it.
 */
struct snapshot_source {
	const struct snapshot_region *regions;
	size_t nregions;
	const struct snapshot_run *runs;
	size_t nruns;
	int (*read)(void *data, size_t size, uint64_t offset); /* 0 or a negative errno */
	/* Of every chunk of the regions, in order, 0 for zeros; NULL: nobody made any. */
	const struct hash128 *digests;
	/*
	 * Where contents are still coming: return when what a run says of them, and the digest, of
	 * the chunk with this index stand there. 0 or a negative errno. NULL: all is there.
	 */
	int (*wait)(void *arg, size_t chunk);
	void *arg;
};

/* What became of the chunks, in bytes of GPU memory, and what that took on disk. */
struct snapshot_totals {
	size_t bytes;
	size_t zero;
	size_t duplicate; /* equal to others of this snapshot */
	size_t unchanged; /* stored by the snapshot before */
	size_t written;
	size_t stored; /* bytes of the data files that were made for it: compressed, and padded */
};

/*
 * Begin a snapshot in the directory at @path. @incremental: keep what the snapshot there has
 * stored, where it is the one that this process wrote last, or a copy of it; else it is a full one.
 * @codec: how to compress, where that costs no time; SNAPSHOT_RAW: not at all. @bytes: how much GPU
 * memory may have to be written. A disk that surely has too little room for it is refused now, not
 * in the middle: a full snapshot needs @bytes, or, where it is compressed, what they shrink to at
 * the best. What an incremental one needs is not known yet, and not checked. 0 or a negative errno.
 */
int snapshot_begin(const char *path, bool incremental, enum snapshot_codec codec, size_t bytes,
		   struct snapshot_writer **writer, struct snapshot_error *error);

/*
 * Whether an incremental snapshot needs no run for the chunk at @address, whose digest (not 0) is
 * as given: the snapshot before has it. Any thread, from snapshot_begin() to snapshot_finish().
 */
bool snapshot_has(const struct snapshot_writer *writer, uint64_t address, struct hash128 digest);

/*
 * @source stays as it is until snapshot_finish(). @done counts bytes of @source, atomically;
 * *@cancel, set by others, ends it with -ECANCELED. No more than once for each writer.
 */
int snapshot_write(struct snapshot_writer *writer, const struct snapshot_source *source,
		   size_t *done, const bool *cancel, struct snapshot_error *error);

const struct snapshot_totals *snapshot_totals(const struct snapshot_writer *writer);

struct snapshot_facts; /* manifest.h */

/*
 * Write the manifest and make it the directory's. After a failure the snapshot before is there; or,
 * where the directory could not be synced in the end, the new one, and the files of both. @image:
 * leave it as manifest.new, which names host-N with the index's number: whoever puts the process
 * image there commits (snapshot_dir_commit(), snapshot_dir_sync()) and cleans up.
 */
int snapshot_finish(struct snapshot_writer *writer, const struct snapshot_facts *facts, bool image,
		    struct snapshot_error *error);

/* Before that: snapshot_dir_occupy(), where the memory will be in that snapshot alone. */
int snapshot_occupy(struct snapshot_writer *writer, struct snapshot_error *error);

/* The number of the index, and the snapshot's id, of 16 bytes. */
uint32_t snapshot_number(const struct snapshot_writer *writer);
const uint8_t *snapshot_id(const struct snapshot_writer *writer);

/*
 * The directory of a snapshot that is finished, which is the caller's to close, locked so that
 * nobody else has written there meanwhile, or will. A descriptor or a negative errno.
 */
int snapshot_keep(struct snapshot_writer *writer, struct snapshot_error *error);

/* Unlock and free; what is not finished is removed. NULL is nothing. */
void snapshot_end(struct snapshot_writer *writer);

#endif
