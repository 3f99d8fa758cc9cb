/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRANSFER_H
#define CUDAW_TRANSFER_H
/*
 * Moving GPU memory to host memory and back, by many threads.
 *
 * The unit is the granule of vmem (2 MiB). What is kept of a granule lies in a slot of the same
 * size; slots are numbered, those of the host pool first and those of the spill file behind them:
 *
 *	slot	0 .. 7		8 .. 15		...	| pool_slots ..
 *	where	block 0		block 1		...	| spill file, from its start
 *
 * A granule that holds nothing, or nothing but zeros, has no slot. That it is all zeros is found by
 * the GPU (digest.h), a piece at a time just before it is copied, so that the bus never waits.
 *
 * What is to be moved comes in pieces of some granules; each worker takes the next one. Where the
 * host memory is pinned, the GPU copies to or from it directly. Where it is not, and for the spill
 * file, the worker copies through two small pinned buffers of its own, so that the bus fills one
 * while the CPU empties the other. Pinning costs 20 ms a GiB, which no number of threads makes much
 * faster, and the driver's checkpoint unpins and pins all of it again; so memory is pinned only
 * where it stays so. [H200, 16 cores, 32 GiB: pinned 55 GB/s, through buffers 42 GB/s into memory
 * that is present and 29 GB/s into fresh memory, pinning it on the way 24 GB/s]
 */
#include "checkpoint/engine/digest.h"
#include "common/workers.h"
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSFER_WORKERS 16
#define TRANSFER_PIECE   (64UL << 20) /* the largest piece */

/* Slot numbers of granules that have none. */
#define SLOT_NONE 0xffffffffU /* no allocation lives in it */
#define SLOT_ZERO 0xfffffffeU
#define SLOT_MAX  0xfffffff0U

struct transfer_piece {
	CUcontext ctx;
	CUdeviceptr dev;
	size_t first; /* granule: index into slots and digests */
	size_t count;
};

enum transfer_direction {
	TRANSFER_SCAN, /* find the slots that OUT would need, and copy nothing */
	TRANSFER_OUT,
	TRANSFER_IN,
};

struct transfer {
	const struct cuda_driver *drv;
	enum transfer_direction direction;
	const struct transfer_piece *pieces;
	size_t count;
	size_t bytes;    /* of all pieces */
	uint32_t *slots; /* of each granule; OUT gives one to what is not SLOT_NONE */
	size_t pool_slots;
	/*
	 * SCAN and OUT write the digests of all granules here; IN compares with them. NULL: zeros
	 * are copied as anything else, and nothing is compared.
	 */
	struct digest *digests;
	const struct digest_kernel *kernels; /* of every context, where there are digests */
	size_t *done;                        /* bytes finished, added to atomically */
	const bool *cancel;                  /* set by others: stop; may be NULL */
	/* OUT: called by the workers when a piece has arrived; NULL: not. */
	void (*arrived)(void *arg, size_t piece);
	void *arg;

	/* What transfer_run() leaves, and its workers use. */
	size_t next_slot; /* the slots that were needed */
	struct workers workers;
	CUresult error;
	CUdeviceptr differs; /* the granule that came back different */
	/*
	 * It failed, and the driver does not say that its copies have ended: the memory that they
	 * write must stay. The buffers do, for good.
	 */
	bool unsettled;
};

/*
 * Move all pieces and wait until they have arrived. Returns 0; -ENOMEM where host pages could not
 * be had; -ECANCELED; -EIO with the driver's error in @error; -EILSEQ where a granule is not what
 * it was; another negative errno of the spill file. The GPU must be idle and nobody else may touch
 * the memory. No context is current afterwards.
 */
int transfer_run(struct transfer *transfer);

#endif
