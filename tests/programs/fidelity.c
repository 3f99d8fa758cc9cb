/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the driver answers where the documentation leaves room: one case a process, named by the
 * argument; "list" prints the names. A line of stdout is "QUESTION: ANSWER", and has nothing in
 * it that differs from run to run, so that a native run and one under cudaw can be compared
 * (tests/gpu/fidelity.py). A case that hangs is ended by SIGALRM.
 */
#include "tests/programs/questions.h"

static void case_free_waits(void)
{
	static const size_t sizes[] = {4 * KIB, 64 * KIB, 1 * MIB, 2 * MIB, 64 * MIB, 1 * GIB};
	CUstream stream = stream_new();
	char question[64];
	CUdeviceptr ptr;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ptr = alloc(sizes[i]);
		snprintf(question, sizeof(question), "cuMemFree of %zu KiB beside a kernel",
			 sizes[i] / (size_t)KIB);
		WAITS(question, cuMemFree(ptr));
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(question, sizeof(question), "cuMemAlloc of %zu KiB beside a kernel",
			 sizes[i] / (size_t)KIB);
		WAITS(question, cuMemAlloc(&ptr, sizes[i]));
		CALL(cuMemFree(ptr));
	}
}

static void case_free_async(void)
{
	CUstream stream = stream_new(), other = stream_new();
	CUdeviceptr ptr = alloc(64 * MIB), pool_ptr;
	size_t before, after, total;
	CUgraph graph;
	size_t nodes = 0;

	WAITS("cuMemFreeAsync of cuMemAlloc's memory, its stream busy",
	      cuMemFreeAsync(ptr, stream));
	ptr = alloc(64 * MIB);
	WAITS("cuMemFreeAsync of cuMemAlloc's memory, another stream busy",
	      cuMemFreeAsync(ptr, other));
	ptr = alloc(256 * MIB);
	CALL(cuMemGetInfo(&before, &total));
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemGetInfo(&after, &total));
	say("256 MiB freed by cuMemFreeAsync are free after a synchronise: %s",
	    after - before >= 250 * MIB ? "yes" : "no");
	say_result("cuMemFreeAsync twice, second", cuMemFreeAsync(ptr, stream));
	CALL(cuMemAllocAsync(&pool_ptr, 64 * MIB, stream));
	WAITS("cuMemFree of cuMemAllocAsync's memory, its stream busy", cuMemFree(pool_ptr));
	ptr = alloc(64 * MIB);
	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	say_result("cuMemFreeAsync of cuMemAlloc's memory in a relaxed capture",
		   cuMemFreeAsync(ptr, stream));
	say_result("ending that capture", cuStreamEndCapture(stream, &graph));
	if (graph)
		cuGraphGetNodes(graph, NULL, &nodes);
	say("nodes of that graph: %zu", nodes);
	say_result("cuMemFree of it then", cuMemFree(ptr));
}

/* A question about the freed memory itself is not valid: natively a second free hangs. */
static void case_free_async_busy(void)
{
	CUstream stream = stream_new();
	CUdeviceptr ptr, other = 0;
	size_t free, total;

	CALL(cuMemGetInfo(&free, &total));
	ptr = alloc(free / 4 * 3);
	WAITS("cuMemFreeAsync, its stream busy, then an allocation that needs the memory",
	      (cuMemFreeAsync(ptr, stream), cuMemAlloc(&other, free / 4 * 3)));
}

