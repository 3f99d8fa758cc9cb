/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/hash.h"

#include <inttypes.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PIECE (16UL << 20) /* some milliseconds, from a disk */

struct hash128 hash_bytes(const void *data, size_t size)
{
	XXH128_hash_t hash = XXH3_128bits(data, size);

	return (struct hash128){.low = hash.low64, .high = hash.high64};
}

bool hash_bytes_while(const void *data, size_t size, bool (*go_on)(void *arg), void *arg,
		      struct hash128 *hash)
{
	XXH3_state_t state;
	XXH128_hash_t result;

	XXH3_128bits_reset(&state);
	for (size_t at = 0; at < size; at += PIECE) {
		if (!go_on(arg))
			return false;
		XXH3_128bits_update(&state, (const char *)data + at,
				    size - at < PIECE ? size - at : PIECE);
	}
	result = XXH3_128bits_digest(&state);
	*hash = (struct hash128){.low = result.low64, .high = result.high64};
	return true;
}

void hash_text(struct hash128 hash, char text[HASH_TEXT_SIZE])
{
	snprintf(text, HASH_TEXT_SIZE, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}
