/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_IPC_H
#define CUDAW_IPC_H
/*
 * Legacy IPC (cuIpcGetMemHandle()) of carried memory. Its 64 bytes name the memory, as a ticket does
 * (checkpoint/sharing/format.h), and a process that opens them imports it piece by piece. They come from
 * other processes, so they are checked; numbers are little-endian. Other handles are the driver's.
 *
 *	0	magic, 8 bytes
 *	8	version, 4
 *	12	pid of the exporter, 4
 *	16	its instance, 16
 *	32	key of the region, 16 (vmem/shared.h)
 *	48	size of the region, 8
 *	56	offset of the allocation in it, 8
 */
#include <cuda.h>
#include <stdbool.h>

/* True if @ptr is in memory that the program has opened, and cudaw carries. */
bool ipc_has(CUdeviceptr ptr);

#endif
