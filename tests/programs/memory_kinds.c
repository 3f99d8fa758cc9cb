/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One kind of memory, changed in every step and checked to the last byte after it:
 *
 *	memory_kinds --kind NAME [--steps N] [--step-ms N]
 *
 * Every kind has memory of cuMemAlloc beside it, which is checked as well. What the device or the
 * driver lacks is skipped: a line "skip: WHY", and exit status 77. Arrays are in
 * memory_kinds_arrays.h, the kinds that two processes share in memory_kinds_shared.h.
 */
#include "tests/programs/memory_kinds_arrays.h"
#include "tests/programs/memory_kinds_shared.h"

#include <sys/mman.h>

#define PARTS       2U
#define MULTICAST   2U
#define CONSTANTS   4096U
#define GLOBALS     (WORDS - CONSTANTS)
#define HOST_WORDS  (WORDS / 2)
#define HOST_SIZE   (HOST_WORDS * sizeof(uint32_t))
#define THRESHOLD   (UINT64_C(64) << 20)
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void copy_on_stream(CUdeviceptr dst, CUdeviceptr src)
{
	CALL(cuMemcpyDtoDAsync_v2(dst, src, SIZE, stream));
}

/* Stream-ordered memory; each step moves to a new allocation. */

static void async_setup(void)
{
	need(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "the device has no memory pools");
	CALL(cuMemAllocAsync(&data, SIZE, stream));
	CALL(cuStreamSynchronize(stream));
	upload_start(data);
}

static void async_step(unsigned long k)
{
	CUdeviceptr next;

	(void)k;
	CALL(cuMemAllocAsync(&next, SIZE, stream));
	copy_on_stream(next, data);
	CALL(cuMemFreeAsync(data, stream));
	increment(next, WORDS);
	data = next;
}

static void async_finish(void)
{
	CALL(cuMemFreeAsync(data, stream));
}

/* A pool of the program's own, which becomes the device's. */

static CUmemoryPool pool, usual_pool;

static void pool_setup(void)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.dev},
	};
	uint64_t threshold = THRESHOLD;

	need(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "the device has no memory pools");
	CALL(cuMemPoolCreate(&pool, &props));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	CALL(cuDeviceGetMemPool(&usual_pool, gpu.dev));
	CALL(cuDeviceSetMemPool(gpu.dev, pool));
	CALL(cuMemAllocFromPoolAsync(&data, SIZE, pool, stream));
	CALL(cuStreamSynchronize(stream));
	upload_start(data);
}

static void pool_step(unsigned long k)
{
	uint64_t threshold = 0, used = 0;
	CUmemoryPool current;
	CUdeviceptr temporary;

	CALL(cuMemAllocAsync(&temporary, SIZE, stream));
	copy_on_stream(temporary, data);
	increment(temporary, WORDS);
	copy_on_stream(data, temporary);
	CALL(cuMemFreeAsync(temporary, stream));
	CALL(cuStreamSynchronize(stream));
	if (k % 4 == 0)
		CALL(cuMemPoolTrimTo(pool, 0));
	CALL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	CALL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	CALL(cuDeviceGetMemPool(&current, gpu.dev));
	if (threshold != THRESHOLD || used < SIZE || current != pool)
		step_die("memory_kinds: the pool is not what it was");
}

