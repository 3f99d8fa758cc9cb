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

#define CONTEXTS_MAX 256

struct context {
	CUcontext ctx;
	CUdevice dev;
	bool primary; /* retained by contexts_get() */
};

void contexts_add(CUcontext ctx, CUdevice dev);
void contexts_remove(CUcontext ctx);

/*
 * All contexts that live now: at most @max, the count returned. Primary contexts among them are
 * retained until contexts_put() with the same array. With the gate closed only: a context must not
 * be destroyed meanwhile.
 */
size_t contexts_get(const struct cuda_driver *drv, struct context *list, size_t max);
void contexts_put(const struct cuda_driver *drv, const struct context *list, size_t count);

/*
 * Wait until the GPU has done all work of all contexts, which are left in @list (CONTEXTS_MAX of
 * them, not retained) and *@count; @deadline_ms (gate_now_ms()) at the most. Returns 0; -ETIME;
 * -ECANCELED soon after *@cancel becomes true; -EIO with the driver's error in *@error where a
 * context is broken. A wait that was given up goes on in a thread of its own until the work ends;
 * the next call waits for it first.
 */
int contexts_drain(const struct cuda_driver *drv, struct context *list, size_t *count,
		   double deadline_ms, const bool *cancel, CUresult *error);

/* In the child of a fork: there are none. */
void contexts_after_fork(void);

#endif
