/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DIGEST_FORMULA_H
#define CUDAW_DIGEST_FORMULA_H
/* The digest of a granule in host memory, by the formula in checkpoint/engine/digest.h. */
#include "checkpoint/engine/digest.h"

/* Add the word @w, of the index @i. */
static inline void digest_add(struct digest *d, uint64_t i, uint64_t w)
{
	uint64_t v = w ^ i * DIGEST_K1;

	v ^= v >> 32;
	v *= DIGEST_K2;
	v ^= v >> 32;
	v *= DIGEST_K3;
	v ^= v >> 29;
	d->any |= w;
	d->sum += v;
	d->mix += (v & 0xffffffff) * (v >> 32);
}

static inline struct digest digest_formula(const void *granule)
{
	const uint64_t *words = granule;
	struct digest d = {0};

	for (uint64_t i = 0; i < VMEM_GRANULE / sizeof(*words); i++)
		digest_add(&d, i, words[i]);
	return d;
}

#endif