static const struct {
	const char *name;
	CUstreamCaptureMode mode;
} modes[] = {{"global", CU_STREAM_CAPTURE_MODE_GLOBAL},
	     {"thread local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
	     {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}};

static void case_free_captured(void)
{
	static const size_t sizes[] = {4 * KIB, 64 * MIB};
	CUstream stream = stream_new();
	char question[96];

	for (int i = 0; i < 6; i++) {
		size_t size = sizes[i % 2], before, after, total;
		CUdeviceptr ptr = alloc(size);
		CUgraph graph = NULL;
		CUresult result;

		CALL(cuMemGetInfo(&before, &total));
		CALL(cuStreamBeginCapture(stream, modes[i / 2].mode));
		result = cuMemFree(ptr);
		snprintf(question, sizeof(question), "cuMemFree of %zu KiB in a %s capture",
			 size / (size_t)KIB, modes[i / 2].name);
		say_result(question, result);
		say_result("  the capture's end", cuStreamEndCapture(stream, &graph));
		CALL(cuMemGetInfo(&after, &total));
		say("  freed after it: %s", after >= before + size / 2 ? "yes" : "no");
		say_result("  freed again", cuMemFree(ptr));
	}
}

static void case_alloc_captured(void)
{
	CUstream stream = stream_new();
	char question[96];

	for (int i = 0; i < 3; i++) {
		CUgraph graph = NULL;
		CUdeviceptr small, large;

		CALL(cuStreamBeginCapture(stream, modes[i].mode));
		snprintf(question, sizeof(question), "cuMemAlloc in a %s capture", modes[i].name);
		say_result(question, cuMemAlloc(&small, 4 * KIB));
		say_result("  of 64 MiB", cuMemAlloc(&large, 64 * MIB));
		snprintf(question, sizeof(question), "the end of the %s capture", modes[i].name);
		say_result(question, cuStreamEndCapture(stream, &graph));
	}
}

/* Does the free of pinned host memory wait as well, and is it legal in captures? */
static void case_host_free(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstream stream = stream_new(), capturing = stream_new();
	CUgraph graph;
	void *host;

	CALL(cuMemHostAlloc(&host, 4096, 0));
	WAITS("cuMemFreeHost of 4 KiB beside a kernel", cuMemFreeHost(host));
	CALL(cuThreadExchangeStreamCaptureMode(&mode));
	for (mode = 0; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
		CALL(cuMemHostAlloc(&host, 4096, 0));
		busy(stream);
		CALL(cuStreamBeginCapture(capturing, mode));
		*flag = 1;
		say_result("cuMemFreeHost in a capture, relaxed", cuMemFreeHost(host));
		say_result("  the capture's end", cuStreamEndCapture(capturing, &graph));
		CALL(cuStreamSynchronize(stream));
	}
}

/* ---- a full GPU ----------------------------------------------------------------------------- */

#define MAX_PIECES 4096
#define LARGE      (100 * MIB)
static CUdeviceptr large[MAX_PIECES], little[MAX_PIECES];
static size_t nlarge, nlittle;

/* All that cuMemAlloc gives. */
static void fill(void)
{
	while (nlarge < MAX_PIECES && !cuMemAlloc(&large[nlarge], LARGE))
		nlarge++;
	while (nlittle < MAX_PIECES && !cuMemAlloc(&little[nlittle], MIB))
		nlittle++;
}

/* Give back as much, as a program does that wants it for something else. */
static void make_room(size_t bytes)
{
	for (size_t given = 0; given < bytes && nlarge; given += LARGE)
		CALL(cuMemFree(large[--nlarge]));
}

static CUresult want_alloc(void)
{
	CUdeviceptr ptr;

	return cuMemAlloc(&ptr, 150 * MIB);
}

static CUresult want_async(void)
{
	CUdeviceptr ptr;
	CUresult result = cuMemAllocAsync(&ptr, 150 * MIB, NULL);

	return result ? result : cuStreamSynchronize(NULL);
}

static CUresult want_stream(void)
{
	CUstream stream;

	return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

static CUresult want_create(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};
	CUmemGenericAllocationHandle handle;

	return cuMemCreate(&handle, 150 * MIB, &prop, 0);
}

static CUresult want_array(void)
{
	CUDA_ARRAY_DESCRIPTOR desc = {8192, 4096, CU_AD_FORMAT_UNSIGNED_INT32, 1};
	CUarray array;

	return cuArrayCreate(&array, &desc);
}

static CUresult want_context(void)
{
	CUcontext ctx;

	return cuCtxCreate(&ctx, NULL, 0, gpu.dev);
}

static CUresult want_module(void)
{
	CUmodule module;

	return cuModuleLoadData(&module, kernels_ptx);
}

static CUresult want_pool(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};
	CUmemoryPool pool;
	CUdeviceptr ptr;
	CUresult result = cuMemPoolCreate(&pool, &props);

	if (!result)
		result = cuMemAllocFromPoolAsync(&ptr, 150 * MIB, pool, NULL);
	return result;
}

