/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that vmem answers: device memory and questions about pointers. What is not in vmem's
 * address space goes to the real driver.
 */
#include "calls.h"
#include "checkpoint/captures.h"
#include "checkpoint/unmanaged.h"
#include "vmem/vmem.h"
#include "wrapper/driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define LOG_PREFIX "memory: "
#include "vmem/log.h"

#define PITCH 512UL /* of cuMemAllocPitch_v2 on every device since sm_20 [H200: 512] */

/* Say @text once in the life of the process. */
static void report_once(bool *said, const char *text)
{
	if (!__atomic_exchange_n(said, true, __ATOMIC_RELAXED))
		pr_err("%s", text);
}

/*
 * Memory freed while a stream capture was open. Freeing waits for the GPU, which a capture does
 * not allow; the memory is kept until a free or an allocation finds no capture.
 */
static struct {
	pthread_mutex_t lock;
	CUdeviceptr *ptrs;
	size_t count, room;
} deferred = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool defer(CUdeviceptr ptr)
{
	bool ok = true;

	pthread_mutex_lock(&deferred.lock);
	if (deferred.count == deferred.room) {
		size_t room = deferred.room ? 2 * deferred.room : 64;
		CUdeviceptr *ptrs = realloc(deferred.ptrs, room * sizeof(*ptrs));

		ok = ptrs;
		if (ok) {
			deferred.ptrs = ptrs;
			deferred.room = room;
		}
	}
	if (ok)
		__atomic_store_n(&deferred.ptrs[deferred.count++], ptr, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&deferred.lock);
	return ok;
}

static bool take_deferred(CUdeviceptr *ptr)
{
	bool any;

	pthread_mutex_lock(&deferred.lock);
	any = deferred.count > 0;
	if (any)
		*ptr = deferred.ptrs[--deferred.count];
	pthread_mutex_unlock(&deferred.lock);
	return any;
}

CUresult driver_synchronize(CUcontext ctx)
{
	CUcontext current = NULL;
	CUresult result;

	real.cuCtxGetCurrent(&current);
	if (current == ctx)
		return real.cuCtxSynchronize();
	result = real.cuCtxPushCurrent_v2(ctx);
	if (result)
		return result;
	result = real.cuCtxSynchronize();
	real.cuCtxPopCurrent_v2(&current);
	return result;
}

/* As cudaFree: first wait for all work of the context, which may still use the memory. */
static CUresult free_now(CUdeviceptr ptr)
{
	struct vmem_info info;
	CUresult result;

	if (!vmem_lookup(ptr, &info) || info.start != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	result = driver_synchronize(info.ctx);
	return result ? result : vmem_free(ptr);
}

static void free_deferred(void)
{
	CUdeviceptr ptr;

	if (!__atomic_load_n(&deferred.count, __ATOMIC_RELAXED) || captures_open(driver_table()))
		return;
	while (take_deferred(&ptr))
		free_now(ptr);
}

static CUresult alloc_native(CUdeviceptr *dptr, size_t bytesize)
{
	CUresult result = real.cuMemAlloc_v2(dptr, bytesize);

	if (!result)
		unmanaged_add(UNMANAGED_DEVICE, *dptr, bytesize);
	return result;
}

static CUresult alloc(CUcontext ctx, CUdevice dev, CUdeviceptr *dptr, size_t bytesize)
{
	CUresult result = vmem_alloc(ctx, dev, bytesize, dptr);

	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		free_deferred();
		result = vmem_alloc(ctx, dev, bytesize, dptr);
	}
	return result;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	static bool said;
	CUcontext ctx = NULL;
	CUdevice dev;
	CUresult result;

	if (!dptr || !bytesize || !driver_table() || real.cuCtxGetCurrent(&ctx) || !ctx ||
	    real.cuCtxGetDevice(&dev))
		return real.cuMemAlloc_v2(dptr, bytesize);
	result = alloc(ctx, dev, dptr, bytesize);
	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	report_once(&said, "the device has no virtual memory management: the program runs, but "
			   "its memory stays on the GPU during a pause unless the driver moves it");
	return alloc_native(dptr, bytesize);
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
				 size_t Height, unsigned int ElementSizeBytes)
{
	size_t pitch = (WidthInBytes + PITCH - 1) & ~(PITCH - 1), size;
	bool valid = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
	CUresult result;

	/* Whatever is odd is the real driver's to refuse. */
	if (!valid || !dptr || !pPitch || !WidthInBytes || !Height || pitch < WidthInBytes ||
	    __builtin_mul_overflow(pitch, Height, &size))
		return real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height,
					       ElementSizeBytes);
	result = hook_cuMemAlloc_v2(dptr, size);
	if (!result)
		*pPitch = pitch;
	return result;
}

