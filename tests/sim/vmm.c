/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: reserve addresses, create memory, map the one under the other. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct reservation {
	struct reservation *next;
	CUdeviceptr start;
	size_t size;
};

static struct reservation *reservations;

static bool aligned(uint64_t value)
{
	return value % SIM_GRANULARITY == 0;
}

/* The reservation that holds the whole range. */
static struct reservation *reservation_find(CUdeviceptr start, size_t size)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (start >= r->start && size <= r->size && start - r->start <= r->size - size)
			return r;
	return NULL;
}

static void *reserve_at(CUdeviceptr addr, size_t size)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (addr ? MAP_FIXED_NOREPLACE : 0);

	return mmap((void *)addr, size, PROT_NONE, flags, -1, 0);
}

/* Anywhere, aligned: reserve more than is needed and give back both ends. */
static void *reserve_aligned(size_t size, size_t alignment)
{
	char *raw = reserve_at(0, size + alignment), *start;

	if (raw == MAP_FAILED)
		return raw;
	start = raw + (SIM_ROUND((uintptr_t)raw, alignment) - (uintptr_t)raw);
	if (start != raw)
		munmap(raw, (size_t)(start - raw));
	munmap(start + size, (size_t)(raw + alignment - start));
	return start;
}

SIM_EXPORT cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr hint,
			       unsigned long long flags)
{
	struct reservation *r;
	void *addr = MAP_FAILED;

	SIM_ENTER(cuMemAddressReserve, NEED_HEALTHY);
	if (sim.config.no_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!size || !aligned(size) || flags || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	if (alignment < SIM_GRANULARITY)
		alignment = SIM_GRANULARITY;
	r = malloc(sizeof(*r));
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (hint && hint % alignment == 0)
		addr = reserve_at(hint, size);
	/* A hint that cannot be had is no error; a kernel that ignores the flag moves the range. */
	if (addr != MAP_FAILED && (CUdeviceptr)addr != hint) {
		munmap(addr, size);
		addr = MAP_FAILED;
	}
	if (addr == MAP_FAILED)
		addr = reserve_aligned(size, alignment);
	if (addr == MAP_FAILED) {
		free(r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*r = (struct reservation){reservations, (CUdeviceptr)addr, size};
	reservations = r;
	*ptr = r->start;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	SIM_ENTER(cuMemAddressFree, NEED_HEALTHY);
	for (struct reservation **p = &reservations; *p; p = &(*p)->next) {
		struct reservation *r = *p;

		if (r->start != ptr || r->size != size)
			continue;
		if (map_overlaps(ptr, size))
			return CUDA_ERROR_INVALID_VALUE;
		munmap((void *)ptr, size);
		*p = r->next;
		free(r);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* The host has one NUMA node. Access may be given to others as well [H200, driver 580.159]. */
static CUresult check_location(const CUmemLocation *location, bool access)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return location->id >= 0 && location->id < sim.config.devices
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return location->id && !access ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* As an H200 without fabric answers [driver 580.159]; memory on no node cannot be shared [cuda.h]. */
static CUresult check_types(const CUmemAllocationProp *prop)
{
	unsigned int types = (unsigned int)prop->requestedHandleTypes;

	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_SUCCESS;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST)
		return types ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	if (types & CU_MEM_HANDLE_TYPE_FABRIC)
		return CUDA_ERROR_NOT_PERMITTED;
	return types & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	return sim.config.no_vmm ? CUDA_ERROR_NOT_SUPPORTED
				 : check_location(&prop->location, false);
}

SIM_EXPORT cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
					 CUmemAllocationGranularity_flags option)
{
	CUresult result;

	SIM_ENTER(cuMemGetAllocationGranularity, NEED_HEALTHY);
	(void)option;
	result = check_prop(prop);
	if (result == CUDA_SUCCESS)
		*granularity = SIM_GRANULARITY;
	return result;
}

SIM_EXPORT cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct sim_alloc *alloc;
	CUresult result;

	SIM_ENTER(cuMemCreate, NEED_HEALTHY);
	result = check_prop(prop);
	if (result != CUDA_SUCCESS)
		return result;
	if (!size || !aligned(size) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	result = check_types(prop);
	if (result != CUDA_SUCCESS)
		return result;
	result = alloc_new(prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id
									      : SIM_HOST,
			   size, &alloc);
	if (result != CUDA_SUCCESS)
		return result;
	alloc->handles = 1;
	alloc->prop = *prop;
	*handle = (CUmemGenericAllocationHandle)alloc;
	return CUDA_SUCCESS;
}

/* A handle that the program still holds; memory of cuMemAlloc and the like has none. */
static struct sim_alloc *handle_find(CUmemGenericAllocationHandle handle)
{
	struct sim_alloc *alloc = (struct sim_alloc *)handle;

	return object_known(KIND_ALLOC, alloc) && alloc->handles ? alloc : NULL;
}

SIM_EXPORT cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sim_alloc *alloc;

	SIM_ENTER(cuMemRelease, NEED_HEALTHY);
	alloc = handle_find(handle);
	if (!alloc)
		return CUDA_ERROR_INVALID_VALUE;
	alloc->handles--;
	alloc_put(alloc);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct sim_map *map;

	SIM_ENTER(cuMemRetainAllocationHandle, NEED_HEALTHY);
	map = map_find((CUdeviceptr)addr);
	if (!map || map->kind != MAP_VMM)
		return CUDA_ERROR_INVALID_VALUE;
	map->alloc->handles++;
	*handle = (CUmemGenericAllocationHandle)map->alloc;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						  CUmemGenericAllocationHandle handle)
{
	struct sim_alloc *alloc;

	SIM_ENTER(cuMemGetAllocationPropertiesFromHandle, NEED_HEALTHY);
	alloc = handle_find(handle);
	if (!alloc)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = alloc->prop;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct sim_map map = {.start = ptr, .size = size, .kind = MAP_VMM};
	struct sim_map *new;
	void *addr;

	SIM_ENTER(cuMemMap, NEED_HEALTHY);
	map.alloc = handle_find(handle);
	if (!map.alloc || map.alloc->fd < 0 || !size || !aligned(ptr) || !aligned(size) ||
	    !aligned(offset) || flags || offset > map.alloc->size ||
	    size > map.alloc->size - offset)
		return CUDA_ERROR_INVALID_VALUE;
	/* [H200, driver 580.159] */
	if (offset)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!reservation_find(ptr, size) || map_overlaps(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	map.dev = map.alloc->dev == SIM_HOST ? 0 : map.alloc->dev;
	new = map_insert(&map);
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	addr = mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, alloc_backing(map.alloc),
		    map.alloc->offset);
	if (addr == MAP_FAILED) {
		map_remove(new);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	map.alloc->maps++;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	SIM_ENTER(cuMemUnmap, NEED_HEALTHY);
	if (!map_tiles(ptr, size, MAP_VMM))
		return CUDA_ERROR_INVALID_VALUE;
	/* One call for the range: the addresses stay reserved, and nothing else can take them. */
	if (mmap((void *)ptr, size, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (CUdeviceptr at = ptr; at < ptr + size;) {
		struct sim_map *map = map_find(at);
		struct sim_alloc *alloc = map->alloc;

		at += map->size;
		map_remove(map);
		alloc->maps--;
		alloc_put(alloc);
	}
	return CUDA_SUCCESS;
}

static unsigned char *access_of(struct sim_map *map, const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? &map->access[location->id]
							     : &map->host_access;
}

static bool of_host(CUdeviceptr ptr, size_t size)
{
	for (CUdeviceptr at = ptr; at < ptr + size; at += map_find(at)->size)
		if (map_find(at)->alloc->dev != SIM_HOST)
			return false;
	return true;
}

SIM_EXPORT cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	SIM_ENTER(cuMemSetAccess, NEED_HEALTHY);
	if (!desc || !count || !map_tiles(ptr, size, MAP_VMM))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = check_location(&desc[i].location, true);

		if (result != CUDA_SUCCESS)
			return result;
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE && !of_host(ptr, size))
			return CUDA_ERROR_NOT_SUPPORTED;
		if (sim.config.no_peers && desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		    desc[i].location.id != map_find(ptr)->dev)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	for (CUdeviceptr at = ptr; at < ptr + size;) {
		struct sim_map *map = map_find(at);

		for (size_t i = 0; i < count; i++)
			*access_of(map, &desc[i].location) = (unsigned char)desc[i].flags;
		map_protect(map, true);
		at += map->size;
	}
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	struct sim_map *map;

	SIM_ENTER(cuMemGetAccess, NEED_HEALTHY);
	map = map_find(ptr);
	if (check_location(location, true) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	/* [H200: fidelity foreign] */
	*flags = map && map->kind == MAP_VMM ? *access_of(map, location) : 0;
	return map ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
