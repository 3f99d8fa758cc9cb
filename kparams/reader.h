/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_KPARAMS_READER_H
#define CUDAW_KPARAMS_READER_H
/*
 * A bounded reader of little-endian fields. A read past the end gives zero, and sets `failed`,
 * which stays set: callers read a whole struct and check once.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are copied as they lie");

struct kp_reader {
	const uint8_t *data;
	size_t pos, end;
	bool failed;
};

static inline struct kp_reader kp_reader(const void *data, size_t size)
{
	return (struct kp_reader){.data = data, .end = size};
}

static inline size_t kp_left(const struct kp_reader *r)
{
	return r->end - r->pos;
}

static inline void kp_read(struct kp_reader *r, void *out, size_t n)
{
	if (r->failed || n > kp_left(r)) {
		r->failed = true;
		memset(out, 0, n);
		return;
	}
	memcpy(out, r->data + r->pos, n);
	r->pos += n;
}

static inline uint8_t kp_read_u8(struct kp_reader *r)
{
	uint8_t v;

	kp_read(r, &v, sizeof(v));
	return v;
}

static inline uint16_t kp_read_u16(struct kp_reader *r)
{
	uint16_t v;

	kp_read(r, &v, sizeof(v));
	return v;
}

static inline uint32_t kp_read_u32(struct kp_reader *r)
{
	uint32_t v;

	kp_read(r, &v, sizeof(v));
	return v;
}

static inline void kp_skip(struct kp_reader *r, uint64_t n)
{
	if (r->failed || n > kp_left(r))
		r->failed = true;
	else
		r->pos += n;
}

#endif
