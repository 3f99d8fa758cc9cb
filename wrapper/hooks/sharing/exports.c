/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's own memory handles, and memory that is shared: with other processes, with other
 * APIs, and among devices by multicast. Plain device memory has handles of ours, and is carried
 * (vmem/objects/objects.h), also if other processes under cudaw have it (checkpoint/sharing/sharing.h), and so
 * is host memory on a NUMA node (vmem/objects/host_objects.h). The real driver serves the rest. It is noted, so
 * that `cudaw ps` can show it, and since a pause cannot carry some of it (unsupported.h).
 */
#include "wrapper/real.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/handles.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/sharing/sharing.h"
#include "common/protocol/quota.h"
#include "common/settings.h"
#include "vmem/objects/host_file.h"
#include "vmem/objects/objects.h"
#include "vmem/addresses/translate.h"
#include "wrapper/hooks/ordered/memory.h"
#include "wrapper/hooks/ordered/pool_objects.h"
#include "wrapper/hooks/sharing/carried.h"
#include "wrapper/hooks/sharing/host_memory.h"
#include "wrapper/hooks/sharing/ipc.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define LOG_PREFIX "exports: "
#include "common/log.h"

#define NATIVE                                                                          \
	"this process runs with CUDAW_TO_DRIVER=memory or translated addresses; start " \
	"all processes of the job with CUDAW_TO_DRIVER=exports"

OBJECT_GONE(handles_release);

static bool exports_tickets(void)
{
	return !setting_lists(SETTING_TO_DRIVER, "exports");
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			  const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult result;
	CUdevice dev =
		prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id : -1;

	if (handle && prop && prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA &&
	    carried_is_on() && exports_tickets() &&
	    host_memory_create(handle, size, prop, flags, &result))
		return result;
	if (!quota_take(dev, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real.cuMemCreate(handle, size, prop, flags);
	if (result)
		quota_give(dev, size);
	else if (dev < 0)
		handles_add(*handle, DRIVER_MEMORY_VMM_HOST, 0);
	else if (!carried_is_on() || !objects_add(handle, size, prop))
		handles_add_taken(*handle, DRIVER_MEMORY_VMM, size, dev);
	return result;
}

CUresult hook_cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
				const CUmulticastObjectProp *prop)
{
	CUresult result = real.cuMulticastCreate(mcHandle, prop);

	if (!result)
		handles_add(*mcHandle, DRIVER_MEMORY_MULTICAST, 0);
	return result;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult result;

	if (objects_is_ours(handle))
		return objects_release(handle);
	if (host_objects_is_ours(handle))
		return host_objects_release(handle);
	handles_releasing(handle);
	result = real.cuMemRelease(handle);
	handles_released(handle, !result);
	return result;
}

/* As for memory of the real cuMemAlloc(): a handle would keep it on the GPU during a pause. */
CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result;

	if (vmem_contains((uintptr_t)addr) || ipc_lookup((uintptr_t)addr, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	result = handle ? objects_retain((uintptr_t)addr, handle) : CUDA_ERROR_NOT_FOUND;
	if (handle && result == CUDA_ERROR_NOT_FOUND)
		result = host_objects_retain((uintptr_t)addr, handle);
	if (result != CUDA_ERROR_NOT_FOUND)
		return result;
	result = real.cuMemRetainAllocationHandle(handle, addr);
	if (!result)
		handles_retain(*handle);
	return result;
}

/*
 * Memory that the program has not mapped by itself: natively these calls refuse it. The driver takes it
 * for the program's, as it is mapped by the same calls.
 */
static bool is_mapped_by_us(CUdeviceptr ptr, size_t size)
{
	return vmem_overlaps(ptr, size) || ipc_overlaps(ptr, size);
}

/* Memory that the program has mapped, of the driver's. */
static bool is_mapped_by_driver(CUdeviceptr ptr, size_t size)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = ptr;

	return objects_next(&at, ptr + size, &handle) || handles_are_mapped(ptr, size);
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
		       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult result;

	if (is_mapped_by_us(ptr, size) || host_objects_overlap(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (host_objects_is_ours(handle))
		return is_mapped_by_driver(ptr, size)
			       ? CUDA_ERROR_INVALID_VALUE
			       : host_objects_map(ptr, size, offset, handle, flags);
	if (objects_is_ours(handle))
		return objects_map(ptr, size, offset, handle, flags);
	result = real.cuMemMap(ptr, size, offset, handle, flags);
	if (!result)
		handles_map(handle, ptr, size);
	return result;
}

static CUresult unmap(CUdeviceptr ptr, size_t size)
{
	CUresult result = carried_is_on() ? objects_unmap(ptr, size) : real.cuMemUnmap(ptr, size);

	if (!result)
		handles_unmap(ptr, size);
	return result;
}

CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	if (is_mapped_by_us(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	return host_objects_overlap(ptr, size) ? host_memory_unmap(ptr, size, unmap)
					       : unmap(ptr, size);
}

static CUresult set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	return carried_is_on() ? objects_set_access(ptr, size, desc, count)
			       : real.cuMemSetAccess(ptr, size, desc, count);
}

CUresult hook_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
			     size_t count)
{
	if (is_mapped_by_us(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	return host_objects_overlap(ptr, size)
		       ? host_memory_set_access(ptr, size, desc, count, set_access)
		       : set_access(ptr, size, desc, count);
}

CUresult hook_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
			     CUdeviceptr ptr)
{
	struct vmem_info info;

	if (flags && location && host_objects_overlap(ptr, 1))
		return host_objects_get_access(flags, location, ptr);
	if (!flags || !location || !is_mapped_by_us(ptr, 1))
		return real.cuMemGetAccess(flags, location, ptr);
	/* [H200: fidelity foreign] */
	*flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return vmem_contains(ptr) && !vmem_lookup(ptr, &info) ? CUDA_ERROR_INVALID_VALUE
							      : CUDA_SUCCESS;
}

/* Host memory of ours is mapped in addresses that the program has reserved, and nowhere else. */
CUresult hook_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				  unsigned long long flags)
{
	CUresult result = real.cuMemAddressReserve(ptr, size, alignment, addr, flags);

	if (result || !carried_is_on() || host_objects_reserve(*ptr, size))
		return result;
	real.cuMemAddressFree(*ptr, size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	CUresult result;
	bool known;

	if (is_mapped_by_us(ptr, size) || !host_objects_unreserve(ptr, size, &known))
		return CUDA_ERROR_INVALID_VALUE;
	result = real.cuMemAddressFree(ptr, size);
	if (result && known)
		host_objects_reserve(ptr, size);
	return result;
}

CUresult hook_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						     CUmemGenericAllocationHandle handle)
{
	CUresult result;

	if (host_objects_is_ours(handle))
		return host_objects_get_properties(prop, handle);
	result = objects_find(handle, &handle);
	return result ? result : real.cuMemGetAllocationPropertiesFromHandle(prop, handle);
}

/* The object stays with the driver, as memory of others would. */
static void leave(CUmemGenericAllocationHandle handle)
{
	size_t size = objects_leave(handle);

	if (size)
		handles_add(handle, DRIVER_MEMORY_VMM, size);
}

CUresult hook_cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
				 CUmemGenericAllocationHandle memHandle, size_t memOffset,
				 size_t size, unsigned long long flags)
{
	CUresult result = host_objects_is_ours(memHandle) ? CUDA_ERROR_INVALID_VALUE
							  : objects_find(memHandle, &memHandle);

	return result ? result
		      : real.cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size,
						flags);
}

