/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/contexts.h"
#include "checkpoint/gate.h"
#include "vmem/forks.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define CANCEL_POLL_MS 20
#define MAX_CREATED    (CONTEXTS_MAX - CUDA_MAX_DEVICES)

FORKS_LOCK(lock);
static struct context created[MAX_CREATED]; /* under lock */
static size_t ncreated;

/* The drain that is under way, under lock. Its thread outlives a wait that was given up. */
static struct {
	const struct cuda_driver *drv;
	struct context list[CONTEXTS_MAX];
	size_t count;
	bool running;
	CUresult error;
} drain;
static pthread_cond_t drained;
static pthread_once_t drained_once = PTHREAD_ONCE_INIT;

static void drained_init(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&drained, &attr);
	pthread_condattr_destroy(&attr);
}

void contexts_add(CUcontext ctx, CUdevice dev)
{
	pthread_mutex_lock(&lock);
	if (ncreated < MAX_CREATED)
		created[ncreated++] = (struct context){ctx, dev, false};
	pthread_mutex_unlock(&lock);
}

void contexts_remove(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ncreated; i++)
		if (created[i].ctx == ctx) {
			created[i] = created[--ncreated];
			break;
		}
	pthread_mutex_unlock(&lock);
}

void contexts_put(const struct cuda_driver *drv, const struct context *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].primary)
			drv->cuDevicePrimaryCtxRelease_v2(list[i].dev);
}

/* The primary contexts that are active, retained until contexts_put(). */
static CUresult get_primary(const struct cuda_driver *drv, struct context *list, size_t *count)
{
	CUresult error;
	int ndev = 0;

	*count = 0;
	error = drv->cuDeviceGetCount(&ndev);
	for (CUdevice dev = 0; dev < ndev && dev < CUDA_MAX_DEVICES && !error; dev++) {
		unsigned int flags;
		int active = 0;

		error = drv->cuDevicePrimaryCtxGetState(dev, &flags, &active);
		if (error || !active)
			continue;
		error = drv->cuDevicePrimaryCtxRetain(&list[*count].ctx, dev);
		if (error)
			continue;
		list[*count].dev = dev;
		list[(*count)++].primary = true;
	}
	return error;
}

/*
 * One that is left out would be paused while its kernels run, so any failure is one of the whole.
 */
CUresult contexts_get(const struct cuda_driver *drv, struct context *list, size_t *count)
{
	CUresult error = get_primary(drv, list, count);

	if (error) {
		contexts_put(drv, list, *count);
		*count = 0;
		return error;
	}
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ncreated; i++)
		list[(*count)++] = created[i];
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static void *drain_main(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult error = CUDA_SUCCESS;

	(void)arg;
	drain.drv->cuThreadExchangeStreamCaptureMode(&mode);
	for (size_t i = 0; i < drain.count && !error; i++) {
		error = drain.drv->cuCtxSetCurrent(drain.list[i].ctx);
		if (!error)
			error = drain.drv->cuCtxSynchronize();
	}
	drain.drv->cuCtxSetCurrent(NULL);
	contexts_put(drain.drv, drain.list, drain.count);
	pthread_mutex_lock(&lock);
	drain.error = error;
	drain.running = false;
	pthread_cond_broadcast(&drained);
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* With lock held. Looks at *@cancel now and then. */
static int wait_drained(double deadline_ms, const bool *cancel)
{
	while (drain.running) {
		double now = gate_now_ms();
		double look = now + CANCEL_POLL_MS, next = look < deadline_ms ? look : deadline_ms;
		time_t sec = (time_t)(next / 1e3);
		struct timespec until = {sec, (long)((next - sec * 1e3) * 1e6)};

		if (now > deadline_ms)
			return -ETIME;
		if (__atomic_load_n(cancel, __ATOMIC_RELAXED))
			return -ECANCELED;
		pthread_cond_timedwait(&drained, &lock, &until);
	}
	return 0;
}

int contexts_drain(const struct cuda_driver *drv, struct context *list, size_t *count,
		   double deadline_ms, const bool *cancel, CUresult *error)
{
	pthread_t thread;
	int result;

	pthread_once(&drained_once, drained_init);
	pthread_mutex_lock(&lock);
	result = wait_drained(deadline_ms, cancel);
	pthread_mutex_unlock(&lock);
	if (result)
		return result;
	/* Nobody but this thread starts a drain, so drain is ours until its thread runs. */
	drain.drv = drv;
	*error = contexts_get(drv, drain.list, &drain.count);
	if (*error)
		return -EIO;
	memcpy(list, drain.list, drain.count * sizeof(*list));
	*count = drain.count;
	pthread_mutex_lock(&lock);
	drain.running = true;
	result = -pthread_create(&thread, NULL, drain_main, NULL);
	if (result) {
		drain.running = false;
		contexts_put(drv, list, *count);
		goto out;
	}
	pthread_detach(thread);
	result = wait_drained(deadline_ms, cancel);
	if (!result && drain.error) {
		*error = drain.error;
		result = -EIO;
	}
out:
	pthread_mutex_unlock(&lock);
	return result;
}

static void forget_in_child(void)
{
	ncreated = 0;
	drain.running = false;
}
FORKS_CHILD(forget_in_child);
