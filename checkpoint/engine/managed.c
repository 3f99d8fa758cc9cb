/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/managed.h"
#include "checkpoint/host/claims.h"
#include "checkpoint/ledger/driver_memory.h"
#include "common/hostmem.h"

#include <stdlib.h>

/* False: host memory is short. */
static bool list(struct driver_memory_entry **entries, size_t *count, size_t *bytes)
{
	size_t room = driver_memory_count(DRIVER_MEMORY_MANAGED);

	*bytes = 0;
	*entries = calloc(room + 1, sizeof(**entries));
	if (!*entries)
		return false;
	*count = driver_memory_list(DRIVER_MEMORY_MANAGED, *entries, room);
	for (size_t i = 0; i < *count; i++)
		*bytes += (*entries)[i].size;
	return claims_make(*bytes, HOSTMEM_RESERVE) >= *bytes + HOSTMEM_RESERVE;
}

static CUresult prefetch(const struct cuda_driver *drv, const struct driver_memory_entry *entries,
			 size_t count)
{
	const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
	CUresult error, waited;
	CUstream stream;

	error = drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	if (error)
		return error;
	for (size_t i = 0; i < count && !error; i++) {
		error = drv->cuMemPrefetchAsync_v2(entries[i].handle, entries[i].size, host, 0,
						   stream);
		/* It ended with its context. */
		if (error == CUDA_ERROR_INVALID_VALUE)
			error = CUDA_SUCCESS;
	}
	waited = drv->cuStreamSynchronize(stream);
	drv->cuStreamDestroy_v2(stream);
	return error ? error : waited;
}

CUresult managed_to_host(const struct cuda_driver *drv, CUcontext ctx, size_t *bytes)
{
	struct driver_memory_entry *entries;
	CUresult error = CUDA_ERROR_OUT_OF_MEMORY;
	size_t count;

	if (list(&entries, &count, bytes)) {
		error = drv->cuMemPrefetchAsync_v2 ? drv->cuCtxSetCurrent(ctx)
						   : CUDA_ERROR_NOT_SUPPORTED;
		if (!error)
			error = prefetch(drv, entries, count);
		drv->cuCtxSetCurrent(NULL);
	}
	claims_drop();
	free(entries);
	return error;
}