static void pool_finish(void)
{
	CALL(cuMemFreeAsync(data, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuDeviceSetMemPool(gpu.dev, usual_pool));
	CALL(cuMemPoolDestroy(pool));
}

/*
 * Virtual memory management: of a range of three granules two are mapped, and the second one's
 * memory moves to the third and back.
 */

static struct {
	CUdeviceptr base;
	size_t granule;
	CUmemGenericAllocationHandle handles[PARTS];
	CUdeviceptr parts[PARTS];
} vmm;

static void vmm_map(unsigned int part, CUdeviceptr where)
{
	CALL(cuMemMap(where, vmm.granule, 0, vmm.handles[part], 0));
	allow(where, vmm.granule);
	vmm.parts[part] = where;
}

static void vmm_setup(void)
{
	CUmemAllocationProp prop = device_prop();
	uint32_t *start;

	need(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	     "the device has no virtual memory management");
	CALL(cuMemGetAllocationGranularity(&vmm.granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CALL(cuMemAddressReserve(&vmm.base, (PARTS + 1) * vmm.granule, 0, 0, 0));
	words = PARTS * vmm.granule / sizeof(uint32_t);
	start = words_start();
	for (unsigned int i = 0; i < PARTS; i++) {
		CALL(cuMemCreate(&vmm.handles[i], vmm.granule, &prop, 0));
		vmm_map(i, vmm.base + i * vmm.granule);
		upload(vmm.parts[i], (char *)start + i * vmm.granule, vmm.granule);
	}
	free(start);
}

static void vmm_step(unsigned long k)
{
	CUdeviceptr last = vmm.parts[PARTS - 1];

	if (k % 8 == 0) {
		CALL(cuMemUnmap(last, vmm.granule));
		vmm_map(PARTS - 1, last == vmm.base + PARTS * vmm.granule ? last - vmm.granule
									  : last + vmm.granule);
	}
	for (unsigned int i = 0; i < PARTS; i++)
		increment(vmm.parts[i], words / PARTS);
}

static void vmm_read(uint32_t *target)
{
	for (unsigned int i = 0; i < PARTS; i++)
		CALL(cuMemcpyDtoH_v2((char *)target + i * vmm.granule, vmm.parts[i], vmm.granule));
}

static void vmm_finish(void)
{
	for (unsigned int i = 0; i < PARTS; i++) {
		CALL(cuMemUnmap(vmm.parts[i], vmm.granule));
		CALL(cuMemRelease(vmm.handles[i]));
	}
	CALL(cuMemAddressFree(vmm.base, (PARTS + 1) * vmm.granule));
}

static void nothing(void)
{
}

/* Managed memory, changed by the device and by the host in turn. */

static void managed_setup(void)
{
	need(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "the device has no managed memory");
	CALL(cuMemAllocManaged(&data, SIZE, CU_MEM_ATTACH_GLOBAL));
	for (uint64_t i = 0; i < WORDS; i++)
		((uint32_t *)data)[i] = word_after(i, 0);
}

static void managed_step(unsigned long k)
{
	if (k % 2)
		increment(data, WORDS);
	else
		for (uint64_t i = 0; i < WORDS; i++)
			((uint32_t *)data)[i]++;
}

static void managed_read(uint32_t *target)
{
	memcpy(target, (const void *)data, SIZE);
}

/* A __managed__ variable, which belongs to its module. */
static void managed_var_setup(void)
{
	CUmodule module;
	size_t size;

	need(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "the device has no managed memory");
	CALL(cuModuleLoadData(&module, managed_ptx));
	CALL(cuModuleGetGlobal_v2(&data, &size, module, "managed_words"));
	if (size != SIZE)
		step_die("memory_kinds: the variable has %zu bytes", size);
	for (uint64_t i = 0; i < WORDS; i++)
		((uint32_t *)data)[i] = word_after(i, 0);
}

static void plain_setup(void)
{
	CALL(cuMemAlloc_v2(&data, SIZE));
	upload_start(data);
}

static void plain_finish(void)
{
	CALL(cuMemFree_v2(data));
}

/* Memory of the host by the calls of `vmm`; and a pool of it. */

static CUmemAllocationProp host_prop(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0},
	};
}

static void vmm_host_setup(void)
{
	CUmemAllocationProp prop = host_prop();

	need(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
	     "the device does not map memory of the host");
	CALL(cuMemGetAllocationGranularity(&vmm.granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CALL(cuMemCreate(&vmm.handles[0], vmm.granule, &prop, 0));
	CALL(cuMemAddressReserve(&data, vmm.granule, 0, 0, 0));
	CALL(cuMemMap(data, vmm.granule, 0, vmm.handles[0], 0));
	allow(data, vmm.granule);
	upload_start(data);
}

static void vmm_host_finish(void)
{
	CALL(cuMemUnmap(data, vmm.granule));
	CALL(cuMemRelease(vmm.handles[0]));
	CALL(cuMemAddressFree(data, vmm.granule));
}

static void vmm_host_gone_setup(void)
{
	vmm_host_setup();
	vmm_host_finish();
	plain_setup();
}

static void pool_host_setup(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = host_prop().location};
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	uint32_t *start = words_start();

	need(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
	     "there are no pools of host memory");
	CALL(cuMemPoolCreate(&pool, &props));
	CALL(cuMemPoolSetAccess(pool, &access, 1));
	CALL(cuMemAllocFromPoolAsync(&data, SIZE, pool, stream));
	CALL(cuStreamSynchronize(stream));
	/* The driver counts it as memory of the host, and refuses to copy to it from the host. */
	memcpy((void *)data, start, SIZE);
	free(start);
}

static void pool_host_read(uint32_t *target)
{
	memcpy(target, (const void *)data, SIZE);
}

static void pool_host_finish(void)
{
	CALL(cuMemFreeAsync(data, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemPoolDestroy(pool));
}

/* A module's variables, in global and in constant memory. */

static CUdeviceptr constants;

static void global_read(uint32_t *target)
{
	CALL(cuMemcpyDtoH_v2(target, data, GLOBALS * sizeof(uint32_t)));
	CALL(cuMemcpyDtoH_v2(target + GLOBALS, constants, CONSTANTS * sizeof(uint32_t)));
}

static void global_setup(void)
{
	uint32_t *start = words_start();
	size_t sizes[2];

	CALL(cuModuleGetGlobal_v2(&data, &sizes[0], own, "global_words"));
	CALL(cuModuleGetGlobal_v2(&constants, &sizes[1], own, "constant_words"));
	if (sizes[0] != GLOBALS * sizeof(uint32_t) || sizes[1] != CONSTANTS * sizeof(uint32_t))
		step_die("memory_kinds: the variables have %zu and %zu bytes", sizes[0], sizes[1]);
	upload(data, start, sizes[0]);
	upload(constants, start + GLOBALS, sizes[1]);
	free(start);
}

static void global_step(unsigned long k)
{
	uint32_t host[CONSTANTS];

	(void)k;
	increment(data, GLOBALS);
	CALL(cuMemcpyDtoH_v2(host, constants, sizeof(host)));
	for (unsigned int i = 0; i < CONSTANTS; i++)
		host[i]++;
	upload(constants, host, sizeof(host));
}

/* Memory that a kernel got from malloc(). */

static CUmodule device_module;

static void device_only(void)
{
	if (simulated())
		skip("the simulated driver has its own kernels only");
	CALL(cuModuleLoadData(&device_module, device_ptx));
}

static CUdeviceptr heap;

static void heap_copy(CUdeviceptr target, CUdeviceptr source)
{
	void *args[] = {&target, &words, &source};
	CUfunction copy;

	CALL(cuModuleGetFunction(&copy, device_module, "heap_copy"));
	kernels_launch(copy, stream, args);
	CALL(cuStreamSynchronize(stream));
}

static void heap_setup(void)
{
	uint64_t bytes = SIZE;
	CUfunction function;
	void *args[] = {&bytes, &data};

	device_only();
	CALL(cuMemAlloc_v2(&data, SIZE));
	CALL(cuModuleGetFunction(&function, device_module, "heap_new"));
	CALL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemcpyDtoH_v2(&heap, data, sizeof(heap)));
	if (!heap)
		step_die("memory_kinds: the device's malloc() gave nothing");
	upload_start(data);
	heap_copy(heap, data);
}

static void heap_step(unsigned long k)
{
	(void)k;
	increment(heap, WORDS);
}

static void heap_read(uint32_t *target)
{
	heap_copy(data, heap);
	CALL(cuMemcpyDtoH_v2(target, data, SIZE));
}

/* What a kernel prints goes to stdout, where it is compared with a native run's. */

static void printf_setup(void)
{
	device_only();
	plain_setup();
}

static void printf_step(unsigned long k)
{
	uint32_t number = (uint32_t)k;
	CUfunction say;
	void *args[] = {&number};

	CALL(cuModuleGetFunction(&say, device_module, "say"));
	increment(data, WORDS);
	CALL(cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

/*
 * Graphs instantiated once. With memory of their own, one that is launched once allocates what
 * stays, and one that is launched in every step allocates and frees what it needs meanwhile.
 */

static CUgraph graphs[2];
static CUgraphExec execs[2];
static int last_graph = -1;

static void graph_begin(void)
{
	last_graph++;
	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void graph_end(void)
{
	CALL(cuStreamEndCapture(stream, &graphs[last_graph]));
	CALL(cuGraphInstantiateWithFlags(&execs[last_graph], graphs[last_graph], 0));
}

static void graph_mem_setup(void)
{
	CUdeviceptr temporary;

	need(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "the device has no memory pools");
	graph_begin();
	CALL(cuMemAllocAsync(&data, SIZE, stream));
	graph_end();
	CALL(cuGraphLaunch(execs[0], stream));
	CALL(cuStreamSynchronize(stream));
	upload_start(data);
	graph_begin();
	CALL(cuMemAllocAsync(&temporary, SIZE, stream));
	copy_on_stream(temporary, data);
	increment(temporary, WORDS);
	copy_on_stream(data, temporary);
	CALL(cuMemFreeAsync(temporary, stream));
	graph_end();
}

static void graph_replay_setup(void)
{
	CUdeviceptr first;

	/* What a pause takes has another place to come back to. */
	CALL(cuMemAlloc_v2(&first, 24UL << 20));
	plain_setup();
	CALL(cuMemFree_v2(first));
	graph_begin();
	increment(data, WORDS);
	graph_end();
}

static void graph_step(unsigned long k)
{
	(void)k;
	CALL(cuGraphLaunch(execs[last_graph], stream));
}

static void graphs_destroy(void)
{
	for (; last_graph >= 0; last_graph--) {
		CALL(cuGraphExecDestroy(execs[last_graph]));
		CALL(cuGraphDestroy(graphs[last_graph]));
	}
}

static void graph_mem_finish(void)
{
	CALL(cuMemFreeAsync(data, stream));
	CALL(cuStreamSynchronize(stream));
	graphs_destroy();
}

static void graph_replay_finish(void)
{
	graphs_destroy();
	plain_finish();
}

/* Page-locked host memory, allocated and registered, by its device pointers. */

static uint32_t *host_parts[2];
static CUdeviceptr host_ptrs[2];

static void host_setup(void)
{
	uint32_t *start = words_start();

	CALL(cuMemHostAlloc((void **)&host_parts[0], HOST_SIZE, CU_MEMHOSTALLOC_DEVICEMAP));
	host_parts[1] = aligned_alloc(4096, HOST_SIZE);
	if (!host_parts[1])
		step_die("memory_kinds: out of memory");
	CALL(cuMemHostRegister_v2(host_parts[1], HOST_SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
	for (int i = 0; i < 2; i++) {
		CALL(cuMemHostGetDevicePointer_v2(&host_ptrs[i], host_parts[i], 0));
		memcpy(host_parts[i], start + i * HOST_WORDS, HOST_SIZE);
	}
	free(start);
}

static void host_step(unsigned long k)
{
	(void)k;
	for (int i = 0; i < 2; i++)
		increment(host_ptrs[i], HOST_WORDS);
}

static void host_read(uint32_t *target)
{
	for (int i = 0; i < 2; i++)
		memcpy(target + i * HOST_WORDS, host_parts[i], HOST_SIZE);
}

static void host_finish(void)
{
	CALL(cuMemFreeHost(host_parts[0]));
	CALL(cuMemHostUnregister(host_parts[1]));
	free(host_parts[1]);
}

/* The thread's own default stream, by the functions that a program compiled for it calls. */

static __typeof__(cuLaunchKernel) *ptds_launch;
static __typeof__(cuStreamSynchronize) *ptds_synchronize;

static void *ptds_function(const char *name)
{
	CUdriverProcAddressQueryResult found;
	void *function = NULL;

	CALL(cuGetProcAddress_v2(name, &function, 12000,
				 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found));
	return function;
}

static void ptds_setup(void)
{
	plain_setup();
	ptds_launch = (__typeof__(ptds_launch))ptds_function("cuLaunchKernel");
	ptds_synchronize = (__typeof__(ptds_synchronize))ptds_function("cuStreamSynchronize");
}

static void ptds_step(unsigned long k)
{
	void *args[] = {&data, &words};

	(void)k;
	CALL(ptds_launch(gpu.increment, 64, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
	CALL(ptds_synchronize(NULL));
}

/* A stream of the highest priority. */

static CUstream urgent;
static int greatest;

static void priority_setup(void)
{
	int least;

	plain_setup();
	CALL(cuCtxGetStreamPriorityRange(&least, &greatest));
	if (least == greatest)
		skip("the device has one priority only");
	CALL(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
}

static void priority_step(unsigned long k)
{
	void *args[] = {&data, &words};
	int priority;

	(void)k;
	kernels_launch(gpu.increment, urgent, args);
	CALL(cuStreamSynchronize(urgent));
	CALL(cuStreamGetPriority(urgent, &priority));
	if (priority != greatest)
		step_die("memory_kinds: the priority is %d, was %d", priority, greatest);
}

static void priority_finish(void)
{
	CALL(cuStreamDestroy_v2(urgent));
	plain_finish();
}

/* Memory of another API. None but the simulated driver's is to be had without that API. */

static CUexternalMemory external;

static void external_setup(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
		.size = SIZE,
	};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC whole = {.size = SIZE};

	if (!simulated())
		skip("no memory of another API");
	desc.handle.fd = memfd_create("external", MFD_CLOEXEC);
	CALL(cuImportExternalMemory(&external, &desc));
	CALL(cuExternalMemoryGetMappedBuffer(&data, external, &whole));
	upload_start(data);
}

static void external_finish(void)
{
	plain_finish();
	CALL(cuDestroyExternalMemory(external));
}

/* Multicast objects, which a GPU's fabric is not to be troubled with by a test. */

static CUmemGenericAllocationHandle multicast[MULTICAST];

static void multicast_setup(void)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = 2UL << 20};

	if (!simulated())
		skip("no multicast objects on a real device");
	plain_setup();
	for (unsigned int i = 0; i < MULTICAST; i++)
		CALL(cuMulticastCreate(&multicast[i], &prop));
}

static void multicast_finish(void)
{
	for (unsigned int i = 0; i < MULTICAST; i++)
		CALL(cuMemRelease(multicast[i]));
	plain_finish();
}

/* Exports for GPUDirect RDMA; nothing is transferred. */

#define PART_SIZE (2UL << 20)

static int dmabuf_of(CUdeviceptr ptr)
{
	int fd = -1;

	CALL(cuMemGetHandleForAddressRange(&fd, ptr, PART_SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					   0));
	return fd;
}

static void dmabuf_setup(void)
{
	need(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, "the device makes no dma-bufs");
	CALL(cuMemAlloc_v2(&data, PART_SIZE));
	upload_start(data);
	/* Others may have the memory after that. */
	close(dmabuf_of(data));
}

/* Of memory that is left to the driver. */
static void dmabuf_vmm_setup(void)
{
	CUmemAllocationProp prop = device_prop();

	need(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, "the device makes no dma-bufs");
	prop.allocFlags.gpuDirectRDMACapable = 1;
	exported.size = PART_SIZE;
	CALL(cuMemCreate(&exported.handle, exported.size, &prop, 0));
	map_exported();
	upload_start(data);
	close(dmabuf_of(data));
}

static void dmabuf_vmm_finish(void)
{
	CALL(cuMemUnmap(data, exported.size));
	CALL(cuMemAddressFree(data, exported.size));
}

static void dmabuf_gone_setup(void)
{
	dmabuf_setup();
	CALL(cuMemFree_v2(data));
	/* At the same address, most likely. */
	CALL(cuMemAlloc_v2(&data, PART_SIZE));
	upload_start(data);
}

static const struct kind kinds[] = {
	{"async", NULL, async_setup, async_step, NULL, async_finish},
	{"pool", NULL, pool_setup, pool_step, NULL, pool_finish},
	{"vmm", NULL, vmm_setup, vmm_step, vmm_read, vmm_finish},
	{"vmm_host", NULL, vmm_host_setup, NULL, NULL, vmm_host_finish},
	{"vmm_host_gone", NULL, vmm_host_gone_setup, NULL, NULL, plain_finish},
	{"pool_host", NULL, pool_host_setup, NULL, pool_host_read, pool_host_finish},
	{"managed", NULL, managed_setup, managed_step, managed_read, plain_finish},
	{"managed_var", NULL, managed_var_setup, managed_step, managed_read, nothing},
	{"array", NULL, array_setup, boxes_step, boxes_read, array_finish},
	{"mipmap", NULL, mipmap_setup, boxes_step, boxes_read, mipmap_finish},
	{"texture", NULL, texture_setup, texture_step, texture_read, texture_finish},
	{"global", NULL, global_setup, global_step, global_read, nothing},
	{"heap", NULL, heap_setup, heap_step, heap_read, plain_finish},
	{"printf", NULL, printf_setup, printf_step, NULL, plain_finish},
	{"graph_mem", NULL, graph_mem_setup, graph_step, NULL, graph_mem_finish},
	{"graph_replay", NULL, graph_replay_setup, graph_step, NULL, graph_replay_finish},
	{"host", NULL, host_setup, host_step, host_read, host_finish},
	{"ptds", NULL, ptds_setup, ptds_step, NULL, plain_finish},
	{"priority", NULL, priority_setup, priority_step, NULL, priority_finish},
	{"external", NULL, external_setup, NULL, NULL, external_finish},
	{"dmabuf", NULL, dmabuf_setup, NULL, NULL, plain_finish},
	{"dmabuf_vmm", NULL, dmabuf_vmm_setup, NULL, NULL, dmabuf_vmm_finish},
	{"dmabuf_gone", NULL, dmabuf_gone_setup, NULL, NULL, plain_finish},
	{"multicast", NULL, multicast_setup, NULL, NULL, multicast_finish},
	{"ipc_out", ipc_out_start, ipc_out_setup, shared_step, NULL, ipc_out_finish},
	{"ipc_in", ipc_in_start, ipc_in_setup, shared_step, NULL, ipc_in_finish},
	{"vmm_out", vmm_out_start, vmm_out_setup, shared_step, NULL, vmm_shared_finish},
	{"vmm_in", vmm_in_start, vmm_in_setup, shared_step, NULL, vmm_shared_finish},
	{"pool_out", pool_out_start, pool_out_setup, NULL, NULL, pool_out_finish},
	{"pool_in", pool_in_start, pool_in_setup, NULL, NULL, pool_in_finish},
};

static const struct kind *kind_named(const char *name)
{
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (!strcmp(name, kinds[i].name))
			return &kinds[i];
	step_die("memory_kinds: no kind %s", name);
}

static void check_words(const char *what, const uint32_t *found, uint64_t count,
			unsigned long steps)
{
	for (uint64_t i = 0; i < count; i++)
		if (found[i] != word_after(i, steps))
			step_wrong("memory_kinds: %s: word %lu is %u after step %lu, should be %u",
				   what, (unsigned long)i, found[i], steps, word_after(i, steps));
	step_print_digest(what, step_digest(STEP_DIGEST_INIT, found, count * sizeof(*found)));
}

/* The kind's words and those of the plain memory beside them. */
static void check_all(const struct kind *kind, CUdeviceptr plain, uint32_t *host,
		      unsigned long steps)
{
	if (kind->read)
		kind->read(host);
	else
		CALL(cuMemcpyDtoH_v2(host, data, words * sizeof(*host)));
	check_words(kind->name, host, words, steps);
	CALL(cuMemcpyDtoH_v2(host, plain, SIZE));
	check_words("plain", host, WORDS, steps);
}

int main(int argc, char **argv)
{
	const struct kind *kind;
	CUdeviceptr plain;
	unsigned long k;
	uint32_t *host;

	if (argc < 3 || strcmp(argv[1], "--kind"))
		step_die("usage: memory_kinds --kind NAME [OPTION]...");
	kind = kind_named(argv[2]);
	step_parse(argc - 2, argv + 2, NULL, 0);
	if (kind->start)
		kind->start();
	gpu_init();
	kind->setup();
	host = malloc((words > WORDS ? words : WORDS) * sizeof(*host));
	if (!host)
		step_die("memory_kinds: out of memory");
	CALL(cuMemAlloc_v2(&plain, SIZE));
	for (uint64_t i = 0; i < WORDS; i++)
		host[i] = word_after(i, 0);
	upload(plain, host, SIZE);
	for (k = 0; step_more(k); k++) {
		increment(plain, WORDS);
		if (kind->step)
			kind->step(k + 1);
		else
			increment(data, words);
		CALL(cuStreamSynchronize(stream));
		check_all(kind, plain, host, k + 1);
		step_done(k);
	}
	kind->finish();
	CALL(cuMemFree_v2(plain));
	free(host);
	printf("memory_kinds: %s: %lu steps, every word right\n", kind->name, k);
	return 0;
}
