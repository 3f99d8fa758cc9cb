/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTEXTS_H
#define CUDAW_CONTEXTS_H
/*
 * The contexts of the process, and waiting until they are idle. The wrapper notes the contexts that
 * the program creates. The driver is asked for primary contexts, since a program can retain them by
 * ways that no hook sees. Thread-safe.
 *
 * No reference is kept on a primary context: the last one is always the program's, and whoever
 * releases it forgets what lived in the context. A drain that was given up may still be inside a
 * context; contexts_ending() keeps it from being used when it is gone.
 */
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>

struct context {
	CUcontext ctx;
	CUdevice dev;
	bool primary; /* asked for, not created by the program */
};

/* Zeroed: empty. Its memory is kept for the next use, until contexts_free(). */
struct context_list {
	struct context *items;
	size_t count, room;
};

/*
 * Make room for one context more: false where there is no memory. Before each creation, so that a
 * context is never unknown; the caller serialises contexts_reserve() to contexts_add().
 */
bool contexts_reserve(void);
void contexts_add(CUcontext ctx, CUdevice dev);
void contexts_remove(CUcontext ctx);

/*
 * @ctx (NULL: none) may end in the call that follows. This waits until no drain is inside it, and
 * thus for the GPU's work in it, as the end of a context does. Later no drain makes it current.
 */
void contexts_ending(CUcontext ctx);

/*
 * All contexts that live now. No call of the program may be inside the gate, and the list is valid
 * as long as none is. On failure (CUDA_ERROR_OUT_OF_MEMORY without host memory) the list is empty.
 */
CUresult contexts_get(const struct cuda_driver *drv, struct context_list *list);
void contexts_free(struct context_list *list);

/*
 * Wait until the GPU has done all work of all contexts, which are left in @list; @deadline_ms
 * (clock_ms()) at the most. Returns 0; -ETIME; -ECANCELED soon after *@cancel becomes true; -EIO
 * with the driver's error in *@error where a context is broken or cannot be asked for; -ENOMEM or
 * -EAGAIN without memory or a thread. A wait that was given up ends, in a thread of its own, with
 * the work of the context that it is in; the next call waits for that first.
 */
int contexts_drain(const struct cuda_driver *drv, struct context_list *list, double deadline_ms,
		   const bool *cancel, CUresult *error);

#endif
