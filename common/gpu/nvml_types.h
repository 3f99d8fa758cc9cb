/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_NVML_TYPES_H
#define CUDAW_NVML_TYPES_H
/* From nvml.h (CUDA 13.0), which a toolkit may lack: what is used of it here. Sizes are in bytes. NVML_SUCCESS is 0. */

typedef void *nvmlDevice_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory; /* or NVML_VALUE_NOT_AVAILABLE */
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

#define NVML_VALUE_NOT_AVAILABLE        (~0ULL)
#define NVML_DEVICE_UUID_V2_BUFFER_SIZE 96

#define NVML_ERROR_NOT_SUPPORTED      3
#define NVML_ERROR_NOT_FOUND          6
#define NVML_ERROR_LIBRARY_NOT_FOUND  12
#define NVML_ERROR_FUNCTION_NOT_FOUND 13

#endif
