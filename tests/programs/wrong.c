/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call with a right or wrong pointer, chosen by name, for the checks of pointers. Prints what
 * the call returned, then whether the memory and the context are as they were before.
 *
 *	wrong CASE [--cxx]	with --cxx libstdc++ is loaded, as C++ programs have it
 */
#define CUDA_ENABLE_DEPRECATED /* cuTexRef*, cuParamSetv() */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#include "tests/programs/kernels.h"

#define WORDS 1024UL
#define BYTES (WORDS * sizeof(uint32_t))
#define CHUNK (2UL << 20)

static const char wrong_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"

	/* upward(unsigned int *data, unsigned long n): data[i] += 1 */
	".visible .entry _Z6upwardPjm(.param .u64 data, .param .u64 n)\n"
	"{\n" KERNEL_BEGIN KERNEL_LOOP "	ld.global.u32 value, [addr];\n"
	"	add.u32 value, value, 1;\n"
	"	st.global.u32 [addr], value;\n" KERNEL_NEXT "	ret;\n"
	"}\n"

	/* add_pair(struct { uint64_t n; uint32_t *to; const uint32_t *from; }), by one thread */
	".visible .entry add_pair(.param .align 8 .b8 pair[24])\n"
	"{\n"
	"	.reg .pred done;\n"
	"	.reg .b32 thread, value, more;\n"
	"	.reg .b64 n, to, from, i;\n"
	"	ld.param.u64 n, [pair];\n"
	"	ld.param.u64 to, [pair+8];\n"
	"	ld.param.u64 from, [pair+16];\n"
	"	cvta.to.global.u64 to, to;\n"
	"	cvta.to.global.u64 from, from;\n"
	"	mov.u32 thread, %tid.x;\n"
	"	setp.ne.u32 done, thread, 0;\n"
	"	@done bra end;\n"
	"	mov.u64 i, 0;\n"
	"loop:\n"
	"	setp.ge.u64 done, i, n;\n"
	"	@done bra end;\n"
	"	ld.global.u32 value, [to];\n"
	"	ld.global.u32 more, [from];\n"
	"	add.u32 value, value, more;\n"
	"	st.global.u32 [to], value;\n"
	"	add.u64 to, to, 4;\n"
	"	add.u64 from, from, 4;\n"
	"	add.u64 i, i, 1;\n"
	"	bra loop;\n"
	"end:\n"
	"	ret;\n"
	"}\n";

struct pair {
	uint64_t n;
	CUdeviceptr to, from;
};

static struct {
	struct kernels kernels;
	CUmodule module;
	CUlibrary library;
	CUfunction upward, add_pair; /* of which the program knows the type, and a struct */
	CUfunction untyped;          /* as upward, but extern "C" */
	CUdeviceptr live, freed, large_freed;
	CUcontext ctx;
	CUstream stream;
	uint32_t host[WORDS + 1];
} w;

static CUresult launch(CUfunction f, CUdeviceptr data, uint64_t n)
{
	void *args[] = {&data, &n};

	return cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL);
}

static CUresult launch_ex(CUdeviceptr data, uint64_t n)
{
	const CUlaunchConfig config = {.gridDimX = 1,
				       .gridDimY = 1,
				       .gridDimZ = 1,
				       .blockDimX = 32,
				       .blockDimY = 1,
				       .blockDimZ = 1};
	void *args[] = {&data, &n};

	return cuLaunchKernelEx(&config, w.upward, args, NULL);
}

static CUresult launch_packed(CUfunction f, void *buffer, size_t size)
{
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};

	return cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra);
}

static CUresult launch_upward_packed(CUdeviceptr data, uint64_t n)
{
	uint64_t buffer[] = {data, n};

	return launch_packed(w.upward, buffer, sizeof(buffer));
}

/* Without the end of the struct. */
static CUresult launch_pair_packed(CUdeviceptr to)
{
	struct pair pair = {0, to, 0};

	return launch_packed(w.add_pair, &pair, offsetof(struct pair, from));
}

