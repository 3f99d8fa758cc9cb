/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CALLS_H
#define CUDAW_CALLS_H
/*
 * What the parts of calls.c share. A part makes some calls in every step, and reads back what came
 * of them: it copies from a, whose words count up from first, to b, whose bytes are all CLEARED
 * before each part, and finds the result there.
 */
#include "tests/programs/kernels.h"

#define WORDS   4096UL
#define SIZE    (WORDS * sizeof(uint32_t))
#define CLEARED 0xee

/* Left out where the device has not the attribute, or the driver has not all of the calls. */
struct part {
	const char *name;
	CUdevice_attribute attribute; /* or 0 */
	void (*prepare)(void);        /* before the first step; or NULL */
	void (*make)(uint32_t step);
	const char *calls[6];
};

static struct kernels gpu;
static CUstream stream;
static CUdeviceptr a, b;
static uint64_t word_count = WORDS;
static uint32_t first; /* word 0 of a in this step */
static uint32_t host[WORDS];

/* At @at there are @words words that begin with @value and count up by @more. */
static void expect(const char *call, CUdeviceptr at, size_t words, uint32_t value, uint32_t more)
{
	CUresult error = cuCtxSynchronize();

	if (error)
		step_die("calls: %s: error %d", call, error);
	CALL(cuMemcpyDtoH(host, at, words * sizeof(*host)));
	for (size_t i = 0; i < words; i++)
		if (host[i] != (uint32_t)(value + i * more))
			step_wrong("calls: %s: word %zu is %#x, not %#x", call, i, host[i],
				   (uint32_t)(value + i * more));
}

static void clear(void)
{
	CALL(cuMemsetD8(b, CLEARED, SIZE));
	CALL(cuCtxSynchronize());
}

/* The whole of a arrived in b; b is cleared for the next call. */
static void expect_copy(const char *call)
{
	expect(call, b, WORDS, first, 1);
	clear();
}

#endif
