/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory: how the driver answers about it, one case a process, named by the argument;
 * "list" prints the names. Natively, and with CUDAW_MANAGED=host, the answers are to be the same
 * (tests/gpu/managed.py). A case that hangs is ended by SIGALRM.
 */
#include "tests/programs/questions.h"

#include <stdbool.h>

#define SIZE  (4 * MIB)
#define WORDS (SIZE / 4)

static CUdeviceptr managed(size_t size)
{
	CUdeviceptr ptr;

	CALL(cuMemAllocManaged(&ptr, size, CU_MEM_ATTACH_GLOBAL));
	return ptr;
}

static uint32_t *host_of(CUdeviceptr ptr)
{
	return (uint32_t *)(uintptr_t)ptr;
}

static const char *right(CUdeviceptr ptr, uint32_t value)
{
	CUresult result = cuCtxSynchronize();

	if (result)
		return name_of(result);
	for (size_t i = 0; i < WORDS; i++)
		if (host_of(ptr)[i] != value)
			return "wrong";
	return "right";
}

static void case_alloc(void)
{
	CUdeviceptr ptr = managed(SIZE), small, other;

	say("fresh memory is zeros: %s", right(ptr, 0));
	say("its address is a multiple of 256: %s", ptr % 256 ? "no" : "yes");
	say_result("no place for the pointer", cuMemAllocManaged(NULL, SIZE, CU_MEM_ATTACH_GLOBAL));
	say_result("no bytes", cuMemAllocManaged(&other, 0, CU_MEM_ATTACH_GLOBAL));
	for (unsigned int flags = 0; flags <= 8; flags++) {
		CUresult result = cuMemAllocManaged(&other, 100, flags);

		say("flags %u: %s", flags, name_of(result));
		if (!result)
			CALL(cuMemFree(other));
	}
	small = managed(100);
	say_result("cuMemFree of an inner pointer", cuMemFree(small + 4));
	say_result("cuMemFree", cuMemFree(small));
	say_result("cuMemFree of an inner pointer of 4 MiB", cuMemFree(ptr + MIB));
	say_result("cuMemFreeHost", cuMemFreeHost(host_of(ptr)));
	say_result("cuMemFree of 4 MiB", cuMemFree(ptr));
	say_result("cuMemFree again", cuMemFree(ptr));
	CALL(cuCtxSetCurrent(NULL));
	say_result("without a context", cuMemAllocManaged(&ptr, SIZE, CU_MEM_ATTACH_GLOBAL));
}

