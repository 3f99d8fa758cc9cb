/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SAVED_H
#define CUDAW_SAVED_H
/*
 * The data that a pause takes off the GPU, and where it is put: the regions, cut into pieces
 * (transfer.h), with a slot for each granule that holds something. Made with the program held and
 * the GPU idle, by the engine's thread.
 *
 * Host memory comes first: what is available (hostmem.h) less HOSTMEM_RESERVE, and what the pool
 * already has. The rest goes to the spill file, if there is one.
 */
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/engine/transfer.h"
#include "vmem/vmem.h"
#include "common/gpu.h"

#include <stdbool.h>
#include <stddef.h>

struct saved {
	struct vmem_region *regions; /* in address order */
	size_t nregions;
	struct context_list contexts;
	size_t per_device[GPU_MAX]; /* bytes of the regions */

	struct transfer_piece *pieces;
	size_t npieces;
	size_t ngranules, nlive; /* granules of the pieces, and those that an allocation lives in */
	uint32_t *slots;
	struct digest *digests;        /* of each granule; NULL: not taken */
	struct digest_kernel *kernels; /* of each context, while digests are taken */
	size_t pool_slots;             /* slots in host memory; the others are in the spill file */
	size_t used_slots;             /* known after the copy */
};

/* List the regions that vmem has now. 0 or -ENOMEM; saved_forget() undoes it in either case. */
int saved_list(struct saved *saved);

/* Free the lists. The data in the pool and in the spill file is lost. */
void saved_forget(struct saved *saved);

/*
 * Load the kernel that takes digests into every context. After an error of the driver there are no
 * kernels: then no granule is known to be zero. Unload the kernels, if they were loaded, before the
 * driver restores anything, and before a context ends.
 */
CUresult saved_load_kernels(struct saved *saved, const struct cuda_driver *drv);
void saved_unload_kernels(struct saved *saved, const struct cuda_driver *drv);

/*
 * How many slots fit into host memory and into the spill file, if @apart bytes of host memory are
 * needed for something else. Returns how many bytes are missing for that. @apart and @wanted bytes
 * of fresh host memory are claimed (claims.h), as far as they are available.
 */
size_t saved_room(size_t wanted, size_t apart, size_t *pool_slots, size_t *spill_slots);

/*
 * Get address space and disk space for @slots slots, of which @pool_slots may be host memory. 0, or
 * a negative errno.
 */
int saved_place(struct saved *saved, size_t slots, size_t pool_slots);

/* A transfer of all pieces. */
struct transfer saved_transfer(const struct saved *saved, const struct cuda_driver *drv,
			       enum transfer_direction direction, size_t *done);

/* Where the slot is in host memory; NULL: in the spill file, at *@offset. */
char *saved_slot(const struct saved *saved, uint32_t slot, uint64_t *offset);

/* Bytes of the granules that hold something; of the slots in host memory and in the spill file. */
size_t saved_bytes(const struct saved *saved);
size_t saved_host_bytes(const struct saved *saved);
size_t saved_spilled_bytes(const struct saved *saved);

/* Blocks of the pool that hold something. */
size_t saved_blocks(const struct saved *saved);

#endif
