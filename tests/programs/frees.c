/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, captures and contexts that end in odd orders; the case is the argument. Those that say
 * "holding" go on when a line comes on stdin.
 */
#include <cuda.h>

#include "tests/programs/kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <stdbool.h>

#define MIB        (UINT64_C(1) << 20)
#define SAME(a, b) same(__LINE__, (unsigned long long)(a), (unsigned long long)(b))

static CUcontext ctx;
static CUstream stream;

static void same(int line, unsigned long long found, unsigned long long wanted)
{
	if (found != wanted)
		step_wrong("frees.c:%d: %#llx, should be %#llx", line, found, wanted);
}

static void hold(void)
{
	step_wait_line("holding");
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

/* True if as much is free as @before, except the 2 MiB that a context with captures keeps. */
static void is_free(int line, size_t before)
{
	size_t now = free_memory();

	if (now + 2 * MIB < before)
		step_die("frees.c:%d: %zu MiB free, should be %zu", line, (size_t)(now / MIB),
			 (size_t)(before / MIB));
}

#define IS_FREE(before) is_free(__LINE__, before)

static volatile uint32_t *flag;
static CUdeviceptr flag_on_gpu;
static CUfunction spin_until;

/* A kernel that runs in the stream until flag[@i] is set. */
static void spin(unsigned int i)
{
	CUdeviceptr at = flag_on_gpu + i * sizeof(*flag);
	void *args[] = {&at};

	CALL(cuLaunchKernel(spin_until, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

/* A kernel that runs in the stream until the flag is set. */
static void busy(void)
{
	CUmodule module;

	alarm(step_hang_s());
	CALL(cuModuleLoadData(&module, kernels_ptx));
	CALL(cuModuleGetFunction(&spin_until, module, "spin_until"));
	/* It outlives the context, since a thread may set it late. */
	flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (flag == MAP_FAILED)
		step_die("frees: mmap: %s", strerror(errno));
	CALL(cuMemHostRegister_v2((void *)flag, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
	CALL(cuMemHostGetDevicePointer(&flag_on_gpu, (void *)flag, 0));
	spin(0);
}

static void *end_busy_later(void *arg)
{
	step_sleep_ms(300);
	*flag = 1;
	return arg;
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
	IS_FREE(before);
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

/* Memory that is freed while another thread captures is free at once. */
static void *free_large(void *arg)
{
	CALL(cuCtxSetCurrent(ctx));
	CALL(cuMemFree_v2(*(CUdeviceptr *)arg));
	return arg;
}

static void run_with(void *(*function)(void *), void *arg)
{
	pthread_t thread;

	pthread_create(&thread, NULL, function, arg);
	pthread_join(thread, NULL);
}

static void elsewhere(void)
{
	size_t before = free_memory();
	CUdeviceptr ptr = alloc(1024 * MIB);

	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	run_with(free_large, &ptr);
	IS_FREE(before);
	end();
	IS_FREE(before);
}

/* The GPU has no memory left, also not for a fence. */
static CUdeviceptr fill(void)
{
	CUdeviceptr first = alloc(100 * MIB), ptr;

	for (size_t size = 100 * MIB; size >= MIB; size /= 10)
		while (!cuMemAlloc_v2(&ptr, size))
			;
	return first;
}

/* What a small allocation has given back is there for the next one of its size. */
static void full_small(void)
{
	CUdeviceptr ptr, ptrs[20]; /* a block of 2 MiB has as many */

	for (int i = 0; i < 20; i++)
		ptrs[i] = alloc(100000);
	fill();
	while (!cuMemAlloc_v2(&ptr, 100000))
		;
	CALL(cuMemFree_v2(ptrs[10]));
	alloc(100000);
}

/* Full since the capture began, or before: then the memory is free when the capture has ended. */
static void full(void)
{
	CUdeviceptr first;

	begin();
	first = fill();
	CALL(cuMemFree_v2(first));
	alloc(100 * MIB);
	end();
}

static void full_before(void)
{
	CUdeviceptr first = fill();
	size_t before = free_memory();

	begin();
	CALL(cuMemFree_v2(first));
	SAME(cuMemFree_v2(first), CUDA_ERROR_INVALID_VALUE);
	end();
	IS_FREE(before + 100 * MIB);
	alloc(90 * MIB);
}

/*
 * A thread frees, and there is no memory for its wait. Later allocations that find memory do not wait
 * instead: a kernel may wait for their thread.
 */
static void full_busy(void)
{
	CUdeviceptr first;
	size_t before;
	CUstream own;

	alloc(4096); /* its block has room for another */
	CALL(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	busy();
	first = fill();
	before = free_memory();
	CALL(cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED));
	run_with(free_large, &first);
	stream = own;
	end();
	alloc(4096);
	IS_FREE(before + 100 * MIB);
	*flag = 1;
	alloc(100 * MIB);
}

/* The same, with a kernel that the thread has launched after it freed. */
static void full_then_busy(void)
{
	CUstream work = stream;
	CUdeviceptr first;

	alloc(4096);
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	first = fill();
	begin();
	CALL(cuMemFree_v2(first));
	end();
	stream = work;
	busy();
	alloc(4096);
	free_memory();
	*flag = 1;
	alloc(90 * MIB);
}

/* A pause in between takes the whole GPU. */
static void full_paused(void)
{
	begin();
	end();
	hold();
	full();
}

static volatile bool over;

static void *capture_often(void *arg)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};

	CALL(cuCtxSetCurrent(ctx));
	for (int i = 0; !over; i++) {
		CALL(cuStreamBeginCapture_v2(stream, modes[i % 2]));
		end();
	}
	return arg;
}

/* One thread frees memory while another begins and ends captures. */
static void beside(void)
{
	double until = step_seconds() + 2;
	pthread_t thread;

	pthread_create(&thread, NULL, capture_often, NULL);
	for (size_t size = 4096; step_seconds() < until; size ^= 4096 ^ 4 * MIB)
		CALL(cuMemFree_v2(alloc(size)));
	over = true;
	pthread_join(thread, NULL);
}

/* A free that is ordered by a stream does not wait, not even for work that waits for this thread. */
static void ordered(void)
{
	size_t before = free_memory();
	CUdeviceptr ptr = alloc(512 * MIB), base;
	CUcontext owner;

	busy();
	CALL(cuMemFreeAsync(ptr, stream));
	SAME(cuMemFreeAsync(ptr, stream), CUDA_ERROR_INVALID_VALUE);
	SAME(cuMemGetAddressRange_v2(&base, NULL, ptr), CUDA_ERROR_NOT_FOUND);
	SAME(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr),
	     CUDA_ERROR_INVALID_VALUE);
	SAME(alloc(512 * MIB) == ptr, false); /* the kernel may still use it */
	SAME(before - free_memory() >= 1024 * MIB, true);
	*flag = 1;
	CALL(cuStreamSynchronize(stream));
	SAME(before - free_memory() < 600 * MIB, true);
	SAME(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
}

/* If memory is short, an allocation does not wait for the stream, and gets it once that has passed. */
static void ordered_short(void)
{
	size_t size = free_memory() / 4 * 3;
	CUdeviceptr ptr = alloc(size), other;

	busy();
	CALL(cuMemFreeAsync(ptr, stream));
	SAME(cuMemAlloc_v2(&other, size), CUDA_ERROR_OUT_OF_MEMORY);
	end_busy_later(NULL);
	CALL(cuStreamSynchronize(stream));
	alloc(size);
}

/* A free passes with the work before it, whatever the stream does after it. */
static void ordered_between(void)
{
	size_t size = free_memory() / 4 * 3;
	CUdeviceptr ptr = alloc(size);
	CUevent freed;

	CALL(cuEventCreate(&freed, CU_EVENT_DISABLE_TIMING));
	CALL(cuMemFreeAsync(alloc(4096), stream));
	busy();
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(cuEventRecord(freed, stream));
	spin(1);
	flag[0] = 1;
	CALL(cuEventSynchronize(freed));
	alloc(size);
	flag[1] = 1;
}

/* It ends with its context, and with the stream's if that is another. */
static void ordered_destroyed(void)
{
	CUdeviceptr old = alloc(4 * MIB), live, base;
	CUcontext first;
	pthread_t thread;

	busy();
	CALL(cuMemFreeAsync(old, stream));
	pthread_create(&thread, NULL, end_busy_later, NULL);
	CALL(cuCtxDestroy_v2(ctx));
	pthread_join(thread, NULL);
	context_new();
	live = alloc(4 * MIB);
	SAME(live, old);
	CALL(cuMemFree_v2(alloc(8 * MIB)));
	CALL(cuMemGetAddressRange_v2(&base, NULL, live));
	SAME(base, live);
	first = ctx;
	context_new();
	busy();
	CALL(cuMemFreeAsync(live, stream));
	*flag = 1;
	CALL(cuCtxDestroy_v2(ctx));
	CALL(cuCtxSetCurrent(first));
	SAME(alloc(4 * MIB), live);
}

static void ordered_captured(void)
{
	CUdeviceptr ptr = alloc(4 * MIB);

	begin();
	SAME(cuMemFreeAsync(ptr, stream), CUDA_ERROR_INVALID_VALUE);
	end();
	CALL(cuMemFree_v2(ptr));
}

static void ordered_paused(void)
{
	CUdeviceptr ptr = alloc(4 * MIB);

	busy();
	CALL(cuMemFreeAsync(ptr, stream));
	*flag = 1;
	hold();
	SAME(alloc(4 * MIB), ptr);
}

/* However many frees are too early, an allocation asks about a few: the test counts the questions. */
static void ordered_many(void)
{
	size_t before = free_memory();

	busy();
	for (int i = 0; i < 1000; i++)
		CALL(cuMemFreeAsync(alloc(MIB / 8), stream));
	*flag = 1;
	CALL(cuStreamSynchronize(stream));
	IS_FREE(before);
}

/* Memory whose stream has passed is found behind many frees whose stream has not. */
static void ordered_behind(void)
{
	size_t size = free_memory() / 4 * 3;
	CUdeviceptr ptr = alloc(size);
	CUstream own;

	CALL(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	busy();
	for (int i = 0; i < 100; i++)
		CALL(cuMemFreeAsync(alloc(MIB / 8), stream));
	CALL(cuMemFreeAsync(ptr, own));
	CALL(cuStreamSynchronize(own));
	alloc(size);
	*flag = 1;
}

/* Pools serve a primary context alone. */
static void primary(void)
{
	CALL(cuDevicePrimaryCtxRetain(&ctx, 0));
	CALL(cuCtxSetCurrent(ctx));
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static CUdeviceptr alloc_ordered(size_t size)
{
	CUdeviceptr ptr;

	CALL(cuMemAllocAsync(&ptr, size, stream));
	return ptr;
}

/* Memory that was freed in the same stream, of a pool that makes no stream wait for another. */
static void ordered_alone(void)
{
	CUmemoryPool pool;
	CUdeviceptr ptr;
	size_t quarter;
	int none = 0;

	primary();
	quarter = free_memory() / 4;
	CALL(cuDeviceGetDefaultMemPool(&pool, 0));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &none));
	ptr = alloc_ordered(3 * quarter);
	busy();
	CALL(cuMemFreeAsync(ptr, stream));
	alloc_ordered(2 * quarter);
	*flag = 1;
}

/* Frees for which the GPU has no memory for events. */
static void ordered_eventless(void)
{
	size_t before;

	primary();
	before = free_memory();
	for (int i = 0; i < 4; i++) {
		if (i % 2)
			stream = NULL;
		CALL(cuMemFreeAsync(alloc_ordered(8 * MIB), stream));
		CALL(cuMemFreeAsync(alloc(8 * MIB), stream));
	}
	CALL(cuCtxSynchronize());
	alloc(before / 2);
}

/* A stream ends with a free in it, and the GPU has no memory for the event. */
static void ordered_eventless_end(void)
{
	size_t size;

	primary();
	busy();
	size = free_memory() / 4 * 3;
	CALL(cuMemFreeAsync(alloc_ordered(size), stream));
	CALL(cuStreamDestroy_v2(stream));
	*flag = 1;
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	alloc_ordered(size);
}

/* The first call for a variable loads its code; what cudaw keeps of freed memory is free for that. */
static void variable(void)
{
	static const char image[] = ".version 6.0\n"
				    ".target sm_50\n"
				    ".address_size 64\n"
				    ".visible .global .align 4 .u32 words[1024];\n";
	CUdeviceptr words;
	CUmodule module;
	size_t size;

	CALL(cuModuleLoadData(&module, image));
	CALL(cuMemFree_v2(alloc(100 * MIB)));
	CALL(cuModuleGetGlobal_v2(&words, &size, module, "words"));
	SAME(size, 4096);
}

/* Calls that need memory for what they change: each is the last one of its kind. */
static void changes(void)
{
	const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
	const CUmemAccessDesc all = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;
	CUdeviceptr at;
	CUgraph graph;

	CALL(cuGraphCreate(&graph, 0));
	CALL(cuGraphInstantiate(&exec, graph, 0));
	CALL(cuMemFree_v2(alloc(100 * MIB)));
	CALL(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	CALL(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
	CALL(cuMemMap(at, 2 * MIB, 0, handle, 0));
	CALL(cuMemSetAccess(at, 2 * MIB, &all, 1));
	CALL(cuGraphExecUpdate(exec, graph, &info));
	CALL(cuMemsetD8_v2(at, 1, 2 * MIB));
}

static void *order_often(void *arg)
{
	CUstream own;

	CALL(cuCtxSetCurrent(ctx));
	CALL(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	for (size_t size = 4096; !over; size ^= 4096 ^ 4 * MIB) {
		CUdeviceptr ptr = alloc(size);

		CALL(cuMemsetD32Async(ptr, 1, size / 4, own));
		CALL(cuMemFreeAsync(ptr, own));
	}
	return arg;
}

/* Threads free in the order of their streams, while others end contexts and capture. */
static void ordered_threads(void)
{
	void *(*const functions[])(void *) = {order_often, order_often, capture_often};
	double until = step_seconds() + 2;
	pthread_t threads[3];
	CUstream own;

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, functions[i], NULL);
	while (step_seconds() < until) {
		CUcontext other;
		CUdeviceptr ptr;

		CALL(cuCtxCreate_v4(&other, NULL, 0, 0));
		CALL(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
		ptr = alloc(4 * MIB);
		CALL(cuMemsetD32Async(ptr, 1, MIB, own));
		CALL(cuMemFreeAsync(ptr, own));
		CALL(cuCtxDestroy_v2(other));
	}
	over = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

static void *free_often(void *arg)
{
	CALL(cuCtxSetCurrent(arg));
	while (!over)
		CALL(cuMemFree_v2(alloc(4096)));
	return arg;
}

/* As threads that free ask about frees, too, an allocation does not wait until none of them does. */
static void ordered_asked(void)
{
	size_t size = free_memory();
	pthread_t threads[64];
	CUcontext other;
	CUdeviceptr ptr;

	busy();
	for (int i = 0; i < 100; i++)
		CALL(cuMemFreeAsync(alloc(MIB / 8), stream));
	CALL(cuCtxCreate_v4(&other, NULL, 0, 0));
	for (int i = 0; i < 64; i++)
		pthread_create(&threads[i], NULL, free_often, other);
	CALL(cuCtxSetCurrent(ctx));
	for (int i = 0; i < 100; i++)
		SAME(cuMemAlloc_v2(&ptr, size), CUDA_ERROR_OUT_OF_MEMORY);
	over = true;
	for (int i = 0; i < 64; i++)
		pthread_join(threads[i], NULL);
	*flag = 1;
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

static void thread_gone(void)
{
	run_with(begin_per_thread, NULL);
	hold();
}

static void two_threads(void)
{
	begin_per_thread(NULL);
	run_with(capture_per_thread, NULL);
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

/* Memory is freed behind work that ends then; it is the program's no more. */
static void freed_behind_work(void)
{
	CUdeviceptr ptr = alloc(512 * MIB);

	busy();
	CALL(cuMemFreeAsync(ptr, stream));
	*flag = 1;
}

static void ordered_synchronized(void)
{
	freed_behind_work();
	CALL(cuStreamSynchronize(stream));
	hold();
}

/* Nobody waits for the work. */
static void ordered_idle(void)
{
	freed_behind_work();
	while (cuStreamQuery(stream))
		step_sleep_ms(1);
	hold();
}

/* Asks whether the free has passed: the test holds that up. */
static void *ask_about_free(void *other)
{
	CALL(cuCtxSetCurrent(ctx));
	CALL(cuStreamSynchronize(other));
	return NULL;
}

/* The first capture of the process begins while another thread asks. */
static void ordered_captured_first(void)
{
	CUdeviceptr ptr = alloc(4 * MIB);
	CUstream other;
	pthread_t asker;
	CUgraph graph;

	CALL(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CALL(cuMemFreeAsync(ptr, stream));
	hold();
	pthread_create(&asker, NULL, ask_about_free, other);
	hold();
	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	hold();
	pthread_join(asker, NULL);
	CALL(cuStreamEndCapture(stream, &graph));
}

/* Who has a dma-buf of freed memory goes on to use it: no other allocation gets this memory. */
static void dmabuf(void)
{
	CUdeviceptr ptr = alloc(4 * MIB);
	uint32_t word = 0;
	int fd;

	CALL(cuMemsetD32_v2(ptr, 0x600d600d, MIB));
	CALL(cuMemGetHandleForAddressRange(&fd, ptr, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					   0));
	CALL(cuMemFree_v2(ptr));
	ptr = alloc(4 * MIB);
	CALL(cuMemcpyDtoH_v2(&word, ptr, sizeof(word)));
	if (word == 0x600d600d)
		step_wrong("frees: an allocation has got memory of which there is a dma-buf");
	close(fd);
}

/* Memory that a descriptor has kept until now, which is closed, serves the allocation that needs it. */
static void descriptor_closed(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	size_t size = free_memory() / 4 * 3 / (2 * MIB) * (2 * MIB), pitch;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	for (int k = 0; k < 2; k++) {
		int fd = -1;

		CALL(cuMemCreate(&handle, size, &prop, 0));
		CALL(cuMemExportToShareableHandle(&fd, handle,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		CALL(cuMemRelease(handle));
		close(fd);
		if (k)
			CALL(cuMemAllocPitch_v2(&ptr, &pitch, size / 1024, 1024, 4));
		else
			CALL(cuMemAlloc_v2(&ptr, size));
		CALL(cuMemFree_v2(ptr));
	}
}

static const struct {
	const char *name;
	void (*function)(void);
} cases[] = {
	{"destroyed", destroyed},
	{"twice", twice},
	{"relaxed", relaxed},
	{"memory-short", memory_short},
	{"retained", retained},
	{"older", older},
	{"elsewhere", elsewhere},
	{"full", full},
	{"full-before", full_before},
	{"full-busy", full_busy},
	{"full-then-busy", full_then_busy},
	{"full-paused", full_paused},
	{"full-small", full_small},
	{"beside", beside},
	{"ordered", ordered},
	{"ordered-short", ordered_short},
	{"ordered-between", ordered_between},
	{"ordered-destroyed", ordered_destroyed},
	{"ordered-captured", ordered_captured},
	{"ordered-paused", ordered_paused},
	{"ordered-many", ordered_many},
	{"ordered-behind", ordered_behind},
	{"ordered-alone", ordered_alone},
	{"ordered-eventless", ordered_eventless},
	{"ordered-eventless-end", ordered_eventless_end},
	{"variable", variable},
	{"changes", changes},
	{"ordered-threads", ordered_threads},
	{"ordered-asked", ordered_asked},
	{"release", release},
	{"context-gone", context_gone},
	{"thread-gone", thread_gone},
	{"two-threads", two_threads},
	{"ordered-synchronized", ordered_synchronized},
	{"ordered-idle", ordered_idle},
	{"ordered-captured-first", ordered_captured_first},
	{"dmabuf", dmabuf},
	{"descriptor-closed", descriptor_closed},
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