/* Sparse arrays take memory of tile pools only, whose handles are the driver's. */
static bool takes_objects(const CUarrayMapInfo *list, unsigned int count)
{
	for (unsigned int i = 0; list && i < count; i++)
		if (list[i].memHandleType == CU_MEM_HANDLE_TYPE_GENERIC &&
		    (objects_is_ours(list[i].memHandle.memHandle) ||
		     host_objects_is_ours(list[i].memHandle.memHandle)))
			return true;
	return false;
}

CUresult hook_cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	return takes_objects(mapInfoList, count)
		       ? CUDA_ERROR_INVALID_VALUE
		       : real.cuMemMapArrayAsync(mapInfoList, count, hStream);
}

CUresult hook_cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count,
				      CUstream hStream)
{
	return takes_objects(mapInfoList, count)
		       ? CUDA_ERROR_INVALID_VALUE
		       : real.cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream);
}

CUresult hook_cuMemExportToShareableHandle(void *shareableHandle,
					   CUmemGenericAllocationHandle handle,
					   CUmemAllocationHandleType handleType,
					   unsigned long long flags)
{
	CUmemGenericAllocationHandle driver_s;
	int ticket = -1;
	CUresult result;

	if (host_objects_is_ours(handle))
		return host_objects_export(shareableHandle, handle, handleType, flags);
	result = objects_find(handle, &driver_s);
	if (!result && shareableHandle && objects_is_ours(handle) && exports_tickets() &&
	    handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		result = sharing_export(handle, handleType, flags, &ticket);
	if (ticket >= 0) {
		*(int *)shareableHandle = ticket;
		return CUDA_SUCCESS;
	}

	if (!result)
		result = real.cuMemExportToShareableHandle(shareableHandle, driver_s, handleType,
							   flags);
	if (result)
		return result;
	leave(handle);
	handles_export(handle, DRIVER_MEMORY_VMM_EXPORT);
	return result;
}

static CUresult import_of_driver(CUmemGenericAllocationHandle *handle, void *os_handle,
				 CUmemAllocationHandleType type)
{
	CUresult result;

	if (!gate_enter(GATE_HOLD))
		return gate_refusal();
	MEMORY_TRY(result, real.cuMemImportFromShareableHandle(handle, os_handle, type));
	if (!result)
		handles_add(*handle, DRIVER_MEMORY_VMM_IMPORT, 0);
	gate_exit();
	return result;
}

/* False: the descriptor is not of host memory of cudaw. */
static bool import_host(CUmemGenericAllocationHandle *handle, int fd, CUresult *result)
{
	size_t size;
	int node;

	if (!host_file_read(fd, &size, &node))
		return false;
	if (!carried_is_on()) {
		pr_err("host memory that another process exported cannot be imported: " NATIVE);
		*result = CUDA_ERROR_NOT_SUPPORTED;
		return true;
	}
	if (!gate_enter(GATE_HOLD)) {
		*result = gate_refusal();
		return true;
	}
	*result = host_memory_import(fd, node, handle);
	gate_exit();
	return true;
}

/* Outside the gate. */
CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					     CUmemAllocationHandleType shHandleType)
{
	struct object_name name = {0};
	bool is_fd = handle && shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	int ticket = is_fd ? ticket_read((int)(intptr_t)osHandle, &name) : -ENOENT;
	CUresult result;

	if (is_fd && ticket == -ENOENT && import_host(handle, (int)(intptr_t)osHandle, &result))
		return result;
	if (ticket == -ENOENT)
		return import_of_driver(handle, osHandle, shHandleType);
	if (!ticket && carried_is_on())
		return carried_import(&name, handle);
	pr_err("memory that another process exported cannot be imported: %s",
	       ticket == -ENOTSUP ? "its process runs under another version of cudaw"
	       : ticket           ? "the descriptor is damaged"
				  : NATIVE);
	return ticket ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

/* The range may have parts of neighbours, as it begins and ends at pages. */
static void carried_dmabuf(CUdeviceptr ptr, size_t size)
{
	CUdeviceptr at = ptr, end = ptr + size;
	struct vmem_info info;

	/* Allocations start at multiples of 512. */
	while (at < end) {
		if (vmem_lookup(at, &info)) {
			vmem_has_dmabuf(info.start, info.id);
			driver_memory_add_dmabuf(&info);
			at = (info.start + info.size + 511) & ~511ULL;
		} else {
			at = (at | 511) + 1;
		}
	}
}

/* Objects in the range have a dma-buf from now on. False: there are none. */
static bool leave_range(CUdeviceptr ptr, size_t size)
{
	CUdeviceptr end = ptr + size;
	CUmemGenericAllocationHandle handle;
	bool found = false;

	while (objects_next(&ptr, end, &handle)) {
		leave(handle);
		handles_export(handle, DRIVER_MEMORY_DMABUF_LEFT);
		found = true;
	}
	return found;
}

static void dmabuf_made(CUdeviceptr ptr, size_t size)
{
	CUdeviceptr base = ptr;

	if (vmem_contains(ptr)) {
		carried_dmabuf(ptr, size);
	} else if (!leave_range(ptr, size) && !handles_export_dmabuf(ptr, size)) {
		real.cuMemGetAddressRange_v2(&base, NULL, ptr);
		driver_memory_add(DRIVER_MEMORY_DMABUF_LEFT, base, 0);
	}
}

CUresult hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
					    CUmemRangeHandleType handleType,
					    unsigned long long flags)
{
	CUresult result = real.cuMemGetHandleForAddressRange(handle, translate(dptr), size,
							     handleType, flags);

	if (!result)
		dmabuf_made(dptr, size);
	return result;
}

