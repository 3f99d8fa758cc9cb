/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/files/codec.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define ZSTD_LEVEL 1

static const char *const names[] = {
	[SNAPSHOT_ZERO] = "zeros",
	[SNAPSHOT_RAW] = "none",
	[SNAPSHOT_LZ4] = "lz4",
	[SNAPSHOT_ZSTD] = "zstd",
};

bool snapshot_codec_parse(const char *word, enum snapshot_codec *codec)
{
	for (enum snapshot_codec c = SNAPSHOT_RAW; c <= SNAPSHOT_ZSTD; c++)
		if (!strcmp(word, names[c])) {
			*codec = c;
			return true;
		}
	return false;
}

const char *snapshot_codec_name(enum snapshot_codec codec)
{
	return names[codec];
}

static size_t pack_lz4(struct snapshot_packer *p, const void *chunk, void *to)
{
	if (!p->lz4)
		p->lz4 = malloc(LZ4_sizeofState());
	if (!p->lz4)
		return 0;
	return LZ4_compress_fast_extState(p->lz4, chunk, to, SNAPSHOT_CHUNK, SNAPSHOT_PACKED_MAX,
					  1);
}

static size_t pack_zstd(struct snapshot_packer *p, const void *chunk, void *to)
{
	size_t n;

	if (!p->zstd)
		p->zstd = ZSTD_createCCtx();
	if (!p->zstd)
		return 0;
	n = ZSTD_compressCCtx(p->zstd, to, SNAPSHOT_PACKED_MAX, chunk, SNAPSHOT_CHUNK, ZSTD_LEVEL);
	return ZSTD_isError(n) ? 0 : n;
}

size_t snapshot_pack(struct snapshot_packer *p, enum snapshot_codec codec, const void *chunk,
		     void *to)
{
	return codec == SNAPSHOT_LZ4 ? pack_lz4(p, chunk, to) : pack_zstd(p, chunk, to);
}

void snapshot_packer_free(struct snapshot_packer *p)
{
	free(p->lz4);
	ZSTD_freeCCtx(p->zstd);
	memset(p, 0, sizeof(*p));
}

static int unpack_lz4(const void *data, size_t stored, void *chunk, const char **why)
{
	*why = "it is not an LZ4 block of 2 MiB";
	return LZ4_decompress_safe(data, chunk, stored, SNAPSHOT_CHUNK) == (int)SNAPSHOT_CHUNK
		       ? 0
		       : -EBADMSG;
}

static int unpack_zstd(struct snapshot_unpacker *u, const void *data, size_t stored, void *chunk,
		       const char **why)
{
	size_t n;

	if (!u->zstd)
		u->zstd = ZSTD_createDCtx();
	if (!u->zstd)
		return -ENOMEM;
	n = ZSTD_decompressDCtx(u->zstd, chunk, SNAPSHOT_CHUNK, data, stored);
	if (n == SNAPSHOT_CHUNK)
		return 0;
	*why = ZSTD_isError(n) ? ZSTD_getErrorName(n) : "it is not a Zstandard frame of 2 MiB";
	return -EBADMSG;
}

int snapshot_unpack(struct snapshot_unpacker *u, enum snapshot_codec codec, const void *data,
		    size_t stored, void *chunk, const char **why)
{
	return codec == SNAPSHOT_LZ4 ? unpack_lz4(data, stored, chunk, why)
				     : unpack_zstd(u, data, stored, chunk, why);
}

void snapshot_unpacker_free(struct snapshot_unpacker *u)
{
	ZSTD_freeDCtx(u->zstd);
	u->zstd = NULL;
}