static const struct {
	const char *name;
	CUpointer_attribute attribute;
	enum { VALUE, POINTER, HIDDEN } kind; /* HIDDEN: it differs from run to run */
} attributes[] = {
	{"CONTEXT", CU_POINTER_ATTRIBUTE_CONTEXT, POINTER},
	{"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, VALUE},
	{"DEVICE_POINTER", CU_POINTER_ATTRIBUTE_DEVICE_POINTER, POINTER},
	{"HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER, POINTER},
	{"SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, VALUE},
	{"BUFFER_ID", CU_POINTER_ATTRIBUTE_BUFFER_ID, HIDDEN},
	{"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED, VALUE},
	{"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, VALUE},
	{"IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, VALUE},
	{"RANGE_START_ADDR", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, POINTER},
	{"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE, VALUE},
	{"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED, VALUE},
	{"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, VALUE},
	{"IS_GPU_DIRECT_RDMA_CAPABLE", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, VALUE},
	{"ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, VALUE},
	{"MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, VALUE},
};
#define ATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

/* A pointer in words that are the same in each run. */
static const char *where(uint64_t value, CUdeviceptr start, CUdeviceptr ptr)
{
	return value == start                ? "the start"
	       : value == ptr                ? "the pointer"
	       : value == (uintptr_t)gpu.ctx ? "the context"
	       : value                       ? "another"
					     : "none";
}

static void say_attribute(const char *question, size_t i, uint64_t value, CUdeviceptr start,
			  CUdeviceptr ptr)
{
	if (attributes[i].kind == VALUE)
		say("%s %s: %llu", question, attributes[i].name, (unsigned long long)value);
	else if (attributes[i].kind == POINTER)
		say("%s %s: %s", question, attributes[i].name, where(value, start, ptr));
}

static void ask_attributes(const char *question, CUdeviceptr start, CUdeviceptr ptr)
{
	CUpointer_attribute wanted[ATTRIBUTES];
	uint64_t values[ATTRIBUTES][2] = {0}, value[2];
	void *places[ATTRIBUTES];
	char at_once[64];

	for (size_t i = 0; i < ATTRIBUTES; i++) {
		memset(value, 0, sizeof(value));
		say("%s %s, the result: %s", question, attributes[i].name,
		    name_of(cuPointerGetAttribute(value, attributes[i].attribute, ptr)));
		say_attribute(question, i, value[0], start, ptr);
		wanted[i] = attributes[i].attribute;
		places[i] = values[i];
	}
	snprintf(at_once, sizeof(at_once), "%s, at once,", question);
	say_result(at_once, cuPointerGetAttributes(ATTRIBUTES, wanted, places, ptr));
	for (size_t i = 0; i < ATTRIBUTES; i++)
		say_attribute(at_once, i, values[i][0], start, ptr);
}

static void case_attributes(void)
{
	CUdeviceptr ptr = managed(SIZE), small = managed(100), base = 0;
	unsigned int on = 1, flags = 99;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr device = 0;
	CUipcMemHandle ipc;
	size_t size = 0;
	int fd = -1;

	ask_attributes("the start's", ptr, ptr);
	ask_attributes("the middle's", ptr, ptr + SIZE / 2);
	ask_attributes("100 bytes'", small, small + 8);
	say_result("cuMemGetAddressRange", cuMemGetAddressRange(&base, &size, ptr + 12345));
	say("its range: %zu bytes, from %s", size, where(base, ptr, 0));
	say_result("cuMemGetAddressRange of 100 bytes", cuMemGetAddressRange(&base, &size, small));
	say("the range of 100 bytes: %zu bytes, from %s", size, where(base, small, 0));
	say_result("setting SYNC_MEMOPS",
		   cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	say_result("cuMemHostGetFlags", cuMemHostGetFlags(&flags, host_of(ptr)));
	say_result("cuMemHostGetDevicePointer",
		   cuMemHostGetDevicePointer(&device, host_of(ptr), 0));
	say_result("cuMemHostRegister", cuMemHostRegister(host_of(ptr), SIZE, 0));
	say_result("cuMemHostUnregister", cuMemHostUnregister(host_of(ptr)));
	say_result("cuIpcGetMemHandle", cuIpcGetMemHandle(&ipc, ptr));
	say_result("cuMemRetainAllocationHandle",
		   cuMemRetainAllocationHandle(&handle, host_of(ptr)));
	say_result("a dma-buf", cuMemGetHandleForAddressRange(
					&fd, ptr, SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	CALL(cuMemFree(ptr));
	say_result("IS_MANAGED of freed memory",
		   cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
	say_result("cuMemGetAddressRange of freed memory", cuMemGetAddressRange(&base, &size, ptr));
}

/* The words of the memory are @value after the call. */
#define GIVES(ptr, value, call)                                                \
	do {                                                                   \
		CUresult result_ = (call);                                     \
		say("%s: %s, %s", #call, name_of(result_), right(ptr, value)); \
	} while (0)

static CUresult copy_batch(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
	CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t size = SIZE, first = 0;

	return cuMemcpyBatchAsync(&to, &from, &size, 1, &how, &first, 1, stream);
}

static CUresult copy_2d(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from,
			CUmemorytype from_type)
{
	CUDA_MEMCPY2D copy = {.srcMemoryType = from_type,
			      .srcDevice = from,
			      .srcHost = host_of(from),
			      .srcPitch = 4096,
			      .dstMemoryType = to_type,
			      .dstDevice = to,
			      .dstHost = host_of(to),
			      .dstPitch = 4096,
			      .WidthInBytes = 4096,
			      .Height = SIZE / 4096};

	return cuMemcpy2D(&copy);
}

static CUresult copy_3d(CUdeviceptr to, CUdeviceptr from)
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = from,
			      .srcPitch = 4096,
			      .srcHeight = 64,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = to,
			      .dstPitch = 4096,
			      .dstHeight = 64,
			      .WidthInBytes = 4096,
			      .Height = 64,
			      .Depth = SIZE / 4096 / 64};

	return cuMemcpy3D(&copy);
}

static CUresult run_graph(CUgraph graph)
{
	CUgraphExec exec;
	CUresult result = cuGraphInstantiate(&exec, graph, 0);

	return result ? result : cuGraphLaunch(exec, NULL);
}

static CUresult set_by_graph(CUdeviceptr ptr, uint32_t value)
{
	CUDA_MEMSET_NODE_PARAMS set = {
		.dst = ptr, .value = value, .elementSize = 4, .width = WORDS, .height = 1};
	CUgraph graph;
	CUgraphNode node;
	CUresult result;

	CALL(cuGraphCreate(&graph, 0));
	result = cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, gpu.ctx);
	return result ? result : run_graph(graph);
}

static CUresult copy_captured(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
	CUgraph graph = NULL;
	CUresult result;

	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	result = cuMemcpyAsync(to, from, SIZE, stream);
	CALL(cuStreamEndCapture(stream, &graph));
	return result ? result : run_graph(graph);
}

static bool simulated(void)
{
	char name[64] = "";

	CALL(cuDeviceGetName(name, sizeof(name), gpu.dev));
	return !strcmp(name, "Simulated GPU");
}

static CUresult count_up(CUdeviceptr ptr)
{
	void *args[] = {&ptr, &(uint64_t){WORDS}};

	return cuLaunchKernel(gpu.increment, 64, 1, 1, 256, 1, 1, 0, NULL, args, NULL);
}

static void set(CUdeviceptr ptr, uint32_t value)
{
	CALL(cuMemsetD32(ptr, value, WORDS));
	CALL(cuCtxSynchronize());
}

static void *filled(void *words, int byte)
{
	return memset(words, byte, SIZE);
}

static void case_use(void)
{
	CUdeviceptr m = managed(SIZE), other = managed(SIZE), dev = alloc(SIZE);
	uint32_t *pageable = malloc(SIZE), *pinned, *words = host_of(m);
	CUstream s = stream_new();
	size_t i;

	CALL(cuMemHostAlloc((void **)&pinned, SIZE, 0));
	for (i = 0; i < WORDS; i++)
		words[i] = 41;
	GIVES(m, 42, count_up(m));
	for (i = 0; i < WORDS; i++)
		words[i]++;
	GIVES(m, 44, count_up(m));
	GIVES(m, 0x07070707, cuMemsetD8(m, 7, SIZE));
	GIVES(m, 0x00080008, cuMemsetD16(m, 8, SIZE / 2));
	GIVES(m, 9, cuMemsetD32(m, 9, WORDS));
	GIVES(m, 0x0a0a0a0a, cuMemsetD8Async(m, 10, SIZE, s));
	GIVES(m, 11, cuMemsetD32Async(m, 11, WORDS, s));
	GIVES(m, 12, cuMemsetD2D32(m, 4096, 12, 1024, SIZE / 4096));
	GIVES(m, 13, set_by_graph(m, 13));
	GIVES(m, 0x01010101, cuMemcpyHtoD(m, filled(pageable, 1), SIZE));
	GIVES(m, 0x02020202, cuMemcpyHtoDAsync(m, filled(pinned, 2), SIZE, s));
	set(dev, 3);
	GIVES(m, 3, cuMemcpyDtoD(m, dev, SIZE));
	set(dev, 4);
	GIVES(m, 4, cuMemcpyDtoDAsync(m, dev, SIZE, s));
	set(dev, 5);
	GIVES(m, 5, cuMemcpyDtoH(words, dev, SIZE));
	set(dev, 6);
	GIVES(m, 6, cuMemcpy(m, dev, SIZE));
	if (!simulated()) /* which knows no copies from pageable memory to host memory */
		GIVES(m, 0x03030303, cuMemcpy(m, (uintptr_t)filled(pageable, 3), SIZE));
	GIVES(m, 0x04040404, cuMemcpyAsync(m, (uintptr_t)filled(pinned, 4), SIZE, s));
	GIVES(other, 0x04040404, cuMemcpyDtoD(other, m, SIZE));
	GIVES(m, 6, cuMemcpyPeer(m, gpu.ctx, dev, gpu.ctx, SIZE));
	set(dev, 7);
	GIVES(m, 7, copy_2d(m, CU_MEMORYTYPE_DEVICE, dev, CU_MEMORYTYPE_DEVICE));
	set(dev, 8);
	GIVES(m, 8, copy_2d(m, CU_MEMORYTYPE_UNIFIED, dev, CU_MEMORYTYPE_UNIFIED));
	set(dev, 9);
	GIVES(m, 9, copy_2d(m, CU_MEMORYTYPE_HOST, dev, CU_MEMORYTYPE_DEVICE));
	set(dev, 10);
	GIVES(m, 10, copy_3d(m, dev));
	set(dev, 11);
	GIVES(m, 11, copy_batch(m, dev, s));
	set(dev, 12);
	GIVES(m, 12, copy_captured(m, dev, s));
	GIVES(m, 0x05050505, (filled(words, 5), cuMemcpyHtoD(dev, words, SIZE)));
	say("cuMemcpyDtoH of it: %s",
	    cuMemcpyDtoH(pinned, dev, SIZE) || pinned[1] != 0x05050505 ? "wrong" : "right");
	say("cuMemcpyDtoH of managed memory: %s",
	    cuMemcpyDtoH(pageable, m, SIZE) || pageable[1] != 0x05050505 ? "wrong" : "right");
	free(pageable);
}

static const CUmemLocation NOWHERE = {CU_MEM_LOCATION_TYPE_INVALID, 0},
			   HOST = {CU_MEM_LOCATION_TYPE_HOST, 0},
			   GPU = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
			   NO_GPU = {CU_MEM_LOCATION_TYPE_DEVICE, 99},
			   NODE = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
			   NO_NODE = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 999};

#define RANGE_ATTRIBUTES 8

/* All attributes of a range, in the order of their numbers. */
static void say_range(const char *question, CUdeviceptr ptr, size_t size)
{
	CUmem_range_attribute wanted[RANGE_ATTRIBUTES];
	int values[RANGE_ATTRIBUTES][3] = {0}, one[3];
	size_t sizes[RANGE_ATTRIBUTES];
	void *places[RANGE_ATTRIBUTES];
	CUresult result;

	for (unsigned int i = 0; i < RANGE_ATTRIBUTES; i++) {
		wanted[i] = (CUmem_range_attribute)(i + CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY);
		sizes[i] = wanted[i] == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY ? 12 : 4;
		places[i] = values[i];
	}
	result = cuMemRangeGetAttributes(places, sizes, wanted, RANGE_ATTRIBUTES, ptr, size);
	say("%s: %s, mostly read %d, preferred %d (%d, %d), by %d %d %d, last %d (%d, %d)",
	    question, name_of(result), values[0][0], values[1][0], values[4][0], values[5][0],
	    values[2][0], values[2][1], values[2][2], values[3][0], values[6][0], values[7][0]);
	for (unsigned int i = 0; i < RANGE_ATTRIBUTES; i++) {
		memset(one, 0, sizeof(one));
		result = cuMemRangeGetAttribute(one, sizes[i], wanted[i], ptr, size);
		if (result || memcmp(one, values[i], sizeof(one)))
			say("%s, attribute %u: %s %d %d %d", question, i + 1, name_of(result),
			    one[0], one[1], one[2]);
	}
}

static void case_hints(void)
{
	CUdeviceptr m = managed(SIZE), gone = managed(SIZE), dev = alloc(SIZE);
	int value = 77;

	CALL(cuMemFree(gone));
	say_range("no hints", m, SIZE);
	say_result("prefetch to the GPU", cuMemPrefetchAsync(m, SIZE, GPU, 0, NULL));
	say_range("prefetched to the GPU", m, SIZE);
	say_result("prefetch of a quarter to the host",
		   cuMemPrefetchAsync(m + MIB, MIB, HOST, 0, NULL));
	say_range("the quarter", m + MIB, MIB);
	say_range("the quarter behind it", m + 2 * MIB, MIB);
	say_range("the whole then", m, SIZE);
	say_result("preferred: the GPU",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, GPU));
	say_result("read mostly", cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, NOWHERE));
	say_result("accessed by the GPU", cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, GPU));
	say_result("accessed by the host",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, HOST));
	say_range("advised", m, SIZE);
	say_result("not read mostly",
		   cuMemAdvise(m + 100, 100, CU_MEM_ADVISE_UNSET_READ_MOSTLY, NOWHERE));
	say_range("the first page", m, 4096);
	say_range("the second page", m + 4096, 4096);
	say_result("preferred: the host",
		   cuMemAdvise(m, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HOST));
	say_range("the first quarter", m, MIB);
	say_range("the whole with a quarter preferred elsewhere", m, SIZE);
	say_result("preferred: nothing",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, NOWHERE));
	say_result("not accessed by the GPU",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_UNSET_ACCESSED_BY, GPU));
	say_range("most taken back", m, SIZE);
	say_result("preferred: node 0",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, NODE));
	say_result("prefetch to node 0", cuMemPrefetchAsync(m, SIZE, NODE, 0, NULL));
	say_range("on node 0", m, SIZE);
	say_result("preferred: node 999",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, NO_NODE));
	say_result("preferred: GPU 99",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, NO_GPU));
	say_result("preferred: invalid",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, NOWHERE));
	say_result("accessed by node 0", cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, NODE));
	say_result("accessed by GPU 99",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, NO_GPU));
	say_result("advice 0", cuMemAdvise(m, SIZE, (CUmem_advise)0, GPU));
	say_result("advice 7", cuMemAdvise(m, SIZE, (CUmem_advise)7, GPU));
	say_result("advice for no bytes", cuMemAdvise(m, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, GPU));
	say_result("advice past the end",
		   cuMemAdvise(m, SIZE + 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, GPU));
	say_result("advice for cuMemAlloc's memory",
		   cuMemAdvise(dev, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, GPU));
	say_result("prefetch to GPU 99", cuMemPrefetchAsync(m, SIZE, NO_GPU, 0, NULL));
	say_result("prefetch to node 999", cuMemPrefetchAsync(m, SIZE, NO_NODE, 0, NULL));
	say_result("prefetch to nowhere", cuMemPrefetchAsync(m, SIZE, NOWHERE, 0, NULL));
	say_result("prefetch with flags", cuMemPrefetchAsync(m, SIZE, GPU, 1, NULL));
	say_result("prefetch of no bytes", cuMemPrefetchAsync(m, 0, GPU, 0, NULL));
	say_result("prefetch past the end", cuMemPrefetchAsync(m, SIZE + 4096, GPU, 0, NULL));
	say_result("prefetch of cuMemAlloc's memory", cuMemPrefetchAsync(dev, SIZE, GPU, 0, NULL));
	say_result("an attribute of 8 bytes",
		   cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, SIZE));
	say_result("attribute 99",
		   cuMemRangeGetAttribute(&value, 4, (CUmem_range_attribute)99, m, SIZE));
	say_result("an attribute of no bytes",
		   cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 0));
	say_result("an attribute past the end",
		   cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m,
					  SIZE + 4096));
	say("the place for it is untouched: %s", value == 77 ? "yes" : "no");
}

