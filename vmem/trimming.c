/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/trimming.h"

/* The linker's names for the section's ends; both NULL if nothing is in it. */
extern const trimming_fn __start_cudaw_trimming[] __attribute__((weak, visibility("hidden")));
extern const trimming_fn __stop_cudaw_trimming[] __attribute__((weak, visibility("hidden")));

void trimming_run(void)
{
	for (const trimming_fn *function = __start_cudaw_trimming; function < __stop_cudaw_trimming;
	     function++)
		(*function)();
}
