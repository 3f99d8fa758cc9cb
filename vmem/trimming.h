/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRIMMING_H
#define CUDAW_TRIMMING_H
/*
 * trimming: the functions that free memory of vmem which others keep for later, before vmem_trim()
 * gives back what no allocation uses. These are entries of a section of the library, as in
 * context_gone.h. They run in no certain order, with no lock held, in any thread, and in a pause.
 */

typedef void (*trimming_fn)(void);

/* @function is to be called by vmem_trim(). */
#define VMEM_TRIMMING(function)                      \
	static const trimming_fn trimming_##function \
		__attribute__((section("cudaw_trimming"), used)) = (function)

void trimming_run(void);

#endif
