/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTSIDE_H
#define CUDAW_OUTSIDE_H
/*
 * What processes share with others outside of them, or have lost, and so cannot be carried in an
 * image of them: CRIU names only some of it, with descriptors and inodes, and takes pipes without a
 * word.
 */
#include "tools/process/tree.h"

#include <stdbool.h>

/*
 * True where the processes of @tree have nothing of the kind; else @why says what: connections by
 * TCP, Unix sockets and pipes to other processes, descriptors under way in a Unix socket, GPUs that
 * a child has open, working directories that were removed; or more processes than @tree holds, or
 * too little memory to look. What cannot be looked at is not found.
 */
bool outside_none(const struct tree *tree, char *why, size_t size);

#endif
