/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_CODEC_H
#define CUDAW_SNAPSHOT_CODEC_H
/*
 * Compressing a chunk and getting it back: LZ4 blocks, and Zstandard frames of level 1. Either
 * takes and gives exactly SNAPSHOT_CHUNK bytes. What is read may be forged: it makes an error at
 * worst.
 */
#include "checkpoint/snapshot/format.h"

/* "none", "lz4" or "zstd": SNAPSHOT_RAW and so on. False, and *@codec as it was: another word. */
bool snapshot_codec_parse(const char *word, enum snapshot_codec *codec);

/* The word for @codec. */
const char *snapshot_codec_name(enum snapshot_codec codec);

/* What one thread needs to compress. All zeros before the first chunk. */
struct snapshot_packer {
	void *lz4;
	struct ZSTD_CCtx_s *zstd;
};

/*
 * Compress @chunk into SNAPSHOT_PACKED_MAX bytes at @to. The bytes taken; 0 where it does not fit,
 * or memory is short.
 */
size_t snapshot_pack(struct snapshot_packer *packer, enum snapshot_codec codec, const void *chunk,
		     void *to);
void snapshot_packer_free(struct snapshot_packer *packer);

/* The same for the way back. */
struct snapshot_unpacker {
	struct ZSTD_DCtx_s *zstd;
};

/*
 * Get the chunk back from the @stored bytes at @data into @chunk. 0; -EBADMSG where it is none,
 * with what is wrong in *@why; or -ENOMEM.
 */
int snapshot_unpack(struct snapshot_unpacker *unpacker, enum snapshot_codec codec, const void *data,
		    size_t stored, void *chunk, const char **why);
void snapshot_unpacker_free(struct snapshot_unpacker *unpacker);

#endif
