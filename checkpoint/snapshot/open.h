/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_OPEN_H
#define CUDAW_SNAPSHOT_OPEN_H
/* Opening a snapshot to read it: the check that its manifest, its index and its data files agree. */
#include "checkpoint/snapshot/index.h"
#include "checkpoint/snapshot/manifest_read.h"

/*
 * Load the index that the manifest names, and check that the manifest, the index and the data files
 * agree: every byte of every region is there once, and lies in a file of the right size. Only the
 * contents of the chunks remain unchecked (snapshot_read()).
 */
int snapshot_open_index(int dir, const struct snapshot_manifest *manifest,
			struct snapshot_index *index, struct snapshot_error *error);

/* A snapshot that is open, locked and checked, except the contents of its chunks. */
struct snapshot {
	const char *path;
	int dir;
	struct snapshot_manifest manifest;
	struct snapshot_index index;
};

/*
 * Open the snapshot in the directory @dir, which is open, with a lock, from @path. Returns 0; or a negative errno
 * (-ENOTSUP: a newer version) with @error set, and @dir is closed.
 */
int snapshot_open(const char *path, int dir, struct snapshot *snapshot,
		  struct snapshot_error *error);
void snapshot_close(struct snapshot *snapshot);

/* The bytes of the index and of the data files. */
size_t snapshot_memory_bytes(const struct snapshot *snapshot);

#endif
