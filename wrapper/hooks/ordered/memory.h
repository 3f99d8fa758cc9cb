/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_MEMORY_H
#define CUDAW_HOOKS_MEMORY_H
/*
 * memory: device memory for an allocation. If there is none, what is kept for later allocations is given back; then
 * the call waits (checkpoint/gate/growth.h), or fails.
 */
#include "checkpoint/gate/growth.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The second function gives back the device memory that is kept for later allocations: that of
 * stream-ordered frees whose streams have passed, that of exported descriptors which are closed, and memory
 * that no allocation uses. It waits for no stream, but for other threads that do the same. To be called inside
 * the gate. True: some has become free since the thread called the first function, by whichever thread.
 */
void memory_try_begins(void);
bool memory_give_back(void);

/* @result gets the CUresult of @call, made once more if it finds no memory and some is given back. Inside the gate. */
#define MEMORY_TRY(result, call)                                                \
	do {                                                                    \
		memory_try_begins();                                            \
		(result) = (call);                                              \
		if ((result) == CUDA_ERROR_OUT_OF_MEMORY && memory_give_back()) \
			(result) = (call);                                      \
	} while (0)

/*
 * Allocate @size bytes of @dev's memory as vmem_alloc(). If there is none, memory whose free has passed
 * is given back first.
 */
CUresult memory_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr,
		      unsigned long long *id);

/*
 * The driver has no memory for an allocation of @bytes (0: that is no device memory) by the call that
 * the thread makes, inside the gate. True: growth_wait() has to follow, outside the gate. A call
 * within another call does not wait, nor does one beyond the quota of the job.
 */
#define MEMORY_CONTEXT (640UL << 20) /* more than a context takes [H200: 0.52 GiB] */
bool memory_waits(CUdevice dev, size_t bytes);
bool memory_waits_here(size_t bytes);
size_t memory_pitched(size_t width, size_t height);
size_t memory_of_device(size_t size, const CUmemAllocationProp *prop);

#endif
