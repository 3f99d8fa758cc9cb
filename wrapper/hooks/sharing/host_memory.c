/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/sharing/host_memory.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/ledger/green.h"
#include "common/text.h"
#include "vmem/context_gone.h"
#include "vmem/objects/host_file.h"
#include "wrapper/context_lock.h"
#include "wrapper/current.h"
#include "wrapper/real.h"

#include <errno.h>

#define LOG_PREFIX "host_memory: "
#include "common/log.h"

/* The driver judges the arguments by a granule. It refuses by itself what is no number of them. */
bool host_memory_create(CUmemGenericAllocationHandle *handle, size_t size,
			const CUmemAllocationProp *prop, unsigned long long flags, CUresult *result)
{
	CUmemGenericAllocationHandle sample;
	size_t granule = 0;
	int fd;

	/* Others than descriptors are the driver's alone. */
	if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return false;
	if (real.cuMemGetAllocationGranularity(&granule, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
	    !granule || !size || size % granule)
		return false;
	*result = real.cuMemCreate(&sample, granule, prop, flags);
	if (*result)
		return true;
	real.cuMemRelease(sample);
	fd = host_file_make(size, prop->location.id);
	if (fd < 0) {
		pr_warn("%zu bytes of host memory (cuMemCreate) are left to the driver, which no "
			"full release can carry: no file in memory: %s",
			size, error_text(-fd));
		return false;
	}
	*result = host_objects_add(fd, size, granule, prop, false, handle);
	return true;
}

CUresult host_memory_import(int fd, int node, CUmemGenericAllocationHandle *handle)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, node}};
	size_t granule = 0;
	CUresult result = real.cuMemGetAllocationGranularity(&granule, &prop,
							     CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	return result ? result : host_objects_import(fd, granule, handle);
}

/* Inside context_lock(): the current context if there is one that lives, else another; NULL: there is none. */
static CUresult choose(CUcontext *chosen)
{
	CUcontext current = green_owner(current_context());
	struct context_list list = {0};
	CUresult result = contexts_get(driver_table(), &list);

	*chosen = NULL;
	for (size_t i = 0; !result && i < list.count; i++)
		if (!*chosen || list.items[i].ctx == current)
			*chosen = list.items[i].ctx;
	contexts_free(&list);
	return result;
}

static void register_waiting(void)
{
	CUcontext ctx;

	if (host_objects_wait() && !choose(&ctx) && ctx)
		host_objects_register(ctx);
}

/* Calls that must not wait, and found the lock taken: its holder registers for them. Atomic. */
static unsigned int missed;

static void unlock(void)
{
	unsigned int seen;

	do {
		seen = __atomic_load_n(&missed, __ATOMIC_SEQ_CST);
		register_waiting();
		context_unlock();
	} while (__atomic_load_n(&missed, __ATOMIC_SEQ_CST) != seen && context_trylock());
}

CUresult host_memory_unmap(CUdeviceptr ptr, size_t size,
			   CUresult (*others)(CUdeviceptr ptr, size_t size))
{
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr at = ptr;
	size_t bytes;

	context_lock();
	if (ptr + size < ptr || host_objects_split(ptr, size))
		result = CUDA_ERROR_INVALID_VALUE;
	for (; !result && (bytes = host_objects_gap(&at, ptr + size)); at += bytes)
		result = others(at, bytes);
	if (!result)
		result = host_objects_unmap(ptr, size);
	unlock();
	return result;
}

CUresult host_memory_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				size_t count,
				CUresult (*others)(CUdeviceptr ptr, size_t size,
						   const CUmemAccessDesc *desc, size_t count))
{
	CUdeviceptr at = ptr;
	CUresult result;
	CUcontext ctx;
	size_t bytes;

	context_lock();
	result = choose(&ctx);
	if (!desc || !count || ptr + size < ptr || host_objects_split(ptr, size))
		result = CUDA_ERROR_INVALID_VALUE;
	for (; !result && (bytes = host_objects_gap(&at, ptr + size)); at += bytes)
		result = others(at, bytes, desc, count);
	if (!result)
		result = host_objects_set_access(ptr, size, desc, count, ctx);
	unlock();
	return result;
}

void host_memory_try_context(void)
{
	if (!context_trylock()) {
		__atomic_fetch_add(&missed, 1, __ATOMIC_SEQ_CST);
		/* Its holder may have looked before that. */
		if (!context_trylock())
			return;
	}
	unlock();
}

static void context_has_ended(CUcontext ctx)
{
	host_objects_context_gone(ctx);
	register_waiting();
}
CONTEXT_GONE(context_has_ended);

/* Natively the driver has mapped it, and it cannot be registered. */
CUresult hook_cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return host_objects_overlap((uintptr_t)p, bytesize)
		       ? CUDA_ERROR_INVALID_VALUE
		       : real.cuMemHostRegister(p, bytesize, Flags);
}

CUresult hook_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	return host_objects_overlap((uintptr_t)p, bytesize)
		       ? CUDA_ERROR_INVALID_VALUE
		       : real.cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult hook_cuMemHostUnregister(void *p)
{
	return host_objects_overlap((uintptr_t)p, 1) ? CUDA_ERROR_INVALID_VALUE
						     : real.cuMemHostUnregister(p);
}
