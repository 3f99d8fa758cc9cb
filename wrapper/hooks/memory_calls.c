/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that vmem answers: device memory. A call for an address outside vmem's address space
 * goes to the real driver.
 */
#include "wrapper/real.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/green.h"
#include "vmem/addresses/addressing.h"
#include "vmem/objects/objects.h"
#include "common/protocol/quota.h"
#include "common/size.h"
#include "vmem/vmem.h"
#include "wrapper/current.h"
#include "wrapper/hooks/driver_allocs.h"
#include "wrapper/hooks/managed/managed.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/hooks/ordered/frees.h"
#include "wrapper/hooks/ordered/memory.h"
#include "wrapper/hooks/ordered/pools.h"

#include <stdbool.h>
#include <stdint.h>

#define LOG_PREFIX "memory: "
#include "common/log.h"

#define NOT_MAPPED                                                                 \
	"the driver gives no virtual memory at the addresses that cudaw needs: "   \
	"the program runs, but its memory stays on the GPU during a pause unless " \
	"the driver moves it; with CUDAW_ADDRESSING=translated cudaw can"

static CUresult alloc_native(CUdeviceptr *dptr, size_t bytesize)
{
	CUresult result;
	CUdevice dev;

	if (!driver_alloc_begins(bytesize, &dev))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real.cuMemAlloc_v2(dptr, bytesize);
	return driver_alloc_ended(result, DRIVER_MEMORY_DEVICE, result ? 0 : *dptr, bytesize, dev);
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	CUcontext ctx = NULL;
	CUdevice dev;
	CUresult result;

	if (!dptr || !bytesize || !driver_table() || real.cuCtxGetCurrent(&ctx) || !ctx ||
	    real.cuCtxGetDevice(&dev))
		return real.cuMemAlloc_v2(dptr, bytesize);
	result = current_error();
	if (result)
		return result;
	/* For programs that share memory with processes outside cudaw. */
	if (addressing_asked() == ADDRESSING_NATIVE)
		return alloc_native(dptr, bytesize);
	result = memory_alloc(green_owner(ctx), dev, bytesize, dptr, NULL);
	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	pr_err_once("%s" NOT_MAPPED,
		    addressing_asked() == ADDRESSING_MAPPED ? "CUDAW_ADDRESSING=mapped: " : "");
	return alloc_native(dptr, bytesize);
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
				 size_t Height, unsigned int ElementSizeBytes)
{
	size_t pitch = memory_pitched(WidthInBytes, 1), size;
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
	if (vmem_contains(dptr))
		return pools_free_now(dptr);
	if (managed_lookup(dptr, NULL))
		return managed_free(dptr);
	pointer_ending(dptr);
	return pointer_ended(real.cuMemFree_v2(dptr), dptr);
}

/* The job may have no more of @dev than its quota. This process would give @kept bytes back first. */
static void show_quota(CUdevice dev, size_t kept, size_t *free, size_t *total)
{
	size_t quota = quota_of(dev);

	if (quota == SIZE_MAX)
		return;
	if (free)
		*free = size_min(*free, quota_left(dev) + kept);
	if (total)
		*total = size_min(*total, quota);
}

CUresult hook_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUcontext ctx = current_context();
	struct vmem_stats stats;
	CUresult result;
	size_t kept;
	CUdevice dev;

	frees_collect(FREES_FEW);
	objects_put_kept();
	/* The program may be about to allocate all that it is told. */
	if (driver_table() && addressing_asked() != ADDRESSING_NATIVE && ctx)
		fence_reserve(green_owner(ctx));
	result = real.cuMemGetInfo_v2(free, total);
	/* Memory that vmem keeps for the next allocation is free memory for the program. */
	if (!result && driver_table() && !real.cuCtxGetDevice(&dev)) {
		vmem_get_device_stats(dev, &stats);
		kept = stats.cached + frees_put_off(dev);
		if (free)
			*free += kept;
		show_quota(dev, kept, free, total);
	}
	return result;
}

CUresult hook_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	CUresult result = real.cuDeviceTotalMem_v2(bytes, dev);

	if (!result)
		*bytes = size_min(*bytes, quota_of(dev));
	return result;
}
