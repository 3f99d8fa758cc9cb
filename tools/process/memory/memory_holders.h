/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMORY_HOLDERS_H
#define CUDAW_MEMORY_HOLDERS_H
/* Who has files in memory (memory_files.h) open or mapped, of all processes that /proc shows. */
#include "tools/process/memory/memory_files.h"

/* The one of this device and inode, or NULL. No file has the device 0. */
struct memory_file *memory_holders_file(const struct memory_files *files, dev_t dev, ino_t ino);

/*
 * Set the holder of each of the files: a process outside of @tree (NULL: of any), other than this one, that has it open,
 * or mapped in any way. Returns the first file that somebody has, or NULL.
 */
const struct memory_file *memory_holders_find(const struct memory_files *files,
					      const struct tree *tree);

#endif