static CUresult want_pitch(void)
{
	CUdeviceptr ptr;
	size_t pitch;

	return cuMemAllocPitch(&ptr, &pitch, 1 * MIB, 150, 16);
}

static CUresult want_heap(void)
{
	CUresult result = cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 150 * MIB);
	size_t value = 0;

	cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE);
	return result;
}

static void case_full(void)
{
	static const struct {
		const char *name;
		CUresult (*want)(void);
		size_t room;
	} wants[] = {{"cuMemAlloc", want_alloc, 200 * MIB},
		     {"cuMemAllocPitch", want_pitch, 200 * MIB},
		     {"cuMemAllocAsync", want_async, 200 * MIB},
		     {"cuMemAllocFromPoolAsync", want_pool, 200 * MIB},
		     {"cuMemCreate", want_create, 200 * MIB},
		     {"cuArrayCreate", want_array, 200 * MIB},
		     {"cuModuleLoadData", want_module, 200 * MIB},
		     {"cuStreamCreate", want_stream, 200 * MIB},
		     {"cuCtxSetLimit", want_heap, 200 * MIB},
		     {"cuCtxCreate", want_context, 900 * MIB}};
	char question[96];
	size_t free, total;

	for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
		fill();
		make_room(wants[i].room);
		CALL(cuMemGetInfo(&free, &total));
		snprintf(question, sizeof(question), "%s on a GPU with %zu MiB freed, %s free",
			 wants[i].name, (size_t)(wants[i].room / MIB),
			 free >= wants[i].room / 2 ? "shown" : "not shown");
		say_result(question, wants[i].want());
	}
}

static pthread_barrier_t both;

static void *want_array_at_once(void *result)
{
	CUDA_ARRAY_DESCRIPTOR desc = {4096, 4096, CU_AD_FORMAT_UNSIGNED_INT32, 1};
	CUarray array;

	CALL(cuCtxSetCurrent(gpu.ctx));
	pthread_barrier_wait(&both);
	*(CUresult *)result = cuArrayCreate(&array, &desc);
	pthread_barrier_wait(&both);
	CALL(*(CUresult *)result ? CUDA_SUCCESS : cuArrayDestroy(array));
	return NULL;
}

/* Two threads find no memory at once: what the one gives back is there for the other, too. */
static void case_full_threads(void)
{
	CUdeviceptr pieces[100]; /* together they are enough for both */
	CUresult results[2];
	int failed = 0;

	pthread_barrier_init(&both, NULL, 2);
	for (int i = 0; i < 10; i++) {
		pthread_t second;

		for (int k = 0; k < 100; k++)
			pieces[k] = alloc(2 * MIB);
		fill();
		for (int k = 0; k < 100; k++)
			CALL(cuMemFree(pieces[k]));
		pthread_create(&second, NULL, want_array_at_once, &results[1]);
		want_array_at_once(&results[0]);
		pthread_join(second, NULL);
		failed += results[0] || results[1];
	}
	say("rounds in which a call failed: %d", failed);
}

static void captured_when_full(CUstream stream)
{
	CUgraph graph;
	CUdeviceptr ptr;

	fill();
	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	say_result("a free in a relaxed capture on a full GPU", cuMemFree(large[--nlarge]));
	say_result("an allocation in its place", cuMemAlloc(&ptr, 90 * MIB));
	say_result("the capture's end", cuStreamEndCapture(stream, &graph));
}

/* The GPU is full before the first capture begins, or after it. */
static void case_full_captured(void)
{
	captured_when_full(stream_new());
}

static void case_captured_full(void)
{
	CUstream stream = stream_new();
	CUgraph graph;

	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CALL(cuStreamEndCapture(stream, &graph));
	captured_when_full(stream);
}

/* More than is free, while the driver's pool keeps memory that nobody uses. */
static void case_pool_gives_back(void)
{
	CUstream stream = stream_new();
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};
	cuuint64_t all = UINT64_MAX;
	CUmemoryPool pool;
	size_t free, total;
	CUdeviceptr ptr;
	CUresult result;

	CALL(cuDeviceGetDefaultMemPool(&pool, gpu.dev));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	CALL(cuMemGetInfo(&free, &total));
	CALL(cuMemAllocAsync(&ptr, free / 2, stream));
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(cuStreamSynchronize(stream));
	result = cuMemAlloc(&ptr, free / 4 * 3);
	say_result("3/4 of the memory while the pool keeps half", result);
	if (!result)
		CALL(cuMemFree(ptr));
	CALL(cuMemPoolCreate(&pool, &props));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	CALL(cuMemAllocFromPoolAsync(&ptr, free / 2, pool, stream));
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(cuStreamSynchronize(stream));
	say_result("the same while a pool of the program keeps half",
		   cuMemAlloc(&ptr, free / 4 * 3));
}

