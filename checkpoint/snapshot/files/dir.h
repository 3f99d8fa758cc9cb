/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_DIR_H
#define CUDAW_SNAPSHOT_DIR_H
/*
 * The snapshot's directory: opening, locking, listing its files, and the commit.
 *
 * A lock (flock(2)) on the directory excludes a writer from readers and other writers. It ends with
 * its process, however that ends. No manifest names the files that an interrupted writer left; the
 * next writer removes them.
 */
#include "checkpoint/snapshot/format.h"

#include <dirent.h>
#include <sys/types.h>

/*
 * Check that a line of the protocol (protocol.h) has room for @path beside @more bytes, e.g. of
 * GPUs: that the path is absolute, without control characters, and not too long. Returns 0 or a
 * negative errno.
 */
int snapshot_dir_check_path(const char *path, size_t more, struct snapshot_error *error);

/*
 * Open the directory at @path to read, with a shared lock. Returns a descriptor for
 * snapshot_dir_close(), or a negative errno.
 */
int snapshot_dir_open(const char *path, struct snapshot_error *error);

/*
 * Open the directory at @path to write, with an exclusive lock. It is made if it does not exist,
 * and closed to others (0700). A directory is refused if it has files that do not belong to a
 * snapshot; if @owner does not own it; if a process other than @pid may use it (in_use.h); or if it
 * is the snapshot of a stopped process, which may have its memory there.
 */
int snapshot_dir_create(const char *path, uid_t owner, pid_t pid, struct snapshot_error *error);

/*
 * Open the directory of the part of process @pid, in the first part's of snapshot @index, which is open as @first: to
 * read, with a shared lock; or to write, as snapshot_dir_create() does. It is not made, and no link is followed: the
 * user may have put one there.
 */
int snapshot_dir_open_part(int first, uint32_t index, int pid, struct snapshot_error *error);
int snapshot_dir_take_part(int first, uint32_t index, int pid, uid_t owner,
			   struct snapshot_error *error);

/*
 * Make the directory at @path, of a part of an incremental snapshot, with the files of the last directory of that part
 * there that @is_base, by hard links: files never change. What cannot be made is not there, and will be written.
 */
void snapshot_dir_inherit(const char *path, bool (*is_base)(int dir));

/* Make the lock of @dir a shared one. Returns 0 or a negative errno; then there is no lock. */
int snapshot_dir_share(int dir, struct snapshot_error *error);

void snapshot_dir_close(int dir);

/*
 * Find @count successive numbers that no file here has; the first is *@first. Returns 0 or
 * -EOVERFLOW.
 */
int snapshot_dir_numbers(int dir, uint32_t count, uint32_t *first, struct snapshot_error *error);

/*
 * Rename manifest.new, which is written and synced, to the manifest. Returns 0 or a negative errno;
 * then the manifest is as it was.
 */
int snapshot_dir_commit(int dir, struct snapshot_error *error);

/*
 * Sync the directory. Returns 0, and the manifest is safe on disk; or a negative errno: after a
 * crash the directory may have that manifest or the previous one, so files that either names must
 * stay.
 */
int snapshot_dir_sync(int dir, struct snapshot_error *error);

/*
 * The entries of a directory from its beginning. The caller closes it. NULL with errno on failure.
 */
DIR *snapshot_dir_list(int dir);

/* Remove all files of a directory. */
void snapshot_dir_empty(int dir);

/*
 * Remove every file, process image and part, except those for which @wanted(arg, kind, number) is true, parts that a
 * process may have its memory in (in_use.h), and directories that are none of these whatever their names say.
 */
void snapshot_dir_clean(int dir,
			bool (*wanted)(const void *arg, enum snapshot_kind kind, uint32_t number),
			const void *arg);

#endif
