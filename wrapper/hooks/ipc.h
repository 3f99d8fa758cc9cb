/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_IPC_H
#define CUDAW_IPC_H
/*
 * Legacy IPC (cuIpcGetMemHandle()) of carried memory. Its 64 bytes name the memory, as a ticket does
 * (checkpoint/sharing/format.h), and a process that opens them imports it piece by piece. Other
 * handles are the driver's.
 */
#include <cuda.h>
#include <stdbool.h>

/* True if @ptr is in memory that the program has opened, and cudaw carries. */
bool ipc_has(CUdeviceptr ptr);

#endif
