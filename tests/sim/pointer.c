/* SPDX-License-Identifier: Apache-2.0 */
/* cuPointerGetAttribute(s), cuPointerSetAttribute. */
#include "tests/sim/sim.h"

#include <string.h>

#define POOL_BLOCK (32UL << 20) /* what the mappings of pools are multiples of */

/* The width of an attribute's value, which is zeroed where a pointer is not the driver's. */
static size_t attribute_size(CUpointer_attribute attr)
{
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return 4;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		return 1;
	default:
		return 0;
	}
}

/* Where the mapping of @map begins: that of a small allocation is the block that it shares. */
static CUdeviceptr mapping_start(const struct sim_map *map)
{
	return map->alloc && map->alloc->small ? map->start - block_offset(map->alloc) : map->start;
}

static size_t mapping_size(const struct sim_map *map)
{
	size_t block = map->pool ? POOL_BLOCK : SIM_GRANULARITY;

	return SIM_ROUND(map->start + map->size - mapping_start(map), block);
}

static uint64_t attribute_value(const struct sim_map *map, CUpointer_attribute attr,
				CUdeviceptr ptr)
{
	bool host = map->kind == MAP_HOST || map->kind == MAP_REGISTERED || map_of_host(map);

	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return (uintptr_t)map->ctx;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return ptr;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return host || map->kind == MAP_MANAGED ? ptr : 0;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		return map->id;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		return map->start;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		return map->size;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return (uint64_t)map->dev;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		return map->kind == MAP_MANAGED;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		return 1;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		return map->kind == MAP_VMM ? map->alloc->prop.requestedHandleTypes : 0;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		return map->kind == MAP_DEVICE && !map->pool;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return (uintptr_t)map->pool;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		return mapping_size(map);
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		return mapping_start(map);
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return map->id;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		return map->sync_memops;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return map->access[ctx_current()->dev];
	default:
		return 0;
	}
}

static CUresult get_attribute(void *data, CUpointer_attribute attr, CUdeviceptr ptr)
{
	const struct sim_map *map = map_find(ptr);
	size_t size = attribute_size(attr);
	uint64_t value;

	if (!data || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!map) {
		memset(data, 0, size);
		return CUDA_ERROR_INVALID_VALUE;
	}
	/* Little-endian: the narrow values are the first bytes of the wide one. */
	value = attribute_value(map, attr, ptr);
	memcpy(data, &value, size);
	if (attr == CU_POINTER_ATTRIBUTE_HOST_POINTER && !value)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr ptr)
{
	SIM_ENTER(cuPointerGetAttribute, NEED_ANY);
	return get_attribute(data, attr, ptr);
}

/* Unlike the single query, this one succeeds for pointers that are not the driver's. */
SIM_EXPORT cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attrs, void **data,
				  CUdeviceptr ptr)
{
	SIM_ENTER(cuPointerGetAttributes, NEED_CONTEXT);
	for (unsigned int i = 0; i < count; i++) {
		if (!attribute_size(attrs[i]))
			return CUDA_ERROR_INVALID_VALUE;
		get_attribute(data[i], attrs[i], ptr);
	}
	return CUDA_SUCCESS;
}

/* As on a GPU, not for memory that the program mapped [H200, driver 580.159]. */
SIM_EXPORT cuPointerSetAttribute(const void *value, CUpointer_attribute attr, CUdeviceptr ptr)
{
	struct sim_map *map;

	SIM_ENTER(cuPointerSetAttribute, NEED_ANY);
	map = map_find(ptr);
	if (!value || attr != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !map || map->kind == MAP_VMM)
		return CUDA_ERROR_INVALID_VALUE;
	map->sync_memops = *(const unsigned int *)value != 0;
	return CUDA_SUCCESS;
}
