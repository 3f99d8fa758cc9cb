/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/context_gone.h"
#include "vmem/vmem.h"

/* The linker's names for the section's ends. */
extern const context_gone_fn __start_cudaw_context_gone[] __attribute__((visibility("hidden")));
extern const context_gone_fn __stop_cudaw_context_gone[] __attribute__((visibility("hidden")));

void context_gone(CUcontext ctx)
{
	for (const context_gone_fn *function = __start_cudaw_context_gone;
	     function < __stop_cudaw_context_gone; function++)
		(*function)(ctx);
	vmem_release_context(ctx);
}
