/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_FREES_H
#define CUDAW_HOOKS_FREES_H
/*
 * The frees of vmem's memory, which its driver calls do not order after the work on the GPU.
 *
 * As cuMemFree() does, frees_now() waits for all work of the memory's context, beside stream
 * captures too (fence.h). As cuMemFreeAsync() does, frees_ordered() never waits: it records an
 * event in the stream. vmem keeps the memory (vmem_keep()), so for the program it is freed, and
 * frees_collect() frees it once the event has passed: allocations call it, and waits of the program.
 *
 * If frees_now() cannot wait, because a capture is open and there is no memory for a fence, vmem keeps
 * the memory as well. The next free in that context waits instead, or an allocation that finds no
 * memory.
 *
 * Here each free has an event, while the frees of pools share those of their stream (pool_streams.h). Such
 * a free is rare, so the event may cost time; and cuMemAlloc() waits for no free, so the memory has to be
 * there as soon as the work before the free has ended, whatever the stream does after it.
 *
 * Locking: pools_lock guards the list, and is not held across driver calls. The driver must not be
 * asked about an event while its context ends: who asks uses the legacy stream of the context, and
 * streams_context_ending() waits for that.
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
 * it asks about a few that have not passed, each time about others. The others ask about all. None
 * waits for a stream, as the driver does not if it lacks memory [H200: fidelity free_async_busy].
 * FREES_PASSED waits for frees_now() if that could not. vmem_trim() has the effect of FREES_EVENTS.
 */
enum frees_effort { FREES_FEW, FREES_EVENTS, FREES_PASSED };
void frees_collect(enum frees_effort effort);

/* The bytes of @dev that FREES_PASSED would wait for: for the program they are free. */
size_t frees_put_off(CUdevice dev);

#endif
