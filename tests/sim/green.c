/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts: parts of a device's multiprocessors, for streams of their own. Memory that is
 * allocated in one belongs to the primary context, which lives at least as long as they do, and
 * which waits for their work too. The multiprocessors are only counted.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

#define SM_COUNT 64U
#define SM_ALIGN 8U

struct green {
	struct sim_object obj;
	struct sim_ctx *ctx;
};

struct CUdevResourceDesc_st {
	unsigned int count;
	CUdevResourceDesc next;
};

static CUdevResourceDesc descs; /* no call ends one */

SIM_EXPORT cuDeviceGetDevResource(CUdevice dev, CUdevResource *resource, CUdevResourceType type)
{
	SIM_ENTER(cuDeviceGetDevResource, NEED_INIT);
	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	*resource = (CUdevResource){.type = type};
	resource->sm.smCount = SM_COUNT;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *count,
				       const CUdevResource *input, CUdevResource *left,
				       unsigned int flags, unsigned int least)
{
	unsigned int size, n;

	SIM_ENTER(cuDevSmResourceSplitByCount, NEED_INIT);
	if (!count || !input || input->type != CU_DEV_RESOURCE_TYPE_SM || flags)
		return CUDA_ERROR_INVALID_VALUE;
	size = SIM_ROUND(least ? least : 1, SM_ALIGN);
	n = input->sm.smCount / size;
	if (groups && *count < n)
		n = *count;
	for (unsigned int i = 0; groups && i < n; i++) {
		groups[i] = *input;
		groups[i].sm.smCount = size;
	}
	if (left) {
		*left = *input;
		left->sm.smCount -= n * size;
	}
	*count = n;
	return n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

SIM_EXPORT cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources,
				     unsigned int count)
{
	SIM_ENTER(cuDevResourceGenerateDesc, NEED_INIT);
	if (!desc || !resources || !count)
		return CUDA_ERROR_INVALID_VALUE;
	*desc = malloc(sizeof(**desc));
	if (!*desc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*desc)->count = resources->sm.smCount;
	(*desc)->next = descs;
	descs = *desc;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGreenCtxCreate(CUgreenCtx *handle, CUdevResourceDesc desc, CUdevice dev,
			    unsigned int flags)
{
	struct green *green;
	CUresult result;

	SIM_ENTER(cuGreenCtxCreate, NEED_INIT);
	if (!handle || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	green = calloc(1, sizeof(*green));
	if (!green)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = ctx_new_green(dev, &green->ctx);
	if (result != CUDA_SUCCESS) {
		free(green);
		return result;
	}
	object_add(KIND_GREEN, &green->obj);
	*handle = (CUgreenCtx)green;
	return CUDA_SUCCESS;
}

static struct green *green_find(CUgreenCtx handle)
{
	return object_known(KIND_GREEN, handle) ? (struct green *)handle : NULL;
}

SIM_EXPORT cuGreenCtxDestroy(CUgreenCtx handle)
{
	struct green *green;

	SIM_ENTER(cuGreenCtxDestroy, NEED_INIT);
	green = green_find(handle);
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	object_remove(&green->obj);
	ctx_end_green(green->ctx);
	free(green);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuCtxFromGreenCtx(CUcontext *ctx, CUgreenCtx handle)
{
	struct green *green;

	SIM_ENTER(cuCtxFromGreenCtx, NEED_INIT);
	green = green_find(handle);
	if (!ctx || !green)
		return CUDA_ERROR_INVALID_VALUE;
	*ctx = (CUcontext)green->ctx;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx handle, unsigned int flags,
				  int priority)
{
	struct green *green;
	struct sim_stream *s;

	SIM_ENTER(cuGreenCtxStreamCreate, NEED_INIT);
	green = green_find(handle);
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!stream || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	s = stream_new(green->ctx, flags, priority);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*stream = (CUstream)s;
	return CUDA_SUCCESS;
}
