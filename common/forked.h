/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FORKED_H
#define CUDAW_FORKED_H
/*
 * The child of a fork has the device files that the driver opened in its parent, and their
 * mappings. It cannot use them: CUDA is not to be had in such a child. But they are in the way of a
 * snapshot, as CRIU can dump no process that has any (PyTorch's data loaders, which fork after the
 * first CUDA call) [H100, driver 580.159]. So are files of a snapshot, and of the runtime
 * directory, that this library had open just then: where the job goes on they are others, or not
 * there.
 *
 * A fork may come at any moment, so a child does not go by what was open, but by where files are:
 * what is watched is said before any of it is opened. One thread at a time says it.
 */

/* Watch files whose paths begin with @prefix, for good. No more than FORKED_PREFIXES. */
#define FORKED_PREFIXES 3
void forked_watch(const char *prefix);

/*
 * Watch the directory at @path, and open files of a snapshot in it, until two others have been
 * watched since; or no longer, as nothing of ours is there.
 */
void forked_watch_directory(const char *path);
void forked_leave_directory(const char *path);

/*
 * Replace open files that are watched, and mappings of them: by /dev/null, and by private memory
 * that nothing is in. An open file that a program started by the child is to have
 * (not close-on-exec: an exported memory handle, perhaps) stays. Host memory of cuMemHostAlloc() is
 * no mapping of the device files, and stays as well [H100, driver 580.159]. For the child of a
 * fork, in its fork handler: it takes no lock and allocates nothing. What cannot be replaced stays.
 */
void forked_let_go(void);

#endif
