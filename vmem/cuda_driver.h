/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CUDA_DRIVER_H
#define CUDAW_CUDA_DRIVER_H
/*
 * The real driver, as vmem and checkpoint see it: a table of the functions of libcuda.so.1 that
 * they call. The wrapper fills it from the real library; unit tests fill it from a fake. Members
 * carry the exported (ABI) name, since the whole project is compiled with
 * __CUDA_API_VERSION_INTERNAL, under which cuda.h renames nothing.
 */

#include <cuda.h>

/* Present in every driver that has virtual memory management (CUDA 10.2, r440, or later). */
#define CUDA_DRIVER_REQUIRED(X)          \
	X(cuCtxGetCurrent)               \
	X(cuCtxSetCurrent)               \
	X(cuCtxPushCurrent_v2)           \
	X(cuCtxPopCurrent_v2)            \
	X(cuCtxSynchronize)              \
	X(cuDeviceGetCount)              \
	X(cuDeviceGetAttribute)          \
	X(cuDeviceGetName)               \
	X(cuDeviceTotalMem_v2)           \
	X(cuDevicePrimaryCtxGetState)    \
	X(cuDevicePrimaryCtxRetain)      \
	X(cuDevicePrimaryCtxRelease_v2)  \
	X(cuDriverGetVersion)            \
	X(cuEventDestroy_v2)             \
	X(cuEventQuery)                  \
	X(cuGetErrorName)                \
	X(cuMemAddressReserve)           \
	X(cuMemAddressFree)              \
	X(cuMemCreate)                   \
	X(cuMemRelease)                  \
	X(cuMemMap)                      \
	X(cuMemUnmap)                    \
	X(cuMemSetAccess)                \
	X(cuMemGetAllocationGranularity) \
	X(cuMemGetInfo_v2)               \
	X(cuMemAlloc_v2)                 \
	X(cuMemFree_v2)                  \
	X(cuMemHostRegister_v2)          \
	X(cuMemHostUnregister)           \
	X(cuMemcpyDtoHAsync_v2)          \
	X(cuMemcpyHtoDAsync_v2)          \
	X(cuMemsetD8Async)               \
	X(cuModuleLoadData)              \
	X(cuModuleUnload)                \
	X(cuModuleGetFunction)           \
	X(cuLaunchKernel)                \
	X(cuStreamCreate)                \
	X(cuStreamSynchronize)           \
	X(cuStreamDestroy_v2)            \
	X(cuPointerGetAttribute)         \
	X(cuStreamIsCapturing)           \
	X(cuStreamQuery)                 \
	X(cuThreadExchangeStreamCaptureMode)

/* NULL if the driver is older than the release named. */
#define CUDA_DRIVER_OPTIONAL(X)                                          \
	X(cuMemExportToShareableHandle)   /* 10.2, with cuMemCreate() */ \
	X(cuMemImportFromShareableHandle) /* the same */                 \
	X(cuMemRetainAllocationHandle)    /* 11.0 */                     \
	X(cuDeviceGetUuid_v2)             /* 11.4 */                     \
	X(cuCheckpointProcessLock)        /* 12.8, r570 */               \
	X(cuCheckpointProcessCheckpoint)  /* 12.8, r570 */               \
	X(cuCheckpointProcessRestore)     /* 12.8, r570 */               \
	X(cuCheckpointProcessUnlock)      /* 12.8, r570 */

#define CUDA_DRIVER_MEMBER(name) __typeof__(name) *name;
struct cuda_driver {
	CUDA_DRIVER_REQUIRED(CUDA_DRIVER_MEMBER)
	CUDA_DRIVER_OPTIONAL(CUDA_DRIVER_MEMBER)
};
#undef CUDA_DRIVER_MEMBER

/*
 * Fill @drv by dlsym() from the library @handle. Returns 0, or -ENOSYS if a required function
 * is missing (its name in *@missing): such a driver can run programs but not pause them.
 */
int cuda_driver_fill(struct cuda_driver *drv, void *handle, const char **missing);

#endif
