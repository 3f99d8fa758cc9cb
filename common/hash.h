/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HASH_H
#define CUDAW_HASH_H
/*
 * The checksum of snapshots: XXH3, 128 bits (https://xxhash.com). It is not cryptographic: it finds
 * damage and equal chunks, but does not prove who wrote them.
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
 * Hash the first @size bytes of the file @fd. @go_on(@arg) is called often, and false ends the work
 * with -ECANCELED. Returns 0 or a negative errno, -ENODATA if the file is shorter.
 */
int hash_file(int fd, size_t size, bool (*go_on)(void *arg), void *arg, struct hash128 *hash);

static inline bool hash_equal(struct hash128 a, struct hash128 b)
{
	return a.low == b.low && a.high == b.high;
}

void hash_text(struct hash128 hash, char text[HASH_TEXT_SIZE]);

#endif
