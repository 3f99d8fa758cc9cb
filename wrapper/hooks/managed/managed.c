/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/current.h"
#include "wrapper/hooks/managed/managed.h"
#include "checkpoint/ledger/green.h"
#include "common/system/hostmem.h"
#include "common/settings.h"
#include "common/size.h"
#include "wrapper/real.h"

#include <string.h>

#define LOG_PREFIX "managed: "
#include "common/log.h"

bool managed_is_served(void)
{
	const char *word = setting_word(SETTING_MANAGED);

	return word && !strcmp(word, "host");
}

#define LOOK_BYTES (64UL << 20) /* of allocations, between two looks at the host memory */

static size_t unseen; /* bytes that were allocated since the last look; atomic */

/*
 * Host memory that is locked cannot be swapped out. A program that takes more than there is, as it
 * may natively, must not wake the out-of-memory killer.
 */
static bool is_there(size_t size)
{
	size_t machine, cgroup, free;

	if (__atomic_add_fetch(&unseen, size, __ATOMIC_RELAXED) < LOOK_BYTES)
		return true;
	machine = hostmem_machine_available();
	cgroup = hostmem_cgroup_available();
	free = size_min(machine, cgroup);
	/* 0: the process lacks a descriptor or memory to find out. */
	if (!free)
		return true;
	if (size <= free && free - size >= HOSTMEM_RESERVE) {
		__atomic_store_n(&unseen, 0, __ATOMIC_RELAXED);
		return true;
	}
	pr_err_once(
		"CUDAW_MANAGED=host: an allocation of %zu bytes fails: %zu bytes of host memory are "
		"available, of which %lu stay free",
		size, free, HOSTMEM_RESERVE);
	return false;
}

/* Natively the first access finds zeros, and programs may rely on it. */
static CUresult alloc_host(size_t size, void **host)
{
	CUresult result;

	if (!is_there(size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* With unified addressing all devices have it at the address that the host has. */
	result = real.cuMemHostAlloc(host, size,
				     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (!result)
		memset(*host, 0, size);
	return result;
}

CUresult managed_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct managed_info info = {.size = bytesize};
	CUresult result;
	void *host;

	/* The real driver refuses odd arguments; if it lacks what a pause needs, it serves all. */
	if (!driver_table() || !dptr || !bytesize ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) ||
	    real.cuCtxGetCurrent(&info.ctx) || !info.ctx || real.cuCtxGetDevice(&info.dev))
		return real.cuMemAllocManaged(dptr, bytesize, flags);
	result = current_error();
	if (!result)
		result = alloc_host(bytesize, &host);
	if (result)
		return result;
	info.ctx = green_owner(info.ctx);
	info.start = (uintptr_t)host;
	if (!managed_add(&info)) {
		real.cuMemFreeHost(host);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*dptr = info.start;
	return CUDA_SUCCESS;
}

/* As cuMemFree() does, cuMemFreeHost() waits for the GPU. */
CUresult managed_free(CUdeviceptr ptr)
{
	CUresult result;

	if (!managed_ending(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	result = real.cuMemFreeHost((void *)(uintptr_t)ptr);
	managed_ended(ptr, !result);
	return result;
}

CUresult managed_free_ordered(CUstream stream)
{
	CUstreamCaptureStatus status;
	CUresult result = real.cuStreamIsCapturing(stream, &status);

	if (result)
		return result;
	return status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_ERROR_NOT_SUPPORTED
						       : CUDA_ERROR_INVALID_VALUE;
}

/* The program does not know that this is host memory. */
CUresult managed_cuMemFreeHost(void *p)
{
	return managed_lookup((uintptr_t)p, NULL) ? CUDA_ERROR_INVALID_VALUE
						  : real.cuMemFreeHost(p);
}
