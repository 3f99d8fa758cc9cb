/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MANAGED_H
#define CUDAW_MANAGED_H
/*
 * Managed memory (cuMemAllocManaged) in a pause that keeps the context. The driver migrates it
 * between GPU and host by itself, so cudaw moves it to the host and does nothing at the resume: the
 * program's kernels bring back the pages that they touch.
 */
#include "vmem/driver.h"

/*
 * Move all managed memory to the host, by a stream of @ctx. The GPU is idle, and no call of the
 * program is inside the gate. *@bytes becomes its size. Returns the driver's error;
 * CUDA_ERROR_OUT_OF_MEMORY too if the host has no room for all of it, and then nothing moved;
 * CUDA_ERROR_NOT_SUPPORTED: the driver is older than 12.2.
 */
CUresult managed_to_host(const struct cuda_driver *drv, CUcontext ctx, size_t *bytes);

#endif
