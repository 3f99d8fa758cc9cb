/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_GPU_H
#define CUDAW_GPU_H
/* A GPU, as this process and its snapshots know it. */
#include "common/gpu/nvml.h"

#include <stddef.h>

/* The most GPUs that cudaw handles: the bits of a word. Further ones are left to the driver. */
#define GPU_MAX 64

struct gpu {
	char uuid[NVML_UUID_SIZE];
	char name[64];
	size_t memory;    /* bytes */
	int major, minor; /* compute capability */
};

#endif
