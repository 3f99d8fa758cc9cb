/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRANSFER_H
#define CUDAW_TRANSFER_H
/*
 * Moving GPU memory to host memory and back, by many threads.
 *
 * The unit is the granule of vmem (2 MiB). A granule that is kept has a slot of the same size.
 * Slots are numbered, those of the host pool first, then those of the spill file:
 *
 *	slot	0 .. 7		8 .. 15		...	| pool_slots ..
 *	where	block 0		block 1		...	| spill file, from its start
 *
 * A granule that is empty, or all zeros, has no slot. The GPU finds zeros (digest.h), a piece at a
 * time just before the piece is copied, so that the bus never waits.
 *
 * A transfer consists of pieces of some granules. Each worker takes the next one of its GPU, so that the links of all
 * GPUs are in use; or of another GPU, when its own has none left. If the pieces are to go in order, each takes the next
 * one of all. If the host memory is pinned, the GPU copies to or from it directly. Otherwise, and for the spill file, the
 * worker copies through two small pinned buffers of its own: the bus fills one while the CPU
 * empties the other. Pinning costs 20 ms a GiB, which no number of threads makes much faster, and
 * the driver's checkpoint unpins and pins all of it again; so only memory that stays pinned is
 * pinned. [H200, 16 cores, 32 GiB: pinned 55 GB/s, through buffers 42 GB/s into memory that is
 * present and 29 GB/s into fresh memory, pinning it on the way 24 GB/s] If host memory is too short for the
 * buffers, the driver copies from and to memory that is not pinned, and a worker at a time through the buffer of the
 * spill file (spill.h).
 *
 * Where all is pinned, a few workers keep a link busy. With more, more pieces are under way, and all of them take
 * longer: it is later when the first region is whole, so that others can use its memory. [H200, 16 cores, two jobs that
 * exchange 22 GiB: 16 workers 634 ms, 8, 4 or 2 workers 590 ms]
 */
#include "checkpoint/engine/digest.h"
#include "common/gpu/gpu.h"
#include "common/system/workers.h"
#include "vmem/cuda_driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSFER_WORKERS 16
#define TRANSFER_PINNED  4            /* workers for each GPU where all host memory is pinned */
#define TRANSFER_PIECE   (64UL << 20) /* the largest piece */

/* Numbers for granules without a slot. */
#define SLOT_NONE 0xffffffffU /* no allocation lives in it */
#define SLOT_ZERO 0xfffffffeU
#define SLOT_MAX  0xfffffff0U

struct transfer_piece {
	CUcontext ctx;
	CUdevice gpu; /* of @ctx; below GPU_MAX */
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
	uint32_t *slots; /* of each granule; OUT gives one to each that is not SLOT_NONE */
	size_t pool_slots;
	/*
	 * SCAN and OUT write the digests of all granules here; IN compares with them. NULL: zeros
	 * are copied like other data, and nothing is compared.
	 */
	struct digest *digests;
	const struct digest_kernel *kernels; /* of every context, if there are digests */
	size_t *done;                        /* bytes finished, added to atomically */
	const bool *cancel;                  /* set by others: stop; may be NULL */
	bool backwards;                      /* begin with the last piece */
	bool in_order; /* of all GPUs: regions become whole in order, and so do their slots */
	/*
	 * By the workers: before a piece is copied, wait until it may be; false: neither it nor
	 * those after it. They may leave another context current.
	 */
	bool (*await)(void *arg, size_t piece);   /* may be NULL */
	void (*arrived)(void *arg, size_t piece); /* a piece has been copied; may be NULL */
	void *arg;
	size_t next_slot; /* the first that is free; transfer_run() takes as many as it needs */

	/* For the workers of transfer_run(), which may have buffers if @room is positive; 0: not known yet. */
	size_t threads;
	int room;
	CUdevice gpus[GPU_MAX]; /* that have pieces */
	size_t ngpus, begun;    /* GPUs; workers */
	pthread_mutex_t lock;   /* of what follows */
	size_t next[GPU_MAX];   /* where the next piece of a GPU may be, in that order */

	/* The outcome of transfer_run(); its workers use these too. */
	struct workers workers;
	CUresult error;
	CUdeviceptr differs; /* the granule that came back different */
	/*
	 * It failed, and copies may still be under way, by the driver: the memory that they write
	 * must stay. The buffers stay for good.
	 */
	bool unsettled;
};

/*
 * Move all pieces and wait until they have arrived. Returns 0; -ENOMEM if there are no host pages;
 * -ECANCELED; -EIO with the driver's error in @error; -EILSEQ if a granule has changed; another
 * negative errno of the spill file. The GPU must be idle, and nobody else may touch the memory. No
 * context is current afterwards.
 */
int transfer_run(struct transfer *transfer);

#endif
