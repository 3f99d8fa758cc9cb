/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that vmem does not manage: the real driver serves them, and they are counted.
 */
#include "calls.h"
#include "checkpoint/unmanaged.h"
#include "vmem/vmem.h"
#include "wrapper/driver.h"

#include <stdint.h>

static CUresult add_pointer(CUresult result, enum unmanaged_kind kind, const CUdeviceptr *ptr,
			    size_t size)
{
	if (!result)
		unmanaged_add(kind, *ptr, size);
	return result;
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	return add_pointer(real.cuMemAllocManaged(dptr, bytesize, flags), UNMANAGED_MANAGED, dptr,
			   bytesize);
}

CUresult hook_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return add_pointer(real.cuMemAllocAsync(dptr, bytesize, hStream), UNMANAGED_POOL, dptr,
			   bytesize);
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return add_pointer(real.cuMemAllocAsync_ptsz(dptr, bytesize, hStream), UNMANAGED_POOL, dptr,
			   bytesize);
}

CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				      CUstream hStream)
{
	return add_pointer(real.cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream),
			   UNMANAGED_POOL, dptr, bytesize);
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
					   CUstream hStream)
{
	return add_pointer(real.cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream),
			   UNMANAGED_POOL, dptr, bytesize);
}

/*
 * cuMemFreeAsync() also takes memory of cuMemAlloc(). That is freed as cuMemFree() does: later
 * than asked for, never before the work that uses it.
 */
CUresult hook_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	if (vmem_contains(dptr))
		return hook_cuMemFree_v2(dptr);
	unmanaged_remove(UNMANAGED_POOL, dptr);
	return real.cuMemFreeAsync(dptr, hStream);
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	if (vmem_contains(dptr))
		return hook_cuMemFree_v2(dptr);
	unmanaged_remove(UNMANAGED_POOL, dptr);
	return real.cuMemFreeAsync_ptsz(dptr, hStream);
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			  const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult result = real.cuMemCreate(handle, size, prop, flags);

	if (!result && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		unmanaged_add(UNMANAGED_VMM, *handle, size);
	return result;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult result = real.cuMemRelease(handle);

	if (!result)
		unmanaged_remove(UNMANAGED_VMM, handle);
	return result;
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

CUresult hook_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	const CUDA_ARRAY_DESCRIPTOR *d = pAllocateArray;
	CUresult result = real.cuArrayCreate_v2(pHandle, d);

	if (!result)
		unmanaged_add(UNMANAGED_ARRAY, (uintptr_t)*pHandle,
			      d->Width * at_least_1(d->Height) * d->NumChannels *
				      format_bytes(d->Format));
	return result;
}

static size_t array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d->Width * at_least_1(d->Height) * at_least_1(d->Depth) * d->NumChannels *
	       format_bytes(d->Format);
}

CUresult hook_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	CUresult result = real.cuArray3DCreate_v2(pHandle, pAllocateArray);

	if (!result)
		unmanaged_add(UNMANAGED_ARRAY, (uintptr_t)*pHandle, array3d_bytes(pAllocateArray));
	return result;
}

CUresult hook_cuArrayDestroy(CUarray hArray)
{
	unmanaged_remove(UNMANAGED_ARRAY, (uintptr_t)hArray);
	return real.cuArrayDestroy(hArray);
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
				     const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				     unsigned int numMipmapLevels)
{
	CUresult result =
		real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);

	/* All smaller levels together are at most the first one's size again. */
	if (!result)
		unmanaged_add(UNMANAGED_ARRAY, (uintptr_t)*pHandle,
			      array3d_bytes(pMipmappedArrayDesc) * (numMipmapLevels > 1 ? 2 : 1));
	return result;
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	unmanaged_remove(UNMANAGED_ARRAY, (uintptr_t)hMipmappedArray);
	return real.cuMipmappedArrayDestroy(hMipmappedArray);
}
