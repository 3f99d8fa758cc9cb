/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRANSFER_H
#define CUDAW_TRANSFER_H
/*
 * Moving GPU memory to host memory and back, by many threads.
 *
 * What is to be moved comes in pieces; each worker takes the next one. Where the host memory of a
 * piece is pinned, the GPU copies to or from it directly. Where it is not, the worker copies
 * through two small pinned slots of its own, so that the bus fills one while the CPU empties the
 * other. Pinning costs 20 ms a GiB, which no number of threads makes much faster, and the driver's
 * checkpoint unpins and pins all of it again; so memory is pinned only where it stays so. [H200, 16
 * cores, 32 GiB: pinned 55 GB/s, through slots 42 GB/s into memory that is present and 29 GB/s
 * into fresh memory, pinning it on the way 24 GB/s]
 */
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>

#define TRANSFER_WORKERS 16
#ifndef TRANSFER_SLOT
#define TRANSFER_SLOT (4UL << 20) /* two of them a worker */
#endif

struct transfer_piece {
	CUcontext ctx;
	CUdeviceptr dev; /* not used by TRANSFER_PIN and TRANSFER_UNPIN */
	char *host;
	size_t size;
	bool *pinned; /* whether @host is; written by TRANSFER_PIN and TRANSFER_UNPIN */
};

enum transfer_direction { TRANSFER_OUT, TRANSFER_IN, TRANSFER_PIN, TRANSFER_UNPIN };

struct transfer {
	const struct cuda_driver *drv;
	enum transfer_direction direction;
	struct transfer_piece *pieces;
	size_t count;
	size_t *done;       /* bytes finished, added to atomically */
	const bool *cancel; /* stop before the next piece where it becomes true; may be NULL */

	/* What transfer_run() leaves, and its workers use. */
	size_t next;
	int result;
	CUresult error;
};

/*
 * Move all pieces and wait until they have arrived. Returns 0; -ENOMEM where host pages could not
 * be had; -ECANCELED; -EIO with the driver's error in @error. The GPU must be idle and nobody else
 * may touch the memory. A piece that cannot be pinned or unpinned is left as it is.
 */
int transfer_run(struct transfer *transfer);

#endif
