/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOST_IMAGE_H
#define CUDAW_HOST_IMAGE_H
/*
 * The process image of a snapshot, host-N: a flat directory of CRIU's files, and host.json, which
 * lists their names, sizes and hashes, and ends with a checksum as the manifest does.
 */
#include "checkpoint/snapshot/format.h"

#include <stdbool.h>
#include <stddef.h>

/* Make the directory host-@number in @dir. Returns 0 or a negative errno. */
int host_image_make(int dir, uint32_t number, struct snapshot_error *error);

/* Open the directory for reading. Returns a descriptor or a negative errno. */
int host_image_open(int dir, uint32_t number, struct snapshot_error *error);

/*
 * Sync its files and write host.json, with the time that CRIU took. *@bytes are the bytes of all
 * files. Returns 0 or a negative errno.
 */
int host_image_seal(int dir, uint32_t number, double ms, size_t *bytes,
		    struct snapshot_error *error);

/*
 * Check that every file exists and has its size. *@files and *@bytes count all files, host.json
 * included. Returns 0 or a negative errno.
 */
int host_image_size(int dir, uint32_t number, size_t *files, size_t *bytes,
		    struct snapshot_error *error);

/*
 * Check that every file exists and is unchanged. *@bytes are the bytes of all files but host.json.
 * *@cancel, set by another thread, ends it with -ECANCELED; @cancel may be NULL. Returns 0 or a
 * negative errno.
 */
int host_image_check(int dir, uint32_t number, const bool *cancel, size_t *bytes,
		     struct snapshot_error *error);

#endif
