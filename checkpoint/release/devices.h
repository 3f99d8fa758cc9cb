/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DEVICES_H
#define CUDAW_DEVICES_H
/*
 * The GPUs that this process sees, by ordinal: as they were when it first used CUDA, since the
 * driver cannot be asked while it is in its checkpoint, and then as restores moved the process to
 * others.
 *
 * For the control thread, and for the operation under way: they change while there is none.
 */
#include "vmem/driver.h"
#include "common/gpu.h"

/* Ask the driver, before there is a control thread. */
void devices_find(const struct cuda_driver *drv);

/* There are *@count. Valid until the process ends. */
const struct gpu *devices_all(size_t *count);

/* The process goes on on the other GPU of each pair that names one of its own. */
void devices_move(const CUcheckpointGpuPair *pairs, size_t count);

#endif
