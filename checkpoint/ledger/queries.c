/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/queries.h"
#include "common/limits.h"
#include "common/system/forks.h"
#include "common/gpu/gpu.h"
#include "vmem/context_gone.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

struct query {
	const void *handle;
	CUcontext ctx;
	bool done; /* what the driver said in the latest queries_ask() */
	UT_hash_handle hh;
	struct query *next; /* in destroyed */
};

FORKS_LOCK(lock);
static struct query *tables[QUERY_KINDS]; /* under lock */
static struct query *destroyed;           /* under lock: events that queries_settle() destroys */
static bool resting;                      /* under lock: from queries_ask() to queries_settle() */

static struct context *alive; /* under lock: of all at the latest rest */
static size_t alive_count;

/* Written by queries_ask() alone, while not resting. */
static struct primary {
	bool known;
	unsigned int flags;
	int active;
} primaries[GPU_MAX];

static void remove_locked(enum query_kind kind, struct query *q)
{
	HASH_DELETE(hh, tables[kind], q);
	free(q);
}

void queries_add(enum query_kind kind, const void *handle, CUcontext ctx)
{
	struct query *q = calloc(1, sizeof(*q)), *old = NULL;

	if (!q)
		return;
	*q = (struct query){.handle = handle, .ctx = ctx};
	pthread_mutex_lock(&lock);
	HASH_REPLACE_PTR(tables[kind], handle, q, old);
	if (!q->hh.tbl)
		free(q); /* the table had no memory for it */
	pthread_mutex_unlock(&lock);
	free(old);
}

void queries_remove(enum query_kind kind, const void *handle)
{
	struct query *q;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(tables[kind], &handle, q);
	if (q)
		remove_locked(kind, q);
	pthread_mutex_unlock(&lock);
}

static bool ask(const struct cuda_driver *drv, enum query_kind kind, const struct query *q)
{
	if (kind == QUERY_EVENT)
		return !drv->cuEventQuery((CUevent)q->handle);
	return !drv->cuStreamQuery((CUstream)q->handle);
}

static void ask_primaries(const struct cuda_driver *drv)
{
	int ndev = 0;

	if (drv->cuDeviceGetCount(&ndev))
		ndev = 0;
	for (CUdevice dev = 0; dev < GPU_MAX; dev++) {
		struct primary *p = &primaries[dev];

		p->known =
			dev < ndev && !drv->cuDevicePrimaryCtxGetState(dev, &p->flags, &p->active);
	}
}

/* The answers are complete. Without memory for the list no context is known. */
static void begin_rest(const struct context_list *contexts)
{
	size_t count = contexts->count;
	struct context *list = count ? malloc(count * sizeof(*list)) : NULL, *old;

	if (list)
		memcpy(list, contexts->items, count * sizeof(*list));
	pthread_mutex_lock(&lock);
	old = alive;
	alive = list;
	alive_count = list ? count : 0;
	resting = true;
	pthread_mutex_unlock(&lock);
	free(old);
}

static int ask_all(const struct cuda_driver *drv, CUcontext *current, double deadline_ms,
		   const bool *cancel)
{
	for (enum query_kind kind = 0; kind < QUERY_KINDS; kind++)
		for (struct query *q = tables[kind]; q; q = q->hh.next) {
			if (__atomic_load_n(cancel, __ATOMIC_RELAXED))
				return -ECANCELED;
			if (limits_ms() > deadline_ms)
				return -ETIME;
			if (q->ctx != *current && drv->cuCtxSetCurrent(q->ctx)) {
				q->done = false;
				continue;
			}
			*current = q->ctx;
			q->done = ask(drv, kind, q);
		}
	return 0;
}

/*
 * Without the lock: no thread is inside a call that adds or removes, and those that look find that
 * the answers are not there yet.
 */
int queries_ask(const struct cuda_driver *drv, const struct context_list *contexts,
		double deadline_ms, const bool *cancel)
{
	CUcontext current = NULL;
	int ret = ask_all(drv, &current, deadline_ms, cancel);

	if (current)
		drv->cuCtxSetCurrent(NULL);
	if (ret)
		return ret;
	ask_primaries(drv);
	begin_rest(contexts);
	return 0;
}

bool queries_done(enum query_kind kind, const void *handle)
{
	const struct query *q = NULL;
	bool done;

	pthread_mutex_lock(&lock);
	if (resting)
		HASH_FIND_PTR(tables[kind], &handle, q);
	done = q && q->done;
	pthread_mutex_unlock(&lock);
	return done;
}

bool queries_destroy(CUevent event)
{
	struct query *q = NULL;

	pthread_mutex_lock(&lock);
	if (resting)
		HASH_FIND_PTR(tables[QUERY_EVENT], &event, q);
	if (q) {
		HASH_DELETE(hh, tables[QUERY_EVENT], q);
		LL_PREPEND(destroyed, q);
	}
	pthread_mutex_unlock(&lock);
	return q;
}

void queries_settle(const struct cuda_driver *drv)
{
	struct query *list, *q, *next;

	pthread_mutex_lock(&lock);
	resting = false;
	list = destroyed;
	destroyed = NULL;
	pthread_mutex_unlock(&lock);
	if (!list)
		return;
	LL_FOREACH_SAFE(list, q, next) {
		if (!drv->cuCtxSetCurrent(q->ctx))
			drv->cuEventDestroy_v2((CUevent)q->handle);
		free(q);
	}
	drv->cuCtxSetCurrent(NULL);
}

bool queries_context(CUcontext ctx, CUdevice *dev)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < alive_count && !found; i++)
		if (alive[i].ctx == ctx) {
			*dev = alive[i].dev;
			found = true;
		}
	pthread_mutex_unlock(&lock);
	return found;
}

bool queries_primary(CUdevice dev, unsigned int *flags, int *active)
{
	bool known;

	if (dev < 0 || dev >= GPU_MAX)
		return false;
	pthread_mutex_lock(&lock);
	known = resting && primaries[dev].known;
	if (known) {
		*flags = primaries[dev].flags;
		*active = primaries[dev].active;
	}
	pthread_mutex_unlock(&lock);
	return known;
}

static void forget_context(CUcontext ctx)
{
	struct query *q, *next;

	pthread_mutex_lock(&lock);
	for (enum query_kind kind = 0; kind < QUERY_KINDS; kind++)
		HASH_ITER(hh, tables[kind], q, next)
			if (q->ctx == ctx)
				remove_locked(kind, q);
	LL_FOREACH_SAFE(destroyed, q, next)
		if (q->ctx == ctx) {
			LL_DELETE(destroyed, q);
			free(q);
		}
	for (size_t i = alive_count; i-- > 0;)
		if (alive[i].ctx == ctx)
			alive[i] = alive[--alive_count];
	pthread_mutex_unlock(&lock);
}
CONTEXT_GONE(forget_context);

static void forget_in_child(void)
{
	for (enum query_kind kind = 0; kind < QUERY_KINDS; kind++)
		tables[kind] = NULL;
	destroyed = NULL;
	resting = false;
	alive_count = 0;
}
FORKS_CHILD(forget_in_child);
