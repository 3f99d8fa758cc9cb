/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOST_IMAGE_H
#define CUDAW_HOST_IMAGE_H
/*
 * The process image of a snapshot, host-N: a flat directory of CRIU's files, and host.json, which
 * has their names, sizes and hashes, and is sealed as the manifest is.
 */
#include "checkpoint/snapshot/format.h"

#include <stdbool.h>
#include <stddef.h>

/* Make the directory host-@number in @dir. 0 or a negative errno. */
int host_image_make(int dir, uint32_t number, struct snapshot_error *error);

/* The directory, for reading. A descriptor or a negative errno. */
int host_image_open(int dir, uint32_t number, struct snapshot_error *error);

/*
 * Sync its files and write host.json, with how long CRIU took. The bytes of all files in *@bytes.
 * 0 or a negative errno.
 */
int host_image_seal(int dir, uint32_t number, double ms, size_t *bytes,
		    struct snapshot_error *error);

/*
 * Check that every file is there and of its size; how many there are, the list among them, and
 * their bytes. 0 or a negative errno.
 */
int host_image_size(int dir, uint32_t number, size_t *files, size_t *bytes,
		    struct snapshot_error *error);

/*
 * Check that every file is there and as it was. *@bytes as above. *@cancel, set by another thread,
 * ends it with -ECANCELED; @cancel may be NULL. 0 or a negative errno.
 */
int host_image_check(int dir, uint32_t number, const bool *cancel, size_t *bytes,
		     struct snapshot_error *error);

#endif