/* ---- small allocations, most of them freed --------------------------------------------------- */

/* @line: they are freed after a line on stdin, before which a pause may come. */
static void frag(size_t count, size_t size, size_t keep, bool line)
{
	CUdeviceptr *all = calloc(count, sizeof(*all)), rest;
	size_t before, after, total, live = 0;

	CALL(cuMemGetInfo(&before, &total));
	for (size_t i = 0; i < count; i++)
		all[i] = alloc(size);
	if (line) {
		say("allocated: yes");
		getchar();
	}
	for (size_t i = 0; i < count; i++)
		if (i % keep)
			CALL(cuMemFree(all[i]));
		else
			live += size;
	CALL(cuMemGetInfo(&after, &total));
	say("MiB held by %zu of %zu KiB, of which each %zu. is kept (%zu KiB): %zu", count,
	    size / (size_t)KIB, keep, live / (size_t)KIB, (size_t)((before - after) / MIB));
	say_result("nine tenths of what is free", cuMemAlloc(&rest, after / 10 * 9));
	CALL(cuMemFree(rest));
	for (size_t i = 0; i < count; i += keep)
		CALL(cuMemFree(all[i]));
	free(all);
}

static void case_frag(void)
{
	frag(20000, 100 * KIB, 300, false);
	frag(200000, 4 * KIB, 8000, false);
	frag(20000, 700 * KIB, 300, false);
	frag(3000, 1536 * KIB, 50, false);
}

/* The same of less memory. */
static void case_frag_few(void)
{
	frag(2000, 100 * KIB, 100, false);
	frag(40000, 4 * KIB, 4000, false);
	frag(300, 700 * KIB, 30, false);
	frag(150, 1536 * KIB, 15, false);
}

static void case_frag_line(void)
{
	frag(20000, 100 * KIB, 300, true);
}

