/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_POOLS_H
#define CUDAW_HOOKS_POOLS_H
/*
 * Stream-ordered allocations, served from vmem's memory: cuMemAllocAsync(),
 * cuMemAllocFromPoolAsync(), and cuMemFreeAsync() of their memory.
 *
 * What NVIDIA documents (CUDA programming guide, stream-ordered memory allocator; cuda.h), and how it
 * holds here:
 * - Neither call waits. The memory may be used by work that is ordered after the allocation in its
 *   stream, and until the free in the stream of that.
 * - A later allocation in the stream of the free may have the memory at once: the stream orders the
 *   two. If the stream is CU_STREAM_NON_BLOCKING, this needs no call of the driver. In other streams a
 *   free records an event: by an operation there it is ordered with the streams that wait for each
 *   other by themselves.
 * - An allocation in another stream may have it if the program has made that stream wait for the free, by an
 *   event that it recorded behind the free (REUSE_FOLLOW_EVENT_DEPENDENCIES, pool_events.h).
 * - Any other stream may have it once the free has passed. A synchronisation shows that
 *   (pools_stream_passed()), or an event that is recorded in the stream of the free when another stream looks
 *   for memory (REUSE_ALLOW_OPPORTUNISTIC).
 * - If the GPU is full, another stream may have it before that: the stream is made to wait for the free
 *   (REUSE_ALLOW_INTERNAL_DEPENDENCIES). The driver cuts its blocks as they are needed; here a block is
 *   given as a whole, or several whose frees have passed are unmapped for a larger one. So if no block
 *   is large enough, the allocation waits for frees, for some seconds at most.
 * - A pool keeps freed memory up to its release threshold. What is more goes back at the next
 *   synchronisation, to vmem, which keeps some of it for any allocation.
 * - Memory outlives its pool. A destroyed pool gives it back when it is freed.
 *
 * pool_objects.h has the pools, pool_streams.h the streams, pool_lists.h the free memory, pool_passed.h what
 * becomes of it when frees have passed, and pool_calls.c the calls of the program. One mutex guards all of it: see pool_objects.h.
 */
#include "wrapper/hooks/ordered/frees.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * As cuMemAllocFromPoolAsync(), or as cuMemAllocAsync() if @pool is NULL. CU_STREAM_PER_THREAD is the
 * stream of the calling thread. CUDA_ERROR_NOT_SUPPORTED: the driver has to serve it. It serves
 * captures, streams of green contexts and of contexts that the program created, pools that can be
 * exported, are imported, have a largest size, or are of other memory or another device, and all if
 * memory is not mapped (CUDAW_ADDRESSING).
 */
CUresult pools_alloc(CUdeviceptr *ptr, size_t size, const CUmemoryPool *pool, CUstream stream);

/*
 * As cuMemFreeAsync() and cuMemFree() of memory of vmem, whether it is of pools_alloc() or not. The
 * second waits for the GPU, as frees_now(), except for memory of pools_alloc(): the program may free it
 * so only after all work that uses it has ended.
 */
CUresult pools_free_ordered(CUdeviceptr ptr, CUstream stream);
CUresult pools_free_now(CUdeviceptr ptr);

#endif
