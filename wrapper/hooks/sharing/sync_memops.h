/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SYNC_MEMOPS_H
#define CUDAW_SYNC_MEMOPS_H
/*
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of vmem's allocations, and of memory that is open by legacy IPC: on such
 * memory, copies and sets without a stream return when the GPU has done them. Otherwise some of them return
 * earlier, so that a device on the bus (GPUDirect RDMA) could read old data. The driver has the attribute for
 * memory of its own cuMemAlloc() only, so cudaw keeps it and waits. The table is in host memory, under the ids
 * of the allocations: it stays over a pause, and an allocation that is freed has lost the attribute.
 *
 * Thread-safe. Nothing is asked before the program sets the attribute for the first time.
 */
#include "vmem/vmem.h"

extern bool sync_memops_used;
bool sync_memops_find(CUdeviceptr ptr);

/* Set the attribute of the live allocation or open memory @info, or clear it. False: no host memory. */
bool sync_memops_set(const struct vmem_info *info, bool on);

/* True if @ptr points into memory that has the attribute. */
static inline bool sync_memops_of(CUdeviceptr ptr)
{
	return __atomic_load_n(&sync_memops_used, __ATOMIC_RELAXED) && sync_memops_find(ptr);
}

/* The same of both sides of a copy; NULL has none. */
bool sync_memops_of_2d(const CUDA_MEMCPY2D_v2 *copy);
bool sync_memops_of_3d(const CUDA_MEMCPY3D_v2 *copy);
bool sync_memops_of_3d_peer(const CUDA_MEMCPY3D_PEER *copy);

/* Wait until @stream, a default stream of the current context, has done what is in it. */
CUresult sync_memops_wait(CUstream stream);

#endif
