/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works in a green context, by a stream of it, on memory that is allocated while the green context is
 * current. Every few steps the green context is destroyed and made anew; the memory stays, except
 * that whose free the stream of the green context orders.
 *
 *	green [--last 1] [--late 1]
 *
 * With --late 1 a green context ends before the work that its stream orders before a free. The driver
 * alone never gives that memory back [H200].
 *
 * With --last 1 there was a green context before that had the last reference to the primary context,
 * which ended with it, and all memory with that.
 */
#include "tests/programs/kernels.h"

#define WORDS    100000
#define LIFE     8 /* steps in one green context */
#define LOST     (300UL << 20)
#define LATE     (64UL << 20)
#define LAUNCHES 50 /* in a step */

static struct kernels gpu;
static unsigned long late, made;
static CUgreenCtx green;
static CUcontext ctx;
static CUstream stream;
static CUdeviceptr words;
static uint32_t found[WORDS];

static void green_new(void)
{
	CUdevResource all, part;
	CUdevResourceDesc desc;
	unsigned int groups = 1;

	CALL(cuDeviceGetDevResource(gpu.dev, &all, CU_DEV_RESOURCE_TYPE_SM));
	CALL(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
	CALL(cuDevResourceGenerateDesc(&desc, &part, 1));
	CALL(cuGreenCtxCreate(&green, desc, gpu.dev, CU_GREEN_CTX_DEFAULT_STREAM));
	CALL(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	/* Its context may be asked for in two ways. */
	if (made++ % 2)
		CALL(cuCtxFromGreenCtx(&ctx, green));
	else
		CALL(cuStreamGetCtx(stream, &ctx));
	CALL(cuCtxSetCurrent(ctx));
}

static void green_end(void)
{
	CALL(cuStreamDestroy(stream));
	CALL(cuCtxSetCurrent(gpu.ctx));
	CALL(cuGreenCtxDestroy(green));
}

static size_t free_memory(void)
{
	size_t free, total;

	CALL(cuMemGetInfo(&free, &total));
	return free;
}

/* The memory goes all the same. */
static void end_with_late_free(void)
{
	size_t before = free_memory(), after;
	CUdeviceptr freed;

	CALL(cuMemAlloc(&freed, LATE));
	CALL(cuMemsetD8Async(freed, 1, LATE, stream));
	CALL(cuMemFreeAsync(freed, stream));
	green_end();
	CALL(cuCtxSynchronize());
	after = free_memory();
	if (after + LATE / 2 < before)
		step_die("%zu bytes stayed when their green context ended", before - after);
}

static void step(void)
{
	uint64_t n = WORDS;
	void *args[] = {&words, &n};
	CUcontext owner, current;
	CUdeviceptr more;

	CALL(cuMemAlloc(&more, 4 << 20));
	CALL(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, more));
	CALL(cuCtxGetCurrent(&current));
	if (owner != gpu.ctx || current != ctx)
		step_die("memory of the green context belongs to another than the primary context");
	CALL(cuMemsetD8Async(more, 1, 4 << 20, stream));
	CALL(cuMemFree(more));
	/* These may still run when a pause comes. */
	for (int i = 0; i < LAUNCHES; i++)
		CALL(cuLaunchKernel(gpu.increment, 64, 1, 1, 256, 1, 1, 0, stream, args, NULL));
}

static void verify(uint32_t value)
{
	CALL(cuCtxSynchronize());
	CALL(cuMemcpyDtoH(found, words, sizeof(found)));
	for (size_t i = 0; i < WORDS; i++)
		if (found[i] != value)
			step_wrong("word %zu is %u, should be %u", i, found[i], value);
}

static void end_with_primary(void)
{
	unsigned int flags;
	int active;

	green_new();
	CALL(cuMemAlloc(&words, LOST));
	CALL(cuDevicePrimaryCtxRelease(gpu.dev));
	CALL(cuDevicePrimaryCtxGetState(gpu.dev, &flags, &active));
	if (!active)
		step_die("the green context did not keep the primary context");
	CALL(cuMemsetD8(words, 1, LOST));
	CALL(cuCtxSynchronize());
	green_end();
	CALL(cuDevicePrimaryCtxGetState(gpu.dev, &flags, &active));
	if (active)
		step_die("the primary context lives on");
	CALL(cuCtxSetCurrent(NULL));
}

int main(int argc, char **argv)
{
	unsigned long last = 0, k;
	const struct step_option options[] = {{"last", &last}, {"late", &late}};

	step_parse(argc, argv, options, 2);
	kernels_init(&gpu);
	if (last) {
		end_with_primary();
		kernels_init(&gpu);
	}
	green_new();
	CALL(cuMemAlloc(&words, WORDS * 4));
	CALL(cuMemsetD32(words, 0, WORDS));
	CALL(cuCtxSynchronize());
	for (k = 0; step_more(k); k++) {
		step();
		if (k % LIFE == LIFE - 1) {
			CALL(cuStreamSynchronize(stream));
			if (late)
				end_with_late_free();
			else
				green_end();
			verify((uint32_t)(k + 1) * LAUNCHES);
			green_new();
		}
		step_done(k);
	}
	CALL(cuStreamSynchronize(stream));
	verify((uint32_t)k * LAUNCHES);
	green_end();
	CALL(cuMemFree(words));
	printf("green: every word right\n");
	return 0;
}
