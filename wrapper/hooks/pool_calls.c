/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of stream-ordered allocations and of memory pools: pools.c serves them from vmem's memory,
 * or the driver does, and its memory is counted. The waits are here as well, since they show which
 * frees have passed.
 */
#include "wrapper/real.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/driver_memory.h"
#include "common/protocol/quota.h"
#include "vmem/vmem.h"
#include "wrapper/current.h"
#include "wrapper/hooks/driver_allocs.h"
#include "wrapper/hooks/managed/managed.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/hooks/ordered/pool_objects.h"
#include "wrapper/hooks/ordered/pool_passed.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/hooks/ordered/pools.h"

#include <stdbool.h>
#include <stdint.h>

/* Only the pool that a program names may be one of host memory, and then it has no GPU memory. */
static enum driver_memory_kind kind_of(CUdeviceptr ptr)
{
	CUmemorytype type = CU_MEMORYTYPE_DEVICE;

	real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr);
	return type == CU_MEMORYTYPE_HOST ? DRIVER_MEMORY_POOL_HOST : DRIVER_MEMORY_POOL;
}

/* An allocation that the driver serves, on its way. */
struct ordered {
	CUdevice dev;  /* of whose quota it is taken; -1: of none yet */
	bool captured; /* it becomes a node of a graph, which has no memory before it is launched */
};

static bool is_captured(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (captures_open(driver_table()))
		real.cuStreamIsCapturing(stream, &status);
	return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* From @pool; NULL: from that of the stream's device. False: it is beyond the quota. */
static bool ordered_begins(struct ordered *o, const CUmemoryPool *pool, size_t size,
			   CUstream stream)
{
	bool known;

	o->captured = is_captured(stream);
	known = quota_is_on() && !o->captured &&
		(pool ? pool_device(*pool, &o->dev) : stream_device(stream, &o->dev));
	if (!known)
		o->dev = -1;
	return quota_take(o->dev, size);
}

/* Of a pool that is not served here only the driver knows the device, by the pointer. */
static bool take_late(struct ordered *o, CUdeviceptr ptr, size_t size)
{
	if (o->dev >= 0 || !quota_is_on())
		return true;
	real.cuPointerGetAttribute(&o->dev, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr);
	return quota_take(o->dev, size);
}

/* As the driver without memory: see alloc_in() in pools.c. */
static CUresult refused(CUdeviceptr *ptr)
{
	if (ptr)
		*ptr = 0;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult ordered_ended(CUresult result, struct ordered *o, CUdeviceptr *ptr, size_t size,
			      CUstream stream, bool named)
{
	enum driver_memory_kind kind;

	if (result) {
		quota_give(o->dev, size);
		return result;
	}
	if (o->captured) {
		driver_allocs_in_graphs();
		return result;
	}
	kind = named ? kind_of(*ptr) : DRIVER_MEMORY_POOL;
	if (kind == DRIVER_MEMORY_POOL && !take_late(o, *ptr, size)) {
		real.cuMemFreeAsync(*ptr, stream);
		return refused(ptr);
	}
	driver_memory_add_taken(kind, *ptr, size, o->dev, NULL);
	return result;
}

CUresult hook_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	CUresult result = pools_alloc(dptr, bytesize, NULL, hStream);
	struct ordered o;

	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	if (!ordered_begins(&o, NULL, bytesize, hStream))
		return refused(dptr);
	result = real.cuMemAllocAsync(dptr, bytesize, hStream);
	return ordered_ended(result, &o, dptr, bytesize, hStream, false);
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	CUresult result = pools_alloc(dptr, bytesize, NULL, per_thread(hStream));
	struct ordered o;

	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	if (!ordered_begins(&o, NULL, bytesize, per_thread(hStream)))
		return refused(dptr);
	result = real.cuMemAllocAsync_ptsz(dptr, bytesize, hStream);
	return ordered_ended(result, &o, dptr, bytesize, per_thread(hStream), false);
}

CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				      CUstream hStream)
{
	CUresult result = pools_alloc(dptr, bytesize, &pool, hStream);
	struct ordered o;

	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	if (!ordered_begins(&o, &pool, bytesize, hStream))
		return refused(dptr);
	result = real.cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream);
	return ordered_ended(result, &o, dptr, bytesize, hStream, true);
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
					   CUstream hStream)
{
	CUresult result = pools_alloc(dptr, bytesize, &pool, per_thread(hStream));
	struct ordered o;

	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	if (!ordered_begins(&o, &pool, bytesize, per_thread(hStream)))
		return refused(dptr);
	result = real.cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream);
	return ordered_ended(result, &o, dptr, bytesize, per_thread(hStream), true);
}

