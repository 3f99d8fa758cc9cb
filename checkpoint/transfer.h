/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRANSFER_H
#define CUDAW_TRANSFER_H
/*
 * Moving GPU memory to host memory and back, by many threads.
 *
 * What is to be moved is cut into pieces of at most TRANSFER_PIECE. Each worker takes the next
 * piece, makes its host pages present, registers them with the driver (pins them) and copies on a
 * stream of its own, so that touching and pinning some pieces goes on while others cross the bus:
 * one thread touches fresh memory at 4 GB/s, the bus takes 55 GB/s [H200]. Where a piece cannot be
 * registered it is copied from pageable memory: slower, and just as right.
 */
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>

#define TRANSFER_PIECE	 (64UL << 20)
#define TRANSFER_WORKERS 16

struct transfer_piece {
	CUcontext ctx;
	CUdeviceptr dev;
	char *host;
	size_t size;
	bool registered;
};

enum transfer_direction { TRANSFER_OUT, TRANSFER_IN, TRANSFER_UNREGISTER };

/*
 * Move @count pieces and wait until all have arrived; TRANSFER_UNREGISTER unpins their host memory
 * instead. *@done counts the bytes on the way (atomically, for progress). Returns 0; -ENOMEM where
 * host pages could not be had; -EIO with the driver's error in *@error. The GPU must be idle and
 * nobody else may touch the memory. After a failure pieces may be registered: unregister them.
 */
int transfer_run(const struct cuda_driver *drv, enum transfer_direction direction,
		 struct transfer_piece *pieces, size_t count, size_t *done, CUresult *error);

#endif
