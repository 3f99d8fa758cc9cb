/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered allocations and the pools that they come from. The memory is there at once; what
 * is stream-ordered is the free. Of what is freed a pool keeps up to its release threshold, as a
 * number of bytes that count as used on the device.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct sim_pool *pool_new(CUdevice dev)
{
	struct sim_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->dev = dev;
	for (int i = 0; i < 3; i++)
		pool->reuse[i] = 1;
	object_add(KIND_POOL, &pool->obj);
	return pool;
}

static struct sim_pool *pool_find(CUmemoryPool handle)
{
	return object_known(KIND_POOL, handle) ? (struct sim_pool *)handle : NULL;
}

static struct sim_pool *pool_default(CUdevice dev)
{
	if (!sim.default_pool[dev])
		sim.default_pool[dev] = pool_new(dev);
	return sim.default_pool[dev];
}

static struct sim_pool *pool_current(CUdevice dev)
{
	return sim.current_pool[dev] ? sim.current_pool[dev] : pool_default(dev);
}

static void pool_keep(struct sim_pool *pool, size_t keep)
{
	if (pool->kept > keep) {
		account_release(pool->dev, pool->kept - keep);
		pool->kept = keep;
	}
}

void pools_trim(CUdevice dev)
{
	for (struct sim_object *o = sim.objects[KIND_POOL]; o; o = o->next)
		if (((struct sim_pool *)o)->dev == dev)
			pool_keep((struct sim_pool *)o, 0);
}

size_t pools_kept(CUdevice dev)
{
	size_t bytes = 0;

	for (struct sim_object *o = sim.objects[KIND_POOL]; o; o = o->next)
		if (((struct sim_pool *)o)->dev == dev)
			bytes += ((struct sim_pool *)o)->kept;
	return bytes;
}

void pool_freed(struct sim_pool *pool, size_t size)
{
	pool->used -= size;
	if (!pool->destroyed && !pool->host && pool->used + pool->kept + size <= pool->threshold &&
	    account_charge(pool->dev, size))
		pool->kept += size;
	if (pool->destroyed && !pool->used)
		free(pool);
}