static void case_batches(void)
{
	CUdeviceptr ptrs[] = {managed(SIZE), managed(SIZE), alloc(SIZE)};
	size_t sizes[] = {SIZE, MIB, SIZE}, indexes[] = {0, 1}, wrong[] = {1, 0};
	CUmemLocation where_to[] = {GPU, HOST}, nowhere[] = {GPU, NOWHERE};
	CUstream s = stream_new();

	say_result("prefetches",
		   cuMemPrefetchBatchAsync(ptrs, sizes, 2, where_to, indexes, 2, 0, s));
	say_range("the first", ptrs[0], SIZE);
	say_range("the second", ptrs[1], MIB);
	say_range("behind the second", ptrs[1] + MIB, MIB);
	say_result("discards", cuMemDiscardBatchAsync(ptrs, sizes, 2, 0, s));
	say_range("the first discarded", ptrs[0], SIZE);
	say_result("discards and prefetches",
		   cuMemDiscardAndPrefetchBatchAsync(ptrs, sizes, 2, where_to, indexes, 1, 0, s));
	say_range("the second then", ptrs[1], MIB);
	say_result("with flags",
		   cuMemPrefetchBatchAsync(ptrs, sizes, 2, where_to, indexes, 2, 1, s));
	say_result("no operations",
		   cuMemPrefetchBatchAsync(ptrs, sizes, 0, where_to, indexes, 2, 0, s));
	say_result("no locations",
		   cuMemPrefetchBatchAsync(ptrs, sizes, 2, where_to, indexes, 0, 0, s));
	say_result("wrong indexes",
		   cuMemPrefetchBatchAsync(ptrs, sizes, 2, where_to, wrong, 2, 0, s));
	say_result("an invalid location",
		   cuMemPrefetchBatchAsync(ptrs, sizes, 2, nowhere, indexes, 2, 0, s));
	say_result("the NULL stream",
		   cuMemPrefetchBatchAsync(ptrs, sizes, 2, where_to, indexes, 2, 0, NULL));
	say_result("cuMemAlloc's memory among them",
		   cuMemPrefetchBatchAsync(ptrs, sizes, 3, where_to, indexes, 2, 0, s));
	say_result("discards with flags", cuMemDiscardBatchAsync(ptrs, sizes, 2, 1, s));
	say_result("discards in the NULL stream", cuMemDiscardBatchAsync(ptrs, sizes, 2, 0, NULL));
	say_result("discards of cuMemAlloc's memory", cuMemDiscardBatchAsync(ptrs, sizes, 3, 0, s));
	say_result("a prefetch of it alone",
		   cuMemPrefetchBatchAsync(ptrs + 2, sizes, 1, where_to, indexes, 1, 0, s));
	say_result("a discard of it alone", cuMemDiscardBatchAsync(ptrs + 2, sizes, 1, 0, s));
	CALL(cuCtxSynchronize());
}

