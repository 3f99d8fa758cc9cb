/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/green.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

FORKS_LOCK(lock);
static struct green *greens; /* under lock */
static size_t count, room;   /* under lock; count is also read without */

bool green_reserve(void)
{
	bool reserved = true;

	pthread_mutex_lock(&lock);
	if (count == room) {
		struct green *grown = reallocarray(greens, 2 * room + 1, sizeof(*grown));

		reserved = grown != NULL;
		if (grown) {
			greens = grown;
			room = 2 * room + 1;
		}
	}
	pthread_mutex_unlock(&lock);
	return reserved;
}

void green_add(CUgreenCtx handle, CUcontext primary, CUdevice dev)
{
	pthread_mutex_lock(&lock);
	greens[count] = (struct green){.handle = handle, .primary = primary, .dev = dev};
	__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

/* With lock held. */
static struct green *find(CUgreenCtx handle)
{
	for (size_t i = 0; i < count; i++)
		if (greens[i].handle == handle)
			return &greens[i];
	return NULL;
}

/* With lock held. */
static void remove_locked(struct green *g)
{
	*g = greens[count - 1];
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
}

void green_set_context(CUgreenCtx handle, CUcontext ctx)
{
	struct green *g;

	pthread_mutex_lock(&lock);
	g = find(handle);
	if (g)
		g->ctx = ctx;
	pthread_mutex_unlock(&lock);
}

bool green_get(CUgreenCtx handle, struct green *green)
{
	const struct green *g;

	pthread_mutex_lock(&lock);
	g = find(handle);
	if (g)
		*green = *g;
	pthread_mutex_unlock(&lock);
	return g != NULL;
}

void green_remove(CUgreenCtx handle)
{
	struct green *g;

	pthread_mutex_lock(&lock);
	g = find(handle);
	if (g)
		remove_locked(g);
	pthread_mutex_unlock(&lock);
}

CUcontext green_owner(CUcontext ctx)
{
	if (!ctx || !__atomic_load_n(&count, __ATOMIC_RELAXED))
		return ctx;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++)
		if (greens[i].ctx == ctx) {
			ctx = greens[i].primary;
			break;
		}
	pthread_mutex_unlock(&lock);
	return ctx;
}

/* A reset ends the primary context under its green ones. */
static void forget_context(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (size_t i = count; i-- > 0;)
		if (greens[i].primary == ctx)
			remove_locked(&greens[i]);
	pthread_mutex_unlock(&lock);
}
CONTEXT_GONE(forget_context);

static void forget_in_child(void)
{
	count = 0;
}
FORKS_CHILD(forget_in_child);
