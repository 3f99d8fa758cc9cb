/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_CARRIED_H
#define CUDAW_HOOKS_CARRIED_H
/* What memory that processes share by descriptors (exports.c), and by legacy handles (ipc.c), have in common. */
#include "vmem/objects/objects.h"

#include <cuda.h>
#include <stdbool.h>

/*
 * Whether memory of cuMemCreate() is carried. With native addressing cudaw leaves all mappings alone, and so
 * it does with translated addresses: vmem does not call the driver then, but translate.h in its place.
 */
bool carried_is_on(void);

/*
 * Import memory of another process. While a pause has the exporter's memory, the call waits, as all
 * calls do while the GPU is given back: natively the import succeeds. The caller is outside the gate,
 * and so is the wait, so that this process can be paused as well.
 */
CUresult carried_import(const struct object_name *name, CUmemGenericAllocationHandle *handle);

#endif