/* No valid flags: on an H200 the first of these calls ends the program, so each has a case of its own. */
static void case_attach_0(void)
{
	CUdeviceptr m = managed(SIZE);

	say_result("attaching with flags 0", cuStreamAttachMemAsync(stream_new(), m, 0, 0));
}

static void case_attach_0_null(void)
{
	CUdeviceptr m = managed(SIZE);

	say_result("attaching to the NULL stream with flags 0",
		   cuStreamAttachMemAsync(NULL, m, SIZE, 0));
}

static void case_streams(void)
{
	CUdeviceptr m = managed(SIZE), other;
	CUstream stream = stream_new(), s = stream_new();

	for (unsigned int flags = 1; flags <= 5; flags++) {
		say("attaching with flags %u: %s", flags,
		    name_of(cuStreamAttachMemAsync(s, m, 0, flags)));
		say("attaching to the NULL stream with flags %u: %s", flags,
		    name_of(cuStreamAttachMemAsync(NULL, m, SIZE, flags)));
	}
	say_result("attaching a part",
		   cuStreamAttachMemAsync(s, m, SIZE / 2, CU_MEM_ATTACH_GLOBAL));
	say_result("attaching more", cuStreamAttachMemAsync(s, m, SIZE + 1, CU_MEM_ATTACH_GLOBAL));
	say_result("attaching by an inner pointer",
		   cuStreamAttachMemAsync(s, m + MIB, 0, CU_MEM_ATTACH_GLOBAL));
	CALL(cuStreamAttachMemAsync(s, m, 0, CU_MEM_ATTACH_GLOBAL));
	CALL(cuCtxSynchronize());
	GIVES(m, 1, count_up(m));
	WAITS("an allocation beside a kernel", cuMemAllocManaged(&other, SIZE, 1));
	WAITS("a prefetch beside a kernel", cuMemPrefetchAsync(m, SIZE, GPU, 0, s));
	WAITS("a prefetch behind a kernel", cuMemPrefetchAsync(m, SIZE, HOST, 0, stream));
	WAITS("advice beside a kernel", cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, GPU));
	WAITS("an attachment behind a kernel",
	      cuStreamAttachMemAsync(stream, m, 0, CU_MEM_ATTACH_GLOBAL));
	WAITS("cuMemFree beside a kernel", cuMemFree(other));
	other = managed(100);
	WAITS("cuMemFree of 100 bytes beside a kernel", cuMemFree(other));
}

