/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OPENED_H
#define CUDAW_OPENED_H
/* Snapshots that the user named: the errors of checkpoint/snapshot/ as messages and exit codes. */
#include "checkpoint/snapshot/open.h"

/* Print why the snapshot at @path is refused. Returns the exit code. */
int opened_refuse(const char *path, int code, const struct snapshot_error *error);

/* snapshot_open() with a message on failure. Returns an exit code. */
int opened_open(const char *path, struct snapshot *snapshot);

#endif
