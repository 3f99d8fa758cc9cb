/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_LAUNCH_H
#define CUDAW_WRAPPER_LAUNCH_H
/* The parameters of a launch that come packed into a buffer, in the `extra` of cuLaunchKernel(). */
#include "kparams/kparams.h"

#include <cuda.h>
#include <stddef.h>

/*
 * A kernel has at most 32,764 bytes of parameters (CUDA 12.1); a struct of them may end with
 * padding.
 */
#define LAUNCH_PACKED_MAX 32768

/* The buffer that @extra describes, and its *@size; NULL: there is none. */
static inline char *launch_packed(void **extra, size_t *size)
{
	char *buffer = NULL;

	*size = 0;
	for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*size = *(const size_t *)extra[1];
		else
			return NULL;
	}
	return buffer;
}

/*
 * How many bytes of @param a buffer of @size has. The program may leave out bytes at the end that
 * the kernel does not read, as NCCL does with a parameter of 4 KiB.
 */
static inline size_t launch_packed_part(const struct kp_param *param, size_t size)
{
	if (param->offset >= size)
		return 0;
	return param->size < size - param->offset ? param->size : size - param->offset;
}

#endif
