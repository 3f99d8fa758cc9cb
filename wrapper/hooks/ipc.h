/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_IPC_H
#define CUDAW_IPC_H
/*
 * Legacy IPC (cuIpcGetMemHandle()) of carried memory. Its 64 bytes name the memory, as a ticket does
 * (checkpoint/sharing/format.h), and a process that opens them imports it piece by piece. Other
 * handles are the driver's.
 */
#include "vmem/vmem.h"

/*
 * True if @ptr is in memory that the program has opened, and cudaw carries. @info, unless it is NULL,
 * is the memory around it that the handle shows, except the device. Its id is no allocation's.
 */
bool ipc_lookup(CUdeviceptr ptr, struct vmem_info *info);

#endif
