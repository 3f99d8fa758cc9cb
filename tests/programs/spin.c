/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that does not end, on one stream, while steps go on on another: what a pause cannot
 * wait for. SIGINT lets the kernel end, by a flag in mapped host memory that it polls.
 */
#include "tests/programs/kernels.h"

#define WORDS 4096

static void work(CUdeviceptr data, uint32_t value, CUstream stream)
{
	uint32_t word;

	CALL(cuMemsetD32Async(data, value, WORDS, stream));
	CALL(cuMemcpyDtoHAsync_v2(&word, data + (WORDS - 1) * sizeof(word), sizeof(word), stream));
	CALL(cuStreamSynchronize(stream));
	if (word != value)
		step_wrong("spin: reads %u, should be %u", word, value);
}

int main(int argc, char **argv)
{
	struct kernels kernels;
	CUstream spinning, working;
	CUdeviceptr flag_ptr, data;
	uint32_t *flag;
	unsigned long k;
	void *args[] = {&flag_ptr};

	step_parse(argc, argv, NULL, 0);
	kernels_init(&kernels);
	CALL(cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
	CALL(cuMemHostGetDevicePointer_v2(&flag_ptr, flag, 0));
	CALL(cuMemAlloc_v2(&data, WORDS * sizeof(uint32_t)));
	CALL(cuStreamCreate(&spinning, CU_STREAM_NON_BLOCKING));
	CALL(cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
	/* What the driver loads at first use it loads now: later it might wait for the kernel. */
	work(data, UINT32_MAX, working);
	CALL(cuLaunchKernel(kernels.spin_until, 1, 1, 1, 1, 1, 1, 0, spinning, args, NULL));
	printf("spinning\n");
	for (k = 0; step_more(k); k++) {
		work(data, (uint32_t)k, working);
		step_done(k);
	}
	if (cuStreamQuery(spinning) != CUDA_ERROR_NOT_READY)
		step_die("spin: the kernel ended by itself");
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	CALL(cuStreamSynchronize(spinning));
	printf("spin: the kernel ended\n");
	return 0;
}