static void case_frag_few_line(void)
{
	frag(3000, 100 * KIB, 100, true);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static void sync_memops(const char *what, CUdeviceptr ptr)
{
	unsigned int on = 1, found = 7;
	char question[96];

	snprintf(question, sizeof(question), "setting SYNC_MEMOPS of %s", what);
	say_result(question, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	snprintf(question, sizeof(question), "reading it of %s", what);
	say_result(question, cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	say("the value of %s: %u", what, found);
}

/* How many bytes of the answer the driver writes. */
static void widths(CUdeviceptr ptr)
{
	static const struct {
		const char *name;
		CUpointer_attribute attribute;
	} attributes[] = {{"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
			  {"SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS},
			  {"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED},
			  {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
			  {"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED},
			  {"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE}};

	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		unsigned char once[16], again[16];
		size_t bytes = 0;

		memset(once, 0x55, sizeof(once));
		memset(again, 0xaa, sizeof(again));
		CALL(cuPointerGetAttribute(once, attributes[i].attribute, ptr));
		CALL(cuPointerGetAttribute(again, attributes[i].attribute, ptr));
		while (bytes < sizeof(once) && once[bytes] == again[bytes])
			bytes++;
		say("the width of %s: %zu", attributes[i].name, bytes);
	}
}

static void case_attributes(void)
{
	CUdeviceptr ptr = alloc(4 * MIB), small = alloc(100), next = alloc(100), gone = alloc(MIB);
	unsigned long long handle_types = 99;
	unsigned int legacy = 99, mapped = 99;
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	CUipcMemHandle ipc;
	int fd = -1;

	sync_memops("4 MiB", ptr);
	sync_memops("its middle", ptr + 2 * MIB);
	sync_memops("100 bytes", small);
	say_result("reading it of the next 100 bytes",
		   cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, next));
	say("the value of the next 100 bytes: %u", mapped);
	CALL(cuMemFree(gone));
	sync_memops("freed memory", gone);
	widths(ptr);
	say_result("ALLOWED_HANDLE_TYPES",
		   cuPointerGetAttribute(&handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
					 ptr));
	say("the value of ALLOWED_HANDLE_TYPES: %llu", handle_types);
	say_result("IS_LEGACY_CUDA_IPC_CAPABLE",
		   cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
					 ptr));
	say("the value of IS_LEGACY_CUDA_IPC_CAPABLE: %u", legacy);
	say_result("MAPPED", cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, ptr));
	say("the value of MAPPED: %u", mapped);
	say_result("MEMPOOL_HANDLE",
		   cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
	say_result("cuMemRetainAllocationHandle",
		   cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
	say_result("cuIpcGetMemHandle of an inner pointer", cuIpcGetMemHandle(&ipc, ptr + 512));
	say_result("a dma-buf of it",
		   cuMemGetHandleForAddressRange(&fd, ptr, 4 * MIB,
						 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	say("its descriptor: %s", fd >= 0 ? "open" : "none");
}

/*
 * ---- green contexts, faults --------------------------------------------------------------------
 */

static void case_green(void)
{
	CUdevResource all, part;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	CUcontext ctx, owner;
	unsigned int groups = 1;
	CUdeviceptr ptr;
	CUstream stream;

	CALL(cuDeviceGetDevResource(gpu.dev, &all, CU_DEV_RESOURCE_TYPE_SM));
	CALL(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
	CALL(cuDevResourceGenerateDesc(&desc, &part, 1));
	CALL(cuGreenCtxCreate(&green, desc, gpu.dev, CU_GREEN_CTX_DEFAULT_STREAM));
	CALL(cuCtxFromGreenCtx(&ctx, green));
	CALL(cuCtxSetCurrent(ctx));
	ptr = alloc(4 * MIB);
	say_result("the context of memory of a green context",
		   cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	say("it is: %s", owner == ctx       ? "the green context's"
			 : owner == gpu.ctx ? "the primary context"
					    : "another");
	CALL(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	WAITS("cuMemFree of 4 MiB of the green context, its kernel running", cuMemFree(ptr));
	ptr = alloc(4 * KIB);
	WAITS("cuMemFree of 4 KiB of the green context, its kernel running", cuMemFree(ptr));
	ptr = alloc(4 * MIB);
	say_result("cuGreenCtxDestroy", cuGreenCtxDestroy(green));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("cuMemFree of its memory then", cuMemFree(ptr));
}

static void case_fault(void)
{
	CUdeviceptr bad = 16, ptr, before = alloc(4 * KIB);
	unsigned int on = 1;
	uint64_t n = 1024;
	void *args[] = {&bad, &n};
	CUcontext ctx;

	kernels_launch(gpu.increment, NULL, args);
	say_result("synchronising after a fault", cuCtxSynchronize());
	say_result("4 KiB after a fault", cuMemAlloc(&ptr, 4 * KIB));
	say_result("64 MiB after a fault", cuMemAlloc(&ptr, 64 * MIB));
	say_result("cuMemAllocPitch after a fault", cuMemAllocPitch(&ptr, &n, 64, 64, 4));
	say_result("cuMemGetAddressRange after a fault", cuMemGetAddressRange(&ptr, NULL, before));
	say_result("cuPointerGetAttribute after a fault",
		   cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, before));
	say_result("cuPointerSetAttribute after a fault",
		   cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, before));
	say_result("cuMemFree after a fault", cuMemFree(before));
	say_result("cuMemGetInfo after a fault", cuMemGetInfo(&n, &n));
	say_result("cuStreamCreate after a fault", cuStreamCreate(&(CUstream){NULL}, 0));
}

/*
 * ---- two GPUs -----------------------------------------------------------------------------------
 */

static CUcontext other_context(void)
{
	CUcontext ctx;
	CUdevice dev;

	CALL(cuDeviceGet(&dev, 1));
	CALL(cuDevicePrimaryCtxRetain(&ctx, dev));
	return ctx;
}

#define WORDS (8 * MIB / 4)

static uint32_t *words; /* pinned */

/* By the first GPU's context, as a memset reaches another GPU only by peer access. */
static void set_words(CUdeviceptr ptr, uint32_t value)
{
	CALL(cuCtxPushCurrent(gpu.ctx));
	CALL(cuMemsetD32(ptr, value, WORDS));
	CALL(cuCtxSynchronize());
	CALL(cuCtxPopCurrent(NULL));
}

/* The copy's result, and whether all words of @ptr are @value then. */
static void say_copy(const char *question, CUresult result, CUdeviceptr ptr, uint32_t value)
{
	CUresult synced = cuCtxSynchronize();
	size_t i = 0;

	if (!cuMemcpyDtoH(words, ptr, WORDS * 4))
		while (i < WORDS && words[i] == value)
			i++;
	say("%s: %s, %s, %s", question, name_of(result), name_of(synced),
	    i == WORDS ? "right" : "wrong");
}

static void case_peer_copy(void)
{
	CUcontext second = other_context();
	CUdeviceptr from, to;
	CUDA_MEMCPY2D flat = {0};
	CUDA_MEMCPY3D solid = {0};
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;
	CUstream stream;
	uint32_t value = 1;
	void *args[] = {&to, &(uint64_t){WORDS}};

	CALL(cuMemHostAlloc((void **)&words, WORDS * 4, 0));
	from = alloc(WORDS * 4);
	CALL(cuCtxSetCurrent(second));
	to = alloc(WORDS * 4);
	for (int current = 0; current < 2; current++) {
		CALL(cuCtxSetCurrent(current ? second : gpu.ctx));
		say("current: the %s of the %s", "context", current ? "destination" : "source");
		stream = stream_new();
		set_words(from, value);
		say_copy("cuMemcpyDtoD", cuMemcpyDtoD(to, from, WORDS * 4), to, value);
		set_words(from, ++value);
		say_copy("cuMemcpyDtoDAsync", cuMemcpyDtoDAsync(to, from, WORDS * 4, stream), to,
			 value);
		set_words(from, ++value);
		say_copy("cuMemcpy", cuMemcpy(to, from, WORDS * 4), to, value);
		set_words(from, ++value);
		say_copy("cuMemcpyAsync", cuMemcpyAsync(to, from, WORDS * 4, stream), to, value);
		set_words(from, ++value);
		flat = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				       .srcDevice = from,
				       .srcPitch = 4096,
				       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				       .dstDevice = to,
				       .dstPitch = 4096,
				       .WidthInBytes = 4096,
				       .Height = WORDS / 1024};
		say_copy("cuMemcpy2D", cuMemcpy2D(&flat), to, value);
		set_words(from, ++value);
		say_copy("cuMemcpy2DAsync", cuMemcpy2DAsync(&flat, stream), to, value);
		set_words(from, ++value);
		solid = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
					.srcDevice = from,
					.srcPitch = 4096,
					.srcHeight = 64,
					.dstMemoryType = CU_MEMORYTYPE_DEVICE,
					.dstDevice = to,
					.dstPitch = 4096,
					.dstHeight = 64,
					.WidthInBytes = 4096,
					.Height = 64,
					.Depth = WORDS / 1024 / 64};
		say_copy("cuMemcpy3D", cuMemcpy3D(&solid), to, value);
		set_words(from, ++value);
		CALL(cuGraphCreate(&graph, 0));
		say_result("cuGraphAddMemcpyNode",
			   cuGraphAddMemcpyNode(&node, graph, NULL, 0, &solid,
						current ? second : gpu.ctx));
		CALL(cuGraphInstantiate(&exec, graph, 0));
		say_copy("its launch", cuGraphLaunch(exec, stream), to, value);
		set_words(from, ++value);
		CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		say_result("cuMemcpyDtoDAsync captured",
			   cuMemcpyDtoDAsync(to, from, WORDS * 4, stream));
		CALL(cuStreamEndCapture(stream, &graph));
		CALL(cuGraphInstantiate(&exec, graph, 0));
		say_copy("its launch", cuGraphLaunch(exec, stream), to, value);
		set_words(from, ++value);
		say_copy("cuMemcpyPeer", cuMemcpyPeer(to, second, from, gpu.ctx, WORDS * 4), to,
			 value);
	}
	/* The first GPU's context is current, the memory is the second's. */
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_copy("cuMemsetD32 of the other GPU's memory", cuMemsetD32(to, 77, WORDS), to, 77);
	memset(words, 5, WORDS * 4);
	say_copy("cuMemcpyHtoD to the other GPU's memory", cuMemcpyHtoD(to, words, WORDS * 4), to,
		 0x05050505);
	CALL(cuMemsetD32(from, 3, WORDS));
	say_result("a kernel on the other GPU's memory, no peer access",
		   cuLaunchKernel(gpu.increment, 64, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
	say_result("synchronising after it", cuCtxSynchronize());
}

/* The first copy between the GPUs, and the next one, while a kernel of the source's GPU runs. */
static void case_peer_busy(void)
{
	CUcontext second = other_context();
	CUstream stream, copies;
	CUdeviceptr from, to;

	CALL(cuCtxSetCurrent(second));
	to = alloc(WORDS * 4);
	CALL(cuCtxSetCurrent(gpu.ctx));
	stream = stream_new();
	copies = stream_new();
	from = alloc(WORDS * 4);
	WAITS("cuMemcpyDtoDAsync to the other GPU beside a kernel",
	      cuMemcpyDtoDAsync(to, from, WORDS * 4, copies));
	WAITS("the same again", cuMemcpyDtoDAsync(to, from, WORDS * 4, copies));
}

static void case_peer_contexts(void)
{
	CUcontext second = other_context(), extra;
	CUdeviceptr far;
	uint64_t n = 1024;
	void *args[] = {&far, &n};
	CUmodule module;
	CUfunction increment;

	CALL(cuCtxSetCurrent(second));
	far = alloc(MIB);
	CALL(cuMemsetD32(far, 0, MIB / 4));
	CALL(cuCtxSynchronize());
	CALL(cuCtxCreate(&extra, NULL, 0, gpu.dev));
	CALL(cuModuleLoadData(&module, kernels_ptx));
	CALL(cuModuleGetFunction(&increment, module, "increment"));
	say_result("peer access of a created context", cuCtxEnablePeerAccess(second, 0));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("peer access of the primary context", cuCtxEnablePeerAccess(second, 0));
	say_result("the same again", cuCtxEnablePeerAccess(second, 0));
	say_result("taking it from the primary context", cuCtxDisablePeerAccess(second));
	say_result("the same again", cuCtxDisablePeerAccess(second));
	CALL(cuCtxSetCurrent(extra));
	say_result("a set by the created context", cuMemsetD32(far, 0, MIB / 4));
	kernels_launch(increment, NULL, args);
	say_result("a kernel of the created context", cuCtxSynchronize());
	say_result("the created context's end", cuCtxDestroy(extra));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("a set by the primary context, which has no access",
		   cuMemsetD32(far, 0, MIB / 4));
	kernels_launch(gpu.increment, NULL, args);
	say_result("a kernel of the primary context, which has no access", cuCtxSynchronize());
}

static void say_current(const char *when)
{
	CUcontext ctx = NULL;

	CALL(cuCtxGetCurrent(&ctx));
	say("  current %s: %s", when, !ctx ? "none" : ctx == gpu.ctx ? "the first" : "the second");
}

/* A thread's stack of contexts: how it ends, and whether it may hold none. */
static void case_stack(void)
{
	CUcontext second, popped = NULL;

	CALL(cuCtxCreate(&second, NULL, 0, gpu.dev));
	say_result("pushing none", cuCtxPushCurrent(NULL));
	say_current("then");
	CALL(cuCtxSetCurrent(second));
	CALL(cuCtxPushCurrent(gpu.ctx));
	say_result("setting none over two", cuCtxSetCurrent(NULL));
	say_current("then");
	say_result("popping the second", cuCtxPopCurrent(&popped));
	say("  popped: %s", popped == second ? "the second" : "another");
	say_current("then");
	say_result("setting none", cuCtxSetCurrent(NULL));
	say_current("then");
	say_result("setting none over none", cuCtxSetCurrent(NULL));
	say_result("popping from none", cuCtxPopCurrent(&popped));
	CALL(cuCtxSetCurrent(second));
	say_result("popping what was set", cuCtxPopCurrent(&popped));
	say_current("then");
}

/* ---- stream-ordered allocations ----------------------------------------------------------- */

#include "tests/programs/fidelity_pools.h"
#include "tests/programs/fidelity_full_pools.h"

/* ---- legacy IPC ---------------------------------------------------------------------------- */

#include "tests/programs/fidelity_mappings.h"

#include "tests/programs/fidelity_ipc.h"

#include "tests/programs/fidelity_descriptors.h"

#include "tests/programs/fidelity_host.h"

static const struct questions cases[] = {{"free_waits", case_free_waits, 1},
					 {"free_async", case_free_async, 1},
					 {"free_async_busy", case_free_async_busy, 1},
					 {"free_captured", case_free_captured, 1},
					 {"alloc_captured", case_alloc_captured, 1},
					 {"full", case_full, 1},
					 {"full_threads", case_full_threads, 1},
					 {"host_free", case_host_free, 1},
					 {"full_captured", case_full_captured, 1},
					 {"captured_full", case_captured_full, 1},
					 {"pool_gives_back", case_pool_gives_back, 1},
					 {"pool_order", case_pool_order, 1},
					 {"pool_sizes", case_pool_sizes, 1},
					 {"pool_legacy", case_pool_legacy, 1},
					 {"pool_reuse", case_pool_reuse, 1},
					 {"pool_events", case_pool_events, 1},
					 {"pool_events_graph", case_pool_events_graph, 1},
					 {"pool_numbers", case_pool_numbers, 1},
					 {"pool_pointers", case_pool_pointers, 1},
					 {"pool_ends", case_pool_ends, 1},
					 {"pool_captured", case_pool_captured, 1},
					 {"pool_full", case_pool_full, 1},
					 {"pool_full_apart", case_pool_full_apart, 1},
					 {"pool_full_captured", case_pool_full_captured, 1},
					 {"pool_pieces", case_pool_pieces, 1},
					 {"pool_pieces_synced", case_pool_pieces_synced, 1},
					 {"pool_pieces_calls", case_pool_pieces_calls, 1},
					 {"pool_too_much", case_pool_too_much, 1},
					 {"pool_context", case_pool_context, 1},
					 {"pool_access", case_pool_access, 2},
					 {"pool_access_usual", case_pool_access_usual, 2},
					 {"pool_free_busy", case_pool_free_busy, 1},
					 {"pool_free_unused", case_pool_free_unused, 1},
					 {"pool_seeks", case_pool_seeks, 1},
					 {"pool_plain", case_pool_plain, 1},
					 {"pool_full_ends", case_pool_full_ends, 1},
					 {"pool_captured_ends", case_pool_captured_ends, 1},
					 {"pool_captured_beside", case_pool_captured_beside, 1},
					 {"pool_waits", case_pool_waits, 1},
					 {"pool_threads", case_pool_threads, 1},
					 {"frag", case_frag, 1},
					 {"frag_few", case_frag_few, 1},
					 {"frag_line", case_frag_line, 1},
					 {"frag_few_line", case_frag_few_line, 1},
					 {"attributes", case_attributes, 1},
					 {"mappings", case_mappings, 1},
					 {"foreign", case_foreign, 1},
					 {"ipc_get", case_ipc_get, 1},
					 {"ipc", case_ipc, 1},
					 {"ipc_opener", case_ipc_opener, 1},
					 {"ipc_outlives", case_ipc_outlives, 1},
					 {"ipc_outlives_opener", case_ipc_outlives_opener, 1},
					 {"ipc_wrong", case_ipc_wrong, 1},
					 {"ipc_wrong_opener", case_ipc_wrong_opener, 1},
					 {"ipc_events", case_ipc_events, 1},
					 {"ipc_events_opener", case_ipc_events_opener, 1},
					 {"descriptors", case_descriptors, 1},
					 {"descriptors_two", case_descriptors_two, 1},
					 {"descriptors_opener", case_descriptors_opener, 1},
					 {"host_memory", case_host_memory, 1},
					 {"host_memory_ends", case_host_memory_ends, 1},
					 {"host_memory_two", case_host_memory_two, 1},
					 {"host_memory_opener", case_host_memory_opener, 1},
					 {"green", case_green, 1},
					 {"fault", case_fault, 1},
					 {"stack", case_stack, 1},
					 {"peer_copy", case_peer_copy, 2},
					 {"peer_busy", case_peer_busy, 2},
					 {"peer_contexts", case_peer_contexts, 2}};

int main(int argc, char **argv)
{
	return questions_ask(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
