/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does what lines on stdin say, one after the other, and answers each on stdout:
 *
 *	alloc MIB	allocate and fill: by cuMemAlloc(). "alloc: ok", or "alloc: error N"
 *	capture MIB	the same during a capture of this thread, which has to be good in the end
 *	async MIB, create MIB, pitch MIB, array MIB	the same by other calls
 *	leave MIB	the same, but the handler of SIGALRM leaves the call by longjmp(). "leave: left"
 *	nested MIB	the same, and the handler of SIGALRM allocates 2 MiB during the call
 *	thread MIB	the same in a thread, and the answer comes at "join"
 *	cancel		cancel that thread; its call is no cancellation point
 *	fork MIB	the same; the handler of SIGALRM forks. The child says how its call ended, too
 *	export		take a dma-buf of the first allocation, so that no pause can carry it
 *	free		free all
 *	check		"check: every word right": the memory has what was put there
 *	spin, end	launch a kernel that does not end; let it end, and wait for that
 *
 * It ends with stdin.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <setjmp.h>

#define MEMORY_MAX 64
#define MIB        (1UL << 20)

static struct {
	CUdeviceptr ptr;
	size_t bytes;
	uint32_t word;
} memory[MEMORY_MAX];

static int count;
static CUcontext context;
static CUdevice device;
static CUstream stream; /* made early: a full GPU has no memory for one */
static sigjmp_buf away;
static CUdeviceptr nested;
static uint32_t *flag; /* of the kernel that does not end */
static volatile sig_atomic_t children;

