/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CURRENT_H
#define CUDAW_CURRENT_H
/*
 * The current context of the calling thread, also for a call of the driver on behalf of another one; and its
 * default stream.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* NULL: there is none. */
CUcontext current_context(void);

/* The stream that @stream is for a function ..._ptsz(). */
static inline CUstream per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

/* The handles of default streams are small numbers, and stand for the current context's. */
static inline bool stream_is_default(CUstream stream)
{
	return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}

/* Make @ctx (NULL: any) current. *@pushed: current_leave() has to make the old one current again. */
CUresult current_enter(CUcontext ctx, bool *pushed);
void current_leave(bool pushed);

/*
 * The error that the current context has for good after a kernel's fault, as the driver's own calls
 * return it; CUDA_SUCCESS without one, or without a context. The driver is asked for a limit, which
 * takes 0.05 us [H200, driver 580.159; cuCtxGetDevice() does not say it, cuStreamQuery() takes 1.5].
 */
CUresult current_error(void);

#endif
