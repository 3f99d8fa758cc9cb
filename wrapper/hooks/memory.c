/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that vmem answers: device memory and questions about pointers. A call for an address
 * outside vmem's address space goes to the real driver.
 */
#include "wrapper/real.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/driver_memory.h"
#include "vmem/addressing.h"
#include "common/forks.h"
#include "vmem/translate.h"
#include "vmem/vmem.h"
#include "wrapper/hooks/driver_memory.h"
#include "wrapper/hooks/memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "memory: "
#include "common/log.h"

#define NOT_MAPPED                                                                 \
	"the driver gives no virtual memory at the addresses that cudaw needs: "   \
	"the program runs, but its memory stays on the GPU during a pause unless " \
	"the driver moves it; with CUDAW_ADDRESSING=translated cudaw can"

#define PITCH 512UL /* of cuMemAllocPitch_v2 on every device since sm_20 [H200: 512] */

/*
 * Memory freed while a stream capture was open. A free has to wait for the GPU, and
 * cuCtxSynchronize() would break a capture of the same context. So the memory is kept until a free
 * finds no capture open, or an allocation finds no memory. The address may have a new owner by then
 * (the context was destroyed, and with it the memory), so the allocation's id is kept as well.
 */
struct deferred_free {
	CUdeviceptr ptr;
	unsigned long long id;
};

static struct {
	pthread_mutex_t lock;
	struct deferred_free *frees;
	size_t count, room;
} deferred = {.lock = PTHREAD_MUTEX_INITIALIZER};
FORKS_LOCK_IN(deferred, lock);

static CUresult defer_locked(const struct deferred_free *f)
{
	for (size_t i = 0; i < deferred.count; i++)
		if (deferred.frees[i].id == f->id)
			return CUDA_ERROR_INVALID_VALUE;
	if (deferred.count == deferred.room) {
		size_t room = deferred.room ? 2 * deferred.room : 64;
		struct deferred_free *frees = realloc(deferred.frees, room * sizeof(*frees));

		if (!frees)
			return CUDA_ERROR_OUT_OF_MEMORY;
		deferred.frees = frees;
		deferred.room = room;
	}
	deferred.frees[deferred.count] = *f;
	__atomic_store_n(&deferred.count, deferred.count + 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* CUDA_ERROR_INVALID_VALUE if it was deferred before: a double free. */
static CUresult defer(const struct deferred_free *f)
{
	CUresult result;

	pthread_mutex_lock(&deferred.lock);
	result = defer_locked(f);
	pthread_mutex_unlock(&deferred.lock);
	return result;
}

static void take_locked(size_t i)
{
	deferred.frees[i] = deferred.frees[deferred.count - 1];
	__atomic_store_n(&deferred.count, deferred.count - 1, __ATOMIC_RELAXED);
}

static bool take_deferred(struct deferred_free *f)
{
	bool any;

	pthread_mutex_lock(&deferred.lock);
	any = deferred.count > 0;
	if (any) {
		*f = deferred.frees[deferred.count - 1];
		take_locked(deferred.count - 1);
	}
	pthread_mutex_unlock(&deferred.lock);
	return any;
}

/* False: another thread took it. */
static bool take_this(const struct deferred_free *f)
{
	bool found = false;

	pthread_mutex_lock(&deferred.lock);
	for (size_t i = 0; i < deferred.count && !found; i++) {
		found = deferred.frees[i].id == f->id;
		if (found)
			take_locked(i);
	}
	pthread_mutex_unlock(&deferred.lock);
	return found;
}

static bool thread_is_relaxed(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool relaxed;

	if (real.cuThreadExchangeStreamCaptureMode(&mode))
		return false;
	relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
	real.cuThreadExchangeStreamCaptureMode(&mode);
	return relaxed;
}

/*
 * Wait for the current context's work while a capture is open, in a thread in relaxed mode. The
 * driver refuses cuCtxSynchronize() then, and invalidates the capture. A real cuMemFree() waits for
 * running kernels and leaves the capture valid [H200, driver 580.159: a free of 2 MiB beside a
 * kernel of 300 ms took 300 ms, in a capture of either mode].
 */
static CUresult wait_in_capture(void)
{
	CUdeviceptr fence;
	CUresult result = real.cuMemAlloc_v2(&fence, VMEM_GRANULE);

	return result ? result : real.cuMemFree_v2(fence);
}

/* Call @wait, which waits for all work of the current context, with @ctx as current. */
static CUresult synchronize(CUcontext ctx, CUresult (*wait)(void))
{
	CUcontext current = NULL;
	CUresult result;

	real.cuCtxGetCurrent(&current);
	if (current == ctx)
		return wait();
	result = real.cuCtxPushCurrent_v2(ctx);
	if (result)
		return result;
	result = wait();
	real.cuCtxPopCurrent_v2(&current);
	return result;
}

/* As cudaFree() does: first wait for all work of the context, which may still use the memory. */
static CUresult free_now(const struct deferred_free *f, CUresult (*wait)(void))
{
	struct vmem_info info;
	CUresult result;

	if (!vmem_lookup(f->ptr, &info) || info.id != f->id)
		return CUDA_ERROR_INVALID_VALUE;
	result = synchronize(info.ctx, wait);
	return result ? result : vmem_free(f->ptr);
}

static void free_all_deferred(CUresult (*wait)(void))
{
	struct deferred_free f;

	while (take_deferred(&f)) {
		CUresult result = free_now(&f, wait);

		/* An invalid one went with its context. */
		if (result && result != CUDA_ERROR_INVALID_VALUE) {
			defer(&f);
			return;
		}
	}
}

/* Free deferred memory; while a capture is open, only if the memory is @needed. */
static void free_deferred(bool needed)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!__atomic_load_n(&deferred.count, __ATOMIC_RELAXED))
		return;
	if (!captures_open(driver_table())) {
		free_all_deferred(real.cuCtxSynchronize);
	} else if (needed && !real.cuThreadExchangeStreamCaptureMode(&mode)) {
		free_all_deferred(wait_in_capture);
		real.cuThreadExchangeStreamCaptureMode(&mode);
	}
}

