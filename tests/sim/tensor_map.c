/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps of two dimensions of 32-bit words. The address is in the third word of a map. */
#include "tests/sim/sim.h"

#include <string.h>

struct tensor {
	uint64_t width, height;
	CUdeviceptr ptr;
	uint64_t pitch; /* bytes */
};

_Static_assert(sizeof(struct tensor) <= sizeof(CUtensorMap), "it does not fit");

SIM_EXPORT cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
				  void *address, const cuuint64_t *dims, const cuuint64_t *strides,
				  const cuuint32_t *box, const cuuint32_t *steps,
				  CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				  CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	struct tensor t;

	SIM_ENTER(cuTensorMapEncodeTiled, NEED_LOCK);
	(void)promotion, (void)fill;
	if (type != CU_TENSOR_MAP_DATA_TYPE_UINT32 || rank != 2 || interleave || swizzle ||
	    steps[0] != 1 || steps[1] != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((CUdeviceptr)address % 16 || strides[0] % 16 || (uintptr_t)map % 64 ||
	    box[0] * sizeof(uint32_t) % 16 || box[0] > 256 || box[1] > 256)
		return CUDA_ERROR_INVALID_VALUE;
	t = (struct tensor){dims[0], dims[1], (CUdeviceptr)address, strides[0]};
	memset(map, 0, sizeof(*map));
	memcpy(map, &t, sizeof(t));
	return CUDA_SUCCESS;
}

SIM_EXPORT cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	struct tensor t;

	SIM_ENTER(cuTensorMapReplaceAddress, NEED_LOCK);
	if ((CUdeviceptr)address % 16)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&t, map, sizeof(t));
	t.ptr = (CUdeviceptr)address;
	memcpy(map, &t, sizeof(t));
	return CUDA_SUCCESS;
}

const uint32_t *tensor_map_word(const void *map, uint32_t x, uint32_t y)
{
	struct tensor t;

	memcpy(&t, map, sizeof(t));
	return x < t.width && y < t.height ? (const uint32_t *)(t.ptr + y * t.pitch) + x : NULL;
}
