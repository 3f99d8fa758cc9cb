/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: every entry point under its public name, and the release that brought it. */
#include "tests/sim/sim.h"

#include <string.h>

/*
 * X(public name, CUDA version since which this is the function of that name, symbol)
 * TWIN(..., symbol of the twin for per-thread default streams)
 */
/* clang-format off */
#define ENTRY_POINTS(X, TWIN) \
	X(cuArray3DCreate, 3020, cuArray3DCreate_v2) \
	X(cuArray3DGetDescriptor, 3020, cuArray3DGetDescriptor_v2) \
	X(cuArrayCreate, 3020, cuArrayCreate_v2) \
	X(cuArrayDestroy, 2000, cuArrayDestroy) \
	X(cuArrayGetDescriptor, 3020, cuArrayGetDescriptor_v2) \
	X(cuCheckpointProcessCheckpoint, 12080, cuCheckpointProcessCheckpoint) \
	X(cuCheckpointProcessGetRestoreThreadId, 12080, cuCheckpointProcessGetRestoreThreadId) \
	X(cuCheckpointProcessGetState, 12080, cuCheckpointProcessGetState) \
	X(cuCheckpointProcessLock, 12080, cuCheckpointProcessLock) \
	X(cuCheckpointProcessRestore, 12080, cuCheckpointProcessRestore) \
	X(cuCheckpointProcessUnlock, 12080, cuCheckpointProcessUnlock) \
	X(cuCtxCreate, 3020, cuCtxCreate_v2) \
	X(cuCtxCreate, 12050, cuCtxCreate_v4) \
	X(cuCtxDestroy, 4000, cuCtxDestroy_v2) \
	X(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess) \
	X(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess) \
	X(cuCtxFromGreenCtx, 12040, cuCtxFromGreenCtx) \
	X(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion) \
	X(cuCtxGetCurrent, 4000, cuCtxGetCurrent) \
	X(cuCtxGetDevice, 2000, cuCtxGetDevice) \
	X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2) \
	X(cuCtxGetFlags, 7000, cuCtxGetFlags) \
	X(cuCtxGetId, 12000, cuCtxGetId) \
	X(cuCtxGetLimit, 3010, cuCtxGetLimit) \
	X(cuCtxSetLimit, 3010, cuCtxSetLimit) \
	X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange) \
	X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2) \
	X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2) \
	X(cuCtxSetCurrent, 4000, cuCtxSetCurrent) \
	X(cuCtxSynchronize, 2000, cuCtxSynchronize) \
	X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2) \
	X(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer) \
	X(cuDeviceGet, 2000, cuDeviceGet) \
	X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute) \
	X(cuDeviceGetCount, 2000, cuDeviceGetCount) \
	X(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool) \
	X(cuDeviceGetDevResource, 12040, cuDeviceGetDevResource) \
	X(cuDeviceGetGraphMemAttribute, 11040, cuDeviceGetGraphMemAttribute) \
	X(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool) \
	X(cuDeviceGetName, 2000, cuDeviceGetName) \
	X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId) \
	X(cuDeviceGetUuid, 9020, cuDeviceGetUuid) \
	X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2) \
	X(cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim) \
	X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState) \
	X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2) \
	X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2) \
	X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain) \
	X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2) \
	X(cuDevResourceGenerateDesc, 12040, cuDevResourceGenerateDesc) \
	X(cuDevSmResourceSplitByCount, 12040, cuDevSmResourceSplitByCount) \
	X(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool) \
	X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2) \
	X(cuDestroyExternalMemory, 10000, cuDestroyExternalMemory) \
	X(cuDriverGetVersion, 2020, cuDriverGetVersion) \
	X(cuEventCreate, 2000, cuEventCreate) \
	X(cuEventDestroy, 4000, cuEventDestroy_v2) \
	X(cuEventElapsedTime, 2000, cuEventElapsedTime) \
	X(cuEventElapsedTime, 12080, cuEventElapsedTime_v2) \
	X(cuEventQuery, 2000, cuEventQuery) \
	TWIN(cuEventRecord, 2000, cuEventRecord, cuEventRecord_ptsz) \
	TWIN(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz) \
	X(cuEventSynchronize, 2000, cuEventSynchronize) \
	X(cuExternalMemoryGetMappedBuffer, 10000, cuExternalMemoryGetMappedBuffer) \
	X(cuFuncGetName, 12030, cuFuncGetName) \
	X(cuFuncGetParamInfo, 12040, cuFuncGetParamInfo) \
	X(cuGetErrorName, 6000, cuGetErrorName) \
	X(cuGetErrorString, 6000, cuGetErrorString) \
	X(cuGetExportTable, 3000, cuGetExportTable) \
	X(cuGetProcAddress, 11030, cuGetProcAddress) \
	X(cuGetProcAddress, 12000, cuGetProcAddress_v2) \
	X(cuGraphAddNode, 12030, cuGraphAddNode_v2) \
	X(cuGraphDestroy, 10000, cuGraphDestroy) \
	X(cuGraphExecDestroy, 10000, cuGraphExecDestroy) \
	X(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags) \
	X(cuGraphInstantiate, 11000, cuGraphInstantiate_v2) \
	TWIN(cuGraphLaunch, 10000, cuGraphLaunch, cuGraphLaunch_ptsz) \
	X(cuImportExternalMemory, 10000, cuImportExternalMemory) \
	X(cuInit, 2000, cuInit) \
	X(cuGreenCtxCreate, 12040, cuGreenCtxCreate) \
	X(cuGreenCtxDestroy, 12040, cuGreenCtxDestroy) \
	X(cuGreenCtxStreamCreate, 12050, cuGreenCtxStreamCreate) \
	X(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle) \
	X(cuIpcGetEventHandle, 4010, cuIpcGetEventHandle) \
	X(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle) \
	X(cuIpcOpenEventHandle, 4010, cuIpcOpenEventHandle) \
	X(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2) \
	X(cuKernelGetFunction, 12000, cuKernelGetFunction) \
	X(cuKernelGetName, 12030, cuKernelGetName) \
	X(cuKernelGetParamInfo, 12040, cuKernelGetParamInfo) \
	TWIN(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz) \
	TWIN(cuLaunchHostFunc, 10000, cuLaunchHostFunc, cuLaunchHostFunc_ptsz) \
	TWIN(cuLaunchKernel, 4000, cuLaunchKernel, cuLaunchKernel_ptsz) \
	TWIN(cuLaunchKernelEx, 11060, cuLaunchKernelEx, cuLaunchKernelEx_ptsz) \
	X(cuLibraryGetKernel, 12000, cuLibraryGetKernel) \
	X(cuLibraryLoadData, 12000, cuLibraryLoadData) \
	X(cuLibraryUnload, 12000, cuLibraryUnload) \
	X(cuLinkAddData, 6050, cuLinkAddData_v2) \
	X(cuLinkComplete, 5050, cuLinkComplete) \
	X(cuLinkCreate, 6050, cuLinkCreate_v2) \
	X(cuLinkDestroy, 5050, cuLinkDestroy) \
	X(cuMemAddressFree, 10020, cuMemAddressFree) \
	X(cuMemAddressReserve, 10020, cuMemAddressReserve) \
	X(cuMemAdvise, 12020, cuMemAdvise_v2) \
	TWIN(cuMemAllocAsync, 11020, cuMemAllocAsync, cuMemAllocAsync_ptsz) \
	TWIN(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz) \
	X(cuMemAllocHost, 3020, cuMemAllocHost_v2) \
	X(cuMemAllocManaged, 6000, cuMemAllocManaged) \
	X(cuMemAllocPitch, 3020, cuMemAllocPitch_v2) \
	X(cuMemAlloc, 3020, cuMemAlloc_v2) \
	X(cuMemCreate, 10020, cuMemCreate) \
	X(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle) \
	TWIN(cuMemFreeAsync, 11020, cuMemFreeAsync, cuMemFreeAsync_ptsz) \
	X(cuMemFreeHost, 2000, cuMemFreeHost) \
	X(cuMemFree, 3020, cuMemFree_v2) \
	X(cuMemGetAccess, 10020, cuMemGetAccess) \
	X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2) \
	X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity) \
	X(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle) \
	X(cuMemGetHandleForAddressRange, 11070, cuMemGetHandleForAddressRange) \
	X(cuMemGetInfo, 3020, cuMemGetInfo_v2) \
	X(cuMemHostAlloc, 2020, cuMemHostAlloc) \
	X(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2) \
	X(cuMemHostGetFlags, 2030, cuMemHostGetFlags) \
	X(cuMemHostRegister, 6050, cuMemHostRegister_v2) \
	X(cuMemHostUnregister, 4000, cuMemHostUnregister) \
	X(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle) \
	X(cuMemMap, 10020, cuMemMap) \
	X(cuMemPoolCreate, 11020, cuMemPoolCreate) \
	X(cuMemPoolDestroy, 11020, cuMemPoolDestroy) \
	X(cuMemPoolExportToShareableHandle, 11020, cuMemPoolExportToShareableHandle) \
	X(cuMemPoolImportFromShareableHandle, 11020, cuMemPoolImportFromShareableHandle) \
	X(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute) \
	X(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute) \
	X(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo) \
	X(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess) \
	X(cuMemPoolGetAccess, 11020, cuMemPoolGetAccess) \
	TWIN(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz) \
	X(cuMemRelease, 10020, cuMemRelease) \
	X(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle) \
	X(cuMemSetAccess, 10020, cuMemSetAccess) \
	X(cuMemUnmap, 10020, cuMemUnmap) \
	TWIN(cuMemcpy, 4000, cuMemcpy, cuMemcpy_ptds) \
	TWIN(cuMemcpy2D, 3020, cuMemcpy2D_v2, cuMemcpy2D_v2_ptds) \
	TWIN(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz) \
	TWIN(cuMemcpy2DUnaligned, 3020, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds) \
	TWIN(cuMemcpy3D, 3020, cuMemcpy3D_v2, cuMemcpy3D_v2_ptds) \
	TWIN(cuMemcpy3DAsync, 3020, cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz) \
	TWIN(cuMemcpy3DBatchAsync, 13000, cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz) \
	TWIN(cuMemcpy3DPeer, 4000, cuMemcpy3DPeer, cuMemcpy3DPeer_ptds) \
	TWIN(cuMemcpy3DPeerAsync, 4000, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz) \
	TWIN(cuMemcpyAsync, 4000, cuMemcpyAsync, cuMemcpyAsync_ptsz) \
	TWIN(cuMemcpyAtoD, 3020, cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds) \
	TWIN(cuMemcpyAtoH, 3020, cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds) \
	TWIN(cuMemcpyBatchAsync, 13000, cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz) \
	TWIN(cuMemcpyDtoA, 3020, cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds) \
	TWIN(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz) \
	TWIN(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds) \
	TWIN(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz) \
	TWIN(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds) \
	TWIN(cuMemcpyHtoA, 3020, cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds) \
	TWIN(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz) \
	TWIN(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds) \
	TWIN(cuMemcpyPeer, 4000, cuMemcpyPeer, cuMemcpyPeer_ptds) \
	TWIN(cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz) \
	TWIN(cuMemsetD16Async, 3020, cuMemsetD16Async, cuMemsetD16Async_ptsz) \
	TWIN(cuMemsetD16, 3020, cuMemsetD16_v2, cuMemsetD16_v2_ptds) \
	TWIN(cuMemsetD2D8, 3020, cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds) \
	TWIN(cuMemsetD2D8Async, 3020, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz) \
	TWIN(cuMemsetD2D16, 3020, cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds) \
	TWIN(cuMemsetD2D16Async, 3020, cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz) \
	TWIN(cuMemsetD2D32, 3020, cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds) \
	TWIN(cuMemsetD2D32Async, 3020, cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz) \
	TWIN(cuMemsetD32Async, 3020, cuMemsetD32Async, cuMemsetD32Async_ptsz) \
	TWIN(cuMemsetD32, 3020, cuMemsetD32_v2, cuMemsetD32_v2_ptds) \
	TWIN(cuMemsetD8Async, 3020, cuMemsetD8Async, cuMemsetD8Async_ptsz) \
	TWIN(cuMemsetD8, 3020, cuMemsetD8_v2, cuMemsetD8_v2_ptds) \
	X(cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate) \
	X(cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy) \
	X(cuMipmappedArrayGetLevel, 5000, cuMipmappedArrayGetLevel) \
	X(cuModuleGetFunction, 2000, cuModuleGetFunction) \
	X(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2) \
	X(cuModuleLoadData, 2000, cuModuleLoadData) \
	X(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx) \
	X(cuModuleUnload, 2000, cuModuleUnload) \
	X(cuMulticastCreate, 12010, cuMulticastCreate) \
	X(cuPointerGetAttribute, 4000, cuPointerGetAttribute) \
	X(cuPointerGetAttributes, 7000, cuPointerGetAttributes) \
	X(cuPointerSetAttribute, 6000, cuPointerSetAttribute) \
	TWIN(cuStreamAddCallback, 5000, cuStreamAddCallback, cuStreamAddCallback_ptsz) \
	TWIN(cuStreamAttachMemAsync, 6000, cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz) \
	TWIN(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz) \
	TWIN(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz) \
	X(cuStreamCreate, 2000, cuStreamCreate) \
	X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority) \
	X(cuStreamDestroy, 4000, cuStreamDestroy_v2) \
	TWIN(cuStreamEndCapture, 10000, cuStreamEndCapture, cuStreamEndCapture_ptsz) \
	TWIN(cuStreamGetCaptureInfo, 10010, cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz) \
	TWIN(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz) \
	TWIN(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz) \
	TWIN(cuStreamGetCtx, 9020, cuStreamGetCtx, cuStreamGetCtx_ptsz) \
	TWIN(cuStreamGetFlags, 5050, cuStreamGetFlags, cuStreamGetFlags_ptsz) \
	TWIN(cuStreamGetId, 12000, cuStreamGetId, cuStreamGetId_ptsz) \
	TWIN(cuStreamGetPriority, 5050, cuStreamGetPriority, cuStreamGetPriority_ptsz) \
	TWIN(cuStreamIsCapturing, 10000, cuStreamIsCapturing, cuStreamIsCapturing_ptsz) \
	TWIN(cuStreamQuery, 2000, cuStreamQuery, cuStreamQuery_ptsz) \
	TWIN(cuStreamSynchronize, 2000, cuStreamSynchronize, cuStreamSynchronize_ptsz) \
	TWIN(cuStreamWaitEvent, 3020, cuStreamWaitEvent, cuStreamWaitEvent_ptsz) \
	TWIN(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz) \
	TWIN(cuStreamWaitValue64, 11070, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz) \
	TWIN(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz) \
	TWIN(cuStreamWriteValue64, 11070, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz) \
	X(cuSurfObjectCreate, 5000, cuSurfObjectCreate) \
	X(cuSurfObjectDestroy, 5000, cuSurfObjectDestroy) \
	X(cuSurfObjectGetResourceDesc, 5000, cuSurfObjectGetResourceDesc) \
	X(cuTensorMapEncodeTiled, 12000, cuTensorMapEncodeTiled) \
	X(cuTensorMapReplaceAddress, 12000, cuTensorMapReplaceAddress) \
	X(cuTexObjectCreate, 5000, cuTexObjectCreate) \
	X(cuTexObjectDestroy, 5000, cuTexObjectDestroy) \
	X(cuTexObjectGetResourceDesc, 5000, cuTexObjectGetResourceDesc) \
	X(cuTexObjectGetTextureDesc, 5000, cuTexObjectGetTextureDesc) \
	X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode)