static CUresult launch_pair(CUdeviceptr to, CUdeviceptr from, uint64_t n)
{
	struct pair pair = {n, to, from};
	void *args[] = {&pair};

	return cuLaunchKernel(w.add_pair, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL);
}

static CUresult launch_library(CUdeviceptr data, int by_function)
{
	CUkernel kernel;
	CUfunction f;

	CALL(cuLibraryGetKernel(&kernel, w.library, "_Z6upwardPjm"));
	if (!by_function)
		return launch((CUfunction)kernel, data, 0);
	CALL(cuKernelGetFunction(&f, kernel));
	return launch(f, data, 0);
}

/* The image is gone when the kernel is launched, and so is what it was loaded as first. */
static CUresult launch_reloaded(CUdeviceptr data)
{
	char *image = strdup(wrong_ptx);
	CUmodule module;
	CUfunction f = NULL;

	for (int i = 0; i < 3; i++) {
		if (i)
			CALL(cuModuleUnload(module));
		CALL(cuModuleLoadData(&module, image));
		CALL(cuModuleGetFunction(&f, module, "_Z6upwardPjm"));
		CALL(launch(f, w.live, 0));
	}
	memset(image, 'x', strlen(image));
	free(image);
	return launch(f, data, 0);
}

static void *load(void *arg)
{
	if (!dlopen(getenv("TEST_LIBRARY"), RTLD_NOW))
		step_die("%s", dlerror());
	return arg;
}

/* While a thread loads a library (tests/preload/waits.c), and has the loader's lock. */
static CUresult launch_while_loading(CUdeviceptr data)
{
	int there[2], back[2];
	pthread_t thread;
	CUresult result;
	char fds[32], byte = 0;

	if (pipe(there) || pipe(back))
		step_die("no pipe");
	snprintf(fds, sizeof(fds), "%d %d", there[0], back[1]);
	setenv("TEST_WAITS", fds, 1);
	if (pthread_create(&thread, NULL, load, NULL) || read(back[0], &byte, 1) != 1)
		step_die("no thread");
	result = launch(w.upward, data, 0);
	if (write(there[1], &byte, 1) != 1 || pthread_join(thread, NULL))
		step_die("the library is not loaded");
	return result;
}

static CUresult copy_2d(CUmemorytype type, CUdeviceptr src, size_t height)
{
	const CUDA_MEMCPY2D_v2 copy = {.srcMemoryType = type,
				       .srcDevice = type == CU_MEMORYTYPE_HOST ? 0 : src,
				       .srcHost = type == CU_MEMORYTYPE_HOST ? (void *)src : NULL,
				       .srcPitch = 1024,
				       .dstMemoryType = CU_MEMORYTYPE_HOST,
				       .dstHost = w.host,
				       .dstPitch = 16,
				       .WidthInBytes = 16,
				       .Height = height};

	return cuMemcpy2D_v2(&copy);
}

/* @bytes from the start of two chunks of a reservation of three. */
static CUresult set_mapped(size_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = w.kernels.dev},
	};
	const CUmemAccessDesc access = {.location = prop.location,
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr start;

	CALL(cuMemAddressReserve(&start, 3 * CHUNK, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		CALL(cuMemCreate(&handle, CHUNK, &prop, 0));
		CALL(cuMemMap(start + i * CHUNK, CHUNK, 0, handle, 0));
		CALL(cuMemRelease(handle));
	}
	CALL(cuMemSetAccess(start, 2 * CHUNK, &access, 1));
	return cuMemsetD8_v2(start, 7, bytes);
}

static CUDA_MEMCPY3D_BATCH_OP box(CUdeviceptr dst, CUdeviceptr src, size_t width)
{
	return (CUDA_MEMCPY3D_BATCH_OP){
		.src = {CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = src}},
		.dst = {CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = dst}},
		.extent = {width, 1, 1},
		.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
}

