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
 * Call @take with each reason until it returns false: TCP connections, Unix sockets and pipes to other
 * processes, descriptors sent through a Unix socket and not received yet, GPUs that a child has open,
 * working directories that were removed, other processes in their sessions or process groups, periodic
 * timers that may expire before CRIU has read them. One reason also if there are more processes than
 * @tree holds, or too little memory. Processes and files that are not visible are not checked.
 */
void outside_find(const struct tree *tree, bool (*take)(void *arg, const char *why), void *arg);

#endif
