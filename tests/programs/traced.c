/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of many kinds, in an order and with numbers that a trace can be compared with: allocations,
 * sets, copies, launches by every way that parameters can be given, a captured graph, modules that
 * come and go. --shapes 1: copies and sets of two dimensions too.
 */
#include "tests/programs/kernels.h"

#define WORDS  (UINT64_C(1) << 18)
#define BYTES  (WORDS * sizeof(uint32_t))
#define PITCH  4096
#define WIDTH  100
#define HEIGHT 10

static unsigned long shapes;
static uint32_t host[WORDS];

static void sets_and_copies(CUdeviceptr a, CUdeviceptr b, CUstream stream)
{
	CALL(cuMemsetD8_v2(a, 1, 1000));
	CALL(cuMemsetD16_v2(a, 2, 1000));
	CALL(cuMemsetD32Async(a, 3, WORDS, stream));
	CALL(cuMemcpyDtoDAsync_v2(b + 1024, a, 4096, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemcpy((CUdeviceptr)(uintptr_t)host, b, 2048));
	CALL(cuMemcpy(b, (CUdeviceptr)(uintptr_t)host, 512));
	CALL(cuMemcpyHtoDAsync_v2(a, host, BYTES, stream));
	CALL(cuStreamSynchronize(stream));
}

static void two_dimensions(CUdeviceptr a)
{
	const CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = a,
		.srcPitch = PITCH,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = host,
		.dstPitch = WIDTH,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT,
	};

	CALL(cuMemsetD2D8_v2(a, PITCH, 7, WIDTH, HEIGHT));
	CALL(cuMemcpy2D_v2(&copy));
}

/* The same kernel by a list of parameters, by a packed buffer, as a library's, and by a graph. */
static void launches(CUfunction increment, CUdeviceptr data, CUstream stream)
{
	uint64_t words = WORDS;
	struct {
		CUdeviceptr data;
		uint64_t words;
	} packed = {data + 256, WORDS - 64};
	size_t size = sizeof(packed);
	void *args[] = {&data, &words};
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
			 &size, CU_LAUNCH_PARAM_END};
	CUlaunchConfig config = {8, 1, 1, 32, 2, 1, 0, stream, NULL, 0};
	CUgraphExec exec;
	CUlibrary library;
	CUkernel kernel;
	CUgraph graph;

	CALL(cuLaunchKernel(increment, 8, 2, 1, 64, 1, 1, 0, stream, args, NULL));
	if (!cuLaunchKernel(increment, 8, 2, 1, 0, 1, 1, 0, stream, args, NULL))
		step_die("a launch without threads did not fail");
	CALL(cuLaunchKernelEx(&config, increment, NULL, extra));
	CALL(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
	CALL(cuLibraryGetKernel(&kernel, library, "increment"));
	CALL(cuLaunchKernelEx(&config, (CUfunction)kernel, args, NULL));
	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CALL(cuLaunchKernelEx(&config, (CUfunction)kernel, args, NULL));
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CALL(cuGraphLaunch(exec, stream));
	CALL(cuGraphLaunch(exec, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuGraphExecDestroy(exec));
	CALL(cuGraphDestroy(graph));
	CALL(cuLibraryUnload(library));
}

/* The driver may give out the same handle for another kernel of the same module, loaded anew. */
static void reload(struct kernels *kernels, CUdeviceptr data)
{
	uint64_t words = WORDS;
	uint32_t seed = 9;
	void *args[] = {&data, &words, &seed};

	CALL(cuModuleUnload(kernels->module));
	CALL(cuModuleLoadData(&kernels->module, kernels_ptx));
	CALL(cuModuleGetFunction(&kernels->iota, kernels->module, "iota"));
	kernels_launch(kernels->iota, NULL, args);
	CALL(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"shapes", &shapes}};
	struct kernels kernels;
	CUdeviceptr a, b, c;
	CUstream stream;
	size_t pitch;

	step_parse(argc, argv, options, 1);
	kernels_init(&kernels);
	CALL(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CALL(cuMemAlloc_v2(&a, BYTES));
	CALL(cuMemAllocPitch_v2(&b, &pitch, 500, 100, 4));
	CALL(cuMemAllocAsync(&c, 4 << 20, stream));
	sets_and_copies(a, b, stream);
	if (shapes)
		two_dimensions(a);
	launches(kernels.increment, a, stream);
	reload(&kernels, a);
	CALL(cuMemFreeAsync(c, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemFree_v2(b));
	CALL(cuMemFree_v2(a));
	CALL(cuStreamDestroy_v2(stream));
	/* A free of what is no allocation: the call fails, and so says the trace. */
	if (cuMemFree_v2(a) != CUDA_ERROR_INVALID_VALUE)
		step_die("traced: a double free was not refused");
	printf("step 1\ntraced: done\n");
	return 0;
}
