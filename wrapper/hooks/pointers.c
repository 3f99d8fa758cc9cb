/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about pointers, which vmem answers for its allocations. A call for an address outside
 * vmem's address space goes to the real driver.
 */
#include "wrapper/real.h"
#include "vmem/legacy.h"
#include "vmem/addresses/translate.h"
#include "vmem/vmem.h"
#include "wrapper/current.h"
#include "wrapper/hooks/managed/managed.h"
#include "wrapper/hooks/ordered/pool_objects.h"
#include "wrapper/hooks/sharing/host_memory.h"
#include "wrapper/hooks/sharing/ipc.h"
#include "wrapper/hooks/sharing/sync_memops.h"

/* The allocation of managed memory that has @ptr, without an id. */
static bool lookup_managed(CUdeviceptr ptr, struct vmem_info *info)
{
	struct managed_info managed;

	if (!managed_lookup(ptr, &managed))
		return false;
	*info = (struct vmem_info){.start = managed.start,
				   .size = managed.size,
				   .ctx = managed.ctx,
				   .dev = managed.dev};
	return true;
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct host_objects_info host;
	struct vmem_info info;
	CUresult result;

	/* The driver tells no start of memory that the program has mapped [H200, driver 580.159]. */
	if (host_objects_lookup(dptr, &host)) {
		info.start = 0;
		info.size = host.size;
	} else if (!lookup_managed(dptr, &info) && !ipc_lookup(dptr, &info)) {
		if (!vmem_contains(dptr))
			return real.cuMemGetAddressRange_v2(pbase, psize, dptr);
		if (!vmem_lookup(dptr, &info))
			info.size = 0;
	}
	result = current_error();
	if (result)
		return result;
	if (!info.size)
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = info.start;
	if (psize)
		*psize = info.size;
	return CUDA_SUCCESS;
}

/* Those that allocations of every kind have alike. False: another one. */
static bool common_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
			     const struct vmem_info *info)
{
	CUmemoryPool pool;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		/* Memory of pools has none [H200: fidelity pool_pointers]. */
		*(CUcontext *)data = pool_handle_of(info->start, &pool) ? NULL : info->ctx;
		return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(CUmemorytype *)data = CU_MEMORYTYPE_DEVICE;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = ptr;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = info->dev;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = info->start;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = info->size;
		return true;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return pool_handle_of(info->start, data);
	default:
		return false;
	}
}

/*
 * The blocks of 2 MiB that an allocation is in, as the driver has them. Ours are mapped together with
 * others or in pieces, and anew by each pause.
 */
static CUdeviceptr block_start(const struct vmem_info *info)
{
	return info->start & ~(VMEM_GRANULE - 1);
}

static size_t block_size(const struct vmem_info *info)
{
	CUdeviceptr end = info->start + info->size + VMEM_GRANULE - 1;

	return (end & ~(VMEM_GRANULE - 1)) - block_start(info);
}

/* Small allocations share one. The driver's own ids are small numbers, or addresses. */
static unsigned long long block_id(const struct vmem_info *info)
{
	return 1ULL << 62 | (info->size < VMEM_GRANULE ? block_start(info) : info->id);
}

/*
 * The attributes for which the real driver, which sees whole regions, has wrong answers, and those
 * that frameworks ask for at every launch. False: ask the real driver.
 */
static bool pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
			      const struct vmem_info *info)
{
	CUmemoryPool pool;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = sync_memops_of(ptr);
		return true;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		/* The driver's ids count from 1; ours must differ from them. */
		*(unsigned long long *)data = 1ULL << 62 | info->id;
		return true;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = 0;
		return true;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)data = CU_MEM_HANDLE_TYPE_NONE;
		return true;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = block_size(info);
		return true;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = block_start(info);
		return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = block_id(info);
		return true;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(bool *)data = vmem_can_share(info->dev) && !pool_handle_of(info->start, &pool);
		return true;
	default:
		return common_attribute(data, attribute, ptr, info);
	}
}

/* The same for managed memory, which the real driver sees as host memory. */
static bool managed_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
			      const struct vmem_info *info)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(CUdeviceptr *)data = ptr;
		return true;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = 1;
		return true;
	default:
		return common_attribute(data, attribute, ptr, info);
	}
}

/*
 * The same for memory that is open by legacy IPC, of which the real driver sees pieces that belong to
 * no context.
 */
static bool opened_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
			     const struct vmem_info *info)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = info->ctx;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = info->start;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = info->size;
		return true;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = sync_memops_of(ptr);
		return true;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)data = CU_MEM_HANDLE_TYPE_NONE;
		return true;
	default:
		return false;
	}
}

CUresult hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct vmem_info info;

	if (data && host_memory_attribute(data, attribute, ptr))
		return CUDA_SUCCESS;
	if (data && lookup_managed(ptr, &info) && managed_attribute(data, attribute, ptr, &info))
		return CUDA_SUCCESS;
	if (data && ipc_lookup(ptr, &info) && opened_attribute(data, attribute, ptr, &info))
		return CUDA_SUCCESS;
	if (!data || !vmem_contains(ptr))
		return real.cuPointerGetAttribute(data, attribute, ptr);
	if (!vmem_lookup(ptr, &info))
		return CUDA_ERROR_INVALID_VALUE;
	if (pointer_attribute(data, attribute, ptr, &info))
		return CUDA_SUCCESS;
	return real.cuPointerGetAttribute(data, attribute, translate(ptr));
}

CUresult hook_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
				     void **data, CUdeviceptr ptr)
{
	struct vmem_info info;
	CUresult result;

	/*
	 * The real driver goes first: it checks the arguments, and fills in the other attributes.
	 * For an unknown pointer it succeeds, with zeros. So it must for a pointer that was freed,
	 * whose region may still be mapped: the driver is asked about an address never mapped.
	 */
	if (vmem_contains(ptr) && !vmem_lookup(ptr, &info))
		return real.cuPointerGetAttributes(numAttributes, attributes, data, 0);
	result = real.cuPointerGetAttributes(numAttributes, attributes, data, translate(ptr));
	for (unsigned int i = 0; !result && i < numAttributes; i++)
		host_memory_attribute(data[i], attributes[i], ptr);
	if (!result && lookup_managed(ptr, &info))
		for (unsigned int i = 0; i < numAttributes; i++)
			managed_attribute(data[i], attributes[i], ptr, &info);
	if (!result && ipc_lookup(ptr, &info))
		for (unsigned int i = 0; i < numAttributes; i++)
			opened_attribute(data[i], attributes[i], ptr, &info);
	if (result || !vmem_contains(ptr))
		return result;
	for (unsigned int i = 0; i < numAttributes; i++)
		pointer_attribute(data[i], attributes[i], ptr, &info);
	return CUDA_SUCCESS;
}

/* The driver refuses the one attribute that can be set, for memory that is mapped. */
CUresult hook_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
				    CUdeviceptr ptr)
{
	struct vmem_info info;

	if (host_objects_overlap(ptr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
	    (!vmem_contains(ptr) && !ipc_lookup(ptr, &info)))
		return real.cuPointerSetAttribute(value, attribute, translate(ptr));
	if (vmem_contains(ptr) && !vmem_lookup(ptr, &info))
		return CUDA_ERROR_INVALID_VALUE;
	return sync_memops_set(&info, *(const unsigned int *)value) ? CUDA_SUCCESS
								    : CUDA_ERROR_OUT_OF_MEMORY;
}