/* No bytes are no memory; and without memory the pointer becomes 0 [H200: fidelity pool_pointers, pool_full]. */
static CUresult alloc_from(struct sim_pool *pool, struct sim_stream *stream, CUdeviceptr *ptr,
			   size_t size)
{
	struct sim_map *map;
	CUresult result;

	if (!pool || pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		return graph_memory_alloc(stream->capture, stream->ctx, size, ptr);
	*ptr = 0;
	if (!size)
		return CUDA_SUCCESS;
	pool_keep(pool, pool->kept > size ? pool->kept - size : 0);
	result = memory_new(stream->ctx, size, pool->host ? MAP_HOST : MAP_DEVICE, ptr);
	if (result != CUDA_SUCCESS)
		return result;
	map = map_find(*ptr);
	map->pool = pool;
	pool->used += size;
	if (pool->high < pool->used)
		pool->high = pool->used;
	return CUDA_SUCCESS;
}

static CUresult alloc_async(bool ptds, CUdeviceptr *ptr, size_t size, CUstream handle)
{
	struct sim_stream *stream;
	CUresult result = stream_get(handle, ptds, &stream);

	return result ? result : alloc_from(pool_current(stream->ctx->dev), stream, ptr, size);
}

SIM_TWINS(cuMemAllocAsync, _ptsz, alloc_async, (CUdeviceptr * ptr, size_t size, CUstream stream),
	  ptr, size, stream)

static CUresult alloc_from_pool(bool ptds, CUdeviceptr *ptr, size_t size, CUmemoryPool pool,
				CUstream handle)
{
	struct sim_stream *stream;
	CUresult result = stream_get(handle, ptds, &stream);

	return result ? result : alloc_from(pool_find(pool), stream, ptr, size);
}

SIM_TWINS(cuMemAllocFromPoolAsync, _ptsz, alloc_from_pool,
	  (CUdeviceptr * ptr, size_t size, CUmemoryPool pool, CUstream stream), ptr, size, pool,
	  stream)

static CUresult free_async(bool ptds, CUdeviceptr ptr, CUstream handle)
{
	struct sim_stream *stream;
	struct sim_map *map = map_find(ptr);
	CUresult result = stream_get(handle, ptds, &stream);
	struct sim_op *op;

	if (result != CUDA_SUCCESS)
		return result;
	/* Memory of cuMemAlloc() does not go into a graph, and the capture stays valid. */
	if (stream->capture && map && map->kind == MAP_DEVICE && !map->pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		return graph_memory_free(stream->capture, ptr);
	if (!ptr)
		return CUDA_SUCCESS;
	if (!map || map->start != ptr ||
	    (map->kind != MAP_DEVICE && map->kind != MAP_GRAPH && !map->pool))
		return CUDA_ERROR_INVALID_VALUE;
	if (map->kind == MAP_GRAPH)
		return CUDA_SUCCESS;
	op = op_new(OP_FREE);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->free = ptr;
	return stream_submit(stream, op);
}

SIM_TWINS(cuMemFreeAsync, _ptsz, free_async, (CUdeviceptr ptr, CUstream stream), ptr, stream)

SIM_EXPORT cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props)
{
	struct sim_pool *pool;
	bool host;

	SIM_ENTER(cuMemPoolCreate, NEED_HEALTHY);
	if (!handle || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	host = props->location.type == CU_MEM_LOCATION_TYPE_HOST ||
	       props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
	if ((!host && props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) ||
	    props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!host && (props->location.id < 0 || props->location.id >= sim.config.devices))
		return CUDA_ERROR_INVALID_DEVICE;
	pool = pool_new(host ? 0 : props->location.id);
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->host = host;
	pool->exportable = props->handleTypes;
	*handle = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

/* What an exported pool is to another process. Its allocations cannot be imported here. */
struct pool_record {
	uint64_t magic;
	CUdevice dev;
};

#define POOL_MAGIC 0x4c4f4f504d4953u /* "SIMPOOL" */

SIM_EXPORT cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle,
					    CUmemAllocationHandleType type,
					    unsigned long long flags)
{
	struct pool_record record = {.magic = POOL_MAGIC};
	struct sim_pool *pool;
	int fd;

	SIM_ENTER(cuMemPoolExportToShareableHandle, NEED_HEALTHY);
	pool = pool_find(handle);
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !pool ||
	    !pool->exportable)
		return CUDA_ERROR_INVALID_VALUE;
	record.dev = pool->dev;
	fd = memfd_create("simulated-gpu-pool", MFD_CLOEXEC);
	if (fd < 0 || write(fd, &record, sizeof(record)) != sizeof(record)) {
		close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle,
					      CUmemAllocationHandleType type,
					      unsigned long long flags)
{
	struct pool_record record;
	struct sim_pool *pool;

	SIM_ENTER(cuMemPoolImportFromShareableHandle, NEED_HEALTHY);
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    pread((int)(intptr_t)handle, &record, sizeof(record), 0) != sizeof(record) ||
	    record.magic != POOL_MAGIC || record.dev < 0 || record.dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_VALUE;
	pool = pool_new(record.dev);
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->imported = true;
	*out = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

/* Allocations outlive their pool; a device whose pool it was has its default one again. */
SIM_EXPORT cuMemPoolDestroy(CUmemoryPool handle)
{
	struct sim_pool *pool;

	SIM_ENTER(cuMemPoolDestroy, NEED_HEALTHY);
	pool = pool_find(handle);
	if (!pool || pool == sim.default_pool[pool->dev])
		return CUDA_ERROR_INVALID_VALUE;
	for (CUdevice dev = 0; dev < sim.config.devices; dev++)
		if (sim.current_pool[dev] == pool)
			sim.current_pool[dev] = NULL;
	pool_keep(pool, 0);
	object_remove(&pool->obj);
	pool->destroyed = true;
	if (!pool->used)
		free(pool);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	struct sim_pool *pool;

	SIM_ENTER(cuMemPoolTrimTo, NEED_HEALTHY);
	pool = pool_find(handle);
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	pool_keep(pool, keep > pool->used ? keep - pool->used : 0);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	struct sim_pool *pool;

	SIM_ENTER(cuMemPoolGetAttribute, NEED_HEALTHY);
	pool = pool_find(handle);
	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = pool->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(cuuint64_t *)value = pool->used + pool->kept;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = pool->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = pool->high;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SIM_EXPORT cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	struct sim_pool *pool;

	SIM_ENTER(cuMemPoolSetAttribute, NEED_HEALTHY);
	pool = pool_find(handle);
	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		/* Only a reset is allowed. */
		if (*(cuuint64_t *)value)
			return CUDA_ERROR_INVALID_VALUE;
		pool->high = pool->used;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static bool is_device(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
	       location->id < sim.config.devices;
}

/* The pool's own device always has access. */
SIM_EXPORT cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
	struct sim_pool *pool;

	SIM_ENTER(cuMemPoolSetAccess, NEED_HEALTHY);
	pool = pool_find(handle);
	if (!pool || (count && !map))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (!is_device(&map[i].location) ||
		    (map[i].location.id == pool->dev && !map[i].flags))
			return CUDA_ERROR_INVALID_DEVICE;
	for (size_t i = 0; i < count; i++)
		pool->access[map[i].location.id] = (unsigned char)map[i].flags;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
			      CUmemLocation *location)
{
	const struct sim_pool *pool;

	SIM_ENTER(cuMemPoolGetAccess, NEED_HEALTHY);
	pool = pool_find(handle);
	if (!pool || !flags || !location || !is_device(location))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = location->id == pool->dev ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
					   : (CUmemAccess_flags)pool->access[location->id];
	return CUDA_SUCCESS;
}

static CUresult give_pool(CUmemoryPool *handle, CUdevice dev,
			  struct sim_pool *(*which)(CUdevice dev))
{
	struct sim_pool *pool;

	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pool = which(dev);
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuDeviceGetDefaultMemPool(CUmemoryPool *handle, CUdevice dev)
{
	SIM_ENTER(cuDeviceGetDefaultMemPool, NEED_HEALTHY);
	return give_pool(handle, dev, pool_default);
}

SIM_EXPORT cuDeviceGetMemPool(CUmemoryPool *handle, CUdevice dev)
{
	SIM_ENTER(cuDeviceGetMemPool, NEED_HEALTHY);
	return give_pool(handle, dev, pool_current);
}

SIM_EXPORT cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle)
{
	struct sim_pool *pool;

	SIM_ENTER(cuDeviceSetMemPool, NEED_HEALTHY);
	pool = pool_find(handle);
	if (!pool || dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_VALUE;
	sim.current_pool[dev] = pool;
	return CUDA_SUCCESS;
}