static void case_free_async(void)
{
	CUstream stream = stream_new(), s = stream_new();
	CUdeviceptr m = managed(SIZE);

	say_result("cuMemFreeAsync", cuMemFreeAsync(m, s));
	CALL(cuCtxSynchronize());
	m = managed(SIZE);
	WAITS("cuMemFreeAsync beside a kernel", cuMemFreeAsync(m, s));
	m = managed(SIZE);
	WAITS("cuMemFreeAsync behind a kernel", cuMemFreeAsync(m, stream));
}

/* In a capture on @s: the call's result, and how the capture ends. */
#define CAPTURED(what, call)                                                                   \
	do {                                                                                   \
		CUgraph graph_ = NULL;                                                         \
		CUresult result_;                                                              \
		CALL(cuStreamBeginCapture(s, mode));                                           \
		result_ = (call);                                                              \
		say("%s in a %s capture: %s, its end %s", what, names[mode], name_of(result_), \
		    name_of(cuStreamEndCapture(s, &graph_)));                                  \
	} while (0)

static void case_captured(void)
{
	static const char *const names[] = {"global", "thread local", "relaxed"};
	CUdeviceptr m = managed(SIZE), other = 0, gone;
	CUstream s = stream_new(), aside = stream_new();

	for (CUstreamCaptureMode mode = 0; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
		CAPTURED("cuMemAllocManaged",
			 cuMemAllocManaged(&other, SIZE, CU_MEM_ATTACH_GLOBAL));
		gone = managed(SIZE);
		CAPTURED("cuMemFree", cuMemFree(gone));
		CAPTURED("a prefetch aside", cuMemPrefetchAsync(m, SIZE, GPU, 0, aside));
		CAPTURED("advice", cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, GPU));
		CAPTURED("a prefetch", cuMemPrefetchAsync(m, SIZE, GPU, 0, s));
		CAPTURED("an attachment", cuStreamAttachMemAsync(s, m, 0, CU_MEM_ATTACH_GLOBAL));
		CAPTURED("cuMemFreeAsync", cuMemFreeAsync(m, s));
	}
}

