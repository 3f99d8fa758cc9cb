/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_POOL_PASSED_H
#define CUDAW_HOOKS_POOL_PASSED_H
/*
 * Waits of the program show that stream-ordered frees have passed. Their memory goes to their pools, and what
 * these have too much of goes back to vmem, as memory of no pool does (frees.h). For any thread, without pools_lock.
 */
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The program destroyed the pool that had @id before (pool_id()), or trimmed the pool @handle. To be
 * called after the driver's own call has succeeded. For pools that are unknown they do nothing.
 */
void pools_destroyed(uint64_t id);
void pools_trim_to(CUmemoryPool handle, size_t keep);

/*
 * A wait of the driver has succeeded, before which streams_now() was @serial: the frees up to that serial
 * have passed in the stream, in @ctx (NULL: the current one), or in some streams.
 */
void pools_stream_passed(CUstream stream, uint64_t serial);
void pools_context_passed(CUcontext ctx, uint64_t serial);
void pools_some_passed(void);

/* Give back free memory, as frees_collect(FREES_PASSED) does. */
void pools_collect(void);

#endif
