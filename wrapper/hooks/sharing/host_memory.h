/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOST_MEMORY_H
#define CUDAW_HOST_MEMORY_H
/*
 * Host memory that the program creates and maps by itself: what the hooks of exports.c do if it is
 * carried (vmem/objects/host_objects.h).
 */
#include "vmem/objects/host_objects.h"

/*
 * cuMemCreate() of host memory on a NUMA node. False: that is left to the driver, as the driver refuses it, or as the
 * process cannot have a file for it.
 */
bool host_memory_create(CUmemGenericAllocationHandle *handle, size_t size,
			const CUmemAllocationProp *prop, unsigned long long flags,
			CUresult *result);

/* cuMemImportFromShareableHandle() of the file @fd (host_file.h), which is for @node. */
CUresult host_memory_import(int fd, int node, CUmemGenericAllocationHandle *handle);

/*
 * Of a range in which some mappings are ours: @others is the same for those that are not, and is called for each run
 * of these.
 */
CUresult host_memory_unmap(CUdeviceptr ptr, size_t size,
			   CUresult (*others)(CUdeviceptr ptr, size_t size));
CUresult host_memory_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				size_t count,
				CUresult (*others)(CUdeviceptr ptr, size_t size,
						   const CUmemAccessDesc *desc, size_t count));

/* There may be a new context, in which memory is registered that waits for one. It does not wait for the lock. */
void host_memory_try_context(void);
static inline void host_memory_context_came(void)
{
	if (host_objects_wait())
		host_memory_try_context();
}

#endif
