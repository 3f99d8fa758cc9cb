/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, captures and contexts that end in odd orders; the case is the argument. Those that say
 * "holding" go on when a line comes on stdin.
 */
#include <cuda.h>

#include "tests/programs/step.h"

#include <dlfcn.h>
#include <pthread.h>

#define MIB        (UINT64_C(1) << 20)
#define SAME(a, b) same(__LINE__, (unsigned long long)(a), (unsigned long long)(b))

static CUcontext ctx;
static CUstream stream;

static void same(int line, unsigned long long found, unsigned long long wanted)
{
	if (found != wanted)
		step_die("frees.c:%d: %#llx, should be %#llx", line, found, wanted);
}

static void hold(void)
{
	char text[16];

	printf("holding\n");
	fflush(stdout);
	if (!fgets(text, sizeof(text), stdin))
		step_die("frees: nobody is there any more");
}

static void context_new(void)
{
	CALL(cuCtxCreate_v4(&ctx, NULL, 0, 0));
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr ptr;

	CALL(cuMemAlloc_v2(&ptr, size));
	return ptr;
}

static size_t free_memory(void)
{
	size_t free, total;

	CALL(cuMemGetInfo_v2(&free, &total));
	return free;
}

static void begin(void)
{
	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void end(void)
{
	CUgraph graph;

	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphDestroy(graph));
}

/* What was freed during a capture goes with its context; its address may get a new owner. */
static void destroyed(void)
{
	CUdeviceptr old = alloc(4 * MIB), live, other, base;

	begin();
	CALL(cuMemFree_v2(old));
	end();
	CALL(cuCtxDestroy_v2(ctx));
	context_new();
	live = alloc(4 * MIB);
	SAME(live, old);
	other = alloc(8 * MIB);
	CALL(cuMemFree_v2(other));
	CALL(cuMemGetAddressRange_v2(&base, NULL, live));
	SAME(base, live);
}

static void twice(void)
{
	CUdeviceptr ptr = alloc(4 * MIB);

	begin();
	SAME(cuMemFree_v2(ptr + 512), CUDA_ERROR_INVALID_VALUE);
	CALL(cuMemFree_v2(ptr));
	SAME(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
	end();
	SAME(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
}

static void relaxed(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	size_t before = free_memory();
	CUdeviceptr ptr = alloc(512 * MIB);

	begin();
	CALL(cuThreadExchangeStreamCaptureMode(&mode));
	CALL(cuMemFree_v2(ptr));
	SAME(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
	SAME(free_memory(), before);
	CALL(cuThreadExchangeStreamCaptureMode(&mode));
	SAME(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	end();
}

static void memory_short(void)
{
	size_t size = free_memory() / 4 * 3;
	CUdeviceptr ptr = alloc(size);

	begin();
	CALL(cuMemFree_v2(ptr));
	alloc(size);
	end();
}

static void retained(void)
{
	CUmemGenericAllocationHandle handle;

	SAME(cuMemRetainAllocationHandle(&handle, (void *)alloc(4 * MIB)),
	     CUDA_ERROR_INVALID_VALUE);
}

/* The older names, which cuda.h hides or warns of, end a context as well. */
static void older(void)
{
	static const char *const names[] = {"cuCtxDestroy", "cuCtxDetach"};
	size_t before = free_memory();

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CUresult (*end_context)(CUcontext) = dlsym(RTLD_DEFAULT, names[i]);

		alloc(512 * MIB);
		CALL(end_context(ctx));
		context_new();
		SAME(free_memory(), before);
	}
}

static void context_gone(void)
{
	begin();
	CALL(cuCtxDestroy_v2(ctx));
	context_new();
	hold();
}

static void *begin_per_thread(void *arg)
{
	CALL(cuCtxSetCurrent(ctx));
	CALL(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
	return arg;
}

static void *capture_per_thread(void *arg)
{
	begin_per_thread(arg);
	stream = CU_STREAM_PER_THREAD;
	end();
	return arg;
}

static void run(void *(*function)(void *))
{
	pthread_t thread;

	pthread_create(&thread, NULL, function, NULL);
	pthread_join(thread, NULL);
}

static void thread_gone(void)
{
	run(begin_per_thread);
	hold();
}

static void two_threads(void)
{
	begin_per_thread(NULL);
	run(capture_per_thread);
	hold();
	end();
}

static void release(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;

	CALL(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	SAME(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	hold();
	CALL(cuMemRelease(handle));
}

static const struct {
	const char *name;
	void (*function)(void);
} cases[] = {
	{"destroyed", destroyed},     {"twice", twice},
	{"relaxed", relaxed},         {"memory-short", memory_short},
	{"retained", retained},       {"older", older},
	{"release", release},         {"context-gone", context_gone},
	{"thread-gone", thread_gone}, {"two-threads", two_threads},
};

int main(int argc, char **argv)
{
	CALL(cuInit(0));
	context_new();
	for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[1], cases[i].name))
			continue;
		cases[i].function();
		printf("frees: right\n");
		return 0;
	}
	step_die("usage: frees CASE");
}
