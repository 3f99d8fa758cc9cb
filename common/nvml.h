/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_NVML_H
#define CUDAW_NVML_H
/*
 * How many GPUs there are, and how much memory one has free and this process holds, asked of NVML,
 * which needs no context. libnvidia-ml.so.1 is opened at the first question. Thread-safe. In a
 * process that the driver's checkpoint holds these calls block until it is restored [H200, driver
 * 580.159]: see freemem.h.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define NVML_UUID_SIZE 41 /* "GPU-" and 32 digits with 4 dashes, and the terminating zero */

/* Open the library, by the loader's lock: see release_find(). */
void nvml_open(void);

/* The GPU's name among NVIDIA's tools, "GPU-6e9a...". Opens nothing. */
void nvml_uuid_text(const CUuuid *uuid, char text[NVML_UUID_SIZE]);

/* The reverse. False where @text is no such name. */
bool nvml_uuid_parse(const char *text, CUuuid *uuid);

/* Bytes that the GPU named @uuid has free. 0, or -ENOSYS where NVML is missing or cannot tell. */
int nvml_free_memory(const char *uuid, size_t *bytes);

/*
 * Bytes that this process holds on the GPU named @uuid, its context included. 0; -ENOSYS as above,
 * or where NVML does not list this process (in a container it may know only the host's PIDs).
 */
int nvml_process_memory(const char *uuid, size_t *bytes);

/*
 * GPUs of this machine, or container, whatever CUDA_VISIBLE_DEVICES says. 0, or -ENOSYS where NVML
 * is missing or cannot tell.
 */
int nvml_device_count(unsigned int *count);

#endif
