/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations made by the driver itself: device, managed and host memory. */
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static CUresult alloc_once(size_t size, enum sim_map_kind kind, CUdeviceptr *ptr)
{
	return kind == MAP_DEVICE ? memory_new_small(ctx_current(), size, ptr)
				  : memory_new(ctx_current(), size, kind, ptr);
}

static CUresult alloc_sync(size_t size, enum sim_map_kind kind, CUdeviceptr *ptr)
{
	CUresult result = ptr ? capture_check_unsafe() : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		result = alloc_once(size, kind, ptr);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	pools_trim(ctx_current()->dev);
	return alloc_once(size, kind, ptr);
}

SIM_EXPORT cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	SIM_ENTER(cuMemAlloc_v2, NEED_CONTEXT);
	return alloc_sync(size, MAP_DEVICE, ptr);
}

SIM_EXPORT cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
			      unsigned int element)
{
	CUresult result;

	SIM_ENTER(cuMemAllocPitch_v2, NEED_CONTEXT);
	if (element != 4 && element != 8 && element != 16)
		return CUDA_ERROR_INVALID_VALUE;
	width = SIM_ROUND(width, 512);
	result = alloc_sync(width * height, MAP_DEVICE, ptr);
	if (result == CUDA_SUCCESS)
		*pitch = width;
	return result;
}

SIM_EXPORT cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
	CUresult result;

	SIM_ENTER(cuMemAllocManaged, NEED_CONTEXT);
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	result = alloc_sync(size, MAP_MANAGED, ptr);
	if (result == CUDA_SUCCESS)
		map_find(*ptr)->flags = flags;
	return result;
}

