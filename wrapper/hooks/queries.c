/* SPDX-License-Identifier: Apache-2.0 */
/* The events and streams that come and go, and the answers to queries of them at rest. */
#include "checkpoint/ledger/green.h"
#include "checkpoint/ledger/queries.h"
#include "wrapper/hooks/ordered/pool_events.h"
#include "wrapper/real.h"

#include <stddef.h>

/* @handle was created in the current context. What belongs to a green context ends with that. */
static void created(enum query_kind kind, const void *handle)
{
	CUcontext ctx = NULL;

	if (!real.cuCtxGetCurrent(&ctx) && ctx && green_owner(ctx) == ctx)
		queries_add(kind, handle, ctx);
}

CUresult hook_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	CUresult result = real.cuEventCreate(phEvent, Flags);

	if (!result && !(Flags & CU_EVENT_INTERPROCESS))
		created(QUERY_EVENT, *phEvent);
	return result;
}

CUresult hook_cuEventDestroy(CUevent hEvent)
{
	pool_events_forget(hEvent);
	queries_remove(QUERY_EVENT, hEvent);
	return real.cuEventDestroy(hEvent);
}

CUresult hook_cuEventDestroy_v2(CUevent hEvent)
{
	pool_events_forget(hEvent);
	queries_remove(QUERY_EVENT, hEvent);
	return real.cuEventDestroy_v2(hEvent);
}

CUresult hook_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	CUresult result = real.cuStreamCreate(phStream, Flags);

	if (!result)
		created(QUERY_STREAM, *phStream);
	return result;
}

CUresult hook_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	CUresult result = real.cuStreamCreateWithPriority(phStream, flags, priority);

	if (!result)
		created(QUERY_STREAM, *phStream);
	return result;
}

static bool answer(enum query_kind kind, const void *handle, CUresult *ret)
{
	*ret = CUDA_SUCCESS;
	return queries_done(kind, handle);
}

bool rest_cuEventQuery(CUevent hEvent, CUresult *ret)
{
	return answer(QUERY_EVENT, hEvent, ret);
}

bool rest_cuStreamQuery(CUstream hStream, CUresult *ret)
{
	return answer(QUERY_STREAM, hStream, ret);
}

bool rest_cuStreamQuery_ptsz(CUstream hStream, CUresult *ret)
{
	return answer(QUERY_STREAM, hStream, ret);
}

bool rest_cuEventDestroy(CUevent hEvent, CUresult *ret)
{
	*ret = CUDA_SUCCESS;
	return queries_destroy(hEvent);
}

bool rest_cuEventDestroy_v2(CUevent hEvent, CUresult *ret)
{
	return rest_cuEventDestroy(hEvent, ret);
}
