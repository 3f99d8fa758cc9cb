/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DIGEST_H
#define CUDAW_DIGEST_H
/*
 * A digest of each granule (2 MiB) of GPU memory, taken by the GPU itself: whether it is all zeros,
 * and 128 bits that tell changed contents from unchanged ones. Only the digests cross the bus. They
 * guard against errors, not against an attacker who wants two contents to look alike.
 *
 * With w[i] the 64-bit words of the granule, i from 0, all arithmetic modulo 2^64 and
 *
 *	v = w[i] ^ i * DIGEST_K1;  v ^= v >> 32
 *	v *= DIGEST_K2;  v ^= v >> 32;  v *= DIGEST_K3;  v ^= v >> 29
 *	any = OR of w[i];  sum = sum of v;  mix = sum of (v mod 2^32) * (v >> 32)
 *
 * v is a bijection of w[i], so one changed word always changes sum. Similar changes of several
 * words, as of numbers that change their sign, must not cancel out in the sums. So there are two
 * rounds, after which every bit of v depends on all bits of w[i] and i
 * (tests/unit/checkpoint/test_digest.c). The order in which words are added does not matter, so any
 * number of threads may share the work.
 */
#include "vmem/cuda_driver.h"
#include "vmem/vmem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_K1 0x9e3779b97f4a7c15UL
#define DIGEST_K2 0xd6e8feb86659fd93UL
#define DIGEST_K3 0xa0761d6478bd642fUL

struct digest {
	uint64_t any, sum, mix;
};

/* The kernel in one context. */
struct digest_kernel {
	CUcontext ctx;
	CUmodule module;
	CUfunction function;
};

/*
 * Load the kernel into @ctx, which must be current; the driver compiles it for the device. Returns
 * the driver's error, with nothing loaded.
 */
CUresult digest_load(const struct cuda_driver *drv, CUcontext ctx, struct digest_kernel *kernel);

/* Undo digest_load(). Its context must be current, and the kernel not running. */
void digest_unload(const struct cuda_driver *drv, const struct digest_kernel *kernel);

/*
 * Put the digests of @granules granules from @start, which is aligned to them, into @digests: host
 * memory that the device may write (registered, with UVA). They are complete when @stream is done.
 */
CUresult digest_take(const struct cuda_driver *drv, const struct digest_kernel *kernel,
		     CUdeviceptr start, size_t granules, struct digest *digests, CUstream stream);

static inline bool digest_is_zero(const struct digest *digest)
{
	return !digest->any;
}

static inline bool digest_equal(const struct digest *a, const struct digest *b)
{
	return a->sum == b->sum && a->mix == b->mix;
}

#endif
