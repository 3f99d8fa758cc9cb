/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIDELITY_POOLS_H
#define CUDAW_FIDELITY_POOLS_H
/* The cases of fidelity.c about stream-ordered allocations and memory pools. */

#define POOL_SIZE (4 * MIB)

static CUmemoryPool pool_new(cuuint64_t threshold)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};
	CUmemoryPool pool;

	CALL(cuMemPoolCreate(&pool, &props));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	return pool;
}

static CUdeviceptr pool_alloc(CUmemoryPool pool, size_t size, CUstream stream)
{
	CUdeviceptr ptr;

	CALL(cuMemAllocFromPoolAsync(&ptr, size, pool, stream));
	return ptr;
}

static cuuint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute attr)
{
	cuuint64_t value = 0;

	CALL(cuMemPoolGetAttribute(pool, attr, &value));
	return value;
}

static cuuint64_t pool_reserved(CUmemoryPool pool)
{
	return pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static const char *yes(int is)
{
	return is ? "yes" : "no";
}

static void end_busy(void)
{
	*flag = 1;
}

/* Ask whether all words at @ptr are @value. */
static void say_words(const char *question, CUdeviceptr ptr, size_t size, uint32_t value)
{
	uint32_t *copy = malloc(size);
	size_t wrong = 0;

	CALL(cuMemcpyDtoH(copy, ptr, size));
	for (size_t i = 0; i < size / 4; i++)
		wrong += copy[i] != value;
	say("%s: %s", question, wrong ? "no" : "yes");
	free(copy);
}

/* Freed memory goes to whom the streams order behind the free, and to nobody else. */
static void pool_order(const char *what, CUmemoryPool pool, CUstream stream, CUstream other)
{
	CUdeviceptr first = pool_alloc(pool, POOL_SIZE, stream), again, apart;

	say("in %s", what);
	busy(stream);
	CALL(cuMemsetD32Async(first, 1, POOL_SIZE / 4, stream));
	CALL(cuMemFreeAsync(first, stream));
	again = pool_alloc(pool, POOL_SIZE, stream);
	say("  its own stream gets it at once: %s", yes(again == first));
	CALL(cuMemsetD32Async(again, 2, POOL_SIZE / 4, stream));
	CALL(cuMemFreeAsync(again, stream));
	apart = pool_alloc(pool, POOL_SIZE, other);
	say("  another stream gets it while the first is busy: %s", yes(apart == first));
	CALL(cuMemsetD32Async(apart, 3, POOL_SIZE / 4, other));
	CALL(cuStreamSynchronize(other));
	end_busy();
	CALL(cuStreamSynchronize(stream));
	say_words("  the other stream's memory has its contents", apart, POOL_SIZE, 3);
	CALL(cuMemFreeAsync(apart, other));
	CALL(cuStreamSynchronize(other));
}

static void case_pool_order(void)
{
	CUstream stream = stream_new(), other = stream_new(), blocking;
	CUmemoryPool usual, own = pool_new(UINT64_MAX);

	CALL(cuDeviceGetDefaultMemPool(&usual, gpu.dev));
	pool_order("a pool of the program", own, stream, other);
	pool_order("the default pool", usual, stream, other);
	pool_order("the legacy stream", own, CU_STREAM_LEGACY, other);
	pool_order("the thread's stream", own, CU_STREAM_PER_THREAD, other);
	pool_order("a stream beside the thread's", own, stream, CU_STREAM_PER_THREAD);
	CALL(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	own = pool_new(UINT64_MAX);
	CALL(cuMemFreeAsync(pool_alloc(own, POOL_SIZE, blocking), blocking));
	CALL(cuStreamSynchronize(blocking));
	CALL(cuStreamDestroy(blocking));
	CALL(cuMemFreeAsync(pool_alloc(own, POOL_SIZE, other), other));
	pool_order("a stream after the end of a blocking one", own, stream_new(), other);
}

/* A loop that allocates and frees in one stream takes no more memory, whatever the size. */
static void case_pool_sizes(void)
{
	static const size_t sizes[] = {1000,     100 * KIB + 1, 2 * MIB - 1,
				       2 * MIB,  3 * MIB + 5,   5 * MIB + 1,
				       11 * MIB, 17 * MIB,      33 * MIB};
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUstream stream = stream_new();

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CUdeviceptr first = pool_alloc(pool, sizes[i], stream);
		cuuint64_t reserved = pool_reserved(pool);
		int others = 0;

		CALL(cuMemFreeAsync(first, stream));
		for (int k = 0; k < 100; k++) {
			CUdeviceptr again = pool_alloc(pool, sizes[i], stream);

			others += again != first;
			CALL(cuMemFreeAsync(again, stream));
		}
		say("%zu bytes, other memory after their free: %d times of 100", sizes[i], others);
		say("  the pool has no more memory than before: %s",
		    yes(pool_reserved(pool) == reserved));
	}
}

/*
 * The legacy stream and blocking streams wait for each other's work, and so for frees in it: the memory
 * of a busy stream is freed in another one, and allocated there.
 */
static void pool_legacy(const char *what, CUstream before, CUstream freed, CUstream after,
			int looks)
{
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr first = pool_alloc(pool, POOL_SIZE, before), apart = 0, again;
	CUstream other = stream_new();

	CALL(cuStreamSynchronize(before));
	busy(before);
	CALL(cuMemsetD32Async(first, 1, POOL_SIZE / 4, before));
	CALL(cuMemFreeAsync(first, freed));
	for (int i = 0; i < looks; i++) {
		apart = pool_alloc(pool, POOL_SIZE, other);
		CALL(cuMemsetD32Async(apart, 2, POOL_SIZE / 4, other));
		CALL(cuStreamSynchronize(other));
		say("%s, a stream apart gets it: %s", what, yes(apart == first));
	}
	again = pool_alloc(pool, POOL_SIZE, freed);
	CALL(cuMemsetD32Async(again, 3, POOL_SIZE / 4, after));
	step_sleep_ms(20);
	end_busy();
	CALL(cuCtxSynchronize());
	say("%s, it is the same memory: %s", what, yes(again == first));
	say_words("  the later memory has its contents", again, POOL_SIZE, 3);
	if (looks)
		say_words("  that of the stream apart, too", apart, POOL_SIZE, 2);
}

static void case_pool_legacy(void)
{
	CUstream one, two;

	CALL(cuStreamCreate(&one, CU_STREAM_DEFAULT));
	CALL(cuStreamCreate(&two, CU_STREAM_DEFAULT));
	for (int looks = 0; looks < 4; looks += 3) {
		pool_legacy("freed in the legacy stream", one, CU_STREAM_LEGACY, two, looks);
		pool_legacy("freed in a blocking stream", CU_STREAM_LEGACY, one, one, looks);
		pool_legacy("freed in the thread's stream", CU_STREAM_LEGACY, CU_STREAM_PER_THREAD,
			    CU_STREAM_PER_THREAD, looks);
	}
}

/* What other streams get, once the work has ended: by a synchronisation, and by looking. */
static void case_pool_reuse(void)
{
	static const char *const hows[] = {"a stream", "a context", "an event", "no"};
	CUstream stream = stream_new(), other = stream_new();
	CUevent event;

	CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int how = 0; how < 4; how++) {
		CUmemoryPool pool = pool_new(UINT64_MAX);
		CUdeviceptr ptr = pool_alloc(pool, POOL_SIZE, stream), next;
		cuuint64_t reserved;

		CALL(cuMemsetD32Async(ptr, 1, POOL_SIZE / 4, stream));
		CALL(cuMemFreeAsync(ptr, stream));
		CALL(cuEventRecord(event, stream));
		if (how == 0)
			CALL(cuStreamSynchronize(stream));
		if (how == 1)
			CALL(cuCtxSynchronize());
		if (how == 2)
			CALL(cuEventSynchronize(event));
		while (cuStreamQuery(stream))
			;
		reserved = pool_reserved(pool);
		next = pool_alloc(pool, POOL_SIZE, other);
		say("after %s synchronisation another stream gets it: %s", hows[how],
		    yes(next == ptr));
		say("  the pool has no more memory than before: %s",
		    yes(pool_reserved(pool) == reserved));
		CALL(cuMemFreeAsync(next, other));
		CALL(cuStreamSynchronize(other));
		CALL(cuMemPoolDestroy(pool));
	}
}