CUresult hook_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
					       CUmemAllocationHandleType handleType,
					       unsigned long long flags)
{
	CUresult result =
		real.cuMemPoolExportToShareableHandle(handle_out, pool, handleType, flags);

	if (!result)
		driver_memory_add(DRIVER_MEMORY_POOL_EXPORT, (uintptr_t)pool, 0);
	return result;
}

CUresult hook_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
						 CUmemAllocationHandleType handleType,
						 unsigned long long flags)
{
	CUresult result =
		real.cuMemPoolImportFromShareableHandle(pool_out, handle, handleType, flags);

	if (result)
		return result;
	driver_memory_add(DRIVER_MEMORY_POOL_IMPORT, (uintptr_t)*pool_out, 0);
	pool_created(*pool_out, NULL);
	return CUDA_SUCCESS;
}

CUresult hook_cuImportExternalMemory(CUexternalMemory *extMem_out,
				     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	CUresult result = real.cuImportExternalMemory(extMem_out, memHandleDesc);

	if (!result)
		driver_memory_add(DRIVER_MEMORY_EXTERNAL, (uintptr_t)*extMem_out,
				  memHandleDesc->size);
	return result;
}

CUresult hook_cuDestroyExternalMemory(CUexternalMemory extMem)
{
	CUresult result;

	driver_memory_ending(DRIVER_MEMORY_EXTERNAL, (uintptr_t)extMem);
	result = real.cuDestroyExternalMemory(extMem);
	driver_memory_ended(DRIVER_MEMORY_EXTERNAL, (uintptr_t)extMem, !result);
	return result;
}
