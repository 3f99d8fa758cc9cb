/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are told addresses and change nothing here: hints on ranges, attachments, texture
 * references and the parameters of launches before CUDA 4. They fail where no memory is.
 */
#define CUDA_ENABLE_DEPRECATED
#include "tests/sim/sim.h"

#include <stdlib.h>

struct CUtexref_st {
	CUdeviceptr ptr;
};

static CUresult touch(bool ptds, const CUdeviceptr *ptrs, const size_t *sizes, size_t count)
{
	(void)ptds;
	for (size_t i = 0; i < count; i++)
		if (!map_covers(ptrs[i], sizes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

SIM_TWINS(cuMemPrefetchBatchAsync, _ptsz, touch,
	  (CUdeviceptr * ptrs, size_t *sizes, size_t count, CUmemLocation *locations,
	   size_t *indexes, size_t nlocations, unsigned long long flags, CUstream stream),
	  ((void)locations, (void)indexes, (void)nlocations, (void)flags, (void)stream, ptrs),
	  sizes, count)
SIM_TWINS(cuMemDiscardBatchAsync, _ptsz, touch,
	  (CUdeviceptr * ptrs, size_t *sizes, size_t count, unsigned long long flags,
	   CUstream stream),
	  ((void)flags, (void)stream, ptrs), sizes, count)
SIM_TWINS(cuMemDiscardAndPrefetchBatchAsync, _ptsz, touch,
	  (CUdeviceptr * ptrs, size_t *sizes, size_t count, CUmemLocation *locations,
	   size_t *indexes, size_t nlocations, unsigned long long flags, CUstream stream),
	  ((void)locations, (void)indexes, (void)nlocations, (void)flags, (void)stream, ptrs),
	  sizes, count)

static CUresult touch_one(bool ptds, CUdeviceptr ptr, size_t size)
{
	return touch(ptds, &ptr, &size, 1);
}

SIM_TWINS(cuMemPrefetchAsync_v2, _ptsz, touch_one,
	  (CUdeviceptr ptr, size_t size, CUmemLocation location, unsigned int flags,
	   CUstream stream),
	  ((void)location, (void)flags, (void)stream, ptr), size)

SIM_EXPORT cuMemAdvise_v2(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUmemLocation location)
{
	SIM_ENTER(cuMemAdvise_v2, NEED_CONTEXT);
	(void)advice, (void)location;
	return touch_one(false, ptr, size);
}

SIM_EXPORT cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute,
				  CUdeviceptr ptr, size_t count)
{
	SIM_ENTER(cuMemRangeGetAttribute, NEED_CONTEXT);
	(void)data, (void)size, (void)attribute;
	return touch(false, &ptr, &count, 1);
}

SIM_EXPORT cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes,
				   size_t nattributes, CUdeviceptr ptr, size_t count)
{
	SIM_ENTER(cuMemRangeGetAttributes, NEED_CONTEXT);
	(void)data, (void)sizes, (void)attributes, (void)nattributes;
	return touch(false, &ptr, &count, 1);
}

static CUresult attach(bool ptds, CUstream handle, CUdeviceptr ptr, size_t length,
		       unsigned int flags)
{
	struct sim_map *map = map_find(ptr);
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);

	if (result != CUDA_SUCCESS)
		return result;
	if (!map || map->kind != MAP_MANAGED || map->start != ptr ||
	    (length && length != map->size) ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
	     (flags != CU_MEM_ATTACH_SINGLE || s->legacy)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

SIM_TWINS(cuStreamAttachMemAsync, _ptsz, attach,
	  (CUstream stream, CUdeviceptr ptr, size_t length, unsigned int flags), stream, ptr,
	  length, flags)

SIM_EXPORT cuTexRefCreate(CUtexref *ref)
{
	SIM_ENTER(cuTexRefCreate, NEED_CONTEXT);
	*ref = calloc(1, sizeof(**ref));
	return *ref ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_EXPORT cuTexRefDestroy(CUtexref ref)
{
	SIM_ENTER(cuTexRefDestroy, NEED_CONTEXT);
	free(ref);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuTexRefSetAddress_v2(size_t *offset, CUtexref ref, CUdeviceptr ptr, size_t size)
{
	SIM_ENTER(cuTexRefSetAddress_v2, NEED_CONTEXT);
	if (ptr && !map_covers(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	ref->ptr = ptr;
	*offset = 0;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuTexRefGetAddress_v2(CUdeviceptr *ptr, CUtexref ref)
{
	SIM_ENTER(cuTexRefGetAddress_v2, NEED_CONTEXT);
	*ptr = ref->ptr;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuParamSetv(CUfunction function, int offset, void *values, unsigned int bytes)
{
	SIM_ENTER(cuParamSetv, NEED_CONTEXT);
	(void)function, (void)offset, (void)values, (void)bytes;
	return CUDA_SUCCESS;
}