/* @event is recorded in @stream by a node of a graph. */
static void record_by_node(CUevent event, CUstream stream)
{
	CUgraph graph;
	CUgraphExec exec;
	CUgraphNode node;

	CALL(cuGraphCreate(&graph, 0));
	CALL(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
	CALL(cuGraphInstantiate(&exec, graph, 0));
	CALL(cuGraphLaunch(exec, stream));
	CALL(cuStreamSynchronize(stream));
}

enum { NO_EVENT, EVENT, EARLY_EVENT, OTHER_RECORD, THIRD_STREAM, POLICY, GRAPH_RECORD };

/* What another stream gets behind work that goes on, if events order the two. */
static void say_followed(const char *question, int how)
{
	CUstream from = stream_new(), to = stream_new(), third = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr ptr = pool_alloc(pool, POOL_SIZE, from), next;
	CUevent event, later;
	int follow = how != POLICY;

	CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CALL(cuEventCreate(&later, CU_EVENT_DISABLE_TIMING));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follow));
	busy(from);
	if (how == EARLY_EVENT)
		CALL(cuEventRecord(event, from));
	CALL(cuMemFreeAsync(ptr, from));
	if (how != EARLY_EVENT)
		CALL(cuEventRecord(event, from));
	if (how == OTHER_RECORD)
		CALL(cuEventRecord(event, third));
	if (how == GRAPH_RECORD)
		record_by_node(event, third);
	if (how == THIRD_STREAM) {
		CALL(cuStreamWaitEvent(third, event, 0));
		CALL(cuEventRecord(later, third));
	}
	if (how != NO_EVENT)
		CALL(cuStreamWaitEvent(to, how == THIRD_STREAM ? later : event, 0));
	next = pool_alloc(pool, POOL_SIZE, to);
	say("%s: %s", question, yes(next == ptr));
	end_busy();
	CALL(cuCtxSynchronize());
	CALL(cuMemFree(next));
	CALL(cuMemPoolDestroy(pool));
}

