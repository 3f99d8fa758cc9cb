/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about pointers, which vmem answers for its allocations. A call for an address outside
 * vmem's address space goes to the real driver.
 */
#include "wrapper/real.h"
#include "vmem/legacy.h"
#include "vmem/objects/host_objects.h"
#include "vmem/addresses/translate.h"
#include "vmem/vmem.h"
#include "wrapper/current.h"
#include "wrapper/hooks/managed/managed.h"
#include "wrapper/hooks/ordered/pool_objects.h"
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

/* Host memory that the program has mapped. Natively it belongs to the first device [H200, driver 580.159]. */
static bool lookup_host(CUdeviceptr ptr, struct vmem_info *info)
{
	struct host_objects_info host;

	if (!host_objects_lookup(ptr, &host))
		return false;
	*info = (struct vmem_info){.start = host.start, .size = host.size};
	return true;
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
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return false; /* we may not know it */
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = sync_memops_of(ptr);
		return true;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)data = CU_MEM_HANDLE_TYPE_NONE;
		return true;
	default:
		return common_attribute(data, attribute, ptr, info);
	}
}

/* The same for host memory that the program has mapped: the real driver sees memory that is registered. */
static bool host_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
			   const struct vmem_info *info)
{
	struct host_objects_info host;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(CUmemorytype *)data = CU_MEMORYTYPE_HOST;
		return true;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(CUdeviceptr *)data = ptr;
		return true;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		if (!host_objects_lookup(ptr, &host))
			return false;
		*(unsigned long long *)data = host.types;
		return true;
	default:
		return common_attribute(data, attribute, ptr, info);
	}
}

typedef bool (*answers_fn)(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
			   const struct vmem_info *info);

/* What @ptr points into, and the function that answers for it; NULL: it is not ours, or it was freed. */
static answers_fn look_up(CUdeviceptr ptr, struct vmem_info *info)
{
	if (lookup_host(ptr, info))
		return host_attribute;
	if (lookup_managed(ptr, info))
		return managed_attribute;
	if (ipc_lookup(ptr, info))
		return opened_attribute;
	return vmem_lookup(ptr, info) ? pointer_attribute : NULL;
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct vmem_info info;
	answers_fn answers = look_up(dptr, &info);
	CUresult result;

	if (!answers && !vmem_contains(dptr))
		return real.cuMemGetAddressRange_v2(pbase, psize, dptr);
	result = current_error();
	if (result)
		return result;
	if (!answers)
		return CUDA_ERROR_NOT_FOUND;
	/* The driver tells no start of memory that the program has mapped [H200, driver 580.159]. */
	if (pbase)
		*pbase = answers == host_attribute ? 0 : info.start;
	if (psize)
		*psize = info.size;
	return CUDA_SUCCESS;
}

CUresult hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct vmem_info info;
	answers_fn answers = look_up(ptr, &info);

	if (data && !answers && vmem_contains(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (data && answers && answers(data, attribute, ptr, &info))
		return CUDA_SUCCESS;
	return real.cuPointerGetAttribute(data, attribute, translate(ptr));
}

CUresult hook_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
				     void **data, CUdeviceptr ptr)
{
	struct vmem_info info;
	answers_fn answers = look_up(ptr, &info);
	CUresult result;

	/*
	 * The real driver goes first: it checks the arguments, and fills in the other attributes.
	 * For an unknown pointer it succeeds, with zeros. So it must for a pointer that was freed,
	 * whose region may still be mapped: the driver is asked about an address never mapped.
	 */
	if (!answers && vmem_contains(ptr))
		return real.cuPointerGetAttributes(numAttributes, attributes, data, 0);
	result = real.cuPointerGetAttributes(numAttributes, attributes, data, translate(ptr));
	for (unsigned int i = 0; !result && answers && i < numAttributes; i++)
		answers(data[i], attributes[i], ptr, &info);
	return result;
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
