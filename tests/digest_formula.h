/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DIGEST_FORMULA_H
#define CUDAW_DIGEST_FORMULA_H
/* The digest of a granule in host memory, by the formula in checkpoint/digest.h. */
#include "checkpoint/digest.h"

static inline struct digest digest_formula(const void *granule)
{
	const uint64_t *words = granule;
	struct digest d = {0};

	for (uint64_t i = 0; i < VMEM_GRANULE / sizeof(*words); i++) {
		uint64_t v = (words[i] ^ i * DIGEST_K1) * DIGEST_K2;

		v ^= v >> 32;
		d.any |= words[i];
		d.sum += v;
		d.mix += (v << 29 | v >> 35) * DIGEST_K3;
	}
	return d;
}

#endif