/* clang-format on */

struct entry {
	const char *name;
	int since;
	void *function, *twin;
};

#define ENTRY(name, since, symbol)            {#name, since, (void *)symbol, (void *)symbol},
#define ENTRY_TWIN(name, since, symbol, twin) {#name, since, (void *)symbol, (void *)twin},
static const struct entry entries[] = {ENTRY_POINTS(ENTRY, ENTRY_TWIN)};
#undef ENTRY
#undef ENTRY_TWIN

static CUresult resolve(const char *name, void **function, int version, cuuint64_t flags,
			CUdriverProcAddressQueryResult *status)
{
	const struct entry *best = NULL;
	bool known = false;

	if (!name || !function || version > SIM_VERSION ||
	    flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		const struct entry *e = &entries[i];

		if (strcmp(e->name, name))
			continue;
		known = true;
		if (e->since <= version && (!best || e->since > best->since))
			best = e;
	}
	*function = NULL;
	if (status)
		*status = best    ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (!best)
		return CUDA_ERROR_NOT_FOUND;
	*function = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? best->twin
									   : best->function;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
	SIM_ENTER(cuGetProcAddress, NEED_NOTHING);
	return resolve(name, function, version, flags, NULL);
}

SIM_EXPORT cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
			       CUdriverProcAddressQueryResult *status)
{
	SIM_ENTER(cuGetProcAddress_v2, NEED_NOTHING);
	return resolve(name, function, version, flags, status);
}
