/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/context_lock.h"

#include "common/system/forks.h"

#include <pthread.h>

/*
 * Held while a context ends, outside the lock of context.c, and by callers that need those that live.
 * These may wait in the driver for the GPU: then no context ends, but others begin.
 */
FORKS_LOCK(ends);

void context_lock(void)
{
	pthread_mutex_lock(&ends);
}

bool context_trylock(void)
{
	return !pthread_mutex_trylock(&ends);
}

void context_unlock(void)
{
	pthread_mutex_unlock(&ends);
}
