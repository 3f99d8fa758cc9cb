/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_ACROSS_H
#define CUDAW_WRAPPER_ACROSS_H
/*
 * across: copies that reach memory of another device. The driver makes them without peer access,
 * from and to memory of cuMemAlloc(). From and to mapped memory it makes them only if the device
 * that copies has access to the mapping, and else returns CUDA_ERROR_INVALID_VALUE [H200, driver
 * 580.159]. So a copy that fails in this way is made once more, after the devices concerned have
 * got access to each other's memory. They keep it, so this happens once for a pair of devices. If
 * the devices are not able to access each other's memory, a copy of which the whole is known is made
 * by cuMemcpyPeer() or cuMemcpy3DPeer(), which need access for neither device. (PyTorch and llama.cpp
 * rely on that for mapped memory; we have not seen it.)
 *
 * Memory that is open by legacy IPC is mapped, too, for the device that was current at the open. Here
 * even a copy on the device that has the memory may lack access.
 *
 * Sets are not among these calls: they need peer access natively, too.
 *
 * These are the functions that driver.words names under "across". Each adds to @a the devices that
 * one argument of the call concerns. Memory that neither vmem nor ipc.h knows is left out.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct across {
	uint64_t owners; /* devices of which the call touches allocations, as bits */
	uint64_t opened; /* devices of which it touches memory that is open by legacy IPC */
	uint64_t users;  /* devices that may run it */
	/* The whole of a copy; WidthInBytes is 0 if it is not known. */
	CUDA_MEMCPY3D_PEER copy;
	bool linear; /* it is one run of bytes */
};

void across_range(struct across *a, CUdeviceptr ptr);
/* A copy of one run of bytes. */
void across_linear(struct across *a, CUdeviceptr dst, CUdeviceptr src, size_t bytes);
void across_copy_2d(struct across *a, const CUDA_MEMCPY2D_v2 *copy);
void across_copy_3d(struct across *a, const CUDA_MEMCPY3D_v2 *copy);
void across_copy_3d_peer(struct across *a, const CUDA_MEMCPY3D_PEER *copy);
void across_copy_batch(struct across *a, const CUdeviceptr *dsts, const CUdeviceptr *srcs,
		       size_t count);
void across_copy_3d_batch(struct across *a, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count);
/* Of any type: only copies count. */
void across_node(struct across *a, const CUgraphNodeParams *node);

/* Where the call runs; for each parameter of these types. NULL adds nothing. */
void across_stream(struct across *a, CUstream stream);
void across_context(struct across *a, CUcontext ctx);

/*
 * Let the devices, and that of the current context, copy from and to each other's memory, and to
 * opened memory, if they are able to access it. False: no device needs that, or is able to.
 */
bool across_grant(struct across *a);

/* How the call copies. */
#define ACROSS_ASYNC      1
#define ACROSS_PER_THREAD 2 /* the null stream is the thread's own */

/*
 * Make the copy by a call that gets the contexts of both sides. CUDA_ERROR_INVALID_VALUE if it does
 * not copy between the memory of two devices, or the whole of it is not known.
 */
CUresult across_staged(struct across *a, CUstream stream, unsigned int how);

#endif
