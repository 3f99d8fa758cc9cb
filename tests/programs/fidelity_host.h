/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIDELITY_HOST_H
#define CUDAW_FIDELITY_HOST_H
/*
 * The cases of fidelity.c about host memory of cuMemCreate() on a NUMA node: alone, beside contexts that end, and with
 * the opener of fidelity_ipc.h.
 */
static const CUmemLocation HOST_NODE = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
			   NO_NODE = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 99},
			   HOST = {CU_MEM_LOCATION_TYPE_HOST, 0};

static CUmemLocation host_device(void)
{
	return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev};
}

static CUresult host_create(CUmemGenericAllocationHandle *handle, CUmemLocation location,
			    unsigned int types, size_t size)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = (CUmemAllocationHandleType)types,
					  .location = location};

	return cuMemCreate(handle, size, &prop, 0);
}

static CUresult host_allow(CUdeviceptr at, size_t size, CUmemLocation location,
			   CUmemAccess_flags flags)
{
	const CUmemAccessDesc access = {location, flags};

	return cuMemSetAccess(at, size, &access, 1);
}

/* Access for the GPU, and for the host. */
static void host_allow_all(CUdeviceptr at, size_t size)
{
	CALL(host_allow(at, size, host_device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CALL(host_allow(at, size, HOST_NODE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static struct mapped host_new(void)
{
	struct mapped m;

	CALL(host_create(&m.handle, HOST_NODE, POSIX_FD, IPC_SIZE));
	CALL(cuMemAddressReserve(&m.at, IPC_SIZE, 0, 0, 0));
	CALL(cuMemMap(m.at, IPC_SIZE, 0, m.handle, 0));
	host_allow_all(m.at, IPC_SIZE);
	return m;
}

static void say_host_word(const char *question, CUdeviceptr at)
{
	say("%s: %s", question,
	    *(volatile uint32_t *)(uintptr_t)at == IPC_VALUE ? "right" : "wrong");
}

/* By the GPU, which a set of words needs. */
static void ask_set(const char *question, CUdeviceptr at)
{
	CUresult result = cuMemsetD32(at, IPC_VALUE, IPC_SIZE / 4), synced = cuCtxSynchronize();

	say_result(question, result ? result : synced);
}

static void ask_host_created(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = HOST_NODE};
	CUmemGenericAllocationHandle handle;
	size_t granularity = 0;
	CUresult result = cuMemGetAllocationGranularity(&granularity, &prop,
							CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	say("its granularity: %s, %zu KiB", name_of(result), granularity / (size_t)KIB);
	say_result("of no size", host_create(&handle, HOST_NODE, POSIX_FD, 0));
	say_result("of an odd size", host_create(&handle, HOST_NODE, POSIX_FD, IPC_SIZE + 4096));
	say_result("on node 99", host_create(&handle, NO_NODE, POSIX_FD, IPC_SIZE));
	say_result("on no node, with a descriptor", host_create(&handle, HOST, POSIX_FD, IPC_SIZE));
	say_result("for Windows",
		   host_create(&handle, HOST_NODE, CU_MEM_HANDLE_TYPE_WIN32, IPC_SIZE));
	say_result("with flags", cuMemCreate(&handle, IPC_SIZE, &prop, 1));
	prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	say_result("of no type", cuMemCreate(&handle, IPC_SIZE, &prop, 0));
}

static void ask_host_shared(void)
{
	CUmemGenericAllocationHandle handle, import = 0;
	CUmemAllocationProp prop = {0};
	CUresult result;
	int fd = -1, none = -1;

	CALL(host_create(&handle, HOST_NODE, 0, IPC_SIZE));
	say_result("an export of one without types",
		   cuMemExportToShareableHandle(&none, handle, POSIX_FD, 0));
	CALL(cuMemRelease(handle));
	CALL(host_create(&handle, HOST_NODE, POSIX_FD, IPC_SIZE));
	say_result("an export of another type",
		   cuMemExportToShareableHandle(&none, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
	say_result("an export with flags",
		   cuMemExportToShareableHandle(&none, handle, POSIX_FD, 1));
	fd = ask_export("its export", handle);
	result = cuMemGetAllocationPropertiesFromHandle(&prop, handle);
	say("its properties: %s, %d, %d, %d", name_of(result), prop.requestedHandleTypes,
	    prop.location.type, prop.location.id);
	say_result("its import",
		   cuMemImportFromShareableHandle(&import, (void *)(intptr_t)fd, POSIX_FD));
	say("the handle of that: %s", import == handle ? "the same" : "another");
	result = cuMemGetAllocationPropertiesFromHandle(&prop, import);
	say("the properties of that: %s, %d, %d, %d", name_of(result), prop.requestedHandleTypes,
	    prop.location.type, prop.location.id);
	close(fd);
	say_result("a release", cuMemRelease(handle));
	say_result("a second one", cuMemRelease(handle));
	say_result("a release of the import", cuMemRelease(import));
}

static void say_host_access(const char *who, CUdeviceptr at, CUmemLocation location)
{
	unsigned long long flags = 99;
	CUresult result = cuMemGetAccess(&flags, &location, at);

	say("the access of %s: %s, %llu", who, name_of(result), flags);
}

static void ask_host_mapped(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	CALL(host_create(&handle, HOST_NODE, POSIX_FD, IPC_SIZE));
	CALL(cuMemAddressReserve(&at, IPC_SIZE, 0, 0, 0));
	say_result("a mapping", cuMemMap(at, IPC_SIZE, 0, handle, 0));
	say_result("another one over it", cuMemMap(at, IPC_SIZE, 0, handle, 0));
	say_result("one beyond the reservation",
		   cuMemMap(at + IPC_SIZE / 2, IPC_SIZE, 0, handle, 0));
	say_result("unmapping its half", cuMemUnmap(at, IPC_SIZE / 2));
	say_result("no access for the GPU",
		   host_allow(at, IPC_SIZE, host_device(), CU_MEM_ACCESS_FLAGS_PROT_NONE));
	say_result("access for the GPU",
		   host_allow(at, IPC_SIZE, host_device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say_result("  for its node",
		   host_allow(at, IPC_SIZE, HOST_NODE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say_result("  for node 99",
		   host_allow(at, IPC_SIZE, NO_NODE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say_result("  for the host",
		   host_allow(at, IPC_SIZE, HOST, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say_result("  for the GPU again",
		   host_allow(at, IPC_SIZE, host_device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say_result("access to its half",
		   host_allow(at, IPC_SIZE / 2, host_device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say_result("  for its node",
		   host_allow(at, IPC_SIZE / 2, HOST_NODE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	say_host_access("the GPU", at, host_device());
	say_host_access("its node", at, HOST_NODE);
	say_host_access("the host", at, HOST);
	ask_set("a set by the GPU", at);
	say_host_word("what the host reads then", at);
	say_result("freeing its addresses", cuMemAddressFree(at, IPC_SIZE));
	CALL(cuMemRelease(handle));
	say_host_word("its words once its handle is released", at);
	say_result("unmapping it", cuMemUnmap(at, IPC_SIZE));
	say_result("unmapping it again", cuMemUnmap(at, IPC_SIZE));
	ask_set("a set by the GPU then", at);
	say_result("freeing its addresses then", cuMemAddressFree(at, IPC_SIZE));
}

static void ask_host_pointer(void)
{
	static const struct {
		const char *name;
		CUpointer_attribute attribute;
	} numbers[] = {{"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
		       {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
		       {"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED},
		       {"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED},
		       {"CONTEXT", CU_POINTER_ATTRIBUTE_CONTEXT},
		       {"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
		       {"MAPPING_SIZE", CU_POINTER_ATTRIBUTE_MAPPING_SIZE},
		       {"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
		       {"ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS},
		       {"IS_LEGACY_CUDA_IPC_CAPABLE",
			CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
		       {"IS_GPU_DIRECT_RDMA_CAPABLE",
			CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
		       {"MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE}},
	  pointers[] = {{"DEVICE_POINTER", CU_POINTER_ATTRIBUTE_DEVICE_POINTER},
			{"HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER},
			{"RANGE_START_ADDR", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
			{"MAPPING_BASE_ADDR", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR}};
	CUpointer_attribute two[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
				     CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
	uint64_t context = 7, types = 7;
	void *places[] = {&context, &types};
	struct mapped m = host_new();
	CUmemGenericAllocationHandle again = 0;
	CUdeviceptr base = 77;
	unsigned int flags = 0;
	CUipcMemHandle ipc;
	CUresult result;
	size_t size = 0;
	int fd;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t value = 0;

		result = cuPointerGetAttribute(&value, numbers[i].attribute, m.at + 512);
		say("its %s: %s, %lu", numbers[i].name, name_of(result), (unsigned long)value);
	}
	for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++) {
		uint64_t value = 0;

		result = cuPointerGetAttribute(&value, pointers[i].attribute, m.at + 512);
		say("its %s: %s, %ld", pointers[i].name, name_of(result), (long)(value - m.at));
	}
	result = cuPointerGetAttributes(2, two, places, m.at);
	say("two at once: %s, %lu, %lu", name_of(result), (unsigned long)context,
	    (unsigned long)types);
	result = cuMemGetAddressRange(&base, &size, m.at + 64);
	say("its range: %s, %llu, %zu", name_of(result), base, size);
	result = cuMemHostGetFlags(&flags, (void *)(uintptr_t)m.at);
	say("its flags: %s, %u", name_of(result), flags);
	result = cuMemHostGetDevicePointer(&base, (void *)(uintptr_t)m.at, 0);
	say("the GPU's pointer: %s, %ld", name_of(result), (long)(base - m.at));
	result = cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(m.at + 64));
	say("its handle: %s, %s", name_of(result), again == m.handle ? "the same" : "another");
	CALL(cuMemRelease(again));
	say_result("a dma-buf",
		   cuMemGetHandleForAddressRange(&fd, m.at, IPC_SIZE,
						 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	say_result("cuMemFree", cuMemFree(m.at));
	say_result("cuMemFreeHost", cuMemFreeHost((void *)(uintptr_t)m.at));
	say_result("cuMemHostUnregister", cuMemHostUnregister((void *)(uintptr_t)m.at));
	say_result("cuMemHostRegister", cuMemHostRegister((void *)(uintptr_t)m.at, IPC_SIZE, 0));
	say_result("cuIpcGetMemHandle", cuIpcGetMemHandle(&ipc, m.at));
	ask_set("a set by the GPU after all that", m.at);
	mapped_free(&m);
}

/* Side by side: two mappings of one object, an import of it, and memory of the GPU. */
static void ask_host_neighbours(void)
{
	CUmemGenericAllocationHandle handle, import, device;
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = host_device()};
	CUdeviceptr at, copy = alloc(IPC_SIZE);
	int fd = -1;

	CALL(host_create(&handle, HOST_NODE, POSIX_FD, IPC_SIZE));
	CALL(cuMemExportToShareableHandle(&fd, handle, POSIX_FD, 0));
	CALL(cuMemImportFromShareableHandle(&import, (void *)(intptr_t)fd, POSIX_FD));
	close(fd);
	CALL(cuMemCreate(&device, IPC_SIZE, &prop, 0));
	CALL(cuMemAddressReserve(&at, 4 * IPC_SIZE, 0, 0, 0));
	CALL(cuMemMap(at, IPC_SIZE, 0, handle, 0));
	CALL(cuMemMap(at + IPC_SIZE, IPC_SIZE, 0, device, 0));
	CALL(cuMemMap(at + 2 * IPC_SIZE, IPC_SIZE, 0, handle, 0));
	CALL(cuMemMap(at + 3 * IPC_SIZE, IPC_SIZE, 0, import, 0));
	say_result("the GPU's memory over a mapping", cuMemMap(at, IPC_SIZE, 0, device, 0));
	say_result("a mapping over the GPU's memory",
		   cuMemMap(at + IPC_SIZE, IPC_SIZE, 0, handle, 0));
	CALL(cuMemRelease(handle));
	CALL(cuMemRelease(import));
	CALL(cuMemRelease(device));
	say_result("access for the GPU to all of them",
		   host_allow(at, 4 * IPC_SIZE, host_device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	ask_set("a set of the first", at);
	say_word("a word of the second mapping of it", at + 2 * IPC_SIZE);
	say_word("a word of the import", at + 3 * IPC_SIZE);
	ask_set("a set of the GPU's", at + IPC_SIZE);
	say_result("a copy of it", cuMemcpyDtoD(copy, at + IPC_SIZE, IPC_SIZE));
	say_word("  its words", copy);
	say_result("unmapping one and a half", cuMemUnmap(at, IPC_SIZE + IPC_SIZE / 2));
	say_result("unmapping two and a half", cuMemUnmap(at, 2 * IPC_SIZE + IPC_SIZE / 2));
	say_word("a word of the GPU's then", at + IPC_SIZE);
	say_result("unmapping the first three", cuMemUnmap(at, 3 * IPC_SIZE));
	say_word("a word of the import then", at + 3 * IPC_SIZE);
	say_result("freeing the addresses then", cuMemAddressFree(at, 4 * IPC_SIZE));
	say_result("unmapping what is mapped no more", cuMemUnmap(at, 4 * IPC_SIZE));
	say_result("unmapping the import", cuMemUnmap(at + 3 * IPC_SIZE, IPC_SIZE));
	say_result("freeing the addresses in the end", cuMemAddressFree(at, 4 * IPC_SIZE));
	CALL(cuMemFree(copy));
}

static void case_host_memory(void)
{
	ask_host_created();
	ask_host_shared();
	ask_host_mapped();
	ask_host_pointer();
	ask_host_neighbours();
}

static void say_host_mapped(const char *question, CUdeviceptr at)
{
	bool mapped = false;
	CUresult result = cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at);

	say("%s: %s, %d", question, name_of(result), mapped);
}

/* It belongs to no context. */
static void case_host_memory_ends(void)
{
	struct mapped first = host_new(), second, third;
	CUcontext other = NULL;

	say_result("another context", cuCtxCreate(&other, NULL, 0, gpu.dev));
	second = host_new();
	ask_set("a set there of the first context's", first.at);
	CALL(cuCtxSetCurrent(gpu.ctx));
	ask_set("a set of the second context's", second.at);
	say_result("the end of that", cuCtxDestroy(other));
	ask_set("a set of its memory then", second.at);
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("a reset of the primary context", cuDevicePrimaryCtxReset(gpu.dev));
	CALL(cuCtxSetCurrent(NULL));
	*(uint32_t *)(uintptr_t)first.at = 5;
	third = host_new();
	say_result("unmapping without a context", cuMemUnmap(third.at, IPC_SIZE));
	say_result("  mapping", cuMemMap(third.at, IPC_SIZE, 0, third.handle, 0));
	host_allow_all(third.at, IPC_SIZE);
	CALL(cuCtxCreate(&other, NULL, 0, gpu.dev));
	say_host_mapped("MAPPED once there is a context", first.at);
	CALL(cuCtxDestroy(other));
	CALL(cuDevicePrimaryCtxRetain(&gpu.ctx, gpu.dev));
	say_host_mapped("MAPPED once there is a primary one", first.at);
	CALL(cuCtxSetCurrent(gpu.ctx));
	ask_set("a set of the first one's after it", first.at);
	ask_set("a set of the second one's after it", second.at);
	ask_set("a set of what was mapped in between", third.at);
	say_host_word("what the host reads", first.at);
	mapped_free(&first);
	mapped_free(&second);
	mapped_free(&third);
}

static void case_host_memory_opener(void)
{
	int fd = descriptor_receive(STDIN_FILENO);
	struct mapped m;

	say_result("the opener's import",
		   cuMemImportFromShareableHandle(&m.handle, (void *)(intptr_t)fd, POSIX_FD));
	close(fd);
	CALL(cuMemAddressReserve(&m.at, IPC_SIZE, 0, 0, 0));
	CALL(cuMemMap(m.at, IPC_SIZE, 0, m.handle, 0));
	host_allow_all(m.at, IPC_SIZE);
	say_word("its words", m.at);
	((uint32_t *)(uintptr_t)m.at)[0] = IPC_VALUE + 1;
	ipc_pass(STDIN_FILENO);
	say_host_word("a word that the exporter's GPU has set", m.at);
	say_result("its export", cuMemExportToShareableHandle(&fd, m.handle, POSIX_FD, 0));
	ipc_pass(STDIN_FILENO);
	say_host_word("a word once the exporter has freed it", m.at);
	ask_set("a set then", m.at);
	mapped_free(&m);
}

static void case_host_memory_two(void)
{
	struct mapped m;
	int fd;

	opener_start("host_memory_opener");
	m = host_new();
	ask_set("a set by the exporter", m.at);
	fd = ask_export("an export", m.handle);
	descriptor_send(opener_socket, fd);
	ipc_receive(opener_socket, &(char){0}, 1);
	say("the exporter reads what the opener wrote: %s",
	    *(volatile uint32_t *)(uintptr_t)m.at == IPC_VALUE + 1 ? "yes" : "no");
	CALL(cuMemsetD32(m.at, IPC_VALUE, 1));
	CALL(cuCtxSynchronize());
	ipc_send(opener_socket, "p", 1);
	ipc_receive(opener_socket, &(char){0}, 1);
	mapped_free(&m);
	ipc_send(opener_socket, "p", 1);
	opener_end();
}

#endif