CUresult hook_cuMemFree_v2(CUdeviceptr dptr)
{
	CUresult result;

	if (!vmem_contains(dptr)) {
		result = real.cuMemFree_v2(dptr);
		if (!result) {
			unmanaged_remove(UNMANAGED_DEVICE, dptr);
			unmanaged_remove(UNMANAGED_MANAGED, dptr);
			unmanaged_remove(UNMANAGED_POOL, dptr);
		}
		return result;
	}
	if (captures_open(driver_table()) && defer(dptr))
		return CUDA_SUCCESS;
	free_deferred();
	return free_now(dptr);
}

CUresult hook_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUresult result = real.cuMemGetInfo_v2(free, total);
	struct vmem_stats stats;
	CUdevice dev;

	/* What vmem keeps for the next allocation is free to the program. */
	if (!result && free && driver_table() && !real.cuCtxGetDevice(&dev)) {
		vmem_get_device_stats(dev, &stats);
		*free += stats.cached;
	}
	return result;
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct vmem_info info;

	if (!vmem_contains(dptr))
		return real.cuMemGetAddressRange_v2(pbase, psize, dptr);
	if (!vmem_lookup(dptr, &info))
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = info.start;
	if (psize)
		*psize = info.size;
	return CUDA_SUCCESS;
}

/*
 * The attributes that the real driver, which sees whole regions, would get wrong, and those that
 * frameworks ask for at every launch. False: ask the real driver.
 */
static bool pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
			      const struct vmem_info *info)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = info->ctx;
		return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(CUmemorytype *)data = CU_MEMORYTYPE_DEVICE;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = ptr;
		return true;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		/* The driver counts its own from 1; ours must not meet them. */
		*(unsigned long long *)data = 1ULL << 62 | info->id;
		return true;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = 0;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = info->dev;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = info->start;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = info->size;
		return true;
	default:
		return false;
	}
}

CUresult hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct vmem_info info;

	if (!data || !vmem_contains(ptr))
		return real.cuPointerGetAttribute(data, attribute, ptr);
	if (!vmem_lookup(ptr, &info))
		return CUDA_ERROR_INVALID_VALUE;
	if (pointer_attribute(data, attribute, ptr, &info))
		return CUDA_SUCCESS;
	return real.cuPointerGetAttribute(data, attribute, ptr);
}

CUresult hook_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
				     void **data, CUdeviceptr ptr)
{
	struct vmem_info info;
	CUresult result;

	/*
	 * The real driver goes first: it checks the arguments, and fills in what we do not know.
	 * For a pointer that it does not know it succeeds with zeros; as for one that was freed
	 * here, whose region may still be mapped: that is asked with an address never mapped.
	 */
	if (vmem_contains(ptr) && !vmem_lookup(ptr, &info))
		return real.cuPointerGetAttributes(numAttributes, attributes, data, 0);
	result = real.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
	if (result || !vmem_contains(ptr))
		return result;
	for (unsigned int i = 0; i < numAttributes; i++)
		pointer_attribute(data[i], attributes[i], ptr, &info);
	return CUDA_SUCCESS;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	static bool said;

	if (vmem_contains(dptr))
		report_once(&said, "cuIpcGetMemHandle: memory under cudaw cannot be shared between "
				   "processes by a legacy IPC handle");
	return real.cuIpcGetMemHandle(pHandle, dptr);
}
