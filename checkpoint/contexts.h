/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTEXTS_H
#define CUDAW_CONTEXTS_H
/*
 * The contexts of the process, and waiting until they are idle. Contexts that the program creates
 * are noted by the wrapper; primary contexts are asked for, since they can be retained on ways that
 * no hook sees. Thread-safe.
 */
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>

#define CONTEXTS_MAX 320 /* the primary ones of CUDA_MAX_DEVICES, and what the program creates */

struct context {
	CUcontext ctx;
	CUdevice dev;
	bool primary; /* asked for, not created by the program */
};

void contexts_add(CUcontext ctx, CUdevice dev);
void contexts_remove(CUcontext ctx);

/*
 * All contexts that live now: @list has room for CONTEXTS_MAX. Primary ones are retained until
 * contexts_put(). No call of the program may be inside the gate. On failure *@count is 0.
 */
CUresult contexts_get(const struct cuda_driver *drv, struct context *list, size_t *count);
void contexts_put(const struct cuda_driver *drv, const struct context *list, size_t count);

/*
 * Wait until the GPU has done all work of all contexts, which are left in @list (CONTEXTS_MAX of
 * them, not retained) and *@count; @deadline_ms (gate_now_ms()) at the most. Returns 0; -ETIME;
 * -ECANCELED soon after *@cancel becomes true; -EIO with the driver's error in *@error where a
 * context is broken or cannot be asked for. A wait that was given up goes on in a thread of its own
 * until the work ends; the next call waits for it first.
 */
int contexts_drain(const struct cuda_driver *drv, struct context *list, size_t *count,
		   double deadline_ms, const bool *cancel, CUresult *error);

#endif
