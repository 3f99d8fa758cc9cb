/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that has memory on each of its GPUs, one after the other: --mib N in buffers of --chunk N MiB on each of
 * --gpus N. Each step adds one to the first words of the last buffer of each. At the end every word is checked.
 */
#include "tests/programs/kernels.h"

#include <stdbool.h>

#define GPUS_MAX 16
#define WORDS    1024UL /* that a step changes */

static unsigned long gpus = 2, mib = 64, chunk = 2;

static struct {
	CUcontext ctx;
	CUfunction increment;
	CUdeviceptr *buffers;
} on[GPUS_MAX];

static void begin(unsigned long g)
{
	CUdevice dev;
	CUmodule module;

	CALL(cuDeviceGet(&dev, (int)g));
	CALL(cuDevicePrimaryCtxRetain(&on[g].ctx, dev));
	CALL(cuCtxSetCurrent(on[g].ctx));
	CALL(cuModuleLoadData(&module, kernels_ptx));
	CALL(cuModuleGetFunction(&on[g].increment, module, "increment"));
	on[g].buffers = calloc(mib / chunk, sizeof(*on[g].buffers));
	if (!on[g].buffers)
		step_die("wide: out of memory");
	for (unsigned long b = 0; b < mib / chunk; b++) {
		CALL(cuMemAlloc_v2(&on[g].buffers[b], chunk << 20));
		CALL(cuMemsetD32_v2(on[g].buffers[b], (unsigned int)(g << 16 | b), chunk << 18));
	}
}

static void step(unsigned long g)
{
	uint64_t words = WORDS;
	void *args[] = {&on[g].buffers[mib / chunk - 1], &words};

	CALL(cuCtxSetCurrent(on[g].ctx));
	kernels_launch(on[g].increment, NULL, args);
}

static void check(unsigned long g, unsigned long steps)
{
	uint32_t *host = malloc(chunk << 20);

	if (!host)
		step_die("wide: out of memory");
	CALL(cuCtxSetCurrent(on[g].ctx));
	for (unsigned long b = 0; b < mib / chunk; b++) {
		CALL(cuMemcpyDtoH_v2(host, on[g].buffers[b], chunk << 20));
		for (unsigned long i = 0; i < chunk << 18; i++) {
			bool changed = b == mib / chunk - 1 && i < WORDS;

			if (host[i] != (g << 16 | b) + (changed ? steps : 0))
				step_wrong("wide: word %lu of buffer %lu on GPU %lu is wrong", i, b,
					   g);
		}
	}
	free(host);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"gpus", &gpus}, {"mib", &mib}, {"chunk", &chunk}};
	unsigned long steps;

	step_parse(argc, argv, options, 3);
	if (gpus > GPUS_MAX || !chunk || mib < chunk)
		step_die("wide: at most 16 GPUs, and a buffer on each");
	CALL(cuInit(0));
	for (unsigned long g = 0; g < gpus; g++)
		begin(g);
	for (steps = 0; step_more(steps); steps++) {
		for (unsigned long g = 0; g < gpus; g++)
			step(g);
		for (unsigned long g = 0; g < gpus; g++) {
			CALL(cuCtxSetCurrent(on[g].ctx));
			CALL(cuCtxSynchronize());
		}
		step_done(steps);
	}
	for (unsigned long g = 0; g < gpus; g++)
		check(g, steps);
	printf("wide: %lu steps, every word right\n", steps);
	return 0;
}
