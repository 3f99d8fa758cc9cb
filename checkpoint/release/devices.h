/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DEVICES_H
#define CUDAW_DEVICES_H
/*
 * The GPUs that this process sees, by ordinal: first as they were when the process began to use
 * CUDA, since the driver cannot be asked during its checkpoint, and later as restores moved the
 * process to other GPUs.
 *
 * For the control thread and for the operation under way. The list changes only between operations.
 */
#include "common/gpu/gpu.h"

#include <cuda.h>
#include <stddef.h>

struct cuda_driver;

/* Ask the driver, before there is a control thread, and tell the quotas (common/protocol/quota.h). */
void devices_find(const struct cuda_driver *drv);

/* There are *@count, at most GPU_MAX. Valid until the process ends. */
const struct gpu *devices_all(size_t *count);

/* In each pair that names a GPU of the process, the other GPU takes its place. */
void devices_move(const CUcheckpointGpuPair *pairs, size_t count);

#endif
