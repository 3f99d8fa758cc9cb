/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_IN_USE_H
#define CUDAW_SNAPSHOT_IN_USE_H
/*
 * The file in-use: the process whose GPU memory is only in the directory, and where it runs.
 *
 * The lock of the directory does not protect that memory in two cases: a process whose image is
 * being made cannot keep the lock, and the file system may keep locks from other machines (NFS).
 *
 * A process can only be looked up on its own machine, since its last boot, and in its own PID
 * namespace. Elsewhere it counts as one that may still be there, and the user has to say that it
 * has ended, by removing the file. One exception: if the machine was booted anew since, the process
 * has ended. A machine is known by /etc/machine-id and its host name together, and only outside
 * containers, whose files and names others may have too.
 */
#include "checkpoint/snapshot/format.h"

#include <sys/types.h>

/*
 * See that no process other than @pid, of this machine and PID namespace, may have its memory in
 * the locked directory @dir. A file whose process has ended is removed. Returns 0 or a negative
 * errno.
 */
int snapshot_in_use_check(int dir, pid_t pid, struct snapshot_error *error);

/*
 * Mark a locked directory as the only place of this process's memory. No other process writes there
 * until snapshot_in_use_clear() with this process's id, or its end. Returns 0 or a negative errno.
 */
int snapshot_in_use_set(int dir, struct snapshot_error *error);
void snapshot_in_use_clear(int dir, pid_t pid);

#endif
