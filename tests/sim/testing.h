/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIM_TESTING_H
#define CUDAW_SIM_TESTING_H
/*
 * For the tests of the simulated driver: the functions that they call, found by dlsym in the
 * library that CUDAW_REAL_LIBCUDA names. Check runs each test in a process of its own, so a test
 * may set CUDAW_SIM_* variables before it opens the library.
 */
#include <check.h>
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1UL << 20)

/* clang-format off */
#define FUNCTIONS(X) \
	X(cuInit) X(cuDeviceGetCount) X(cuDeviceGetAttribute) X(cuDeviceTotalMem_v2) \
	X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxReset_v2) \
	X(cuDevicePrimaryCtxGetState) X(cuCtxCreate_v4) X(cuCtxDestroy_v2) X(cuCtxSetCurrent) \
	X(cuCtxGetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxSynchronize) \
	X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) \
	X(cuMemUnmap) X(cuMemSetAccess) X(cuMemRetainAllocationHandle) X(cuMemGetInfo_v2) \
	X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemAllocManaged) X(cuMemHostAlloc) X(cuMemFreeHost) \
	X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemHostRegister_v2) X(cuMemHostUnregister) \
	X(cuMemGetAddressRange_v2) X(cuPointerGetAttribute) X(cuPointerSetAttribute) \
	X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoD_v2) X(cuMemcpy) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) \
	X(cuMemsetD8_v2) X(cuMemsetD32_v2) X(cuMemsetD32Async) X(cuMemsetD32_v2_ptds) \
	X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize) X(cuStreamQuery) \
	X(cuStreamSynchronize_ptsz) X(cuStreamQuery_ptsz) \
	X(cuStreamWaitEvent) X(cuStreamAddCallback) X(cuLaunchHostFunc) X(cuEventCreate) \
	X(cuIpcGetEventHandle) X(cuIpcOpenEventHandle) \
	X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime_v2) \
	X(cuEventDestroy_v2) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) \
	X(cuStreamIsCapturing) X(cuThreadExchangeStreamCaptureMode) \
	X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphLaunch_ptsz) X(cuGraphDestroy) \
	X(cuGraphExecDestroy) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) \
	X(cuModuleGetGlobal_v2) X(cuLibraryLoadData) X(cuLibraryGetKernel) X(cuLibraryUnload) \
	X(cuKernelGetFunction) X(cuFuncGetParamInfo) X(cuFuncGetName) X(cuLaunchKernel) \
	X(cuLaunchKernelEx) X(cuCheckpointProcessLock) X(cuCheckpointProcessCheckpoint) \
	X(cuCheckpointProcessRestore) X(cuCheckpointProcessUnlock) X(cuCheckpointProcessGetState) \
	X(cuGetProcAddress_v2) X(cuGetErrorName) \
	X(cuMemPoolCreate) X(cuMemPoolExportToShareableHandle) \
	X(cuMemPoolImportFromShareableHandle) X(cuMemPoolDestroy) X(cuMemPoolTrimTo) \
	X(cuMemPoolSetAccess) X(cuMemPoolGetAccess) X(cuMemPoolGetAttribute) \
	X(cuMemPoolSetAttribute) X(cuMemAllocFromPoolAsync) X(cuDeviceGetDefaultMemPool) \
	X(cuDeviceGetMemPool) X(cuDeviceSetMemPool) X(cuDeviceGetGraphMemAttribute) X(cuDeviceGraphMemTrim) \
	X(cuArrayCreate_v2) X(cuArray3DCreate_v2) X(cuArrayDestroy) X(cuArray3DGetDescriptor_v2) \
	X(cuMipmappedArrayCreate) X(cuMipmappedArrayGetLevel) X(cuMipmappedArrayDestroy) \
	X(cuMemcpy2D_v2) X(cuMemcpy3D_v2) X(cuTexObjectCreate) X(cuTexObjectDestroy) \
	X(cuTexObjectGetTextureDesc) X(cuSurfObjectCreate) X(cuSurfObjectDestroy) \
	X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle) \
	X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle) X(cuMulticastCreate) \
	X(cuImportExternalMemory) X(cuExternalMemoryGetMappedBuffer) X(cuDestroyExternalMemory) \
	X(cuGraphCreate) X(cuGraphClone) X(cuGraphNodeFindInClone) X(cuGraphDestroyNode) \
	X(cuGraphGetNodes) X(cuGraphNodeGetType) X(cuGraphAddKernelNode_v2) \
	X(cuGraphKernelNodeGetParams_v2) X(cuGraphKernelNodeSetParams_v2) X(cuGraphAddMemcpyNode) \
	X(cuGraphMemcpyNodeGetParams) X(cuGraphMemcpyNodeSetParams) X(cuGraphAddMemsetNode) \
	X(cuGraphMemsetNodeGetParams) X(cuGraphMemsetNodeSetParams) X(cuGraphAddEmptyNode) \
	X(cuGraphAddChildGraphNode) X(cuGraphChildGraphNodeGetGraph) X(cuGraphExecUpdate_v2) \
	X(cuGraphExecKernelNodeSetParams_v2) X(cuGraphExecMemcpyNodeSetParams) \
	X(cuGraphExecMemsetNodeSetParams) X(cuGraphAddNode_v2) X(cuLaunchCooperativeKernel) \
	X(cuStreamWaitValue32_v2) X(cuStreamWriteValue32_v2) X(cuStreamWaitValue64_v2) \
	X(cuStreamBatchMemOp_v2) X(cuStreamAttachMemAsync) X(cuMemsetD2D8_v2) X(cuMemsetD2D16_v2) X(cuMemsetD2D32_v2) \
	X(cuMemsetD2D32Async) X(cuMemcpy3DPeer) X(cuMemcpyBatchAsync_v2) X(cuMemcpyDtoA_v2) \
	X(cuMemcpyAtoD_v2) X(cuMemcpyHtoA_v2) X(cuMemcpyAtoH_v2) X(cuLinkCreate_v2) \
	X(cuLinkAddData_v2) X(cuLinkComplete) X(cuLinkDestroy) X(cuTensorMapEncodeTiled) \
	X(cuTensorMapReplaceAddress) X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess) \
	X(cuDeviceCanAccessPeer) X(cuMemcpyPeer) X(cuDeviceGetDevResource) \
	X(cuDevSmResourceSplitByCount) X(cuDevResourceGenerateDesc) X(cuGreenCtxCreate) \
	X(cuGreenCtxDestroy) X(cuGreenCtxStreamCreate) X(cuCtxFromGreenCtx) X(cuMemGetAccess) \
	X(cuMemHostGetFlags) X(cuMemHostGetDevicePointer_v2) X(cuMemGetHandleForAddressRange) \
	X(cuMemGetAllocationPropertiesFromHandle)
