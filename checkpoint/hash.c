/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/hash.h"

#include <inttypes.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct hash128 hash_bytes(const void *data, size_t size)
{
	XXH128_hash_t hash = XXH3_128bits(data, size);

	return (struct hash128){.low = hash.low64, .high = hash.high64};
}

void hash_text(struct hash128 hash, char text[HASH_TEXT_SIZE])
{
	snprintf(text, HASH_TEXT_SIZE, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}
