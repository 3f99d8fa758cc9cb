/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_MEMORY_H
#define CUDAW_HOOKS_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Give back the device memory that is kept for later allocations: that of stream-ordered frees, for
 * whose streams this waits, and memory that no allocation uses. To be called inside the gate. False:
 * there was none.
 */
bool memory_give_back(void);

/*
 * Allocate @size bytes of @dev's memory as vmem_alloc(). If there is none, memory whose free has passed
 * is given back first.
 */
CUresult memory_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr);

/*
 * The error that the current context has for good after a kernel's fault, as the driver's own calls
 * return it; CUDA_SUCCESS without one, or without a context. The driver is asked for a limit, which
 * takes 0.05 us [H200, driver 580.159; cuCtxGetDevice() does not say it, cuStreamQuery() takes 1.5].
 */
CUresult memory_sticky_error(void);

#endif
