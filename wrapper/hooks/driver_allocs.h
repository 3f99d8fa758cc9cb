/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DRIVER_ALLOCS_H
#define CUDAW_DRIVER_ALLOCS_H
/* Shared by the hooks of memory that is left to the driver. */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The next call frees the allocation of the real driver at @ptr, and had @result, which is returned.
 * Another thread may have got memory at the same address by then.
 */
void pointer_ending(CUdeviceptr ptr);
CUresult pointer_ended(CUresult result, CUdeviceptr ptr);

/* Bytes of arrays, without what the driver adds. */
size_t array_bytes(const CUDA_ARRAY_DESCRIPTOR *d);
size_t array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d);
size_t mipmapped_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels);

/* There is a graph with allocation nodes: launches note the memory of graphs from now on. */
void graphs_have_memory(void);

#endif
