/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PIECE (1UL << 20)

struct hash128 hash_bytes(const void *data, size_t size)
{
	XXH128_hash_t hash = XXH3_128bits(data, size);

	return (struct hash128){.low = hash.low64, .high = hash.high64};
}

int hash_file(int fd, size_t size, bool (*go_on)(void *arg), void *arg, struct hash128 *hash)
{
	char *piece = malloc(PIECE);
	int ret = piece ? 0 : -ENOMEM;
	XXH3_state_t state;
	XXH128_hash_t result;
	ssize_t n;

	XXH3_128bits_reset(&state);
	for (size_t at = 0; at < size && !ret; at += n) {
		n = pread(fd, piece, size - at < PIECE ? size - at : PIECE, at);
		if (n > 0)
			XXH3_128bits_update(&state, piece, n);
		else
			ret = n ? -errno : -ENODATA;
		if (!ret && !go_on(arg))
			ret = -ECANCELED;
	}
	result = XXH3_128bits_digest(&state);
	*hash = (struct hash128){.low = result.low64, .high = result.high64};
	free(piece);
	return ret;
}

void hash_text(struct hash128 hash, char text[HASH_TEXT_SIZE])
{
	snprintf(text, HASH_TEXT_SIZE, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}
