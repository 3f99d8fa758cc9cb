/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/current.h"
#include "wrapper/real.h"

#include <stddef.h>

CUcontext current_context(void)
{
	CUcontext ctx = NULL;

	real.cuCtxGetCurrent(&ctx);
	return ctx;
}

CUresult current_enter(CUcontext ctx, bool *pushed)
{
	CUcontext current = NULL;
	CUresult result;

	*pushed = false;
	if (!ctx || (!real.cuCtxGetCurrent(&current) && current == ctx))
		return CUDA_SUCCESS;
	result = real.cuCtxPushCurrent_v2(ctx);
	*pushed = !result;
	return result;
}

void current_leave(bool pushed)
{
	CUcontext ctx;

	if (pushed)
		real.cuCtxPopCurrent_v2(&ctx);
}

CUresult current_error(void)
{
	size_t bytes, total;
	CUresult result = real.cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE);

	if (!result || result == CUDA_ERROR_INVALID_CONTEXT)
		return CUDA_SUCCESS;
	/* If the context has no such limit, this succeeds. */
	return real.cuMemGetInfo_v2(&bytes, &total);
}
