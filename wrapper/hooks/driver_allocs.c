/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that are left to the driver: it serves them, and they are counted.
 */
#include "wrapper/real.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/green.h"
#include "common/protocol/quota.h"
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

bool driver_alloc_begins(size_t size, CUdevice *dev)
{
	/* Without a context the driver refuses the call. */
	if (!quota_is_on() || real.cuCtxGetDevice(dev))
		*dev = -1;
	return quota_take(*dev, size);
}

CUresult driver_alloc_ended(CUresult result, enum driver_memory_kind kind, uint64_t handle,
			    size_t size, CUdevice dev)
{
	CUcontext ctx = NULL;

	if (result) {
		quota_give(dev, size);
		return result;
	}
	real.cuCtxGetCurrent(&ctx);
	driver_memory_add_taken(kind, handle, size, dev, ctx ? green_owner(ctx) : NULL);
	return result;
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	CUresult result;
	CUdevice dev;

	if (!driver_alloc_begins(bytesize, &dev))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real.cuMemAllocManaged(dptr, bytesize, flags);
	return driver_alloc_ended(result, DRIVER_MEMORY_MANAGED, result ? 0 : *dptr, bytesize, dev);
}

/* Bits of a texel, of the formats that name their channels; blocks and planes are spread over the texels. */
static const unsigned char texel_bits[] = {
	[CU_AD_FORMAT_UNORM_INT_101010_2] = 32,
	[CU_AD_FORMAT_BC1_UNORM] = 4,
	[CU_AD_FORMAT_BC1_UNORM_SRGB] = 4,
	[CU_AD_FORMAT_BC2_UNORM] = 8,
	[CU_AD_FORMAT_BC2_UNORM_SRGB] = 8,
	[CU_AD_FORMAT_BC3_UNORM] = 8,
	[CU_AD_FORMAT_BC3_UNORM_SRGB] = 8,
	[CU_AD_FORMAT_BC4_UNORM] = 4,
	[CU_AD_FORMAT_BC4_SNORM] = 4,
	[CU_AD_FORMAT_BC5_UNORM] = 8,
	[CU_AD_FORMAT_BC5_SNORM] = 8,
	[CU_AD_FORMAT_BC6H_UF16] = 8,
	[CU_AD_FORMAT_BC6H_SF16] = 8,
	[CU_AD_FORMAT_BC7_UNORM] = 8,
	[CU_AD_FORMAT_BC7_UNORM_SRGB] = 8,
	[CU_AD_FORMAT_NV12] = 12,
	[CU_AD_FORMAT_P010] = 24,
	[CU_AD_FORMAT_P016] = 24,
	[CU_AD_FORMAT_NV16] = 16,
	[CU_AD_FORMAT_P210] = 32,
	[CU_AD_FORMAT_P216] = 32,
	[CU_AD_FORMAT_YUY2] = 16,
	[CU_AD_FORMAT_Y210] = 32,
	[CU_AD_FORMAT_Y216] = 32,
	[CU_AD_FORMAT_AYUV] = 32,
	[CU_AD_FORMAT_Y410] = 32,
	[CU_AD_FORMAT_Y416] = 64,
	[CU_AD_FORMAT_Y444_PLANAR8] = 24,
	[CU_AD_FORMAT_Y444_PLANAR10] = 48,
	[CU_AD_FORMAT_YUV444_8bit_SemiPlanar] = 24,
	[CU_AD_FORMAT_YUV444_16bit_SemiPlanar] = 48,
	[CU_AD_FORMAT_UNORM_INT8X1] = 8,
	[CU_AD_FORMAT_UNORM_INT8X2] = 16,
	[CU_AD_FORMAT_UNORM_INT8X4] = 32,
	[CU_AD_FORMAT_UNORM_INT16X1] = 16,
	[CU_AD_FORMAT_UNORM_INT16X2] = 32,
	[CU_AD_FORMAT_UNORM_INT16X4] = 64,
	[CU_AD_FORMAT_SNORM_INT8X1] = 8,
	[CU_AD_FORMAT_SNORM_INT8X2] = 16,
	[CU_AD_FORMAT_SNORM_INT8X4] = 32,
	[CU_AD_FORMAT_SNORM_INT16X1] = 16,
	[CU_AD_FORMAT_SNORM_INT16X2] = 32,
	[CU_AD_FORMAT_SNORM_INT16X4] = 64,
};

/* Of a channel, of the formats of which the program says how many channels there are. */
static size_t channel_bits(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 16;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 32;
	default:
		return 8;
	}
}

static size_t bytes_of(size_t texels, CUarray_format format, size_t channels)
{
	size_t bits = (size_t)format < sizeof(texel_bits) ? texel_bits[format] : 0;

	return (texels * (bits ? bits : channels * channel_bits(format)) + 7) / 8;
}

static size_t at_least_1(size_t n)
{
	return n ? n : 1;
}

size_t array_bytes(const CUDA_ARRAY_DESCRIPTOR *d)
{
	return bytes_of(d->Width * at_least_1(d->Height), d->Format, d->NumChannels);
}

static CUresult array_made(CUresult result, const CUarray *array, size_t size, CUdevice dev)
{
	return driver_alloc_ended(result, DRIVER_MEMORY_ARRAY, result ? 0 : (uintptr_t)*array, size,
				  dev);
}

CUresult hook_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	size_t size = pAllocateArray ? array_bytes(pAllocateArray) : 0;
	CUresult result;
	CUdevice dev;

	if (!driver_alloc_begins(size, &dev))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real.cuArrayCreate_v2(pHandle, pAllocateArray);
	return array_made(result, pHandle, size, dev);
}

size_t array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	return bytes_of(d->Width * at_least_1(d->Height) * at_least_1(d->Depth), d->Format,
			d->NumChannels);
}

/* All smaller levels together are at most the first one's size again. */
size_t mipmapped_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	return array3d_bytes(d) * (levels > 1 ? 2 : 1);
}

CUresult hook_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	size_t size = pAllocateArray ? array3d_bytes(pAllocateArray) : 0;
	CUresult result;
	CUdevice dev;

	if (!driver_alloc_begins(size, &dev))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real.cuArray3DCreate_v2(pHandle, pAllocateArray);
	return array_made(result, pHandle, size, dev);
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
	size_t size =
		pMipmappedArrayDesc ? mipmapped_bytes(pMipmappedArrayDesc, numMipmapLevels) : 0;
	CUresult result;
	CUdevice dev;

	if (!driver_alloc_begins(size, &dev))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
	return array_made(result, (CUarray *)pHandle, size, dev);
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	driver_memory_ending(DRIVER_MEMORY_ARRAY, (uintptr_t)hMipmappedArray);
	return array_ended(real.cuMipmappedArrayDestroy(hMipmappedArray),
			   (uintptr_t)hMipmappedArray);
}