/*
 * The driver takes a device pointer for one of host memory as well: all addresses are in one space
 * [H200, driver 580.159].
 */
static CUresult copy_as_host(void)
{
	CUdeviceptr other;
	CUDA_MEMCPY2D_v2 half = {.srcMemoryType = CU_MEMORYTYPE_HOST,
				 .srcPitch = BYTES / 4,
				 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				 .dstDevice = w.live,
				 .dstPitch = BYTES / 4,
				 .WidthInBytes = BYTES / 4,
				 .Height = 2};

	CALL(cuMemAlloc_v2(&other, BYTES));
	CALL(cuMemcpyDtoH_v2((void *)other, w.live, BYTES));
	CALL(cuMemsetD8_v2(w.live, 0, BYTES));
	half.srcHost = (void *)other;
	CALL(cuMemcpy2D_v2(&half));
	CALL(cuMemcpyHtoD_v2(w.live + BYTES / 2, (void *)(other + BYTES / 2), BYTES / 2));
	return cuMemFree_v2(other);
}

/* In a thread whose stack the copies would fill. */
static void *copy_batch(void *unused)
{
	static CUDA_MEMCPY3D_BATCH_OP ops[4096];
	static CUresult result;

	(void)unused;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		ops[i] = box(w.live, w.live + BYTES / 2, 4);
	CALL(cuCtxSetCurrent(w.ctx));
	result = cuMemcpy3DBatchAsync(sizeof(ops) / sizeof(ops[0]), ops, 0, w.stream);
	CALL(cuStreamSynchronize(w.stream));
	return &result;
}

static CUresult copy_large_batch(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	void *result;
	uint32_t word;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	if (pthread_create(&thread, &attr, copy_batch, NULL) || pthread_join(thread, &result))
		step_die("no thread");
	CALL(cuMemcpyDtoH_v2(&word, w.live, sizeof(word)));
	if (word != WORDS / 2)
		step_wrong("word 0 is %u", word);
	word = 0;
	CALL(cuMemcpyHtoD_v2(w.live, &word, sizeof(word)));
	return *(CUresult *)result;
}

/* A list of pointers in GPU memory, for a kernel that nobody launches. */
static CUresult copy_list(void)
{
	const CUdeviceptr list[] = {0, w.live, w.live + 8};

	return cuMemcpyHtoD_v2(w.live, list, sizeof(list)) || cuMemcpyHtoD_v2(w.live, list, 16) ||
	       cuMemcpyHtoD_v2(w.live, w.host, BYTES);
}

/* What the driver says of @ptr, and of a texture on the memory there, is what it was told. */
static CUresult ask(CUdeviceptr ptr)
{
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR,
				       .res.linear = {.devPtr = ptr,
						      .format = CU_AD_FORMAT_UNSIGNED_INT32,
						      .numChannels = 1,
						      .sizeInBytes = 64}};
	const CUDA_TEXTURE_DESC how = {.filterMode = CU_TR_FILTER_MODE_POINT};
	CUmemorytype type;
	CUtexObject texture;
	CUdeviceptr found;

	CALL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	CALL(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr));
	if (type != CU_MEMORYTYPE_DEVICE || found != ptr)
		return CUDA_ERROR_UNKNOWN;
	CALL(cuTexObjectCreate(&texture, &resource, &how, NULL));
	memset(&resource, 0, sizeof(resource));
	CALL(cuTexObjectGetResourceDesc(&resource, texture));
	CALL(cuTexObjectDestroy(texture));
	return resource.res.linear.devPtr == ptr ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* Every other call that is told where memory is. */
