/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SAMPLER_H
#define CUDAW_SAMPLER_H
/*
 * Asks NVML how much memory of a GPU is free, and who has the rest, in a child process: NVML may block, and its first
 * question takes long. The child has no descriptor of its parent, and ends with it.
 */
#include "common/gpu/nvml.h"

#include <stddef.h>

struct sample {
	char uuid[NVML_UUID_SIZE];
	size_t total, free; /* bytes; 0, 0: NVML does not know */
	int nholders;       /* 0 also if NVML does not know them */
	struct nvml_holder holders[NVML_HOLDERS];
};

/* The child that is asked, a descriptor to wait on (POLLIN); -1: there is none. */
int sampler_fd(void);

/* Ask for a sample of the GPU @uuid, which comes later. Starts the child. Returns 0 or a negative errno. */
int sampler_ask(const char *uuid);

/* The next answer that has come. Returns 1, 0 if there is none, or a negative errno: the child has ended. */
int sampler_take(struct sample *sample);

#endif