static void case_fault(void)
{
	CUdeviceptr m = managed(SIZE), bad = 16, other;
	unsigned int one;

	count_up(bad);
	say_result("synchronising after a fault", cuCtxSynchronize());
	say_result("cuMemAllocManaged", cuMemAllocManaged(&other, SIZE, CU_MEM_ATTACH_GLOBAL));
	say_result("IS_MANAGED", cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
	say_result("cuMemGetAddressRange", cuMemGetAddressRange(&other, NULL, m));
	say_result("a prefetch", cuMemPrefetchAsync(m, SIZE, GPU, 0, NULL));
	say_result("advice", cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, GPU));
	say_result("an attribute",
		   cuMemRangeGetAttribute(&one, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, SIZE));
	say_result("an attachment", cuStreamAttachMemAsync(NULL, m, 0, CU_MEM_ATTACH_GLOBAL));
	say_result("cuMemFree", cuMemFree(m));
}

/* The GPU memory that cudaw keeps does not stand in the way. */
static void case_kept(void)
{
	CUdeviceptr m;

	CALL(cuMemFree(alloc(64 * MIB)));
	say_result("cuMemAllocManaged", cuMemAllocManaged(&m, SIZE, CU_MEM_ATTACH_GLOBAL));
}

/* In a control group with less memory than this takes. */
static void case_small_ones(void)
{
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr m;

	for (size_t got = 0; got < 4 * GIB && !result; got += 16 * MIB)
		result = cuMemAllocManaged(&m, 16 * MIB, CU_MEM_ATTACH_GLOBAL);
	say_result("one of many small allocations", result);
}

