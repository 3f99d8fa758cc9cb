/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_MANIFEST_WRITE_H
#define CUDAW_SNAPSHOT_MANIFEST_WRITE_H
/*
 * Writing a snapshot's manifest: by the job (FORMAT.md describes each key). manifest_read.h reads
 * it.
 */
#include "checkpoint/snapshot/write.h"
#include "common/gpu/gpu.h"

#define MANIFEST_PHASES 16

struct snapshot_context {
	int device;
	bool primary;
};

/* Where the program has mapped a part of an object. */
struct snapshot_mapping {
	uint64_t address;
	size_t size, offset;
};

/* Memory that the program created and mapped by itself. Its bytes are those of a region. */
struct snapshot_object {
	uint64_t address; /* of the region */
	const struct snapshot_mapping *mappings;
	size_t nmappings;
};

/* A completed phase, and the time that it took. */
struct snapshot_phase {
	const char *name; /* a word of lower-case letters */
	double ms;
};

/* The facts that only the caller knows. */
struct snapshot_facts {
	int cuda; /* cuDriverGetVersion() */
	const struct gpu *devices;
	size_t ndevices;
	unsigned int gpus; /* of the machine, at the driver's checkpoint; 0: not known */
	const char (*uuids)[NVML_UUID_SIZE]; /* of these; an empty one is not known */
	/*
	 * Bytes that the driver's restore takes on each device; NULL: the driver took no
	 * checkpoint.
	 */
	const size_t *held;
	const struct snapshot_context *contexts;
	size_t ncontexts;
	const struct snapshot_object *objects;
	size_t nobjects;
	/* All processes of the image that use CUDA; the first one's directory has the image. */
	const int *parts;
	size_t nparts; /* 0: only this one */
	struct snapshot_phase phases[MANIFEST_PHASES];
	size_t nphases;
};

/* The facts that the writer of the snapshot knows. */
struct snapshot_manifest_parts {
	uint8_t id[16];
	const struct snapshot_source *source;
	const struct snapshot_totals *totals;
	uint32_t index;
	bool image;                /* host-INDEX will have the process image */
	struct hash128 index_hash; /* of the whole file */
	const uint32_t *files;     /* the numbers of the data files */
	const size_t *file_sizes;
	size_t nfiles;
};

/* Make the text of the manifest, of *@size bytes. The caller frees it. NULL, and errno. */
char *snapshot_manifest_make(const struct snapshot_manifest_parts *parts,
			     const struct snapshot_facts *facts, size_t *size);

#endif
