/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/memory.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/captures.h"
#include "common/protocol/quota.h"
#include "vmem/objects/objects.h"
#include "vmem/vmem.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/hooks/ordered/frees.h"
#include "wrapper/hooks/ordered/pool_passed.h"
#include "wrapper/real.h"

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
	objects_put_kept();
}

bool memory_give_back(void)
{
	if (!driver_table())
		return false;
	collect();
	vmem_trim();
	return vmem_given_back() != seen;
}

/*
 * The default pool of @dev gives back the memory that no allocation has, as it does natively if a
 * cuMemAlloc() finds no other: vmem_given_back() rises. The pools that the program created are left
 * alone, as another thread may destroy them meanwhile.
 */
static void driver_pool_gives_back(CUdevice dev)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	cuuint64_t reserved = 0, used = 0;
	CUmemoryPool pool;

	/* Drivers before 11.2 have no pools. */
	if (!real.cuMemPoolTrimTo || real.cuDeviceGetDefaultMemPool(&pool, dev) ||
	    real.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
	    real.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ||
	    reserved <= used || real.cuThreadExchangeStreamCaptureMode(&mode))
		return;
	if (!real.cuMemPoolTrimTo(pool, 0))
		vmem_note_given_back();
	real.cuThreadExchangeStreamCaptureMode(&mode);
}

/*
 * Give back memory of @dev that is kept; of the driver's pool at the @first time only if there is no other.
 * False: there was none, nor did another thread.
 */
static bool is_given_back(CUdevice dev, bool first)
{
	collect();
	if (!first || vmem_given_back() == seen)
		driver_pool_gives_back(dev);
	return vmem_given_back() != seen;
}

CUresult memory_alloc(CUcontext ctx, CUdevice dev, size_t bytesize, CUdeviceptr *dptr,
		      unsigned long long *id)
{
	unsigned int tries = TRIES;
	CUresult result;

	frees_collect(FREES_FEW);
	fence_reserve(ctx);
	do {
		memory_try_begins();
		result = vmem_alloc(ctx, dev, bytesize, dptr, id);
	} while (result == CUDA_ERROR_OUT_OF_MEMORY && --tries &&
		 is_given_back(dev, tries == TRIES - 1));
	return result;
}

bool memory_waits(CUdevice dev, size_t bytes)
{
	return growth_is_on() && bytes && !gate_is_nested() && !quota_has_refused() &&
	       growth_ask(dev, bytes, captures_open(driver_table()));
}

bool memory_waits_here(size_t bytes)
{
	CUdevice dev;

	return growth_is_on() && !real.cuCtxGetDevice(&dev) && memory_waits(dev, bytes);
}

size_t memory_pitched(size_t width, size_t height)
{
	return ((width + PITCH - 1) & ~(PITCH - 1)) * height;
}

size_t memory_of_device(size_t size, const CUmemAllocationProp *prop)
{
	return prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? size : 0;
}
