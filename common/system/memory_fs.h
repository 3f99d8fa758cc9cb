/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMORY_FS_H
#define CUDAW_MEMORY_FS_H
/* File systems whose files are memory: what is written there takes as much as it is to spare. */

/*
 * The name of the file system of @path if it is one: tmpfs, ramfs, hugetlbfs, one on a block device of
 * memory (zram, ram), or an overlay whose upper directory is seen to be on one. NULL: it is not, or
 * cannot be looked at.
 */
const char *memory_fs(const char *path);

#endif
