/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SAVED_H
#define CUDAW_SAVED_H
/*
 * The data that a pause takes off the GPU, and where it is put: the regions, cut into pieces
 * (transfer.h), with a slot for each granule that holds something. Made with the program held and
 * the GPU idle, by the engine's thread.
 *
 * What is out is a stack: the regions from @in on. More regions go out from the end of the list, and
 * come back from @in on, so what stays on the GPU never moves. The regions of each GPU are in
 * address order, and those of several are mixed so that any end of the stack has about the same part
 * of each GPU's. The saved data of a region that came back stays valid until the program runs, or it
 * is let go: if it goes out again, it is not copied again.
 *
 *	regions		| on the GPU      | on the GPU, and saved | out: saved alone |
 *			0                 copied                  in                 nregions
 *
 * Host memory comes first: what is available (hostmem.h) less HOSTMEM_RESERVE, and what the pool
 * already has. The rest goes to the spill file, if there is one.
 */
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/engine/transfer.h"
#include "vmem/vmem.h"
#include "common/gpu/gpu.h"

#include <stdbool.h>
#include <stddef.h>

struct saved {
	struct vmem_region *regions; /* in the order of the stack */
	size_t nregions;
	size_t *by_address;    /* their indices, in address order */
	size_t *first_granule; /* of each region, in address order; granules are numbered in that */
	struct context_list contexts;
	size_t in, copied; /* indices of regions, as above */

	struct transfer_piece *pieces;
	size_t npieces;
	size_t *first_piece; /* of each region; the last entry is npieces */
	size_t *left;        /* pieces of each region that the last transfer has not moved yet */
	size_t ngranules, nlive; /* granules of the pieces, and those that an allocation lives in */
	uint32_t *slots;
	struct digest *digests;        /* of each granule; NULL: not taken */
	struct digest_kernel *kernels; /* of each context, while digests are taken */
	size_t pool_slots;             /* slots in host memory; the others are in the spill file */
	size_t used_slots;             /* by the regions from @copied on */
	size_t scanned_slots;          /* that all will have used, if they were counted; 0: not */

	/* While what is saved is let go: */
	size_t *used_from; /* of each region: slots that those from there on use */
	size_t back;       /* the regions before it have come back */
	size_t kept;       /* those before it are let go */
	size_t lowest;     /* slot of the regions from @copied to @back */
};

/*
 * List the regions that vmem has now; all are on the GPU. 0 or -ENOMEM; saved_forget() undoes it in
 * either case.
 */
int saved_list(struct saved *saved);
bool saved_is_listed(const struct saved *saved);

/* Free the lists. The data in the pool and in the spill file is lost. */
void saved_forget(struct saved *saved);

/*
 * Load the kernel that takes digests into every context. After an error of the driver there are no
 * kernels: then no granule is known to be zero. Unload the kernels, if they were loaded, before the
 * driver restores anything, and before a context ends.
 */
CUresult saved_load_kernels(struct saved *saved, const struct cuda_driver *drv);
void saved_unload_kernels(struct saved *saved, const struct cuda_driver *drv);

/* Some of the saved data will have no digests: forget those that were taken. */
void saved_drop_digests(struct saved *saved);

/*
 * How many slots fit into host memory and into the spill file, those in use included, if @apart
 * bytes of host memory are needed for something else. Returns how many bytes are missing for that.
 * @apart bytes of fresh host memory, and those that @slots slots need, are claimed (claims.h), as
 * far as they are available.
 */
size_t saved_room(const struct saved *saved, size_t slots, size_t apart, size_t *pool_slots,
		  size_t *spill_slots);

/*
 * Get address space and disk space for @slots slots, those in use included, of which @pool_slots may
 * be host memory. 0, or a negative errno; @surely: as spill_open() has it.
 */
int saved_place(struct saved *saved, size_t slots, size_t pool_slots, bool surely);

/* A transfer of all pieces of the regions from @from to @to, exclusive. */
struct transfer saved_transfer(struct saved *saved, const struct cuda_driver *drv,
			       enum transfer_direction direction, size_t from, size_t to,
			       size_t *done);

/* The regions from @copied on are saved now. */
void saved_settle(struct saved *saved, size_t copied);

/* Bytes of the regions from @from to @to, exclusive; and of those of them that are mapped. */
size_t saved_region_bytes(const struct saved *saved, size_t from, size_t to);
size_t saved_mapped_bytes(const struct saved *saved);

/* The granule at @address; SIZE_MAX: it is in no region. */
size_t saved_granule_at(const struct saved *saved, CUdeviceptr address);

/* The region that a piece of a transfer from region @from on is of. */
size_t saved_region_of(const struct saved *saved, size_t from, size_t piece);

/*
 * Such a piece has been moved; any thread. True: the region with it. Whether a region has been; and whether
 * it is saved, for the thread that settles regions.
 */
bool saved_piece_arrived(struct saved *saved, size_t from, size_t piece);
bool saved_has_arrived(const struct saved *saved, size_t region);
bool saved_is_copied(const struct saved *saved, size_t region);

/*
 * From here to saved_let_go_end(), what is saved of regions that have come back is let go, also by earlier transfers,
 * if no region that is out has a slot above theirs: the blocks of the pool that hold nothing else are emptied while
 * others are copied. So slots in use have no gaps, and all stays saved where the first regions have the lowest slots:
 * after a pause, and after a restore. The last region keeps its own, as nothing is copied beside it. False: not begun,
 * for lack of memory or as some of it is in the spill file.
 */
bool saved_let_go_begin(struct saved *saved);

/* Regions have arrived. Any thread, one at a time. */
void saved_let_go(struct saved *saved);

/* The workers have ended. What was let go is no longer saved: @copied follows. */
void saved_let_go_end(struct saved *saved);

/* Granules in which an allocation lives, of the regions from @from to @to, exclusive. */
size_t saved_live(const struct saved *saved, size_t from, size_t to);

/* Where the slot is in host memory; NULL: in the spill file, at *@offset. */
char *saved_slot(const struct saved *saved, uint32_t slot, uint64_t *offset);

/* Bytes of the granules that hold something; of the slots in host memory and in the spill file. */
size_t saved_bytes(const struct saved *saved);
size_t saved_host_bytes(const struct saved *saved);
size_t saved_spilled_bytes(const struct saved *saved);

/* Blocks of the pool that hold something. */
size_t saved_blocks(const struct saved *saved);

#endif
