/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_GREEN_H
#define CUDAW_GREEN_H
/*
 * The green contexts of the process: parts of a device, by cuGreenCtxCreate(). Each keeps the
 * device's primary context alive. cuCtxFromGreenCtx() gives a CUcontext of its own, which the driver
 * returns as the current one, but the memory that is allocated in it belongs to the primary context,
 * and lives on when the green one ends. cuCtxSynchronize() of the primary context waits for their
 * work, so a pause need not drain them [H200, driver 580.159]. Thread-safe.
 */
#include <cuda.h>
#include <stdbool.h>

struct green {
	CUgreenCtx handle;
	CUcontext ctx; /* of cuCtxFromGreenCtx(); NULL before that */
	CUcontext primary;
	CUdevice dev;
};

/*
 * Make room for one more green context. False if there is no memory. It is called before each
 * creation; the caller serialises green_reserve() to green_add().
 */
bool green_reserve(void);
void green_add(CUgreenCtx handle, CUcontext primary, CUdevice dev);

/* cuCtxFromGreenCtx() gave @ctx for it. */
void green_set_context(CUgreenCtx handle, CUcontext ctx);

/* False: it is unknown. */
bool green_get(CUgreenCtx handle, struct green *green);
void green_remove(CUgreenCtx handle);

/* The context that owns the memory which is allocated in @ctx: of a green one the primary one. */
CUcontext green_owner(CUcontext ctx);

#endif