static CUresult name_ranges(void)
{
	CUdeviceptr ptrs[] = {w.live, w.live + BYTES / 2}, found;
	size_t sizes[] = {BYTES / 2, BYTES / 2}, index = 0, size = sizeof(int);
	CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUmem_range_attribute attribute = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
	uint64_t number = 7;
	int value;
	void *data = &value;
	CUtexref ref;

	CALL(cuMemPrefetchBatchAsync(ptrs, sizes, 2, &where, &index, 1, 0, w.stream));
	CALL(cuMemDiscardBatchAsync(ptrs, sizes, 2, 0, w.stream));
	CALL(cuMemDiscardAndPrefetchBatchAsync(ptrs, sizes, 2, &where, &index, 1, 0, w.stream));
	CALL(cuMemRangeGetAttribute(data, size, attribute, w.live, BYTES));
	CALL(cuMemRangeGetAttributes(&data, &size, &attribute, 1, w.live, BYTES));
	CALL(cuMemGetHandleForAddressRange(data, w.live, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					   0));
	CALL(cuParamSetv(w.upward, 8, &number, sizeof(number)));
	CALL(cuTexRefCreate(&ref));
	CALL(cuTexRefSetAddress_v2(&size, ref, w.live, BYTES));
	CALL(cuTexRefGetAddress_v2(&found, ref));
	if (found != w.live)
		return CUDA_ERROR_UNKNOWN;
	CALL(cuTexRefDestroy(ref));
	return CUDA_SUCCESS;
}

/* What is right. */
static CUresult run_right(const char *name)
{
	if (!strcmp(name, "right-list"))
		return copy_list();
	if (!strcmp(name, "right-hosts"))
		return copy_as_host();
	if (!strcmp(name, "right-mapped"))
		return set_mapped(2 * CHUNK);
	if (!strcmp(name, "right-batch"))
		return copy_large_batch();
	if (!strcmp(name, "right-ranges"))
		return name_ranges();
	if (!strcmp(name, "right-queries"))
		return ask(w.live + 512);
	if (!strcmp(name, "right-launches")) {
		CALL(launch(w.upward, w.live, 0));
		CALL(launch(w.upward, w.live + BYTES, 0)); /* the end of it */
		CALL(launch(w.upward, 0, 0));
		CALL(launch(w.untyped, w.live + BYTES + 8, 0)); /* in the gap: nobody says so */
		CALL(launch_pair(w.live, w.live + BYTES, 0));
		CALL(launch_pair(0, 0x6b81500f0000, 0)); /* a word that looks like one of ours */
		CALL(launch_ex(w.live, 0));
		CALL(launch_upward_packed(w.live, 0));
		CALL(launch_library(w.live, 0));
		CALL(launch_library(w.live, 1));
		return launch_reloaded(w.live);
	}
	if (!strcmp(name, "right-copies")) {
		CALL(cuMemcpyDtoH_v2(w.host, w.live, BYTES));
		CALL(cuMemcpyDtoH_v2(w.host, w.live + BYTES, 0));
		CALL(cuMemcpyHtoDAsync_v2(w.live + 4, w.host + 1, BYTES - 4, NULL));
		CALL(cuMemcpyDtoD_v2(w.live, w.live, BYTES));
		CALL(cuStreamSynchronize(NULL));
		return cuMemcpyHtoD_v2(w.live, w.host, BYTES);
	}
	step_die("no such case: %s", name);
}

