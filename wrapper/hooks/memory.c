/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that vmem answers: device memory. A call for an address outside vmem's address space
 * goes to the real driver.
 */
#include "wrapper/real.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/green.h"
#include "vmem/addressing.h"
#include "vmem/objects.h"
#include "vmem/vmem.h"
#include "wrapper/hooks/current.h"
#include "wrapper/hooks/driver_allocs.h"
#include "wrapper/hooks/fence.h"
#include "wrapper/hooks/frees.h"
#include "wrapper/hooks/managed.h"
#include "wrapper/hooks/memory.h"
#include "wrapper/hooks/pools.h"

#include <stdbool.h>
#include <stdint.h>

#define LOG_PREFIX "memory: "
#include "common/log.h"

#define NOT_MAPPED                                                                 \
	"the driver gives no virtual memory at the addresses that cudaw needs: "   \
	"the program runs, but its memory stays on the GPU during a pause unless " \
	"the driver moves it; with CUDAW_ADDRESSING=translated cudaw can"

#define TRIES 4     /* of an allocation, at most: other threads may give back memory all the time */
#define PITCH 512UL /* of cuMemAllocPitch_v2 on every device since sm_20 [H200: 512] */

/* vmem_given_back() before the thread's last try to take memory. */
static __thread unsigned long long seen __attribute__((tls_model("initial-exec")));

void memory_try_begins(void)
{
	seen = vmem_given_back();
}

static void collect(void)
{
	frees_collect(FREES_PASSED);
	pools_collect();
}

bool memory_give_back(void)
{
	if (!driver_table())
		return false;
	collect();
	vmem_trim();
	return vmem_given_back() != seen;
}

static CUresult alloc_native(CUdeviceptr *dptr, size_t bytesize)
{
	CUresult result = real.cuMemAlloc_v2(dptr, bytesize);

	if (!result)
		driver_memory_add(DRIVER_MEMORY_DEVICE, *dptr, bytesize);
	return result;
}

/*
 * Give back memory of @dev that is kept; of the driver's pool at the @first time only if there is no other.
 * False: there was none, nor did another thread.
 */
static bool is_given_back(CUdevice dev, bool first)
{
	collect();
	if (!first || vmem_given_back() == seen)
		pool_gives_back(dev);
	return vmem_given_back() != seen;
}

CUresult memory_alloc(CUcontext ctx, CUdevice dev, size_t bytesize, CUdeviceptr *dptr)
{
	unsigned int tries = TRIES;
	CUresult result;

	frees_collect(FREES_FEW);
	fence_reserve(ctx);
	do {
		memory_try_begins();
		result = vmem_alloc(ctx, dev, bytesize, dptr);
	} while (result == CUDA_ERROR_OUT_OF_MEMORY && --tries &&
		 is_given_back(dev, tries == TRIES - 1));
	return result;
}

bool memory_waits(CUdevice dev, size_t bytes)
{
	return growth_is_on() && bytes && !gate_is_nested() &&
	       growth_ask(dev, bytes, captures_open(driver_table()));
}

bool memory_waits_here(size_t bytes)
{
	CUdevice dev;

	return growth_is_on() && !real.cuCtxGetDevice(&dev) && memory_waits(dev, bytes);
}

static size_t pitch_of(size_t width)
{
	return (width + PITCH - 1) & ~(PITCH - 1);
}

size_t memory_pitched(size_t width, size_t height)
{
	return pitch_of(width) * height;
}

size_t memory_of_device(size_t size, const CUmemAllocationProp *prop)
{
	return prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? size : 0;
}

CUresult memory_sticky_error(void)
{
	size_t bytes, total;
	CUresult result = real.cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE);

	if (!result || result == CUDA_ERROR_INVALID_CONTEXT)
		return CUDA_SUCCESS;
	/* If the context has no such limit, this succeeds. */
	return real.cuMemGetInfo_v2(&bytes, &total);
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	CUcontext ctx = NULL;
	CUdevice dev;
	CUresult result;

	if (!dptr || !bytesize || !driver_table() || real.cuCtxGetCurrent(&ctx) || !ctx ||
	    real.cuCtxGetDevice(&dev))
		return real.cuMemAlloc_v2(dptr, bytesize);
	result = memory_sticky_error();
	if (result)
		return result;
	/* For programs that share memory with processes outside cudaw. */
	if (addressing_asked() == ADDRESSING_NATIVE)
		return alloc_native(dptr, bytesize);
	result = memory_alloc(green_owner(ctx), dev, bytesize, dptr);
	if (result != CUDA_ERROR_NOT_SUPPORTED)
		return result;
	pr_err_once("%s" NOT_MAPPED,
		    addressing_asked() == ADDRESSING_MAPPED ? "CUDAW_ADDRESSING=mapped: " : "");
	return alloc_native(dptr, bytesize);
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
				 size_t Height, unsigned int ElementSizeBytes)
{
	size_t pitch = pitch_of(WidthInBytes), size;
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

CUresult hook_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUcontext ctx = current_context();
	struct vmem_stats stats;
	CUresult result;
	CUdevice dev;

	frees_collect(FREES_FEW);
	objects_put_kept();
	/* The program may be about to allocate all that it is told. */
	if (driver_table() && addressing_asked() != ADDRESSING_NATIVE && ctx)
		fence_reserve(green_owner(ctx));
	result = real.cuMemGetInfo_v2(free, total);
	/* Memory that vmem keeps for the next allocation is free memory for the program. */
	if (!result && free && driver_table() && !real.cuCtxGetDevice(&dev)) {
		vmem_get_device_stats(dev, &stats);
		*free += stats.cached + frees_put_off(dev);
	}
	return result;
}
