/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_FREES_H
#define CUDAW_HOOKS_FREES_H
/*
 * The frees of vmem's memory, which its driver calls do not order after the work on the GPU.
 *
 * As cuMemFree() does, frees_now() waits for all work of the memory's context, beside stream
 * captures too (fence.h). As cuMemFreeAsync() does, frees_ordered() never waits: it records an
 * event in the stream. The allocation is retired (vmem.h), so for the program it is freed, and
 * frees_collect() frees the memory once the event has passed.
 *
 * If frees_now() cannot wait, because a capture is open and there is no memory for a fence, the
 * allocation is retired as well. The next free in that context waits instead, or an allocation that
 * finds no memory.
 *
 * Locking: one mutex guards the list of retired allocations, and is not held across driver calls.
 * The events belong to contexts, and the driver must not be asked about an event while its context
 * ends: frees_context_ending() waits until no thread asks.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* Free the allocation that starts at @ptr, as cuMemFree() and cuMemFreeAsync() do. */
CUresult frees_now(CUdeviceptr ptr);
CUresult frees_ordered(CUdeviceptr ptr, CUstream stream);

/*
 * In a capture the driver refuses memory of cuMemAlloc(), and the capture stays valid [H200]. The same
 * holds here for all memory of vmem: CUDA_ERROR_INVALID_VALUE.
 */
CUresult frees_refuse_captured(CUstream stream);

/*
 * Give back the memory of ordered frees whose streams have passed. FREES_FEW takes a bounded time,
 * unless addresses are translated and the driver frees memory meanwhile, which waits for its context:
 * it asks about a few that have not passed, each time about others. FREES_PASSED asks about all. Neither
 * waits for a stream, as the driver does not if it lacks memory [H200: fidelity free_async_busy].
 * FREES_PASSED waits for frees_now() if that could not.
 */
enum frees_effort { FREES_FEW, FREES_PASSED };
void frees_collect(enum frees_effort effort);

/* The bytes of @dev that FREES_PASSED would wait for: for the program they are free. */
size_t frees_put_off(CUdevice dev);

/*
 * @ctx (NULL: none) may end in the next call. Its events are left alone from now on, until the
 * second function says that it lives on, or until it has ended (context_gone.h).
 */
void frees_context_ending(CUcontext ctx);
void frees_context_lives(CUcontext ctx);

#endif
