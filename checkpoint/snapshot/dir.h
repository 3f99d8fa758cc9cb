/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_DIR_H
#define CUDAW_SNAPSHOT_DIR_H
/*
 * The snapshot's directory as a directory: opening, locking, what is in it, and the commit.
 *
 * A lock (flock(2)) on the directory keeps a writer from readers and other writers; it ends with
 * its process, however that ends. What an interrupted writer left has no manifest that names it;
 * the next writer removes it.
 */
#include "checkpoint/snapshot/format.h"

#include <dirent.h>
#include <sys/types.h>

/*
 * Check that lines (protocol.h) can name a snapshot at @path beside @more bytes, as of GPUs: that
 * it is absolute, without control characters, and not too long. 0 or a negative errno.
 */
int snapshot_dir_check_path(const char *path, size_t more, struct snapshot_error *error);

/*
 * Open the directory at @path to read, with a shared lock. Returns a descriptor for
 * snapshot_dir_close() or a negative errno.
 */
int snapshot_dir_open(const char *path, struct snapshot_error *error);

/*
 * Open the directory at @path to write, with an exclusive lock. It is made where it is not there,
 * and closed to others (0700). A directory with anything in it that is no snapshot's is refused, as
 * is one that is not @owner's, or that another process than @pid occupies, or is of one which is
 * stopped, and so may have its memory there.
 */
int snapshot_dir_create(const char *path, uid_t owner, pid_t pid, struct snapshot_error *error);

/* From now on the lock of @dir is a shared one. 0 or a negative errno; then there is none. */
int snapshot_dir_share(int dir, struct snapshot_error *error);

/*
 * Of a directory that is locked: this process has its memory there and nowhere else, so that no
 * other one writes there until snapshot_dir_vacate() with its id, or its end, though it has no
 * lock. Seen by processes of the same PID namespace. 0 or a negative errno.
 */
int snapshot_dir_occupy(int dir, struct snapshot_error *error);
void snapshot_dir_vacate(int dir, pid_t pid);

void snapshot_dir_close(int dir);

/* The first of @count numbers that no file here has. 0 or -EOVERFLOW. */
int snapshot_dir_numbers(int dir, uint32_t count, uint32_t *first, struct snapshot_error *error);

/*
 * Make manifest.new, which is written and synced, the manifest. 0 or a negative errno; then the
 * manifest is as it was.
 */
int snapshot_dir_commit(int dir, struct snapshot_error *error);

/*
 * See that the manifest there is safe on disk. 0 or a negative errno: after a crash the directory
 * may have that manifest, or the one before, so that nothing which either names may be removed.
 */
int snapshot_dir_sync(int dir, struct snapshot_error *error);

/* The entries of a directory from its beginning; to be closed. NULL with errno on failure. */
DIR *snapshot_dir_list(int dir);

/* Remove all files of a directory. */
void snapshot_dir_empty(int dir);

/* Remove every file and process image but those of which @wanted(arg, kind, number) is true. */
void snapshot_dir_clean(int dir,
			bool (*wanted)(const void *arg, enum snapshot_kind kind, uint32_t number),
			const void *arg);

#endif
