/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OPENED_H
#define CUDAW_OPENED_H
/* Snapshots that the user named: the errors of checkpoint/snapshot/ as messages and exit codes. */
#include "checkpoint/snapshot/open.h"

#include <jansson.h>
#include <limits.h>

/* The memory of a process that uses CUDA. */
struct opened_part {
	struct snapshot snapshot;
	char path[PATH_MAX + SNAPSHOT_PART_SIZE + 1];
};

struct opened {
	struct opened_part *parts; /* the first one has the process image, if there is one */
	size_t n;
	json_t *facts; /* host.json, if there are several parts; else NULL */
};

/* Print why the snapshot at @path is refused. Returns the exit code. */
int opened_refuse(const char *path, int code, const struct snapshot_error *error);

/*
 * snapshot_open() of all parts of the snapshot at @path, which is shorter than PATH_MAX, with a message on failure. They
 * must be those that it was made with. Returns an exit code. The caller calls opened_close() in any case.
 */
int opened_open(const char *path, struct opened *opened);
void opened_close(struct opened *opened);

/*
 * What all parts need together, as of one process: each GPU once, with the memory of all, in whole->manifest's devices,
 * held, regions, gpus, totals, image, driver, cuda and root. In @devices, for each device of each part, its index there. Returns an
 * exit code. In any case the caller frees the devices and regions.
 */
int opened_unite(const struct opened *opened, struct snapshot *whole, int devices[][GPU_MAX]);

/* Of all parts, bytes of GPU memory. */
size_t opened_bytes(const struct opened *opened);

#endif
