/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OPENED_H
#define CUDAW_OPENED_H
/* Snapshots that the user named: the errors of checkpoint/snapshot/ as messages and exit codes. */
#include "checkpoint/snapshot/open.h"

/* Say that something is wrong with the snapshot at @path. Returns the exit code. */
int opened_refuse(const char *path, int code, const struct snapshot_error *error);

/* snapshot_open(), or a message. Returns an exit code. */
int opened_open(const char *path, struct snapshot *snapshot);

#endif