/* clang-format on */

struct driver {
#define DRIVER_MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};

static struct driver cu;
static CUcontext primary;
static CUmodule module;

#define IMAGE                                                                              \
	".visible .entry increment(\n.visible .entry fill(\n.visible .entry iota(\n"       \
	".visible .entry checksum(\n.visible .entry spin_until(\n.visible .entry chase(\n" \
	".visible .entry add_texels(\n.visible .entry increment_surface(\n"                \
	".visible .global .align 4 .u32 table[256];\n.const .b32 constants[64];\n"

#define ok(call)            ck_assert_int_eq(call, CUDA_SUCCESS)
#define fails(call, result) ck_assert_int_eq(call, result)

static inline void open_driver(void)
{
	const char *path = getenv("CUDAW_REAL_LIBCUDA");
	void *lib = dlopen(path ? path : "", RTLD_NOW | RTLD_LOCAL);

	ck_assert_msg(path && lib, "CUDAW_REAL_LIBCUDA: %s", path ? dlerror() : "not set");
#define DRIVER_FIND(name)                                 \
	cu.name = (__typeof__(cu.name))dlsym(lib, #name); \
	ck_assert_msg(cu.name != NULL, "no %s", #name);
	FUNCTIONS(DRIVER_FIND)
#undef DRIVER_FIND
}

static inline void open_context(void)
{
	open_driver();
	ok(cu.cuInit(0));
	ok(cu.cuDevicePrimaryCtxRetain(&primary, 0));
	ok(cu.cuCtxSetCurrent(primary));
	ok(cu.cuModuleLoadData(&module, IMAGE));
}

/* Parameters that the kernel does not have are not looked at. */
static inline CUresult launch4(const char *name, CUstream stream, uint64_t a, uint64_t b,
			       uint64_t c, uint64_t d)
{
	void *params[] = {&a, &b, &c, &d};
	CUfunction f;

	ok(cu.cuModuleGetFunction(&f, module, name));
	return cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static inline CUresult launch(const char *name, CUstream stream, uint64_t a, uint64_t b, uint64_t c)
{
	return launch4(name, stream, a, b, c, 0);
}

static inline CUmemAllocationProp device_prop(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
}

static inline CUresult allow(CUdeviceptr ptr, size_t size)
{
	CUmemAccessDesc desc = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	return cu.cuMemSetAccess(ptr, size, &desc, 1);
}

/* Create memory and map it at @ptr, the handle released: the mapping keeps it. */
static inline void back(CUdeviceptr ptr, size_t size)
{
	CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle;

	ok(cu.cuMemCreate(&handle, size, &prop, 0));
	ok(cu.cuMemMap(ptr, size, 0, handle, 0));
	ok(cu.cuMemRelease(handle));
	ok(allow(ptr, size));
}

static inline size_t free_memory(void)
{
	size_t bytes, total;

	ok(cu.cuMemGetInfo_v2(&bytes, &total));
	return bytes;
}

static inline uint32_t word_at(CUdeviceptr ptr)
{
	uint32_t value;

	ok(cu.cuMemcpyDtoH_v2(&value, ptr, sizeof(value)));
	return value;
}

#endif
