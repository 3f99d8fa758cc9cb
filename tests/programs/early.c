/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks for all driver functions before cuInit(), as the CUDA runtime does, and counts up a buffer
 * by them. What is allocated first is freed at once: what a pause takes has another place to come
 * back to. With --fork 1 it forks in between; the child, which names itself "child", does the rest.
 */
#include "tests/programs/kernels.h"

#include <sys/wait.h>
#include <unistd.h>

#define WORDS (1UL << 20)
#define FIRST (24UL << 20)

#define EARLY(X)                    \
	X(cuInit)                   \
	X(cuDeviceGet)              \
	X(cuDevicePrimaryCtxRetain) \
	X(cuCtxSetCurrent)          \
	X(cuStreamSynchronize)      \
	X(cuModuleLoadData)         \
	X(cuModuleGetFunction)      \
	X(cuMemAlloc)               \
	X(cuMemFree)                \
	X(cuMemsetD8)               \
	X(cuMemcpyDtoH)             \
	X(cuLaunchKernel)

#define MEMBER(name) __typeof__(&name) name##_;
static struct {
	EARLY(MEMBER)
} early;

#define GET(name)                                                           \
	CALL(cuGetProcAddress(#name, (void **)&early.name##_, CUDA_VERSION, \
			      CU_GET_PROC_ADDRESS_DEFAULT, NULL));

/* Returns in the child. */
static void go_on_in_child(void)
{
	pid_t child = fork();
	int status = 0;

	if (child) {
		waitpid(child, &status, 0);
		_exit(status != 0);
	}
	setenv("CUDAW_NAME", "child", 1);
}

int main(int argc, char **argv)
{
	unsigned long forks = 0;
	const struct step_option options[] = {{"fork", &forks}};
	static uint32_t words[WORDS];
	uint64_t count = WORDS, step;
	CUfunction increment;
	CUdeviceptr data, first;
	void *args[] = {&data, &count};
	CUmodule module;
	CUcontext ctx;
	CUdevice dev;

	step_parse(argc, argv, options, 1);
	EARLY(GET)
	if (forks)
		go_on_in_child();
	CALL(early.cuInit_(0));
	CALL(early.cuDeviceGet_(&dev, 0));
	CALL(early.cuDevicePrimaryCtxRetain_(&ctx, dev));
	CALL(early.cuCtxSetCurrent_(ctx));
	CALL(early.cuModuleLoadData_(&module, kernels_ptx));
	CALL(early.cuModuleGetFunction_(&increment, module, "increment"));
	CALL(early.cuMemAlloc_(&first, FIRST));
	CALL(early.cuMemAlloc_(&data, sizeof(words)));
	CALL(early.cuMemFree_(first));
	CALL(early.cuMemsetD8_(data, 0, sizeof(words)));
	for (step = 0; step_more(step); step++) {
		CALL(early.cuLaunchKernel_(increment, 64, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
		CALL(early.cuStreamSynchronize_(NULL));
		step_done(step);
	}
	CALL(early.cuMemcpyDtoH_(words, data, sizeof(words)));
	for (size_t i = 0; i < WORDS; i++)
		if (words[i] != step)
			step_wrong("word %zu is %u", i, words[i]);
	printf("every word right\n");
	return 0;
}
