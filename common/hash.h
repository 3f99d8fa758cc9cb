/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HASH_H
#define CUDAW_HASH_H
/*
 * The checksum of snapshots: XXH3, 128 bits (https://xxhash.com). Not a cryptographic one: it tells
 * damaged data from whole data and equal chunks from others, but does not prove who wrote them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash128 {
	uint64_t low, high;
};

#define HASH_TEXT_SIZE 33 /* 32 hexadecimal digits, the high half first, and the zero */

struct hash128 hash_bytes(const void *data, size_t size);

/*
 * The same of the file @fd, of @size bytes, for as long as @go_on(@arg), asked often, is true. 0 or
 * a negative errno: -ECANCELED where it was not, -ENODATA where the file has become shorter.
 */
int hash_file(int fd, size_t size, bool (*go_on)(void *arg), void *arg, struct hash128 *hash);

static inline bool hash_equal(struct hash128 a, struct hash128 b)
{
	return a.low == b.low && a.high == b.high;
}

void hash_text(struct hash128 hash, char text[HASH_TEXT_SIZE]);

#endif