static void case_pool_events(void)
{
	say_followed("without an event another stream gets it", NO_EVENT);
	say_followed("behind an event", EVENT);
	say_followed("behind one of before the free", EARLY_EVENT);
	say_followed("behind one that another stream has recorded since", OTHER_RECORD);
	say_followed("behind a stream that is behind an event", THIRD_STREAM);
	say_followed("behind an event that the pool does not follow", POLICY);
}

static void case_pool_events_graph(void)
{
	say_followed("behind an event that a graph has recorded since", GRAPH_RECORD);
}

static void say_pool(const char *when, CUmemoryPool pool)
{
	cuuint64_t used = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
	cuuint64_t high = pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH);

	say("%s, KiB used: %zu", when, (size_t)(used / KIB));
	say("%s, KiB used at most: %zu", when, (size_t)(high / KIB));
	say("%s, more is reserved than used: %s", when, yes(pool_reserved(pool) > used));
	say("%s, less was reserved than now: %s", when,
	    yes(pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) < pool_reserved(pool)));
}

static void case_pool_numbers(void)
{
	CUmemoryPool pool = pool_new(256 * MIB), none = pool_new(0);
	CUstream stream = stream_new();
	CUdeviceptr ptr, small;
	cuuint64_t zero = 0, one = 1;

	say_pool("at first", pool);
	ptr = pool_alloc(pool, 64 * MIB, stream);
	small = pool_alloc(pool, 1000, stream);
	say_pool("with 64 MiB and 1000 bytes", pool);
	CALL(cuMemFreeAsync(ptr, stream));
	say_pool("freed", pool);
	CALL(cuStreamSynchronize(stream));
	say_pool("synchronised", pool);
	CALL(cuMemPoolTrimTo(pool, 0));
	say_pool("trimmed", pool);
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	say_pool("reset", pool);
	say_result("setting the highest amount",
		   cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
	CALL(cuMemFreeAsync(small, stream));
	ptr = pool_alloc(none, 64 * MIB, stream);
	CALL(cuMemFreeAsync(ptr, stream));
	say("64 MiB freed are still the pool's: %s", yes(pool_reserved(none) >= 64 * MIB));
	CALL(cuStreamSynchronize(stream));
	say("after a synchronisation: %s", yes(pool_reserved(none) >= 64 * MIB));
	ptr = pool_alloc(pool, 512 * MIB, stream);
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(cuCtxSynchronize());
	say("more than the threshold is reserved after a synchronisation: %s",
	    yes(pool_reserved(pool) > 256 * MIB));
}

static void case_pool_pointers(void)
{
	static const struct {
		const char *name;
		CUpointer_attribute attribute;
	} asked[] = {
		{"CONTEXT", CU_POINTER_ATTRIBUTE_CONTEXT},
		{"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
		{"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED},
		{"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
		{"IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
		{"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
		{"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE}};
	CUmemoryPool pool = pool_new(0), found = NULL;
	CUstream stream = stream_new();
	CUdeviceptr ptr = pool_alloc(pool, 3 * MIB + 5, stream), base = 0, none = 1;
	CUmemGenericAllocationHandle handle;
	unsigned int on = 1;
	CUipcMemHandle ipc;
	size_t size = 0;

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		uint64_t value = 0;

		say_result(asked[i].name, cuPointerGetAttribute(&value, asked[i].attribute, ptr));
		if (asked[i].attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
			say("  the value: %s", value == (uintptr_t)gpu.ctx ? "the context"
					       : value                     ? "another"
									   : "none");
		else
			say("  the value: %zu", (size_t)value);
	}
	say_result("MEMPOOL_HANDLE",
		   cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr + 7));
	say("  it is the pool: %s", yes(found == pool));
	say_result("SYNC_MEMOPS",
		   cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	say_result("cuMemGetAddressRange", cuMemGetAddressRange(&base, &size, ptr + 9));
	say("  the size: %zu", size);
	say_result("cuIpcGetMemHandle", cuIpcGetMemHandle(&ipc, ptr));
	say_result("cuMemRetainAllocationHandle",
		   cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
	say_result("no bytes", cuMemAllocAsync(&none, 0, stream));
	say("  the pointer: %s", none == 1 ? "as before" : none ? "another" : "0");
	say_result("cuMemFreeAsync of 0", cuMemFreeAsync(0, stream));
	say_result("cuMemFreeAsync inside the memory", cuMemFreeAsync(ptr + 512, stream));
	say_result("cuMemFree of it", cuMemFree(ptr));
	say_result("more than the GPU has", cuMemAllocFromPoolAsync(&ptr, 1UL << 44, pool, stream));
}

/* Pools and streams that end before the memory. */
static void case_pool_ends(void)
{
	CUstream stream = stream_new(), other = stream_new(), third = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX), usual, current = NULL;
	CUdeviceptr live = pool_alloc(pool, POOL_SIZE, stream), ptr;

	ptr = pool_alloc(pool, POOL_SIZE, stream);
	busy(stream);
	CALL(cuMemsetD32Async(live, 1, POOL_SIZE / 4, stream));
	CALL(cuMemsetD32Async(ptr, 1, POOL_SIZE / 4, stream));
	CALL(cuMemFreeAsync(ptr, stream));
	say_result("a busy stream ends", cuStreamDestroy(stream));
	ptr = pool_alloc(pool, POOL_SIZE, other);
	CALL(cuMemsetD32Async(ptr, 2, POOL_SIZE / 4, other));
	CALL(cuDeviceGetDefaultMemPool(&usual, gpu.dev));
	CALL(cuDeviceSetMemPool(gpu.dev, pool));
	say_result("the device's pool ends", cuMemPoolDestroy(pool));
	CALL(cuDeviceGetMemPool(&current, gpu.dev));
	say("the device has its default pool: %s", yes(current == usual));
	say_result("the end of the default pool", cuMemPoolDestroy(usual));
	say_result("an allocation after it", cuMemAllocAsync(&live, POOL_SIZE, third));
	CALL(cuMemsetD32Async(live, 3, POOL_SIZE / 4, third));
	CALL(cuStreamSynchronize(third));
	CALL(cuStreamSynchronize(other));
	end_busy();
	CALL(cuCtxSynchronize());
	say_words("memory of the pool that ended has its contents", ptr, POOL_SIZE, 2);
	say_words("memory of the default pool, too", live, POOL_SIZE, 3);
	say_result("a free of the memory whose pool ended", cuMemFreeAsync(ptr, other));
	say_result("an allocation of that pool",
		   cuMemAllocFromPoolAsync(&ptr, POOL_SIZE, NULL, other));
}

/* Another stream allocates and frees beside a capture, which has memory of its own. */
static void pool_captured(const char *what, CUstreamCaptureMode mode)
{
	CUstream stream = stream_new(), other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr beside = 0, inside, freed = pool_alloc(pool, POOL_SIZE, other);
	CUgraph graph = NULL;
	CUgraphExec exec;
	size_t nodes = 0;
	CUresult result;

	CALL(cuMemFreeAsync(freed, other));
	CALL(cuStreamBeginCapture(stream, mode));
	CALL(cuMemAllocAsync(&inside, POOL_SIZE, stream));
	CALL(cuMemsetD32Async(inside, 7, POOL_SIZE / 4, stream));
	result = cuMemAllocFromPoolAsync(&beside, POOL_SIZE, pool, other);
	say("beside a %s capture: %s", what, name_of(result));
	if (!result) {
		CALL(cuMemsetD32Async(beside, 8, POOL_SIZE / 4, other));
		say("freed beside a %s capture: %s", what, name_of(cuMemFreeAsync(beside, other)));
	}
	result = cuStreamEndCapture(stream, &graph);
	say("the end of the %s capture: %s", what, name_of(result));
	if (result)
		return;
	CALL(cuGraphGetNodes(graph, NULL, &nodes));
	say("nodes of the %s capture: %zu", what, nodes);
	CALL(cuGraphInstantiate(&exec, graph, 0));
	CALL(cuGraphLaunch(exec, stream));
	CALL(cuStreamSynchronize(stream));
	say_words("the graph's memory has its contents", inside, POOL_SIZE, 7);
	say_result("a free of it outside", cuMemFreeAsync(inside, stream));
}

static void case_pool_captured(void)
{
	CUstream stream = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr before = pool_alloc(pool, POOL_SIZE, stream);
	CUgraph graph = NULL;

	pool_captured("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	say_result("a free in a capture of memory from before", cuMemFreeAsync(before, stream));
	say_result("the end of that", cuStreamEndCapture(stream, &graph));
	say_result("freed then", cuMemFreeAsync(before, stream));
	CALL(cuCtxSynchronize());
	pool_captured("global", CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Memory of a context that the program created, and the end of the context. */
static void case_pool_context(void)
{
	CUstream stream = stream_new();
	CUdeviceptr ptr, usual;
	uint32_t word = 0;
	CUcontext ctx;

	CALL(cuCtxCreate(&ctx, NULL, 0, gpu.dev));
	CALL(cuMemAllocAsync(&ptr, POOL_SIZE, NULL));
	CALL(cuMemsetD32Async(ptr, 5, POOL_SIZE / 4, NULL));
	say_result("an allocation in a stream of another context",
		   cuMemAllocAsync(&usual, POOL_SIZE, stream));
	say_result("its free in the own one", cuMemFreeAsync(usual, NULL));
	CALL(cuCtxSynchronize());
	say_result("the context's end", cuCtxDestroy(ctx));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("a copy of its memory", cuMemcpyDtoH(&word, ptr, 4));
	say("  the word: %u", word);
	say_result("the free of its memory", cuMemFreeAsync(ptr, stream));
	CALL(cuMemAllocAsync(&ptr, POOL_SIZE, stream));
	CALL(cuStreamSynchronize(stream));
	say_result("the primary context's reset", cuDevicePrimaryCtxReset(gpu.dev));
	CALL(cuDevicePrimaryCtxRetain(&gpu.ctx, gpu.dev));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("an allocation after it", cuMemAllocAsync(&ptr, POOL_SIZE, NULL));
	say_result("a set of it", cuMemsetD32Async(ptr, 6, POOL_SIZE / 4, NULL));
	say_result("synchronising", cuCtxSynchronize());
}

/* Memory of a pool that another GPU may access, allocated before and after it was allowed. */
static void case_pool_access(void)
{
	CUmemAccessDesc desc = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	CUstream stream = stream_new();
	CUmemoryPool pool = pool_new(0);
	CUdeviceptr before = pool_alloc(pool, POOL_SIZE, stream), after;
	CUcontext far;

	CALL(cuStreamSynchronize(stream));
	CALL(cuMemPoolGetAccess(&flags, pool, &desc.location));
	say("access at first: %d", (int)flags);
	say_result("cuMemPoolSetAccess", cuMemPoolSetAccess(pool, &desc, 1));
	CALL(cuMemPoolGetAccess(&flags, pool, &desc.location));
	say("access then: %d", (int)flags);
	after = pool_alloc(pool, POOL_SIZE, stream);
	CALL(cuStreamSynchronize(stream));
	CALL(cuDevicePrimaryCtxRetain(&far, 1));
	CALL(cuCtxSetCurrent(far));
	say_result("a set of earlier memory by the other GPU",
		   cuMemsetD32(before, 7, POOL_SIZE / 4));
	say_result("a set of later memory", cuMemsetD32(after, 8, POOL_SIZE / 4));
	say_result("synchronising", cuCtxSynchronize());
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_words("the earlier memory has its contents", before, POOL_SIZE, 7);
	say_words("the later memory, too", after, POOL_SIZE, 8);
}

/* Access to the default pool, allowed before the program has allocated anything. */
static void case_pool_access_usual(void)
{
	CUmemAccessDesc desc = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUstream stream = stream_new();
	CUmemoryPool usual;
	CUdeviceptr ptr;
	CUcontext far;

	CALL(cuDeviceGetDefaultMemPool(&usual, gpu.dev));
	say_result("cuMemPoolSetAccess", cuMemPoolSetAccess(usual, &desc, 1));
	CALL(cuMemAllocAsync(&ptr, POOL_SIZE, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuDevicePrimaryCtxRetain(&far, 1));
	CALL(cuCtxSetCurrent(far));
	say_result("a set by the other GPU", cuMemsetD32(ptr, 7, POOL_SIZE / 4));
	say_result("synchronising", cuCtxSynchronize());
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_words("the memory has its contents", ptr, POOL_SIZE, 7);
}

/* A free without an order comes after the memory's last use, and does not wait for other work. */
static void case_pool_free_busy(void)
{
	CUstream stream = stream_new(), other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr ptr = pool_alloc(pool, POOL_SIZE, stream), again;

	CALL(cuMemsetD32Async(ptr, 1, POOL_SIZE / 4, stream));
	CALL(cuStreamSynchronize(stream));
	busy(other);
	say_result("cuMemFree while another stream is busy", cuMemFree(ptr));
	say("  it has waited: %s", yes(cuStreamQuery(other) == CUDA_SUCCESS));
	again = pool_alloc(pool, POOL_SIZE, stream);
	say("  the pool has it for an allocation: %s", yes(again == ptr));
	end_busy();
	CALL(cuCtxSynchronize());
	say_result("freed once more", cuMemFree(again));
	say_result("freed twice", cuMemFree(again));
}

/*
 * Memory that was freed behind a kernel is allocated again in the kernel's stream, and freed without an
 * order before any work has used it. The work before the first free still uses it.
 */
static void pool_free_unused(const char *what, int ends)
{
	CUstream stream = stream_new(), other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr first = pool_alloc(pool, POOL_SIZE, stream), again, apart, late;

	say("%s", what);
	CALL(cuStreamSynchronize(stream));
	busy(stream);
	CALL(cuMemsetD32Async(first, 1, POOL_SIZE / 4, stream));
	CALL(cuMemFreeAsync(first, stream));
	again = pool_alloc(pool, POOL_SIZE, stream);
	say("  its own stream gets it at once: %s", yes(again == first));
	if (ends)
		CALL(cuStreamDestroy(stream));
	say_result("  cuMemFree of it, unused", cuMemFree(again));
	apart = pool_alloc(pool, POOL_SIZE, other);
	CALL(cuMemsetD32Async(apart, 3, POOL_SIZE / 4, other));
	CALL(cuStreamSynchronize(other));
	end_busy();
	CALL(cuCtxSynchronize());
	say_words("  another stream's memory has its contents", apart, POOL_SIZE, 3);
	late = pool_alloc(pool, POOL_SIZE, other);
	say("  once the work has ended, another stream has got it: %s",
	    yes(apart == first || late == first));
	CALL(cuMemFree(late));
	CALL(cuMemFree(apart));
	CALL(cuMemPoolDestroy(pool));
}

static void case_pool_free_unused(void)
{
	pool_free_unused("in a stream", 0);
	pool_free_unused("in a stream that has ended", 1);
}

struct seeker {
	CUmemoryPool pool;
	CUstream stream;
	int ended; /* atomic */
};

/* Allocates again and again, from a pool that has given back what this thread freed. */
static void *seek(void *arg)
{
	struct seeker *s = arg;

	CALL(cuCtxSetCurrent(gpu.ctx));
	while (!__atomic_load_n(&s->ended, __ATOMIC_RELAXED)) {
		CALL(cuMemFree(pool_alloc(s->pool, POOL_SIZE, s->stream)));
		CALL(cuStreamSynchronize(s->stream));
	}
	return NULL;
}

/* Another thread looks for memory that was freed in the legacy stream while captures begin and end. */
static void case_pool_seeks(void)
{
	struct seeker seeker = {.pool = pool_new(0), .stream = stream_new()};
	CUstream stream;
	pthread_t thread;
	CUgraph graph;
	int broken = 0;

	CALL(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CALL(pthread_create(&thread, NULL, seek, &seeker) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
	for (int i = 0; i < 1000; i++) {
		CUdeviceptr more[2];

		for (int k = 0; k < 2; k++)
			more[k] = pool_alloc(seeker.pool, POOL_SIZE, CU_STREAM_LEGACY);
		for (int k = 0; k < 2; k++)
			CALL(cuMemFreeAsync(more[k], CU_STREAM_LEGACY));
		CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		broken += cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS;
	}
	__atomic_store_n(&seeker.ended, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	say("captures that broke: %d", broken);
}

/* Uses memory in the default stream of the thread, and ends. */
static void *use_and_end(void *pool)
{
	CUdeviceptr ptrs[4];

	CALL(cuCtxSetCurrent(gpu.ctx));
	for (int i = 0; i < 4; i++) {
		ptrs[i] = pool_alloc(pool, POOL_SIZE, CU_STREAM_PER_THREAD);
		CALL(cuMemsetD32Async(ptrs[i], 1, POOL_SIZE / 4, CU_STREAM_PER_THREAD));
	}
	for (int i = 0; i < 4; i++)
		CALL(cuMemFreeAsync(ptrs[i], CU_STREAM_PER_THREAD));
	while (cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY)
		step_sleep_ms(1);
	return NULL;
}

/* Threads come and go, and nobody waits for their streams. */
static void case_pool_threads(void)
{
	CUmemoryPool pool = pool_new(UINT64_MAX);
	pthread_t thread;

	for (int i = 0; i < 40; i++) {
		CALL(pthread_create(&thread, NULL, use_and_end, pool) ? CUDA_ERROR_UNKNOWN
								      : CUDA_SUCCESS);
		pthread_join(thread, NULL);
	}
	say("after 40 threads the pool has memory for more than 10: %s",
	    yes(pool_reserved(pool) > 10 * 4 * POOL_SIZE));
}

/* A stream ends, or not, while it captures and has memory that was freed in it before. */
static void case_pool_captured_ends(void)
{
	CUstream stream = stream_new(), other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr ptr = pool_alloc(pool, POOL_SIZE, stream), inside;
	int got = 0;
	CUresult result;
	CUgraph graph;
	size_t nodes = 0;

	busy(stream);
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	result = cuStreamDestroy(stream);
	say_result("the end of a stream that captures", result);
	if (result) {
		CALL(cuMemAllocAsync(&inside, POOL_SIZE, stream));
		CALL(cuStreamEndCapture(stream, &graph));
		CALL(cuGraphGetNodes(graph, NULL, &nodes));
		say("  nodes of the capture: %zu", nodes);
	}
	end_busy();
	/* The work has 20 s for its end. */
	for (int i = 0; i < 400 && !got; i++) {
		step_sleep_ms(50);
		got = pool_alloc(pool, POOL_SIZE, other) == ptr;
	}
	say("another stream gets the memory: %s", yes(got));
}

static CUgraph ended;

static void *end_capture(void *stream)
{
	CALL(cuCtxSetCurrent(gpu.ctx));
	say("another thread ends it: %s", name_of(cuStreamEndCapture(stream, &ended)));
	return NULL;
}

/* Allocate and free in @stream, which captures, and end that: the graph has both. */
static void say_captured(const char *what, CUstream stream)
{
	CUdeviceptr ptr;
	CUresult result = cuMemAllocAsync(&ptr, POOL_SIZE, stream);
	CUgraph graph = NULL;
	size_t nodes = 0;

	if (!result)
		result = cuMemFreeAsync(ptr, stream);
	say("%s, memory is allocated and freed: %s", what, name_of(result));
	say("  the end of the capture: %s", name_of(cuStreamEndCapture(stream, &graph)));
	if (graph)
		CALL(cuGraphGetNodes(graph, NULL, &nodes));
	say("  nodes of the graph: %zu", nodes);
}

/* A capture that goes on while something else ends: what another thread, or context, has to do with it. */
static void case_pool_captured_beside(void)
{
	CUstream stream = stream_new(), mine = CU_STREAM_PER_THREAD;
	pthread_t thread;
	CUcontext other;
	CUgraph graph;

	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	pthread_create(&thread, NULL, end_capture, stream);
	pthread_join(thread, NULL);
	say_captured("after another thread's try", stream);

	CALL(cuCtxCreate(&other, NULL, 0, gpu.dev));
	CALL(cuCtxSetCurrent(gpu.ctx));
	CALL(cuStreamBeginCapture_v2(mine, CU_STREAM_CAPTURE_MODE_RELAXED));
	CALL(cuCtxSetCurrent(other));
	CALL(cuStreamBeginCapture_v2(mine, CU_STREAM_CAPTURE_MODE_RELAXED));
	say("the capture in another context ends: %s", name_of(cuStreamEndCapture(mine, &graph)));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_captured("after that", mine);

	CALL(cuStreamBeginCapture_v2(mine, CU_STREAM_CAPTURE_MODE_RELAXED));
	CALL(cuCtxSetCurrent(other));
	stream = stream_new();
	CALL(cuMemFreeAsync(pool_alloc(pool_new(0), POOL_SIZE, stream), stream));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_captured("after an allocation in another context", mine);
}

/* The memory of a busy stream is freed in one that has nothing to do except to wait for that one. */
static void case_pool_waits(void)
{
	CUstream stream = stream_new(), waiting = stream_new(), other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr ptr = pool_alloc(pool, POOL_SIZE, stream);
	CUevent event;

	CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CALL(cuStreamSynchronize(stream));
	busy(stream);
	CALL(cuMemsetD32Async(ptr, 1, POOL_SIZE / 4, stream));
	CALL(cuEventRecord(event, stream));
	CALL(cuStreamWaitEvent(waiting, event, 0));
	CALL(cuMemFreeAsync(ptr, waiting));
	say("the stream that waits is idle: %s", yes(cuStreamQuery(waiting) == CUDA_SUCCESS));
	for (int i = 0; i < 3; i++)
		say("another stream gets its memory: %s",
		    yes(pool_alloc(pool, POOL_SIZE, other) == ptr));
	end_busy();
	CALL(cuCtxSynchronize());
}

#endif
