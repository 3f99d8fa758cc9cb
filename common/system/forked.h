/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FORKED_H
#define CUDAW_FORKED_H
/*
 * The child of a fork inherits the device files that the driver opened in its parent, and their
 * mappings. It cannot use them, since CUDA does not work in such a child. But they prevent a
 * snapshot: CRIU cannot dump a process that has any (PyTorch's data loaders, which fork after the
 * first CUDA call) [H100, driver 580.159]. The same holds for files of a snapshot and of the
 * runtime directory that this library has open at the fork: on the machine where the job goes on,
 * these files differ or do not exist.
 *
 * A fork can come at any moment. So a child does not rely on a list of open files, but on their
 * paths: a path is watched before any file there is opened. One thread at a time calls the
 * functions that watch.
 */

/*
 * Watch files whose paths begin with @prefix, for the life of the process. At most FORKED_PREFIXES.
 */
#define FORKED_PREFIXES 3
void forked_watch(const char *prefix);

/*
 * Watch the directory at @path and the files of a snapshot in it, until two other directories have
 * been watched since. forked_leave_directory() ends that: nothing of ours is there any more.
 */
void forked_watch_directory(const char *path);
void forked_leave_directory(const char *path);

/*
 * Replace open files that are watched by /dev/null, and mappings of them by empty private memory.
 * An open file without close-on-exec stays, since a program that the child starts may need it (for
 * example an exported memory handle). Host memory of cuMemHostAlloc() is not a mapping of the
 * device files, and stays as well [H100, driver 580.159]. For the fork handler of a child: takes no
 * lock and allocates nothing. A file that cannot be replaced stays.
 */
void forked_let_go(void);

#endif
