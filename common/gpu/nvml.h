/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_NVML_H
#define CUDAW_NVML_H
/*
 * Questions to NVML, which needs no context: how many GPUs there are, how much memory of a GPU is
 * free, and which processes hold how much. The first question opens libnvidia-ml.so.1. Thread-safe.
 * In a process that the driver's checkpoint holds, these calls block until it is restored [H200,
 * driver 580.159]: see freemem.h.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define NVML_UUID_SIZE 41 /* "GPU-" and 32 digits with 4 dashes, and the terminating zero */

/*
 * The NVML face, which shows a job's memory limit, has a function of this name, of type void *(void), that
 * gives the real library (wrapper/face/nvml_face.c). We ask that.
 */
#define NVML_FACE_REAL "cudaw_real_nvml"

/* Open the library, under the loader's lock: see release_find(). */
void nvml_open(void);

/* The GPU's name in NVIDIA's tools, "GPU-6e9a...". Does not open the library. */
void nvml_uuid_text(const CUuuid *uuid, char text[NVML_UUID_SIZE]);

/* The reverse. False if @text is not such a name. */
bool nvml_uuid_parse(const char *text, CUuuid *uuid);

/*
 * The bytes free on the GPU named @uuid. Returns 0, or -ENOSYS if NVML is missing or does not know.
 */
int nvml_free_memory(const char *uuid, size_t *bytes);

/* The same, and the bytes that the GPU has. */
int nvml_memory(const char *uuid, size_t *total, size_t *free);

/*
 * The bytes that this process holds on the GPU named @uuid, its context included. Returns 0, or
 * -ENOSYS as above, or if NVML does not list this process (in a container it may know only the
 * host's PIDs).
 */
int nvml_process_memory(const char *uuid, size_t *bytes);

/* The same for the process @pid. */
int nvml_memory_of(const char *uuid, pid_t pid, size_t *bytes);

/* A process that holds memory of a GPU. */
struct nvml_holder {
	pid_t pid; /* in a container perhaps the host's */
	size_t bytes;
};

#define NVML_HOLDERS 256 /* on one GPU; further ones are left out */

/*
 * The processes with contexts on the GPU named @uuid, the largest first. Returns how many there
 * are, or -ENOSYS as above. A process of which NVML does not know the bytes is left out.
 */
int nvml_holders(const char *uuid, struct nvml_holder holders[NVML_HOLDERS]);

/*
 * The number of GPUs of this machine or container, whatever CUDA_VISIBLE_DEVICES says. Returns 0,
 * or -ENOSYS as above.
 */
int nvml_device_count(unsigned int *count);

/*
 * The UUID of the GPU that NVML, and so nvidia-smi, gives the number @index. Returns 0, or -ENOSYS
 * as above, or if there is no such GPU.
 */
int nvml_device_uuid(unsigned int index, char text[NVML_UUID_SIZE]);

#endif
