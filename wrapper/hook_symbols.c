/* SPDX-License-Identifier: Apache-2.0 */
/* With translated addressing: where the variables of modules are, for symbols.h. */
#include "calls.h"
#include "vmem/symbols.h"

static CUresult found(CUresult result, const void *owner, CUdeviceptr *ptr, size_t *size,
		      const CUdeviceptr *at, const size_t *bytes)
{
	CUcontext ctx;

	if (result)
		return result;
	if (ptr)
		*ptr = *at;
	if (size)
		*size = *bytes;
	if (!real.cuCtxGetCurrent(&ctx))
		symbols_add(owner, ctx, *at, *bytes);
	return result;
}

CUresult hook_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod,
				   const char *name)
{
	CUdeviceptr at;
	size_t size;

	return found(real.cuModuleGetGlobal_v2(&at, &size, hmod, name), hmod, dptr, bytes, &at,
		     &size);
}

CUresult hook_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				 const char *name)
{
	CUdeviceptr at;
	size_t size;

	return found(real.cuLibraryGetGlobal(&at, &size, library, name), library, dptr, bytes, &at,
		     &size);
}
