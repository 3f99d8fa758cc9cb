/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DRIVER_ALLOCS_H
#define CUDAW_DRIVER_ALLOCS_H
/* Shared by the hooks of memory that is left to the driver. */
#include "checkpoint/ledger/driver_memory.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The next call frees the allocation of the real driver at @ptr, and had @result, which is returned.
 * Another thread may have got memory at the same address by then.
 */
void pointer_ending(CUdeviceptr ptr);
CUresult pointer_ended(CUresult result, CUdeviceptr ptr);

/*
 * Around a call of the real driver that allocates @size bytes on the current device, and has @result, which is
 * returned. The first takes them from the quota of *@dev, which it finds; false: the call must fail as out of
 * memory. The second records the allocation under @handle, until its
 * context ends, or gives the bytes back.
 */
bool driver_alloc_begins(size_t size, CUdevice *dev);
CUresult driver_alloc_ended(CUresult result, enum driver_memory_kind kind, uint64_t handle,
			    size_t size, CUdevice dev);

/*
 * Bytes of arrays, without what the driver adds. Sparse ones, and those that are mapped later, have none: their memory
 * is that of cuMemCreate().
 */
size_t array_bytes(const CUDA_ARRAY_DESCRIPTOR *d);
size_t array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d);
size_t mipmapped_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels);

/* There is a graph with allocation nodes: launches note the memory of graphs from now on. */
void driver_allocs_in_graphs(void);

#endif
