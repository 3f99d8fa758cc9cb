/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/contexts.h"
#include "common/system/forks.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/gpu/gpu.h"
#include "common/system/threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CANCEL_POLL_MS 20

FORKS_LOCK(lock);
static struct context_list created; /* under lock */
static bool primaries[GPU_MAX];     /* that are active; under lock */

/* The drain under way, under lock. Its thread outlives an abandoned wait. */
static struct {
	const struct cuda_driver *drv;
	struct context_list list; /* a ctx of NULL: it has ended */
	bool running;
	bool given_up;     /* the thread begins no further context */
	CUcontext current; /* the thread is inside it, or is about to be */
	CUresult error;
} drain;
static pthread_cond_t drained; /* running or current changed */
static pthread_once_t drained_once = PTHREAD_ONCE_INIT;

static void drained_init(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&drained, &attr);
	pthread_condattr_destroy(&attr);
}

static bool make_room(struct context_list *list, size_t room)
{
	struct context *items;

	if (room <= list->room)
		return true;
	items = reallocarray(list->items, 2 * room, sizeof(*items));
	if (!items)
		return false;
	list->items = items;
	list->room = 2 * room;
	return true;
}

void contexts_free(struct context_list *list)
{
	free(list->items);
	*list = (struct context_list){0};
}

bool contexts_reserve(void)
{
	bool reserved;

	pthread_mutex_lock(&lock);
	reserved = make_room(&created, created.count + 1);
	pthread_mutex_unlock(&lock);
	return reserved;
}

void contexts_add(CUcontext ctx, CUdevice dev)
{
	pthread_mutex_lock(&lock);
	created.items[created.count++] = (struct context){ctx, dev, false};
	pthread_mutex_unlock(&lock);
}

void contexts_remove(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < created.count; i++)
		if (created.items[i].ctx == ctx) {
			created.items[i] = created.items[--created.count];
			break;
		}
	pthread_mutex_unlock(&lock);
}

bool contexts_created(CUcontext ctx)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < created.count && !found; i++)
		found = created.items[i].ctx == ctx;
	pthread_mutex_unlock(&lock);
	return found;
}

void contexts_set_primary(CUdevice dev, bool active)
{
	if (dev < 0 || dev >= GPU_MAX)
		return;
	pthread_mutex_lock(&lock);
	primaries[dev] = active;
	pthread_mutex_unlock(&lock);
}

bool contexts_on(CUdevice dev)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = dev >= 0 && dev < GPU_MAX && primaries[dev];
	for (size_t i = 0; i < created.count && !found; i++)
		found = created.items[i].dev == dev;
	pthread_mutex_unlock(&lock);
	return found;
}

void contexts_ending(CUcontext ctx)
{
	if (!ctx)
		return;
	pthread_once(&drained_once, drained_init);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; drain.running && i < drain.list.count; i++)
		if (drain.list.items[i].ctx == ctx)
			drain.list.items[i].ctx = NULL;
	while (drain.running && drain.current == ctx)
		pthread_cond_wait(&drained, &lock);
	pthread_mutex_unlock(&lock);
}

/* The primary contexts that are active. @list has room for those of all devices. */
static CUresult get_primary(const struct cuda_driver *drv, struct context_list *list, int ndev)
{
	CUresult error = CUDA_SUCCESS;

	for (CUdevice dev = 0; dev < ndev && !error; dev++) {
		struct context *c = &list->items[list->count];
		unsigned int flags;
		int active = 0;

		error = drv->cuDevicePrimaryCtxGetState(dev, &flags, &active);
		if (error || !active)
			continue;
		error = drv->cuDevicePrimaryCtxRetain(&c->ctx, dev);
		if (error)
			continue;
		/* The program's reference keeps it alive, and no call gives that up meanwhile. */
		error = drv->cuDevicePrimaryCtxRelease_v2(dev);
		c->dev = dev;
		c->primary = true;
		list->count++;
	}
	return error;
}