static CUresult run(const char *name)
{
#define CASE(text, call)         \
	if (!strcmp(name, text)) \
	return call
	CASE("launch-freed", launch(w.upward, w.freed + 8, 0));
	CASE("launch-freed-loading", launch_while_loading(w.freed + 8));
	CASE("launch-large-freed", launch(w.upward, w.large_freed, 0));
	CASE("launch-behind", launch(w.upward, w.live + BYTES + 8, 0));
	CASE("launch-never", launch(w.upward, w.large_freed + (6 << 20), 0));
	CASE("launch-untyped-freed", launch(w.untyped, w.freed, 0));
	CASE("launch-struct-freed", launch_pair(w.live, w.freed + 16, 0));
	CASE("launch-ex-freed", launch_ex(w.freed, 0));
	CASE("launch-packed-freed", launch_upward_packed(w.freed, 0));
	CASE("launch-short-freed", launch_pair_packed(w.freed));
	CASE("launch-kernel-freed", launch_library(w.freed, 0));
	CASE("launch-function-freed", launch_library(w.freed, 1));
	CASE("launch-reloaded-freed", launch_reloaded(w.freed));
	CASE("launch-too-large", launch_packed(w.upward, (uint64_t[]){w.live, 0}, 1UL << 40));
	CASE("params-set", cuParamSetv(w.upward, 0, &w.live, sizeof(w.live)));
	CASE("copy-out-freed", cuMemcpyDtoH_v2(w.host, w.freed, 16));
	CASE("copy-in-freed", cuMemcpyHtoDAsync_v2(w.freed, w.host, 16, NULL));
	CASE("copy-within-freed", cuMemcpyDtoD_v2(w.live, w.freed, 16));
	CASE("copy-past", cuMemcpyDtoH_v2(w.host, w.live + 4, BYTES));
	CASE("copy-2d-past", copy_2d(CU_MEMORYTYPE_DEVICE, w.live, BYTES / 1024 + 1));
	CASE("copy-out-to-freed", cuMemcpyDtoH_v2((void *)w.freed, w.live, 16));
	CASE("copy-in-from-freed", cuMemcpyHtoD_v2(w.live, (void *)w.freed, 16));
	CASE("copy-2d-from-freed", copy_2d(CU_MEMORYTYPE_HOST, w.freed, 1));
	CASE("set-past", cuMemsetD32_v2(w.live, 7, WORDS + 1));
	CASE("set-freed", cuMemsetD8Async(w.freed, 7, 1, NULL));
	CASE("set-past-mapped", set_mapped(2 * CHUNK + 4));
#undef CASE
	return run_right(name);
}

static void setup(void)
{
	kernels_init(&w.kernels);
	w.untyped = w.kernels.increment;
	CALL(cuCtxGetCurrent(&w.ctx));
	CALL(cuStreamCreate(&w.stream, CU_STREAM_DEFAULT));
	CALL(cuModuleLoadData(&w.module, wrong_ptx));
	CALL(cuModuleGetFunction(&w.upward, w.module, "_Z6upwardPjm"));
	CALL(cuModuleGetFunction(&w.add_pair, w.module, "add_pair"));
	CALL(cuLibraryLoadData(&w.library, wrong_ptx, NULL, NULL, 0, NULL, NULL, 0));
	CALL(cuMemAlloc_v2(&w.live, BYTES));
	CALL(cuMemAlloc_v2(&w.freed, BYTES));
	CALL(cuMemAlloc_v2(&w.large_freed, 4 << 20));
	for (uint32_t i = 0; i < WORDS; i++)
		w.host[i] = i;
	CALL(cuMemcpyHtoD_v2(w.live, w.host, BYTES));
	CALL(cuMemFree_v2(w.freed));
	CALL(cuMemFree_v2(w.large_freed));
}

/* The kernels still run, and every word is what it was. */
static int is_as_before(void)
{
	CALL(launch(w.upward, w.live, WORDS));
	memset(w.host, 0, sizeof(w.host));
	CALL(cuMemcpyDtoH_v2(w.host, w.live, BYTES));
	for (uint32_t i = 0; i < WORDS; i++)
		if (w.host[i] != i + 1)
			return 0;
	CALL(cuLibraryUnload(w.library));
	CALL(cuModuleUnload(w.module));
	return 1;
}

int main(int argc, char **argv)
{
	const char *name;
	CUresult result;

	if (argc < 2)
		step_die("usage: wrong CASE [--cxx]");
	if (argc > 2 && !dlopen("libstdc++.so.6", RTLD_LAZY))
		step_die("no libstdc++: %s", dlerror());
	setup();
	fprintf(stderr, "live 0x%llx freed 0x%llx large 0x%llx\n", w.live, w.freed, w.large_freed);
	result = run(argv[1]);
	CALL(cuGetErrorName(result, &name));
	printf("%s\n%s\n", name, is_as_before() ? "as before" : "not as before");
	return 0;
}