/*
 * Free memory while a capture is open. The driver allows that if the thread is in relaxed mode:
 * then cudaw tries it at once. In all other cases the free is deferred.
 */
static CUresult free_in_capture(const struct deferred_free *f)
{
	CUresult result = defer(f);

	if (!result && thread_is_relaxed() && take_this(f) && free_now(f, wait_in_capture))
		result = defer(f);
	return result;
}

bool memory_give_back(void)
{
	struct vmem_stats before, after;

	if (!driver_table())
		return false;
	vmem_get_stats(&before);
	free_deferred(true);
	vmem_trim();
	vmem_get_stats(&after);
	return after.mapped < before.mapped;
}

static CUresult alloc_native(CUdeviceptr *dptr, size_t bytesize)
{
	CUresult result = real.cuMemAlloc_v2(dptr, bytesize);

	if (!result)
		driver_memory_add(DRIVER_MEMORY_DEVICE, *dptr, bytesize);
	return result;
}

static CUresult alloc(CUcontext ctx, CUdevice dev, CUdeviceptr *dptr, size_t bytesize)
{
	CUresult result = vmem_alloc(ctx, dev, bytesize, dptr);

	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		free_deferred(true);
		result = vmem_alloc(ctx, dev, bytesize, dptr);
	}
	return result;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	CUcontext ctx = NULL;
	CUdevice dev;
	CUresult result;

	if (!dptr || !bytesize || !driver_table() || real.cuCtxGetCurrent(&ctx) || !ctx ||
	    real.cuCtxGetDevice(&dev))
		return real.cuMemAlloc_v2(dptr, bytesize);
	/* For programs that need legacy IPC. */
	if (addressing_asked() == ADDRESSING_NATIVE)
		return alloc_native(dptr, bytesize);
	result = alloc(ctx, dev, dptr, bytesize);
	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	pr_err_once("%s" NOT_MAPPED,
		    addressing_asked() == ADDRESSING_MAPPED ? "CUDAW_ADDRESSING=mapped: " : "");
	return alloc_native(dptr, bytesize);
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
				 size_t Height, unsigned int ElementSizeBytes)
{
	size_t pitch = (WidthInBytes + PITCH - 1) & ~(PITCH - 1), size;
	bool valid = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
	CUresult result;

	/* The real driver refuses odd arguments. */
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
	struct deferred_free f = {.ptr = dptr};
	struct vmem_info info;

	if (!vmem_contains(dptr)) {
		CUresult result = real.cuMemFree_v2(dptr);
		if (!result)
			forget_pointer(dptr);
		return result;
	}
	if (!vmem_lookup(dptr, &info) || info.start != dptr)
		return CUDA_ERROR_INVALID_VALUE;
	f.id = info.id;
	if (captures_open(driver_table()))
		return free_in_capture(&f);
	free_deferred(false);
	return free_now(&f, real.cuCtxSynchronize);
}

CUresult hook_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUresult result = real.cuMemGetInfo_v2(free, total);
	struct vmem_stats stats;
	CUdevice dev;

	/* Memory that vmem keeps for the next allocation is free memory for the program. */
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
 * The attributes for which the real driver, which sees whole regions, has wrong answers, and those
 * that frameworks ask for at every launch. False: ask the real driver.
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
		/* The driver's ids count from 1; ours must differ from them. */
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
	return real.cuPointerGetAttribute(data, attribute, translate(ptr));
}

CUresult hook_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
				     void **data, CUdeviceptr ptr)
{
	struct vmem_info info;
	CUresult result;

	/*
	 * The real driver goes first: it checks the arguments, and fills in the other attributes.
	 * For an unknown pointer it succeeds, with zeros. So it must for a pointer that was freed,
	 * whose region may still be mapped: the driver is asked about an address never mapped.
	 */
	if (vmem_contains(ptr) && !vmem_lookup(ptr, &info))
		return real.cuPointerGetAttributes(numAttributes, attributes, data, 0);
	result = real.cuPointerGetAttributes(numAttributes, attributes, data, translate(ptr));
	if (result || !vmem_contains(ptr))
		return result;
	for (unsigned int i = 0; i < numAttributes; i++)
		pointer_attribute(data[i], attributes[i], ptr, &info);
	return CUDA_SUCCESS;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	CUdeviceptr base = dptr;
	CUresult result;

	if (vmem_contains(dptr))
		pr_err_once("cuIpcGetMemHandle: memory under cudaw cannot be shared between "
			    "processes by a legacy IPC handle");
	result = real.cuIpcGetMemHandle(pHandle, dptr);
	if (!result) {
		real.cuMemGetAddressRange_v2(&base, NULL, dptr);
		driver_memory_add(DRIVER_MEMORY_IPC_EXPORT, base, 0);
	}
	return result;
}
