/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/pool_passed.h"
#include "vmem/trimming.h"
#include "wrapper/hooks/ordered/frees.h"
#include "wrapper/hooks/ordered/pool_objects.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/real.h"

#include <stddef.h>
#include <utlist.h>

/* With pools_lock held; releases it meanwhile. Pools that have too much free what has passed; @look: ask. */
static void shrink_all(bool look)
{
	struct pool *p;

	LL_FOREACH(pools, p) {
		if (!pool_has_too_much(p))
			continue;
		if (look)
			streams_ask(p, STREAM_LOOK);
		streams_settle(p);
		pool_shrink(p, pool_keeps(p));
	}
}

void pools_stream_passed(CUstream stream, uint64_t until)
{
	CUcontext ctx = NULL;
	struct key key;

	frees_collect(FREES_FEW);
	if (pool_none_is_free())
		return;
	real.cuCtxGetCurrent(&ctx);
	key = stream_key(stream, ctx);
	pthread_mutex_lock(&pools_lock);
	stream_passed(&key, until);
	shrink_all(false);
	pthread_mutex_unlock(&pools_lock);
}

void pools_context_passed(CUcontext ctx, uint64_t until)
{
	frees_collect(FREES_FEW);
	if (pool_none_is_free() || (!ctx && real.cuCtxGetCurrent(&ctx)))
		return;
	pthread_mutex_lock(&pools_lock);
	streams_context_passed(ctx, until);
	shrink_all(false);
	pthread_mutex_unlock(&pools_lock);
}

void pools_some_passed(void)
{
	frees_collect(FREES_FEW);
	if (pool_none_is_free())
		return;
	pthread_mutex_lock(&pools_lock);
	shrink_all(true);
	pthread_mutex_unlock(&pools_lock);
}

/* With pools_lock held; releases it meanwhile. */
static void free_passed(enum stream_effort effort)
{
	struct pool *p;

	streams_ask(NULL, effort);
	LL_FOREACH(pools, p) {
		streams_settle(p);
		pool_shrink(p, 0);
	}
}

void pools_collect(void)
{
	if (pool_none_is_free())
		return;
	pthread_mutex_lock(&pools_lock);
	free_passed(STREAM_LOOK_AND_RECORD);
	/* Another thread may ask about what the caller lacks, and give it back after that. */
	for (int left = 2; left && pool_givers_wait(); left--)
		free_passed(STREAM_LOOK_AND_RECORD);
	pthread_mutex_unlock(&pools_lock);
}

/* vmem gives back what nobody uses: so do pools. In a pause all work on the GPU has ended. */
static void trimming(void)
{
	if (pool_none_is_free())
		return;
	pthread_mutex_lock(&pools_lock);
	free_passed(STREAM_LOOK);
	pthread_mutex_unlock(&pools_lock);
}
VMEM_TRIMMING(trimming);

void pools_destroyed(uint64_t id)
{
	struct pool *p;

	pthread_mutex_lock(&pools_lock);
	p = pool_end(id);
	if (p) {
		streams_settle(p);
		pool_shrink(p, 0);
	}
	pthread_mutex_unlock(&pools_lock);
	pool_device_changed();
}

void pools_trim_to(CUmemoryPool handle, size_t keep)
{
	struct pool *p;

	pthread_mutex_lock(&pools_lock);
	p = pool_find(handle);
	if (p && p->reserved > keep) {
		streams_ask(p, STREAM_LOOK);
		streams_settle(p);
		pool_shrink(p, keep);
	}
	pthread_mutex_unlock(&pools_lock);
}