/* cuMemFreeAsync() also takes memory of cuMemAlloc(). */
CUresult hook_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	if (vmem_contains(dptr))
		return pools_free_ordered(dptr, hStream);
	if (managed_lookup(dptr, NULL))
		return managed_free_ordered(hStream);
	pointer_ending(dptr);
	return pointer_ended(real.cuMemFreeAsync(dptr, hStream), dptr);
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	if (vmem_contains(dptr))
		return pools_free_ordered(dptr, per_thread(hStream));
	if (managed_lookup(dptr, NULL))
		return managed_free_ordered(per_thread(hStream));
	pointer_ending(dptr);
	return pointer_ended(real.cuMemFreeAsync_ptsz(dptr, hStream), dptr);
}

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUresult result = real.cuMemPoolCreate(pool, poolProps);

	if (!result)
		pool_created(*pool, poolProps);
	return result;
}

CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
	uint64_t id = pool_id(pool);
	CUresult result;

	driver_memory_ending(DRIVER_MEMORY_POOL_EXPORT, (uintptr_t)pool);
	driver_memory_ending(DRIVER_MEMORY_POOL_IMPORT, (uintptr_t)pool);
	result = real.cuMemPoolDestroy(pool);
	driver_memory_ended(DRIVER_MEMORY_POOL_EXPORT, (uintptr_t)pool, !result);
	driver_memory_ended(DRIVER_MEMORY_POOL_IMPORT, (uintptr_t)pool, !result);
	if (!result)
		pools_destroyed(id);
	return result;
}

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = real.cuMemPoolSetAttribute(pool, attr, value);

	if (!result)
		pool_attribute_set(pool, attr, value);
	return result;
}

CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = real.cuMemPoolGetAttribute(pool, attr, value);

	if (!result)
		pool_attribute_add(pool, attr, value);
	return result;
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	CUresult result = real.cuMemPoolTrimTo(pool, minBytesToKeep);

	if (!result)
		pools_trim_to(pool, minBytesToKeep);
	return result;
}

/* Access to vmem's memory is given to whole devices, for good. */
static CUresult give_access(CUdevice dev, const CUmemAccessDesc *map, size_t count)
{
	CUstreamCaptureMode mode = fence_relax();
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < count && !result; i++)
		if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		    map[i].location.id != dev && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			result = vmem_copies_enable(map[i].location.id, dev);
	fence_unrelax(mode);
	return result;
}

CUresult hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUresult result = real.cuMemPoolSetAccess(pool, map, count);
	CUdevice dev;

	if (!result && pool_device(pool, &dev))
		result = give_access(dev, map, count);
	return result;
}

CUresult hook_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	CUresult result = real.cuDeviceSetMemPool(dev, pool);

	if (!result)
		pool_device_changed();
	return result;
}

CUresult hook_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult result = real.cuMemSetMemPool(location, type, pool);

	if (!result)
		pool_device_changed();
	return result;
}

CUresult hook_cuStreamSynchronize(CUstream hStream)
{
	uint64_t serial = streams_now();
	CUresult result = real.cuStreamSynchronize(hStream);

	if (!result)
		pools_stream_passed(hStream, serial);
	return result;
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream hStream)
{
	uint64_t serial = streams_now();
	CUresult result = real.cuStreamSynchronize_ptsz(hStream);

	if (!result)
		pools_stream_passed(per_thread(hStream), serial);
	return result;
}

CUresult hook_cuCtxSynchronize(void)
{
	uint64_t serial = streams_now();
	CUresult result = real.cuCtxSynchronize();

	if (!result)
		pools_context_passed(NULL, serial);
	return result;
}

CUresult hook_cuCtxSynchronize_v2(CUcontext ctx)
{
	uint64_t serial = streams_now();
	CUresult result = real.cuCtxSynchronize_v2(ctx);

	if (!result)
		pools_context_passed(ctx, serial);
	return result;
}

CUresult hook_cuEventSynchronize(CUevent hEvent)
{
	CUresult result = real.cuEventSynchronize(hEvent);

	if (!result)
		pools_some_passed();
	return result;
}
