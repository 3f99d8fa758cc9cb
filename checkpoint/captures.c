/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/captures.h"
#include "vmem/forks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#define MAX_OPEN 1024

struct capture {
	CUstream stream;
	CUcontext ctx;
	pid_t tid; /* of CU_STREAM_PER_THREAD; 0 for other streams */
	unsigned long serial;
	bool into; /* a graph that was there before */
};

FORKS_LOCK(lock);
static struct capture captures[MAX_OPEN]; /* under lock; count also read without */
static size_t count;
static unsigned long last_serial; /* under lock */

static pid_t tid_for(CUstream stream)
{
	return stream == CU_STREAM_PER_THREAD ? gettid() : 0;
}

static size_t find(CUstream stream)
{
	pid_t tid = tid_for(stream);
	size_t i = 0;

	while (i < count && (captures[i].stream != stream || captures[i].tid != tid))
		i++;
	return i;
}

/* The last one takes its place: a walk from the last to the first misses none. */
static void remove_at(size_t i)
{
	captures[i] = captures[count - 1];
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
}

void captures_add(CUstream stream, CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	size_t i = find(stream);
	if (i < count) {
		captures[i].into = false;
	} else if (count < MAX_OPEN) {
		captures[count] = (struct capture){.stream = stream,
						   .ctx = ctx,
						   .tid = tid_for(stream),
						   .serial = ++last_serial};
		__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
}

void captures_set_into(CUstream stream)
{
	pthread_mutex_lock(&lock);
	size_t i = find(stream);
	if (i < count)
		captures[i].into = true;
	pthread_mutex_unlock(&lock);
}

bool captures_remove(CUstream stream)
{
	bool into = false;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&lock);
	size_t i = find(stream);
	if (i < count) {
		into = captures[i].into;
		remove_at(i);
	}
	pthread_mutex_unlock(&lock);
	return into;
}

void captures_remove_context(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (size_t i = count; i-- > 0;)
		if (captures[i].ctx == ctx)
			remove_at(i);
	pthread_mutex_unlock(&lock);
}

static bool get(size_t i, struct capture *c)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = i < count;
	if (found)
		*c = captures[i];
	pthread_mutex_unlock(&lock);
	return found;
}

static void remove_this(const struct capture *c)
{
	pthread_mutex_lock(&lock);
	for (size_t i = count; i-- > 0;)
		if (captures[i].serial == c->serial)
			remove_at(i);
	pthread_mutex_unlock(&lock);
}

static bool thread_ended(pid_t tid)
{
	int saved = errno;
	bool ended = tgkill(getpid(), tid, 0) && errno == ESRCH;

	errno = saved;
	return ended;
}

static bool is_over(const struct cuda_driver *drv, const struct capture *c)
{
	CUstreamCaptureStatus status;
	CUresult result;

	/* CU_STREAM_PER_THREAD names another stream in this thread: it cannot be asked. */
	if (c->tid && c->tid != gettid())
		return thread_ended(c->tid);
	result = drv->cuStreamIsCapturing(c->stream, &status);
	/* That this thread has no context says nothing of the stream. */
	return result ? result != CUDA_ERROR_INVALID_CONTEXT
		      : status == CU_STREAM_CAPTURE_STATUS_NONE;
}

bool captures_open(const struct cuda_driver *drv)
{
	bool open = false;
	struct capture c;

	for (size_t i = __atomic_load_n(&count, __ATOMIC_RELAXED); i-- > 0;) {
		if (!get(i, &c))
			continue;
		if (is_over(drv, &c))
			remove_this(&c);
		else
			open = true;
	}
	return open;
}

static void forget_in_child(void)
{
	count = 0;
}
FORKS_CHILD(forget_in_child);
