/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives its primary context up and takes it again while a kernel runs in another context. A line on
 * stdin leads to each step: the first to the end of the primary context and its next life, by
 * --reset 1 or by a release; the second to the end of the kernel; the third to a look at what lives
 * in the new context.
 *
 * With --shared 1 the kernel runs in the primary context, of which the program has two references:
 * it gives one up while the kernel runs, and the other one at the end, before a last line.
 */
#include "tests/programs/kernels.h"

#define WORDS (1UL << 20)

/* In the current context. */
static void spin(uint32_t **flag)
{
	CUfunction kernel;
	CUmodule module;
	CUdeviceptr ptr;
	void *args[] = {&ptr};

	CALL(cuModuleLoadData(&module, kernels_ptx));
	CALL(cuModuleGetFunction(&kernel, module, "spin_until"));
	CALL(cuMemHostAlloc((void **)flag, sizeof(**flag), CU_MEMHOSTALLOC_DEVICEMAP));
	**flag = 0;
	CALL(cuMemHostGetDevicePointer_v2(&ptr, *flag, 0));
	CALL(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
}

static void shared(struct kernels *kernels)
{
	uint32_t *flag;

	CALL(cuDevicePrimaryCtxRetain(&kernels->ctx, kernels->dev));
	spin(&flag);
	step_wait_line("spinning");
	CALL(cuDevicePrimaryCtxRelease_v2(kernels->dev));
	step_wait_line("released");
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	CALL(cuCtxSynchronize());
	step_wait_line("the kernel ended");
	CALL(cuDevicePrimaryCtxRelease_v2(kernels->dev));
	step_wait_line("ended");
	printf("primary_again: right\n");
}

int main(int argc, char **argv)
{
	unsigned long reset = 0, is_shared = 0;
	const struct step_option options[] = {{"reset", &reset}, {"shared", &is_shared}};
	struct kernels kernels;
	CUcontext other;
	CUdeviceptr data;
	uint32_t *flag, word;

	step_parse(argc, argv, options, 2);
	kernels_init(&kernels);
	if (is_shared) {
		shared(&kernels);
		return 0;
	}
	CALL(cuMemAlloc_v2(&data, WORDS * sizeof(uint32_t)));
	CALL(cuCtxCreate_v4(&other, NULL, 0, kernels.dev));
	spin(&flag);
	step_wait_line("spinning");
	if (reset)
		CALL(cuDevicePrimaryCtxReset_v2(kernels.dev));
	else
		CALL(cuDevicePrimaryCtxRelease_v2(kernels.dev));
	CALL(cuDevicePrimaryCtxRetain(&kernels.ctx, kernels.dev));
	CALL(cuCtxSetCurrent(kernels.ctx));
	CALL(cuMemAlloc_v2(&data, WORDS * sizeof(uint32_t)));
	CALL(cuMemsetD32_v2(data, 7, WORDS));
	step_wait_line("again");
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	CALL(cuCtxSetCurrent(other));
	CALL(cuCtxSynchronize());
	step_wait_line("the kernel ended");
	CALL(cuCtxSetCurrent(kernels.ctx));
	CALL(cuMemcpyDtoH_v2(&word, data + (WORDS - 1) * sizeof(word), sizeof(word)));
	if (word != 7)
		step_wrong("primary_again: reads %u, should be 7", word);
	CALL(cuMemFree_v2(data));
	CALL(cuCtxDestroy_v2(other));
	printf("primary_again: right\n");
	return 0;
}
