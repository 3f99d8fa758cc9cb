/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/mapping.h"
#include "vmem/addresses/translate.h"

#include <stdlib.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"
#include "common/gpu/gpu.h"

/* Make room for one more handle before it exists, so that none is lost. */
static bool make_room(struct mapping_caps *caps)
{
	size_t room = caps->nunreleased + 1;
	CUmemGenericAllocationHandle *handles;

	if (room <= caps->max_unreleased)
		return true;
	handles = reallocarray(caps->unreleased, room, sizeof(*handles));
	if (!handles)
		return false;
	caps->unreleased = handles;
	caps->max_unreleased = room;
	return true;
}

void mapping_tidy(const struct cuda_driver *drv, struct mapping_caps *caps)
{
	while (caps->nunreleased && !drv->cuMemRelease(caps->unreleased[caps->nunreleased - 1]))
		caps->nunreleased--;
}

CUresult mapping_probe(const struct cuda_driver *drv, CUdevice dev, struct mapping_caps *caps)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
	};
	size_t granularity = 0;
	int vmm = 0, rdma = 0, exportable = 0;
	CUresult rc;

	rc = drv->cuDeviceGetAttribute(
		&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, dev);
	if (rc == CUDA_SUCCESS && vmm)
		rc = drv->cuMemGetAllocationGranularity(&granularity, &prop,
							CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (rc != CUDA_SUCCESS)
		return rc;
	/* Drivers before 11.0 do not know this attribute. */
	if (drv->cuDeviceGetAttribute(
		    &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, dev))
		rdma = 0;
	caps->vmm = granularity && VMEM_GRANULE % granularity == 0;
	if (drv->cuDeviceGetAttribute(
		    &exportable, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		    dev))
		exportable = 0;
	caps->rdma = rdma;
	caps->exportable = exportable && !translate_is_on();
	caps->piece = translate_is_on() ? SIZE_MAX : VMEM_PIECE;
	return CUDA_SUCCESS;
}

static CUresult map_piece(const struct cuda_driver *drv, struct mapping_caps *caps,
			  const CUmemAllocationProp *prop, CUdeviceptr start, size_t size)
{
	CUmemGenericAllocationHandle handle;
	CUresult rc, released;

	if (!make_room(caps))
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = drv->cuMemCreate(&handle, size, prop, 0);
	if (rc != CUDA_SUCCESS)
		return rc;
	rc = drv->cuMemMap(start, size, 0, handle, 0);
	/* From here on the mapping keeps the memory; after a failure nothing does. */
	released = drv->cuMemRelease(handle);
	if (released != CUDA_SUCCESS) {
		pr_warn("cannot release the handle of %zu bytes: driver error %d", size, released);
		caps->unreleased[caps->nunreleased++] = handle;
	}
	return rc;
}

static CUresult grant(const struct cuda_driver *drv, uint64_t users, CUdeviceptr start, size_t size)
{
	CUmemAccessDesc desc[GPU_MAX];
	size_t n = 0;

	for (int dev = 0; dev < GPU_MAX; dev++)
		if (users >> dev & 1)
			desc[n++] = (CUmemAccessDesc){
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
			};
	return drv->cuMemSetAccess(start, size, desc, n);
}

CUresult mapping_map(const struct cuda_driver *drv, CUdevice dev, struct mapping_caps *caps,
		     uint64_t users, CUdeviceptr start, size_t size, size_t *left)
{
	/* Memory cannot be made exportable later, when the program shares it by a legacy handle. */
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = caps->exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
							 : CU_MEM_HANDLE_TYPE_NONE,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
		.allocFlags.gpuDirectRDMACapable = caps->rdma,
	};
	CUresult rc = CUDA_SUCCESS, undone;
	size_t done = 0, free, total;

	*left = 0;
	mapping_tidy(drv, caps);
	/* A map that cannot succeed must not take all free memory from others for a moment. */
	if (size > VMEM_PIECE && !drv->cuMemGetInfo_v2(&free, &total) && free < size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (done < size && rc == CUDA_SUCCESS) {
		size_t piece = size - done < caps->piece ? size - done : caps->piece;

		rc = map_piece(drv, caps, &prop, start + done, piece);
		if (rc == CUDA_SUCCESS)
			done += piece;
	}
	if (rc == CUDA_SUCCESS)
		rc = grant(drv, users, start, size);
	if (rc == CUDA_SUCCESS || !done)
		return rc;
	undone = mapping_unmap(drv, caps, start, done);
	if (undone != CUDA_SUCCESS) {
		pr_warn("%zu bytes at %#llx stay mapped for now: driver error %d", done, start,
			undone);
		*left = done;
	}
	return rc;
}

CUresult mapping_unmap(const struct cuda_driver *drv, struct mapping_caps *caps, CUdeviceptr start,
		       size_t size)
{
	mapping_tidy(drv, caps);
	return drv->cuMemUnmap(start, size);
}

CUresult mapping_set_user(const struct cuda_driver *drv, CUdevice user, bool on, CUdeviceptr start,
			  size_t size)
{
	const CUmemAccessDesc desc = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = user},
		.flags = on ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE,
	};

	return drv->cuMemSetAccess(start, size, &desc, 1);
}

bool mapping_is_gone(CUdeviceptr start, size_t size)
{
	if (!translate_is_on())
		return false;
	translate_forget(start, size);
	return true;
}

void mapping_use_changes(CUdeviceptr start, size_t size)
{
	if (translate_is_on())
		translate_forget_given(start, size);
}
