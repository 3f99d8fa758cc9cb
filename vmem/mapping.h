/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MAPPING_H
#define CUDAW_MAPPING_H
/*
 * mapping: puts GPU memory under addresses, by the virtual memory management of the driver ("mapped
 * addressing") or by translate.h, which takes its place. If a step fails, it undoes the steps
 * before; if the driver fails to undo them, the caller tries again. Unmapping is one cuMemUnmap()
 * of the whole range, which gives the memory back, as nothing else refers to it. mapping remembers
 * only the handles that the driver did not release, since they keep memory: mapping_map(),
 * mapping_unmap() and mapping_tidy() try again to release them. The caller serialises the calls for
 * each device.
 */
#include "vmem/vmem.h"

struct mapping_caps {
	bool vmm;        /* the device can map memory by our granule */
	bool rdma;       /* memory can be created for GPUDirect RDMA */
	bool exportable; /* and for export to other processes */
	size_t piece;    /* bytes created and mapped at once, at most */
	/* Handles that the driver did not release. */
	CUmemGenericAllocationHandle *unreleased;
	size_t nunreleased, max_unreleased;
};

CUresult mapping_probe(const struct cuda_driver *drv, CUdevice dev, struct mapping_caps *caps);

/*
 * Put fresh memory of @dev under [@start, @start + @size), all of it or none, read and written by
 * the devices whose bits are set in @users. On failure *@left bytes from @start on are still
 * mapped: 0 unless the driver failed to undo the map too.
 */
CUresult mapping_map(const struct cuda_driver *drv, CUdevice dev, struct mapping_caps *caps,
		     uint64_t users, CUdeviceptr start, size_t size, size_t *left);

/* Give back the memory under [@start, @start + @size), all of it or none. */
CUresult mapping_unmap(const struct cuda_driver *drv, struct mapping_caps *caps, CUdeviceptr start,
		       size_t size);

/* Try again to release the handles that the driver did not release. */
void mapping_tidy(const struct cuda_driver *drv, struct mapping_caps *caps);

/*
 * The context that [@start, @start + @size) was mapped for is gone. True if the memory went with
 * it, as cuMemAlloc()'s does: nothing is mapped there any more.
 */
bool mapping_is_gone(CUdeviceptr start, size_t size);

/* Allocations come to the mapping at [@start, @start + @size), or the last of them is gone. */
void mapping_use_changes(CUdeviceptr start, size_t size);

/* Allow @user access to what is mapped in [@start, @start + @size), or revoke it. */
CUresult mapping_set_user(const struct cuda_driver *drv, CUdevice user, bool on, CUdeviceptr start,
			  size_t size);

#endif
