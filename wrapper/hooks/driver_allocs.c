/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that are left to the driver: it serves them, and they are counted.
 */
#include "wrapper/real.h"
#include "checkpoint/ledger/driver_memory.h"
#include "wrapper/hooks/driver_allocs.h"

#include <stdint.h>

static const enum driver_memory_kind of_pointers[] = {
	DRIVER_MEMORY_DEVICE,    DRIVER_MEMORY_MANAGED,    DRIVER_MEMORY_POOL,
	DRIVER_MEMORY_POOL_HOST, DRIVER_MEMORY_IPC_EXPORT, DRIVER_MEMORY_DMABUF_LEFT};

void pointer_ending(CUdeviceptr ptr)
{
	for (size_t i = 0; i < sizeof(of_pointers) / sizeof(of_pointers[0]); i++)
		driver_memory_ending(of_pointers[i], ptr);
}

CUresult pointer_ended(CUresult result, CUdeviceptr ptr)
{
	for (size_t i = 0; i < sizeof(of_pointers) / sizeof(of_pointers[0]); i++)
		driver_memory_ended(of_pointers[i], ptr, !result);
	return result;
}

static CUresult add_pointer(CUresult result, enum driver_memory_kind kind, const CUdeviceptr *ptr,
			    size_t size)
{
	if (!result)
		driver_memory_add(kind, *ptr, size);
	return result;
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	return add_pointer(real.cuMemAllocManaged(dptr, bytesize, flags), DRIVER_MEMORY_MANAGED,
			   dptr, bytesize);
}

static size_t format_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 1;
	}
}

static size_t at_least_1(size_t n)
{
	return n ? n : 1;
}

size_t array_bytes(const CUDA_ARRAY_DESCRIPTOR *d)
{
	return d->Width * at_least_1(d->Height) * d->NumChannels * format_bytes(d->Format);
}

CUresult hook_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	CUresult result = real.cuArrayCreate_v2(pHandle, pAllocateArray);

	if (!result)
		driver_memory_add(DRIVER_MEMORY_ARRAY, (uintptr_t)*pHandle,
				  array_bytes(pAllocateArray));
	return result;
}

size_t array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d->Width * at_least_1(d->Height) * at_least_1(d->Depth) * d->NumChannels *
	       format_bytes(d->Format);
}

/* All smaller levels together are at most the first one's size again. */
size_t mipmapped_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	return array3d_bytes(d) * (levels > 1 ? 2 : 1);
}

CUresult hook_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	CUresult result = real.cuArray3DCreate_v2(pHandle, pAllocateArray);

	if (!result)
		driver_memory_add(DRIVER_MEMORY_ARRAY, (uintptr_t)*pHandle,
				  array3d_bytes(pAllocateArray));
	return result;
}

static CUresult array_ended(CUresult result, uint64_t handle)
{
	driver_memory_ended(DRIVER_MEMORY_ARRAY, handle, !result);
	return result;
}

CUresult hook_cuArrayDestroy(CUarray hArray)
{
	driver_memory_ending(DRIVER_MEMORY_ARRAY, (uintptr_t)hArray);
	return array_ended(real.cuArrayDestroy(hArray), (uintptr_t)hArray);
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
				     const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				     unsigned int numMipmapLevels)
{
	CUresult result =
		real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);

	if (!result)
		driver_memory_add(DRIVER_MEMORY_ARRAY, (uintptr_t)*pHandle,
				  mipmapped_bytes(pMipmappedArrayDesc, numMipmapLevels));
	return result;
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	driver_memory_ending(DRIVER_MEMORY_ARRAY, (uintptr_t)hMipmappedArray);
	return array_ended(real.cuMipmappedArrayDestroy(hMipmappedArray),
			   (uintptr_t)hMipmappedArray);
}
