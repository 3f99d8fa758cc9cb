/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_IPC_H
#define CUDAW_IPC_H
/*
 * Legacy IPC (cuIpcGetMemHandle()) of carried memory. Its 64 bytes name the memory, as a ticket does
 * (checkpoint/sharing/messages.h), and a process that opens them imports it piece by piece. Other
 * handles are the driver's.
 */
#include "vmem/vmem.h"

/*
 * True if @ptr is in memory that the program has opened, and cudaw carries. @info, unless it is NULL,
 * is the memory around it that the handle shows. Its id is no allocation's; its device is
 * CU_DEVICE_INVALID if the driver does not say which one has the memory.
 */
bool ipc_lookup(CUdeviceptr ptr, struct vmem_info *info);

/* True if a part of the @size bytes from @ptr is such memory. */
bool ipc_overlaps(CUdeviceptr ptr, size_t size);

/*
 * Allow copies that run on @dev access to all memory of @owner that is open now; kernels have the
 * access, too. False: there is none to which the open has not given it, or the driver refuses.
 */
bool ipc_copies_enable(CUdevice dev, CUdevice owner);

#endif
