/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_FENCE_H
#define CUDAW_HOOKS_FENCE_H
/*
 * Waiting for all work of a context, as a free does, beside stream captures.
 *
 * cuCtxSynchronize() fails while a capture is open, and breaks the capture. The real cuMemFree() of
 * a small allocation waits as well, and leaves captures of all modes valid if its thread is in
 * relaxed mode. It takes 5 us, and 67 us if no other small allocation of the context is alive
 * [H200, driver 580.159]. So from the first capture of the process on, cudaw waits by such a fence.
 *
 * The driver puts small allocations into blocks of 2 MiB. In each context that has memory of ours one
 * allocation of 512 bytes, the anchor, keeps a block: then there is room for a fence even if the GPU is
 * full. It is made ahead, as the GPU may be full when the first capture begins. The anchor belongs to the
 * context, like the driver's own memory: it ends with it, and at a pause it is left to the driver.
 */
#include <cuda.h>

/*
 * To be called before an allocation for @ctx, which is current, or of which the current one is a green
 * one: gives it an anchor. If there is no memory for it, the next call tries again.
 */
void fence_reserve(CUcontext ctx);

/*
 * To be called before the driver begins a capture; entering_wait() has to follow (entering.h): a capture that
 * begins once other threads are inside cuCtxSynchronize() does not concern them.
 */
void fence_before_capture(void);

/*
 * Wait for all work of @ctx, which is current. Fails with CUDA_ERROR_OUT_OF_MEMORY if a capture is
 * open, and there is neither an anchor nor memory for it.
 */
CUresult fence_wait(CUcontext ctx);

/*
 * Allow the thread what captures of other threads forbid, until fence_unrelax() with the mode that
 * this returns. Such a capture may also begin in between, the first of the process, too.
 */
CUstreamCaptureMode fence_relax(void);
void fence_unrelax(CUstreamCaptureMode mode);

#endif
