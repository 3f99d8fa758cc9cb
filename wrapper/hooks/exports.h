/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_EXPORTS_H
#define CUDAW_EXPORTS_H
/* What memory that processes share by descriptors, and by legacy handles (ipc.c), have in common. */
#include "vmem/objects.h"

/*
 * With native addressing cudaw leaves all mappings alone, and so it does with translated addresses:
 * vmem does not call the driver then, but translate.h in its place.
 */
bool exports_carries(void);

/*
 * Import memory of another process. While a pause has the exporter's memory, the call waits, as all
 * calls do while the GPU is given back: natively the import succeeds. The caller is outside the gate,
 * and so is the wait, so that this process can be paused as well.
 */
CUresult shared_import(const struct object_name *name, CUmemGenericAllocationHandle *handle);

#endif
