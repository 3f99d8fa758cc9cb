/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/captures.h"

#include <pthread.h>
#include <stddef.h>

#define MAX_OPEN 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream streams[MAX_OPEN]; /* under lock; count also read without */
static size_t count;

static size_t find(CUstream stream)
{
	size_t i = 0;

	while (i < count && streams[i] != stream)
		i++;
	return i;
}

static void remove_at(size_t i)
{
	streams[i] = streams[count - 1];
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
}

void captures_add(CUstream stream)
{
	pthread_mutex_lock(&lock);
	if (find(stream) == count && count < MAX_OPEN) {
		streams[count] = stream;
		__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
}

void captures_remove(CUstream stream)
{
	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	size_t i = find(stream);
	if (i < count)
		remove_at(i);
	pthread_mutex_unlock(&lock);
}

bool captures_open(const struct cuda_driver *drv)
{
	bool open;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&lock);
	for (size_t i = count; i-- > 0;) {
		CUstreamCaptureStatus status;

		/* CU_STREAM_PER_THREAD names another stream in this thread: it cannot be asked. */
		if (streams[i] != CU_STREAM_PER_THREAD &&
		    !drv->cuStreamIsCapturing(streams[i], &status) &&
		    status == CU_STREAM_CAPTURE_STATUS_NONE)
			remove_at(i);
	}
	open = count > 0;
	pthread_mutex_unlock(&lock);
	return open;
}

void captures_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	count = 0;
}
