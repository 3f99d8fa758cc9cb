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
 * - An allocation in another stream may have it once the free has passed. A synchronisation shows
 *   that (pools_now() and the functions behind it), or an event that is recorded in the stream of the
 *   free when another stream looks for memory (REUSE_ALLOW_OPPORTUNISTIC). No dependency is inserted
 *   into streams, and none that the program makes by events is followed: the two policies for this
 *   allow it and ask for nothing.
 * - A pool keeps freed memory up to its release threshold. What is more goes back at the next
 *   synchronisation, to vmem, which keeps some of it for any allocation.
 * - Memory outlives its pool. A destroyed pool gives it back when it is freed.
 *
 * The handle of a pool is that of a real pool of the driver, which serves what is not served here
 * (pools_alloc()), and answers for the policies. The numbers of a pool's memory are the sum of both.
 *
 * A block (pool_lists.h) that is free belongs to the stream in which it was freed (struct order), or,
 * once the free has passed, to its pool alone. Blocks are numbered by turns in the order of their
 * frees, over all streams; so one number says which frees of a stream have passed.
 *
 * Locking: one mutex for all of it, which is held across no driver call and no call of vmem. The
 * driver must not be asked about a stream or an event while it ends: see pools_stream_ending(),
 * pools_context_ending(), and pools_before_capture() for streams that begin to capture.
 */
#include "wrapper/hooks/frees.h"

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

/* The pool of the allocation that starts at @ptr; false: it is of none. */
bool pools_handle_of(CUdeviceptr ptr, CUmemoryPool *handle);

/*
 * The program made the pool @handle, destroyed it, set its attribute, or trimmed it; or it has set a
 * device's pool. To be called after the driver's own call has succeeded. For pools that are unknown
 * they do nothing.
 */
void pools_created(CUmemoryPool handle, const CUmemPoolProps *props);
void pools_destroyed(CUmemoryPool handle);
void pools_attribute_set(CUmemoryPool handle, CUmemPool_attribute attr, const void *value);
void pools_trim_to(CUmemoryPool handle, size_t keep);
void pools_device_changed(void);

/* Add to the driver's answer what is served here, if @attr is an amount of memory. */
void pools_add_to_attribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value);

/* The device of the pool @handle; false: it is not served here. */
bool pools_device(CUmemoryPool handle, CUdevice *dev);

/*
 * pools_now() is to be called before a wait of the driver, and the function for it after its success:
 * the frees up to that turn have passed in the stream, in @ctx (NULL: the current one), or in some
 * streams.
 */
uint64_t pools_now(void);
void pools_stream_passed(CUstream stream, uint64_t turn);
void pools_context_passed(CUcontext ctx, uint64_t turn);
void pools_some_passed(void);

/* Give back free memory, as frees_collect(); FREES_FEW does nothing. False: there was none. */
bool pools_collect(enum frees_effort effort);

/* @stream ends in the next call. Its free blocks wait for an event from now on. */
void pools_stream_ending(CUstream stream);

/* As frees_context_ending() and frees_context_lives(). */
void pools_context_ending(CUcontext ctx);
void pools_context_lives(CUcontext ctx);

/*
 * A capture is about to begin, and counts as open (captures.h). Waits a moment until no thread
 * records an event in a stream: it would become part of the capture.
 */
void pools_before_capture(void);

/* A capture ends between the two, whether it counts as open or not. */
void pools_capture_ending(void);
void pools_capture_ended(void);

#endif
