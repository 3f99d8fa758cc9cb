/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FETCH_H
#define CUDAW_FETCH_H
/*
 * A snapshot of what a pause took off the GPU (saved.h): where it is, and fetching it back into
 * host memory. saving.h writes it. For the engine's thread; no driver call is made.
 */
#include "common/system/ownfd.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine_progress;
struct saved;
struct snapshot_error;

/*
 * Where a snapshot of ours is. While there is a @dir the directory is locked, so that nobody writes
 * another snapshot over data that this process has nowhere else. A process image must not have the
 * directory open: a restore would open it at the same path.
 */
struct fetch_place {
	char path[PATH_MAX];
	struct ownfd dir;
	uint32_t index;
	uint8_t id[16];
};

/* Lock the directory. 0 or a negative errno. */
int fetch_place_lock(struct fetch_place *place, struct snapshot_error *error);

/*
 * The directory is at @path now: lock it there. 0 or a negative errno; then nothing is changed.
 * -ESTALE if that directory has another snapshot, the error of snapshot_index_load() if it has
 * none.
 */
int fetch_place_move(struct fetch_place *place, const char *path, struct snapshot_error *error);
void fetch_place_unlock(struct fetch_place *place);

/*
 * Read every chunk back into the slot that its granule had, for which there is room again
 * (saved_place()). The directory is locked (fetch_place_lock()), and stays locked. 0 or a
 * negative errno: -ESTALE if the directory has another snapshot; -ECANCELED if @progress is cancelled, or if its
 * pact gives up or seeks again.
 */
int fetch_saved(const struct saved *saved, const struct fetch_place *place,
		struct engine_progress *progress, struct snapshot_error *error);

/*
 * The same without reading: another process has read and checked the chunks, and put those of each place where
 * snapshot_read.into has them, in the memory file @fd, which has whole blocks (SNAPSHOT_BLOCK). It becomes the
 * host memory of this process, and the granules get their slots there. After an error nothing is changed.
 */
int fetch_filled(struct saved *saved, const struct fetch_place *place, int fd,
		 struct snapshot_error *error);

#endif
