/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTEXTS_H
#define CUDAW_CONTEXTS_H
/*
 * The contexts of the process, and waiting until they are idle. The wrapper records the contexts
 * that the program creates. The driver is asked about primary contexts, since a program can retain
 * them in ways that no hook sees. Thread-safe.
 *
 * cudaw keeps no reference on a primary context: the last one is always the program's, and its
 * release also forgets the records of objects in the context. An abandoned drain may still be
 * inside a context; contexts_ending() prevents its use after the end.
 */
#include "vmem/cuda_driver.h"

#include <stdbool.h>
#include <stddef.h>

struct context {
	CUcontext ctx;
	CUdevice dev;
	bool primary; /* known from the driver, not created by the program */
};

/* Zeros are an empty list. Its memory is kept for the next use, until contexts_free(). */
struct context_list {
	struct context *items;
	size_t count, room;
};

/*
 * Make room for one more context. False if there is no memory. It is called before each creation,
 * so that no context stays unknown. The caller serialises contexts_reserve() to contexts_add().
 */
bool contexts_reserve(void);
void contexts_add(CUcontext ctx, CUdevice dev);
void contexts_remove(CUcontext ctx);

/* True if the program created @ctx: it is no primary one. */
bool contexts_created(CUcontext ctx);

/* The program has retained the primary context of @dev, or that has ended. */
void contexts_set_primary(CUdevice dev, bool active);

/* True if there is a context on @dev. Asks no driver. */
bool contexts_on(CUdevice dev);

/*
 * @ctx (NULL: none) may end in the next call. This waits until no drain is inside it, and thus for
 * the GPU's work in it, as the end of a context does. No later drain makes it current.
 */
void contexts_ending(CUcontext ctx);

/*
 * All contexts that exist now. The list is valid as long as no context ends: while no call of the program is
 * inside the gate, or the caller holds the lock of wrapper/context_lock.h. On failure
 * (CUDA_ERROR_OUT_OF_MEMORY without host memory) the list is empty.
 */
CUresult contexts_get(const struct cuda_driver *drv, struct context_list *list);
void contexts_free(struct context_list *list);

/*
 * Wait until the GPU has done all work of all contexts, at most until @deadline_ms (limits_ms()),
 * and put the contexts in @list. Returns 0; -ETIME; -ECANCELED soon after *@cancel becomes true;
 * -EIO with the driver's error in *@error if a context is broken or the driver cannot be asked;
 * -ENOMEM or -EAGAIN without memory or a thread. An abandoned wait ends, in a thread of its own,
 * with the work of its current context; the next call waits for that first.
 */
int contexts_drain(const struct cuda_driver *drv, struct context_list *list, double deadline_ms,
		   const bool *cancel, CUresult *error);

#endif
