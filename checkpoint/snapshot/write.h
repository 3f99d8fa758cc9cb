/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_WRITE_H
#define CUDAW_SNAPSHOT_WRITE_H
/*
 * Writing a snapshot: by the job itself, in three steps.
 *
 *	snapshot_begin()	lock the directory, check that the disk has room
 *	snapshot_write()	write the chunks, by several threads, then the index; sync all
 *	snapshot_finish()	write the manifest, and commit: the one moment at which the old
 *				snapshot of that directory ends and the new one begins
 *
 * A writer that fails or is killed before that moment leaves the old snapshot, or none, as it was.
 * After it, the writer removes files that the new manifest does not name.
 *
 * A chunk of zeros is not stored, and chunks with equal contents are stored once. An incremental
 * snapshot does not store again the contents that the snapshot it replaces has stored, at any GPU
 * address. Equal means: the same 128-bit hash.
 *
 * One thread at a time uses a writer.
 */
#include "checkpoint/snapshot/format.h"

#include <stdbool.h>
#include <stddef.h>

struct snapshot_writer;

/* GPU memory to save, in host memory or to be read by source.read. */
struct snapshot_run {
	uint64_t address; /* a multiple of SNAPSHOT_CHUNK, as size is */
	size_t size;
	const char *host; /* aligned to SNAPSHOT_ALIGN; NULL: source.read reads it at @offset */
	uint64_t offset;
	bool nothing; /* as if there were no run */
};

struct snapshot_region {
	uint64_t address; /* as above */
	size_t size;
	int device;
};

/*
 * The contents of a snapshot. Regions and runs are in ascending order and do not overlap; a run
 * lies in one region. Memory that no run covers is zeros, unless its digest is that of other
 * contents: then snapshot_has() must be true for it.
 */
struct snapshot_source {
	const struct snapshot_region *regions;
	size_t nregions;
	const struct snapshot_run *runs;
	size_t nruns;
	int (*read)(void *data, size_t size, uint64_t offset); /* 0 or a negative errno */
	/* Of every chunk of the regions, in order, 0 for zeros; NULL: there are none. */
	const struct hash128 *digests;
	/*
	 * If the contents are still being copied: return when the run and the digest of the chunk
	 * with this index are valid. Returns 0 or a negative errno. NULL: all contents are there.
	 */
	int (*wait)(void *arg, size_t chunk);
	void *arg;
};

/* The bytes of GPU memory by the way that their chunks were stored, and the bytes on disk. */
struct snapshot_totals {
	size_t bytes;
	size_t zero;
	size_t duplicate; /* equal to others of this snapshot */
	size_t unchanged; /* stored by the previous snapshot */
	size_t written;
	size_t stored; /* bytes of the data files made for it: compressed and padded */
};

/*
 * Make the directory at @path, of a part of an incremental snapshot, with what snapshot_begin() can keep of that part
 * of another snapshot beside it (snapshot_dir_inherit()).
 */
void snapshot_inherit(const char *path);

/*
 * Begin a snapshot in the directory at @path. @incremental: keep the contents that the snapshot
 * there has stored, if it is the last one that this process wrote, or a copy of it; otherwise write
 * a full snapshot. @codec: how to compress if that costs no time; SNAPSHOT_RAW: not at all. @bytes:
 * how much GPU memory may have to be written. A disk that certainly has too little room is refused
 * now, not in the middle: a full snapshot needs @bytes or, if it is compressed, at least their
 * smallest compressed size. The need of an incremental one is not known yet, and not checked.
 * Returns 0 or a negative errno.
 */
int snapshot_begin(const char *path, bool incremental, enum snapshot_codec codec, size_t bytes,
		   struct snapshot_writer **writer, struct snapshot_error *error);

/*
 * True if an incremental snapshot needs no run for the chunk at @address with @digest (not 0),
 * since the previous snapshot has it. Any thread, from snapshot_begin() to snapshot_finish().
 */
bool snapshot_has(const struct snapshot_writer *writer, uint64_t address, struct hash128 digest);

/*
 * @source must not change until snapshot_finish(). @done counts bytes of @source, atomically;
 * *@cancel, set by another thread, ends it with -ECANCELED. At most once for each writer.
 */
int snapshot_write(struct snapshot_writer *writer, const struct snapshot_source *source,
		   size_t *done, const bool *cancel, struct snapshot_error *error);

const struct snapshot_totals *snapshot_totals(const struct snapshot_writer *writer);

struct snapshot_facts; /* manifest_write.h */

/*
 * Write the manifest and make it the directory's. After a failure the previous snapshot is there;
 * or, if only the final sync of the directory failed, the new one, and the files of both; and
 * snapshot_occupy() is undone. @image: leave it as manifest.new, which names host-N with the index's
 * number: the process that puts the process image there commits (snapshot_dir_commit(),
 * snapshot_dir_sync()) and cleans up.
 */
int snapshot_finish(struct snapshot_writer *writer, const struct snapshot_facts *facts, bool image,
		    struct snapshot_error *error);

/*
 * Before snapshot_finish(): call snapshot_in_use_set(), if the memory will be only in that snapshot.
 */
int snapshot_occupy(struct snapshot_writer *writer, struct snapshot_error *error);

/* The number of the index, and the snapshot's id, of 16 bytes. */
uint32_t snapshot_number(const struct snapshot_writer *writer);
const uint8_t *snapshot_id(const struct snapshot_writer *writer);

/*
 * Take over the directory of a finished snapshot, with a lock that has excluded other writers
 * since, and still does. Returns a descriptor, which the caller closes, or a negative errno: then
 * snapshot_occupy() is undone.
 */
int snapshot_keep(struct snapshot_writer *writer, struct snapshot_error *error);

/* Unlock and free; removes the files of an unfinished snapshot. @writer may be NULL. */
void snapshot_end(struct snapshot_writer *writer);

#endif