static CUresult create(CUdeviceptr *ptr, size_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	const CUmemAccessDesc access = {.location = prop.location,
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUresult result = cuMemCreate(&handle, bytes, &prop, 0);

	if (result)
		return result;
	CALL(cuMemAddressReserve(ptr, bytes, 0, 0, 0));
	CALL(cuMemMap(*ptr, bytes, 0, handle, 0));
	CALL(cuMemSetAccess(*ptr, bytes, &access, 1));
	CALL(cuMemRelease(handle));
	return CUDA_SUCCESS;
}

static CUresult array(size_t bytes)
{
	const CUDA_ARRAY_DESCRIPTOR how = {.Width = 1024,
					   .Height = bytes / 4096,
					   .Format = CU_AD_FORMAT_UNSIGNED_INT32,
					   .NumChannels = 1};
	CUarray made;

	return cuArrayCreate(&made, &how);
}

/* The memory is filled by what was captured. */
static CUresult capture(CUdeviceptr *ptr, size_t bytes)
{
	CUgraphExec exec;
	CUgraph graph;
	CUresult result;

	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	result = cuMemAlloc(ptr, bytes);
	if (!result)
		CALL(cuMemsetD32Async(*ptr, 0x1000 + count, bytes / 4, stream));
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphInstantiate(&exec, graph, 0));
	CALL(cuGraphLaunch(exec, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuGraphExecDestroy(exec));
	CALL(cuGraphDestroy(graph));
	return result;
}

static CUresult allocate(const char *how, CUdeviceptr *ptr, size_t bytes)
{
	size_t pitch;

	if (!strcmp(how, "async"))
		return cuMemAllocAsync(ptr, bytes, NULL);
	if (!strcmp(how, "capture"))
		return capture(ptr, bytes);
	if (!strcmp(how, "create"))
		return create(ptr, bytes);
	if (!strcmp(how, "pitch"))
		return cuMemAllocPitch(ptr, &pitch, 4096, bytes / 4096, 4);
	if (!strcmp(how, "array"))
		return array(bytes);
	return cuMemAlloc(ptr, bytes);
}

static void make(const char *how, size_t bytes)
{
	CUdeviceptr ptr = 0;
	CUresult result = allocate(how, &ptr, bytes);

	if (result) {
		printf("%s: error %d\n", children ? "child" : how, result);
		return;
	}
	if (ptr && count < MEMORY_MAX) {
		memory[count].ptr = ptr;
		memory[count].bytes = bytes;
		memory[count].word = 0x1000 + count;
		if (strcmp(how, "capture"))
			CALL(cuMemsetD32(ptr, memory[count].word, bytes / 4));
		count++;
	}
	printf("%s: ok\n", how);
}

static void leave(int sig)
{
	(void)sig;
	siglongjmp(away, 1);
}

static void allocate_too(int sig)
{
	(void)sig;
	CALL(cuMemAlloc(&nested, 2 * MIB));
}

static void fork_here(int sig)
{
	(void)sig;
	if (!fork())
		children = 1;
}

static void *in_thread(void *arg)
{
	CUdeviceptr ptr;

	CALL(cuCtxSetCurrent(context));
	return (void *)(size_t)cuMemAlloc(&ptr, (size_t)arg);
}

static void spin(const struct kernels *kernels)
{
	CUdeviceptr ptr;
	void *args[] = {&ptr};

	if (!flag)
		CALL(cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
	CALL(cuMemHostGetDevicePointer_v2(&ptr, flag, 0));
	CALL(cuLaunchKernel(kernels->spin_until, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	printf("spin: ok\n");
}

static void check(void)
{
	uint32_t *words;

	for (int i = 0; i < count; i++) {
		words = malloc(memory[i].bytes);
		if (!words)
			step_die("orders: out of memory");
		CALL(cuMemcpyDtoH(words, memory[i].ptr, memory[i].bytes));
		for (size_t w = 0; w < memory[i].bytes / 4; w++)
			if (words[w] != memory[i].word)
				step_wrong("orders: word %zu of %d is %#x", w, i, words[w]);
		free(words);
	}
	printf("check: every word right\n");
}

static void obey(const struct kernels *kernels, const char *order, size_t number)
{
	static pthread_t thread;
	void *result;
	int fd;

	if (!strcmp(order, "leave")) {
		if (sigsetjmp(away, 1)) {
			printf("leave: left\n");
			return;
		}
		signal(SIGALRM, leave);
		make(order, number * MIB);
	} else if (!strcmp(order, "nested")) {
		signal(SIGALRM, allocate_too);
		make(order, number * MIB);
	} else if (!strcmp(order, "fork")) {
		signal(SIGALRM, fork_here);
		make(order, number * MIB);
		if (children) {
			fflush(stdout);
			_exit(0);
		}
	} else if (!strcmp(order, "thread")) {
		pthread_create(&thread, NULL, in_thread, (void *)(number * MIB));
		printf("thread: begun\n");
	} else if (!strcmp(order, "cancel")) {
		printf("cancel: %d\n", pthread_cancel(thread));
	} else if (!strcmp(order, "join")) {
		pthread_join(thread, &result);
		printf("join: %s %d\n", result == PTHREAD_CANCELED ? "cancelled" : "result",
		       (int)(size_t)result);
	} else if (!strcmp(order, "export")) {
		CALL(cuMemGetHandleForAddressRange(&fd, memory[0].ptr, memory[0].bytes,
						   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
		printf("export: ok\n");
	} else if (!strcmp(order, "free")) {
		while (count)
			CALL(cuMemFree(memory[--count].ptr));
		printf("free: ok\n");
	} else if (!strcmp(order, "check")) {
		check();
	} else if (!strcmp(order, "spin")) {
		spin(kernels);
	} else if (!strcmp(order, "end")) {
		__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
		CALL(cuCtxSynchronize());
		printf("end: ok\n");
	} else {
		make(order, number * MIB);
	}
}

int main(int argc, char **argv)
{
	struct kernels kernels;
	char line[64], order[16];
	unsigned long number;

	step_parse(argc, argv, NULL, 0);
	kernels_init(&kernels);
	device = kernels.dev;
	CALL(cuCtxGetCurrent(&context));
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	printf("orders: ready\n");
	while (fflush(stdout), fgets(line, sizeof(line), stdin)) {
		number = 0;
		if (sscanf(line, "%15s %lu", order, &number) >= 1)
			obey(&kernels, order, number);
	}
	printf("orders: done\n");
	return 0;
}
