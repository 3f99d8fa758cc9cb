/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOST_IMAGE_H
#define CUDAW_HOST_IMAGE_H
/*
 * The process image of a snapshot, host-N: a flat directory of CRIU's files, and host.json, which
 * lists their names, sizes and hashes, and ends with a checksum as the manifest does.
 */
#include "checkpoint/snapshot/format.h"
#include "common/json_out.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Make the directory host-@number in @dir. Returns 0 or a negative errno. */
int host_image_make(int dir, uint32_t number, struct snapshot_error *error);

/* Open the directory for reading. Returns a descriptor or a negative errno. */
int host_image_open(int dir, uint32_t number, struct snapshot_error *error);

/*
 * The same; -EPERM unless it belongs to the caller's user. Root must not believe what is in an image of another user,
 * as processes are made from it.
 */
int host_image_open_own(int dir, uint32_t number, struct snapshot_error *error);

/* What the command knows of the processes, as keys of host.json. */
struct host_facts {
	double ms;            /* the time that CRIU took */
	const pid_t *stopped; /* that stay so after a restore */
	size_t nstopped;
	void (*put)(struct json_out *out); /* puts more keys; may be NULL */
};

/*
 * Sync its files and write host.json. *@bytes are the bytes of all files. Returns 0 or a negative
 * errno.
 */
int host_image_seal(int dir, uint32_t number, const struct host_facts *facts, size_t *bytes,
		    struct snapshot_error *error);

/*
 * Read host.json, whose checksum must be right. The caller gives *@root back (json_decref). Returns 0 or a
 * negative errno.
 */
int host_image_facts(int dir, uint32_t number, json_t **root, struct snapshot_error *error);

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