/* Freeing waits for the device, as programs expect of cuMemFree; but not if it is memory of a pool. */
SIM_EXPORT cuMemFree_v2(CUdeviceptr ptr)
{
	struct sim_map *map;
	CUresult result;

	SIM_ENTER(cuMemFree_v2, NEED_CONTEXT);
	if (!ptr)
		return CUDA_SUCCESS;
	map = map_find(ptr);
	if (!map || map->start != ptr || (map->kind != MAP_DEVICE && map->kind != MAP_MANAGED))
		return CUDA_ERROR_INVALID_VALUE;
	result = capture_check_unsafe();
	if (result == CUDA_SUCCESS && !map->pool)
		result = ctx_wait(map->ctx);
	if (result != CUDA_SUCCESS)
		return result;
	/* The wait lets the lock go: another thread may have freed it meanwhile. */
	map = map_find(ptr);
	if (!map || map->start != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	memory_free(map);
	return CUDA_SUCCESS;
}

static CUresult host_alloc(void **ptr, size_t size, unsigned int flags)
{
	CUdeviceptr addr;
	CUresult result = alloc_sync(size, MAP_HOST, &addr);

	if (result != CUDA_SUCCESS)
		return result;
	map_find(addr)->flags = flags;
	*ptr = (void *)addr;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemHostAlloc(void **ptr, size_t size, unsigned int flags)
{
	SIM_ENTER(cuMemHostAlloc, NEED_CONTEXT);
	return host_alloc(ptr, size, flags);
}

SIM_EXPORT cuMemAllocHost_v2(void **ptr, size_t size)
{
	SIM_ENTER(cuMemAllocHost_v2, NEED_CONTEXT);
	return host_alloc(ptr, size, 0);
}

/* Free or unregister host memory, when the device is done with it. */
static CUresult host_remove(void *ptr, enum sim_map_kind kind, CUresult missing)
{
	struct sim_map *map = map_find((CUdeviceptr)ptr);
	CUresult result;

	if (!map || map->kind != kind || map->start != (CUdeviceptr)ptr)
		return missing;
	result = ctx_wait(map->ctx);
	if (result != CUDA_SUCCESS)
		return result;
	map = map_find((CUdeviceptr)ptr);
	if (!map || map->kind != kind)
		return missing;
	memory_free(map);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemFreeHost(void *ptr)
{
	SIM_ENTER(cuMemFreeHost, NEED_CONTEXT);
	return host_remove(ptr, MAP_HOST, CUDA_ERROR_INVALID_VALUE);
}

/*
 * What stays registered stays pinned in a real driver, which goes on to use its pages even where
 * the addresses have become something else's: with CUDAW_SIM_STRICT that ends the process.
 */
void registered_check(void)
{
	unsigned char present;

	for (struct sim_map *map = map_next(NULL); map && sim.config.strict; map = map_next(map)) {
		CUdeviceptr last = (map->start + map->size - 1) & ~(SIM_PAGE - 1);

		if (map->kind != MAP_REGISTERED)
			continue;
		if (!mincore((void *)last, SIM_PAGE, &present) || errno != ENOMEM)
			continue;
		fprintf(stderr, "sim: %s: host memory at %#llx is registered, and was unmapped\n",
			sim_thread.call, map->start);
		abort();
	}
}

/*
 * With CUDAW_SIM_PAGE_TABLES those of registered memory lie on the GPU: 2 MiB for each GiB, or a part of one, as
 * on an H200 [driver 580.159.04].
 */
static size_t registered[SIM_MAX_DEVICES];

size_t registered_tables(CUdevice dev)
{
	return sim.config.page_tables ? SIM_ROUND(registered[dev], (size_t)1 << 30) >> 9 : 0;
}

static bool register_more(CUdevice dev, size_t size)
{
	size_t before = registered_tables(dev), more;

	registered[dev] += size;
	more = registered_tables(dev) - before;
	if (account_charge(dev, more))
		return true;
	registered[dev] -= size;
	return false;
}

void registered_less(CUdevice dev, size_t size)
{
	size_t before = registered_tables(dev);

	registered[dev] -= size;
	account_release(dev, before - registered_tables(dev));
}

SIM_EXPORT cuMemHostRegister_v2(void *ptr, size_t size, unsigned int flags)
{
	struct sim_map map = {.start = (CUdeviceptr)ptr, .size = size, .kind = MAP_REGISTERED};

	SIM_ENTER(cuMemHostRegister_v2, NEED_CONTEXT);
	registered_check();
	if (!ptr || !size || map_of_host(map_find(map.start)))
		return CUDA_ERROR_INVALID_VALUE;
	if (map_overlaps(map.start, size))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	/* As vLLM has seen for cudaHostRegister() beside a capture [vllm-project/vllm, issue 46933]. */
	if (capture_check_unsafe())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	map.ctx = ctx_owner(ctx_current());
	map.dev = map.ctx->dev;
	map.flags = flags;
	memset(map.access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, sizeof(map.access));
	if (!register_more(map.dev, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (map_insert(&map))
		return CUDA_SUCCESS;
	registered_less(map.dev, size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_EXPORT cuMemHostUnregister(void *ptr)
{
	SIM_ENTER(cuMemHostUnregister, NEED_CONTEXT);
	registered_check();
	if (map_of_host(map_find((CUdeviceptr)ptr)))
		return CUDA_ERROR_INVALID_VALUE;
	return host_remove(ptr, MAP_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static struct sim_map *host_map(const void *ptr)
{
	struct sim_map *map = map_find((CUdeviceptr)ptr);

	bool host = map && (map->kind == MAP_HOST || map->kind == MAP_REGISTERED);

	return host || map_of_host(map) ? map : NULL;
}

SIM_EXPORT cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *ptr, unsigned int flags)
{
	SIM_ENTER(cuMemHostGetDevicePointer_v2, NEED_CONTEXT);
	if (flags || !host_map(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = (CUdeviceptr)ptr;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
	SIM_ENTER(cuMemHostGetFlags, NEED_CONTEXT);
	if (!host_map(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = map_of_host(host_map(ptr))
			 ? CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP
			 : host_map(ptr)->flags;
	if (host_map(ptr)->kind == MAP_REGISTERED)
		*flags |= CU_MEMHOSTREGISTER_DEVICEMAP;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUdevice dev;
	size_t used;

	SIM_ENTER(cuMemGetInfo_v2, NEED_CONTEXT);
	dev = ctx_current()->dev;
	used = account_used(dev);
	if (free_bytes)
		*free_bytes = used < sim.config.memory ? sim.config.memory - used : 0;
	if (total)
		*total = sim.config.memory;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	struct sim_map *map;

	SIM_ENTER(cuMemGetAddressRange_v2, NEED_CONTEXT);
	map = map_find(ptr);
	if (!map)
		return CUDA_ERROR_NOT_FOUND;
	/* [H200, driver 580.159] */
	if (base)
		*base = map_of_host(map) ? 0 : map->start;
	if (size)
		*size = map->size;
	return CUDA_SUCCESS;
}
