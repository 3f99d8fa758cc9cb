/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTEXT_GONE_H
#define CUDAW_CONTEXT_GONE_H
/*
 * context_gone: the functions that forget what lived in a CUDA context, once it is gone. A module
 * that knows objects of contexts has such a function, by CONTEXT_GONE. These are entries of a
 * section of the library, as in common/system/forks.h: nothing is registered at run time, and the hooks of
 * contexts call no module by name.
 *
 * The functions run in no certain order, and they need none: each looks only at the table of its
 * own module, under the lock of that module. Behind all of them vmem gives the addresses of the
 * context's memory to others: no table names the addresses any more. The caller holds the lock under
 * which contexts begin and end, so no new context has the same handle yet. But other objects may have
 * the handles of those that have ended with the context. A function may call the driver, but not in
 * the context.
 */
#include <cuda.h>

typedef void (*context_gone_fn)(CUcontext ctx);

/* @function is to be called with each context that is gone. */
#define CONTEXT_GONE(function)                               \
	static const context_gone_fn context_gone_##function \
		__attribute__((section("cudaw_context_gone"), used)) = (function)

/* @ctx is gone: call all functions, and vmem_release_context(). */
void context_gone(CUcontext ctx);

#endif
