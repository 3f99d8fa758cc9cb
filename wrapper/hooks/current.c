/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/current.h"
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
