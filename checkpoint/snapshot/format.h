/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_FORMAT_H
#define CUDAW_SNAPSHOT_FORMAT_H
/*
 * The contents of a snapshot directory; FORMAT.md has the details.
 *
 *	DIR/manifest.json	describes the snapshot; its rename into place makes the snapshot
 *	DIR/index-N		the place of each chunk of GPU memory: the structs below
 *	DIR/data-N		chunks
 *	DIR/host-N/		the process image, if there is one
 *	DIR/parts-N/PID/	such a directory of each further process of the image that uses CUDA
 *	DIR/in-use		the process whose memory is only there (in_use.h)
 *
 * Numbers are little-endian. N is decimal and never used twice in a directory, so that a file is
 * written only once: the files that the old manifest names stay complete until the new manifest has
 * replaced it. No path is read from a snapshot: file names are made from their numbers.
 */
#include "common/hash.h"

#include <stddef.h>
#include <stdint.h>

#define SNAPSHOT_FORMAT       "cudaw snapshot"
#define SNAPSHOT_VERSION      4 /* of a manifest of several processes that use CUDA */
#define SNAPSHOT_IMAGE        3 /* of one with a process image */
#define SNAPSHOT_OBJECTS      2 /* of one with objects alone */
#define SNAPSHOT_PLAIN        1 /* of one with neither, and of every index */
#define SNAPSHOT_MANIFEST     "manifest.json"
#define SNAPSHOT_MANIFEST_NEW "manifest.new"
#define SNAPSHOT_IN_USE       "in-use"
#define SNAPSHOT_MANIFEST_MAX (64UL << 20) /* bytes */
#define SNAPSHOT_MAGIC        "CUDAWIX"    /* and its zero: the first 8 bytes of an index */

#define SNAPSHOT_CHUNK      (2UL << 20) /* bytes of GPU memory, and their alignment */
#define SNAPSHOT_ALIGN      4096UL      /* of chunks in data files, for direct I/O */
#define SNAPSHOT_CHUNKS_MAX (1UL << 23) /* 16 TiB of GPU memory */
#define SNAPSHOT_NUMBER_MAX 999999999U
#define SNAPSHOT_PARTS_MAX  64 /* processes that use CUDA */
#define SNAPSHOT_NAME_SIZE  16 /* "index-" and nine digits */

/* How a chunk is stored; the values are the format's. */
enum snapshot_codec { SNAPSHOT_ZERO, SNAPSHOT_RAW, SNAPSHOT_LZ4, SNAPSHOT_ZSTD };

/* The largest compressed chunk: at least one page smaller than the chunk itself. */
#define SNAPSHOT_PACKED_MAX (SNAPSHOT_CHUNK - SNAPSHOT_ALIGN)

/* The bytes in a data file: the next chunk begins at a multiple of SNAPSHOT_ALIGN. */
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

/* In ascending order of address. Equal chunks have the same place. */
struct snapshot_chunk {
	uint64_t address; /* on the GPU, a multiple of SNAPSHOT_CHUNK */
	uint64_t offset;  /* in data-FILE, a multiple of SNAPSHOT_ALIGN */
	uint32_t file;
	uint32_t stored; /* bytes there, without padding; file, offset and stored are 0 for zeros */
	uint32_t codec;
	uint32_t reserved;
	struct hash128 hash;   /* of the 2 MiB */
	struct hash128 digest; /* of the same, made on the GPU (digest.h); 0 if none was made */
};

_Static_assert(sizeof(struct snapshot_header) == 64, "the format's");
_Static_assert(sizeof(struct snapshot_chunk) == 64, "the format's");

enum snapshot_kind { SNAPSHOT_DATA, SNAPSHOT_INDEX, SNAPSHOT_HOST, SNAPSHOT_PARTS };

/* Write the name of the file or directory of that kind and number. */
void snapshot_name(enum snapshot_kind kind, uint32_t number, char name[SNAPSHOT_NAME_SIZE]);

/* The directory of the process @pid in parts-@number, without a slash before it. */
#define SNAPSHOT_PART_SIZE (SNAPSHOT_NAME_SIZE + 12)
void snapshot_part_name(uint32_t number, int pid, char name[SNAPSHOT_PART_SIZE]);

/* The reverse of snapshot_name(). False if @name is not exactly a name that snapshot_name() makes. */
bool snapshot_parse_name(const char *name, enum snapshot_kind *kind, uint32_t *number);

/*
 * The end of every manifest: the hash of all bytes before it. Writes SNAPSHOT_SEAL_SIZE characters
 * and a zero.
 */
#define SNAPSHOT_SEAL_SIZE 51
void snapshot_seal(const char *text, size_t size, char seal[SNAPSHOT_SEAL_SIZE + 1]);

/* True if @text, of @size bytes and a zero, ends with its seal. */
bool snapshot_is_sealed(const char *text, size_t size);

/*
 * The reason of a failure, for people: the file in the directory, the expected and the found value.
 * The code that shows it puts the directory before it.
 */
struct snapshot_error {
	char text[512];
};

/* Write the reason to @error, and return @code. */
int snapshot_fail(struct snapshot_error *error, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
