/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_FORMAT_H
#define CUDAW_SNAPSHOT_FORMAT_H
/*
 * What a snapshot directory holds; FORMAT.md has the whole of it.
 *
 *	DIR/manifest.json	what the snapshot is; renaming it into place makes the snapshot
 *	DIR/index-N		where each chunk of GPU memory lies: the structs below
 *	DIR/data-N		chunks
 *	DIR/host-N/		the process image, where there is one
 *	DIR/in-use		who has its memory there alone, and no lock
 *
 * Numbers are little-endian. N is decimal and never used twice in a directory, so that a file,
 * once written, is never written again: what the old manifest names stays whole until the new one
 * has replaced it. No path comes from a snapshot: names are made of their numbers.
 */
#include "common/hash.h"

#include <stddef.h>
#include <stdint.h>

#define SNAPSHOT_FORMAT       "cudaw snapshot"
#define SNAPSHOT_VERSION      1
#define SNAPSHOT_MANIFEST     "manifest.json"
#define SNAPSHOT_MANIFEST_NEW "manifest.new"
#define SNAPSHOT_IN_USE       "in-use"
#define SNAPSHOT_MANIFEST_MAX (64UL << 20) /* bytes */
#define SNAPSHOT_MAGIC        "CUDAWIX"    /* with its zero the 8 bytes that an index begins with */

#define SNAPSHOT_CHUNK      (2UL << 20) /* bytes of GPU memory, aligned to as much */
#define SNAPSHOT_ALIGN      4096UL      /* of chunks in data files, for direct I/O */
#define SNAPSHOT_CHUNKS_MAX (1UL << 23) /* 16 TiB of GPU memory */
#define SNAPSHOT_NUMBER_MAX 999999999U
#define SNAPSHOT_NAME_SIZE  16 /* "index-" and nine digits */

/* How a chunk is stored; the values are the format's. */
enum snapshot_codec { SNAPSHOT_ZERO, SNAPSHOT_RAW, SNAPSHOT_LZ4, SNAPSHOT_ZSTD };

/* The most that a compressed chunk takes: at least one page less than as it is. */
#define SNAPSHOT_PACKED_MAX (SNAPSHOT_CHUNK - SNAPSHOT_ALIGN)

/* Bytes of data files, where the next chunk begins at a multiple of SNAPSHOT_ALIGN. */
static inline size_t snapshot_padded(size_t stored)
{
	return (stored + SNAPSHOT_ALIGN - 1) & -SNAPSHOT_ALIGN;
}

struct snapshot_header {
	char magic[8];
	uint32_t version;
	uint32_t chunk_size;
	uint64_t nchunks;
	uint8_t id[16];          /* the snapshot's; the manifest has it too */
	struct hash128 checksum; /* of the whole file, with zeros in this place */
	uint64_t reserved;
};

/* In ascending order of address. Equal chunks name the same place. */
struct snapshot_chunk {
	uint64_t address; /* on the GPU, a multiple of SNAPSHOT_CHUNK */
	uint64_t offset;  /* in data-FILE, a multiple of SNAPSHOT_ALIGN */
	uint32_t file;
	uint32_t stored; /* bytes there, without padding; of zeros: file, offset and this are 0 */
	uint32_t codec;
	uint32_t reserved;
	struct hash128 hash;   /* of the 2 MiB */
	struct hash128 digest; /* of the same, made on the GPU (digest.h); 0 where it was not */
};

_Static_assert(sizeof(struct snapshot_header) == 64, "the format's");
_Static_assert(sizeof(struct snapshot_chunk) == 64, "the format's");

enum snapshot_kind { SNAPSHOT_DATA, SNAPSHOT_INDEX, SNAPSHOT_HOST };

/* The name of the file or directory of that kind and number. */
void snapshot_name(enum snapshot_kind kind, uint32_t number, char name[SNAPSHOT_NAME_SIZE]);

/* The reverse. False where @name is not exactly what snapshot_name() makes. */
bool snapshot_parse_name(const char *name, enum snapshot_kind *kind, uint32_t *number);

/*
 * The end of every manifest: the hash of all bytes before it. Writes SNAPSHOT_SEAL_SIZE characters
 * and a zero.
 */
#define SNAPSHOT_SEAL_SIZE 51
void snapshot_seal(const char *text, size_t size, char seal[SNAPSHOT_SEAL_SIZE + 1]);

/*
 * Why something failed, for people: the file in the directory, what was expected and what was
 * found. Whoever shows it puts the directory before it.
 */
struct snapshot_error {
	char text[512];
};

/* Say why in @error, and return @code. */
int snapshot_fail(struct snapshot_error *error, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
