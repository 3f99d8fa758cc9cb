/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that writes past the end of an allocation, for tools that check memory:
 *
 *	overrun [--bytes N] [--past N]
 *
 * It increments all words of N bytes, and those in so many bytes behind them.
 */
#include "tests/programs/kernels.h"

int main(int argc, char **argv)
{
	unsigned long bytes = 1000, past = 4;
	const struct step_option options[] = {{"bytes", &bytes}, {"past", &past}};
	struct kernels gpu;
	CUdeviceptr ptr;
	uint64_t words;
	void *args[] = {&ptr, &words};

	step_parse(argc, argv, options, 2);
	kernels_init(&gpu);
	CALL(cuMemAlloc(&ptr, bytes));
	CALL(cuMemsetD8(ptr, 0, bytes));
	words = (bytes + past) / sizeof(uint32_t);
	kernels_launch(gpu.increment, NULL, args);
	printf("synchronising: %d\n", cuCtxSynchronize());
	return 0;
}