static void case_contexts(void)
{
	CUdeviceptr m, mine = managed(SIZE);
	CUcontext extra, owner = NULL;
	unsigned int one = 99;

	CALL(cuCtxCreate(&extra, NULL, 0, gpu.dev));
	m = managed(SIZE);
	say_result("CONTEXT", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, m));
	say("it is the created one: %s", owner == extra ? "yes" : "no");
	say_result("a set of the other context's memory", cuMemsetD32(mine, 5, WORDS));
	say("it is: %s", right(mine, 5));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("a set of the created context's memory", cuMemsetD32(m, 6, WORDS));
	say("it is: %s", right(m, 6));
	CALL(cuCtxSetCurrent(extra));
	say_result("cuMemFree of the other context's memory", cuMemFree(mine));
	CALL(cuCtxDestroy(extra));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("IS_MANAGED after the context's end",
		   cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
	say("its value: %u", one);
}

/* The memory of one GPU's context, and the kernels and sets of the other GPU's. */
static void case_two_gpus(void)
{
	CUdeviceptr m = managed(SIZE);
	CUcontext second;
	CUmodule module;
	CUdevice dev;

	CALL(cuDeviceGet(&dev, 1));
	CALL(cuDevicePrimaryCtxRetain(&second, dev));
	CALL(cuCtxSetCurrent(second));
	CALL(cuModuleLoadData(&module, kernels_ptx));
	CALL(cuModuleGetFunction(&gpu.increment, module, "increment"));
	GIVES(m, 1, count_up(m));
	GIVES(m, 9, cuMemsetD32(m, 9, WORDS));
	ask_attributes("the other GPU's", m, m);
	say_result("prefetch to this GPU",
		   cuMemPrefetchAsync(m, SIZE, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1}, 0,
				      NULL));
	say_result("accessed by this GPU",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY,
			       (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1}));
	say_result("accessed by the other GPU",
		   cuMemAdvise(m, SIZE, CU_MEM_ADVISE_SET_ACCESSED_BY, GPU));
	say_range("both", m, SIZE);
	say_result("cuMemFree", cuMemFree(m));
}

static const struct questions cases[] = {{"alloc", case_alloc, 1},
					 {"attributes", case_attributes, 1},
					 {"use", case_use, 1},
					 {"hints", case_hints, 1},
					 {"batches", case_batches, 1},
					 {"attach_0", case_attach_0, 1},
					 {"attach_0_null", case_attach_0_null, 1},
					 {"streams", case_streams, 1},
					 {"free_async", case_free_async, 1},
					 {"captured", case_captured, 1},
					 {"fault", case_fault, 1},
					 {"kept", case_kept, 1},
					 {"small_ones", case_small_ones, 1},
					 {"contexts", case_contexts, 1},
					 {"two_gpus", case_two_gpus, 2}};

int main(int argc, char **argv)
{
	return questions_ask(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
