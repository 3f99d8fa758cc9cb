/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_UNCANCELLED_H
#define CUDAW_UNCANCELLED_H
/*
 * Waiting in a thread of the program. Driver calls are not cancellation points, so our part of a
 * call must not be one either: a thread that is cancelled in pthread_cond_wait() ends with the lock
 * held.
 */
#include <pthread.h>

static inline void uncancelled_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_cond_wait(cond, lock);
	pthread_setcancelstate(state, NULL);
}

#endif