static CUresult get_all(const struct cuda_driver *drv, struct context_list *list)
{
	CUresult error;
	int ndev = 0;

	error = drv->cuDeviceGetCount(&ndev);
	if (error)
		return error;
	if (ndev > GPU_MAX)
		ndev = GPU_MAX;
	if (!make_room(list, ndev + 1))
		return CUDA_ERROR_OUT_OF_MEMORY;
	error = get_primary(drv, list, ndev);
	if (error)
		return error;
	pthread_mutex_lock(&lock);
	if (make_room(list, list->count + created.count)) {
		for (size_t i = 0; i < created.count; i++)
			list->items[list->count++] = created.items[i];
	} else {
		error = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* A missing context would be paused while its kernels run, so any failure fails the whole. */
CUresult contexts_get(const struct cuda_driver *drv, struct context_list *list)
{
	CUresult error;

	list->count = 0;
	error = get_all(drv, list);
	if (error)
		list->count = 0;
	return error;
}

static CUresult synchronize(const struct cuda_driver *drv, CUcontext ctx)
{
	CUresult error = drv->cuCtxSetCurrent(ctx);

	if (!error)
		error = drv->cuCtxSynchronize();
	drv->cuCtxSetCurrent(NULL);
	return error;
}

static void *drain_main(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult error = CUDA_SUCCESS;

	(void)arg;
	threads_own_floats();
	drain.drv->cuThreadExchangeStreamCaptureMode(&mode);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < drain.list.count && !drain.given_up && !error; i++) {
		drain.current = drain.list.items[i].ctx;
		if (!drain.current)
			continue;
		pthread_mutex_unlock(&lock);
		error = synchronize(drain.drv, drain.current);
		pthread_mutex_lock(&lock);
		drain.current = NULL;
		pthread_cond_broadcast(&drained);
	}
	drain.error = error;
	drain.running = false;
	pthread_cond_broadcast(&drained);
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* With lock held. Checks *@cancel every CANCEL_POLL_MS. */
static int wait_drained(double deadline_ms, const bool *cancel)
{
	while (drain.running) {
		double left = deadline_ms - limits_ms();
		struct timespec until = clock_timespec(
			clock_ms() + (left < CANCEL_POLL_MS ? left : CANCEL_POLL_MS));

		if (left < 0)
			return -ETIME;
		if (__atomic_load_n(cancel, __ATOMIC_RELAXED))
			return -ECANCELED;
		pthread_cond_timedwait(&drained, &lock, &until);
	}
	return 0;
}

/* With lock held: the contexts that were drained. */
static int copy_list(struct context_list *list)
{
	list->count = 0;
	if (!make_room(list, drain.list.count))
		return -ENOMEM;
	for (size_t i = 0; i < drain.list.count; i++)
		if (drain.list.items[i].ctx)
			list->items[list->count++] = drain.list.items[i];
	return 0;
}

/* With lock held, and the contexts to drain in drain.list. */
static int run_drain(double deadline_ms, const bool *cancel, CUresult *error)
{
	pthread_t thread;
	int result;

	drain.given_up = false;
	drain.running = true;
	result = -threads_create(&thread, drain_main, NULL);
	if (result) {
		drain.running = false;
		return result;
	}
	pthread_detach(thread);
	result = wait_drained(deadline_ms, cancel);
	drain.given_up = result != 0;
	if (result || !drain.error)
		return result;
	*error = drain.error;
	return -EIO;
}

int contexts_drain(const struct cuda_driver *drv, struct context_list *list, double deadline_ms,
		   const bool *cancel, CUresult *error)
{
	int result;

	pthread_once(&drained_once, drained_init);
	pthread_mutex_lock(&lock);
	result = wait_drained(deadline_ms, cancel);
	pthread_mutex_unlock(&lock);
	if (result)
		return result;
	/* No other thread starts a drain, so drain is ours until its thread runs. */
	drain.drv = drv;
	*error = contexts_get(drv, &drain.list);
	if (*error)
		return -EIO;
	pthread_mutex_lock(&lock);
	result = run_drain(deadline_ms, cancel, error);
	if (!result)
		result = copy_list(list);
	pthread_mutex_unlock(&lock);
	return result;
}

static void forget_in_child(void)
{
	created.count = 0;
	drain.running = false;
}
FORKS_CHILD(forget_in_child);
