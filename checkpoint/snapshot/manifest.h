/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MANIFEST_H
#define CUDAW_MANIFEST_H
/*
 * The manifest of a snapshot, as the job writes it (FORMAT.md says what each key is). The command
 * reads it: checkpoint/snapshot/manifest_read.h.
 */
#include "checkpoint/snapshot/write.h"
#include "common/gpu.h"

#define MANIFEST_PHASES 16

struct snapshot_context {
	int device;
	bool primary;
};

/* A phase that is over, and how long it took. */
struct snapshot_phase {
	const char *name; /* a word of lower-case letters */
	double ms;
};

/* What only the one who asks for the snapshot knows. */
struct snapshot_facts {
	int cuda; /* cuDriverGetVersion() */
	const struct gpu *devices;
	size_t ndevices;
	unsigned int gpus; /* of the machine, when the driver took its checkpoint; 0: not known */
	/* Bytes on each device that the driver's restore takes; NULL: it took no checkpoint. */
	const size_t *held;
	const struct snapshot_context *contexts;
	size_t ncontexts;
	struct snapshot_phase phases[MANIFEST_PHASES];
	size_t nphases;
};

/* What the writer knows. */
struct manifest_parts {
	uint8_t id[16];
	const struct snapshot_source *source;
	const struct snapshot_totals *totals;
	uint32_t index;
	bool image;                /* host-INDEX will have the process image */
	struct hash128 index_hash; /* of the whole file */
	const uint32_t *files;     /* the numbers of the data files, and their sizes */
	const size_t *file_sizes;
	size_t nfiles;
};

/* The text of the manifest, of *@size bytes, to be freed. NULL: out of memory. */
char *manifest_text(const struct manifest_parts *parts, const struct snapshot_facts *facts,
		    size_t *size);

#endif
