/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_MANIFEST_READ_H
#define CUDAW_SNAPSHOT_MANIFEST_READ_H
/*
 * Reading a snapshot's manifest (FORMAT.md). manifest_write.h writes it. A manifest may be forged:
 * each value is checked for its type and range before it is used, and text is cleaned before it is
 * shown.
 */
#include "checkpoint/snapshot/write.h"
#include "common/gpu/gpu.h"

#include <jansson.h>

struct snapshot_data {
	uint32_t number;
	size_t size;
};

struct snapshot_manifest {
	json_t *root;
	time_t created;
	uint8_t id[16];
	int pid;
	int parts
		[SNAPSHOT_PARTS_MAX]; /* all processes that use CUDA, the one that has the image first */
	size_t nparts;                /* 0: only this one */
	int cuda;
	unsigned int gpus;          /* of the machine; 0: not known */
	char cudaw[32], driver[64]; /* empty: not known */
	struct gpu *devices;
	size_t ndevices;
	size_t held[GPU_MAX]; /* bytes that the driver's restore takes on each */
	struct snapshot_region *regions;
	size_t nregions;
	struct snapshot_data *data;
	size_t ndata;
	uint32_t index;
	bool image; /* host-INDEX has the process image */
	struct hash128 index_hash;
	struct snapshot_totals totals;
};

/*
 * Read and check the manifest in @dir: SNAPSHOT_MANIFEST, or SNAPSHOT_MANIFEST_NEW. Returns 0 or a
 * negative errno (-ENOTSUP: a newer version).
 */
int snapshot_manifest_load(int dir, const char *name, struct snapshot_manifest *manifest,
			   struct snapshot_error *error);
void snapshot_manifest_free(struct snapshot_manifest *manifest);

/* For snapshot_dir_clean(): true if the manifest @arg names that file, process image or directory of parts. */
bool snapshot_manifest_names(const void *arg, enum snapshot_kind kind, uint32_t number);

/* Whether the process @pid is one of manifest->parts. */
bool snapshot_manifest_has_part(const struct snapshot_manifest *manifest, int pid);

/*
 * Decode the string at @key of @object, or @object itself if @key is NULL, into bytes, cut to
 * @size. The first result is for opening files. The second is cleaned for showing. Both return
 * @buf.
 */
const char *snapshot_manifest_bytes(const json_t *object, const char *key, char *buf, size_t size);
const char *snapshot_manifest_text(const json_t *object, const char *key, char *buf, size_t size);

#endif
