/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTSIDE_H
#define CUDAW_OUTSIDE_H
/*
 * Finds things that an image of processes cannot hold, because other processes share them or
 * because they are lost. CRIU names only some of them, with descriptors and inodes, and takes pipes
 * and timers without a message.
 */
#include "tools/process/criu/tree.h"

#include <stdbool.h>

/*
 * True if the processes of @tree have none of these, which @why names else: TCP connections, Unix
 * sockets and pipes to other processes, descriptors sent through a Unix socket and not received
 * yet, GPUs that a child has open, working directories that were removed, other processes in their
 * sessions or process groups, periodic timers that may expire before CRIU has read them. False also if there are more processes than @tree holds,
 * or too little memory. Processes and files that are not visible are not checked.
 */
bool outside_none(const struct tree *tree, char *why, size_t size);

#endif
