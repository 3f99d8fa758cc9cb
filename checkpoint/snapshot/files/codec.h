/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_CODEC_H
#define CUDAW_SNAPSHOT_CODEC_H
/*
 * Compressing and decompressing a chunk: LZ4 blocks, and Zstandard frames of level 1. A chunk is
 * always SNAPSHOT_CHUNK bytes. Stored data may be forged: the worst result is an error.
 */
#include "checkpoint/snapshot/format.h"

/*
 * Parse "none" (SNAPSHOT_RAW), "lz4" or "zstd". Another word gives false and leaves *@codec as it
 * was.
 */
bool snapshot_codec_parse(const char *word, enum snapshot_codec *codec);

/* The word for @codec. */
const char *snapshot_codec_name(enum snapshot_codec codec);

/* The state of one thread that compresses. All zeros before the first chunk. */
struct snapshot_packer {
	void *lz4;
	struct ZSTD_CCtx_s *zstd;
};

/*
 * Compress @chunk into SNAPSHOT_PACKED_MAX bytes at @to. Returns the bytes used; 0 if it does not
 * fit, or memory is short.
 */
size_t snapshot_pack(struct snapshot_packer *packer, enum snapshot_codec codec, const void *chunk,
		     void *to);
void snapshot_packer_free(struct snapshot_packer *packer);

/* The state of one thread that decompresses. All zeros before the first chunk. */
struct snapshot_unpacker {
	struct ZSTD_DCtx_s *zstd;
};

/*
 * Decompress the @stored bytes at @data into @chunk. Returns 0; -EBADMSG if they are not a chunk,
 * with the fault in *@why; or -ENOMEM.
 */
int snapshot_unpack(struct snapshot_unpacker *unpacker, enum snapshot_codec codec, const void *data,
		    size_t stored, void *chunk, const char **why);
void snapshot_unpacker_free(struct snapshot_unpacker *unpacker);

#endif
