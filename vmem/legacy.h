/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_LEGACY_H
#define CUDAW_LEGACY_H
/*
 * Allocations of vmem that other processes may have, by legacy IPC handles (cuIpcGetMemHandle()).
 *
 * What is shared is the run of the allocation's region, as natively the block of the driver: small
 * allocations lie side by side in it. The driver maps the memory of a handle from its beginning only
 * (CUDA_ERROR_NOT_SUPPORTED otherwise [H200, driver 580.159]), so that slabs which a resume has mapped
 * at once are shared as one, and stay one run from then on. Each piece of a run, of VMEM_PIECE at
 * most, has a name as an object has (objects.h), and is exported and imported as one. The run is named
 * at the first handle of an allocation in it; when it has no allocation any more, the name is
 * forgotten, and its memory serves no other allocation, as those that have imported it go on to use it.
 *
 * The driver exports only memory that was created for it, so all memory is (mapping.h): to move an
 * allocation to other memory later, all work of the GPU on it would have to be waited for, which
 * cuIpcGetMemHandle() does not do natively.
 *
 * Locking: that of the device, as for all regions.
 */
#include "vmem/objects/objects.h"

#define SHARED_PIECE_AT 12 /* in a key: the number of the piece, 4 bytes, little-endian */

struct vmem_shared {
	unsigned char key[OBJECT_KEY]; /* of the first piece */
	size_t size;                   /* of the run */
	size_t offset;                 /* of the allocation in it */
};

/* True if allocations on @dev, which has some, can be shared. */
bool vmem_can_share(CUdevice dev);

/*
 * Share the run of the allocation that @ptr points into, under the key @fresh unless it has one.
 * CUDA_ERROR_INVALID_VALUE: there is no such allocation, or it cannot be shared.
 */
CUresult vmem_share(CUdeviceptr ptr, const unsigned char fresh[OBJECT_KEY],
		    struct vmem_shared *shared);

/* The key of a piece. */
void legacy_key_piece(unsigned char key[OBJECT_KEY], uint32_t piece);

/* As objects_have_key(), objects_export() and objects_shared_held(), for regions. */
bool legacy_has(const unsigned char key[OBJECT_KEY]);
CUresult shared_export(const unsigned char key[OBJECT_KEY], int *fd, size_t *size);
size_t legacy_held(void);

#endif
