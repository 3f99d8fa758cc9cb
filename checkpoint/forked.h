/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FORKED_H
#define CUDAW_FORKED_H
/*
 * The child of a fork has the device files that the driver opened in its parent, and their
 * mappings. It cannot use them: CUDA is not to be had in such a child. But they are in the way of a
 * snapshot, as CRIU can dump no process that has any (PyTorch's data loaders, which fork after the
 * first CUDA call) [H100, driver 580.159].
 */

/*
 * Replace open files and mappings of files whose paths begin with @prefix: by /dev/null, and by
 * private memory that nothing is in. An open file that a program started by the child is to have
 * (not close-on-exec: an exported memory handle, perhaps) stays. Host memory of cuMemHostAlloc() is
 * no mapping of the device files, and stays as well [H100, driver 580.159]. For the child of a
 * fork, in its fork handler: it takes no lock and allocates nothing. What cannot be replaced stays.
 */
void forked_let_go(const char *prefix);

#endif
