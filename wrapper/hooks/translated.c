/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that keep a real address inside, with translated addressing. Tensor maps are remembered
 * with the virtual one (tensor_maps.h). Textures on linear memory cannot be changed: they are
 * counted, and no pause is possible while there are any (checkpoint/release/unsupported.h).
 */
#include "checkpoint/ledger/driver_memory.h"
#include "vmem/addresses/translate.h"
#include "wrapper/real.h"
#include "wrapper/translated/rewrite.h"
#include "wrapper/translated/tensor_maps.h"

static void *real_address(void *address)
{
	return (void *)translate((CUdeviceptr)address);
}

static CUresult encoded(CUresult result, const CUtensorMap *map, void *address)
{
	if (!result)
		tensor_maps_add(map, (CUdeviceptr)address);
	return result;
}

CUresult hook_cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
				     cuuint32_t tensorRank, void *globalAddress,
				     const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
				     const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
				     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				     CUtensorMapL2promotion l2Promotion,
				     CUtensorMapFloatOOBfill oobFill)
{
	CUresult result = real.cuTensorMapEncodeTiled(
		tensorMap, tensorDataType, tensorRank, real_address(globalAddress), globalDim,
		globalStrides, boxDim, elementStrides, interleave, swizzle, l2Promotion, oobFill);

	return encoded(result, tensorMap, globalAddress);
}

CUresult hook_cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
				      cuuint32_t tensorRank, void *globalAddress,
				      const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
				      const int *pixelBoxLowerCorner,
				      const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
				      cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
				      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				      CUtensorMapL2promotion l2Promotion,
				      CUtensorMapFloatOOBfill oobFill)
{
	CUresult result = real.cuTensorMapEncodeIm2col(
		tensorMap, tensorDataType, tensorRank, real_address(globalAddress), globalDim,
		globalStrides, pixelBoxLowerCorner, pixelBoxUpperCorner, channelsPerPixel,
		pixelsPerColumn, elementStrides, interleave, swizzle, l2Promotion, oobFill);

	return encoded(result, tensorMap, globalAddress);
}

CUresult hook_cuTensorMapEncodeIm2colWide(
	CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
	void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
	int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
	cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
	CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
	CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
	CUtensorMapFloatOOBfill oobFill)
{
	CUresult result = real.cuTensorMapEncodeIm2colWide(
		tensorMap, tensorDataType, tensorRank, real_address(globalAddress), globalDim,
		globalStrides, pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth, channelsPerPixel,
		pixelsPerColumn, elementStrides, interleave, mode, swizzle, l2Promotion, oobFill);

	return encoded(result, tensorMap, globalAddress);
}

CUresult hook_cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
	CUresult result = real.cuTensorMapReplaceAddress(tensorMap, real_address(globalAddress));

	return encoded(result, tensorMap, globalAddress);
}

CUresult hook_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
				const CUDA_TEXTURE_DESC *pTexDesc,
				const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	CUDA_RESOURCE_DESC desc = pResDesc ? *pResDesc : (CUDA_RESOURCE_DESC){0};
	CUdeviceptr *ptr = rewrite_resource(&desc), before = ptr ? *ptr : 0;
	CUcontext ctx = NULL;
	CUresult result;

	if (ptr)
		rewrite_pointer(ptr);
	result =
		real.cuTexObjectCreate(pTexObject, pResDesc ? &desc : NULL, pTexDesc, pResViewDesc);
	if (!result && ptr && *ptr != before) {
		real.cuCtxGetCurrent(&ctx);
		driver_memory_add_texture(*pTexObject, ctx);
	}
	return result;
}

CUresult hook_cuTexObjectDestroy(CUtexObject texObject)
{
	CUresult result;

	driver_memory_ending(DRIVER_MEMORY_FIXED_TEXTURE, texObject);
	result = real.cuTexObjectDestroy(texObject);
	driver_memory_ended(DRIVER_MEMORY_FIXED_TEXTURE, texObject, !result);
	return result;
}
