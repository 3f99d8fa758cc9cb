/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/green.h"
#include "common/system/threads.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

struct capture {
	CUstream stream;
	CUcontext ctx;
	CUcontext owner;    /* the primary context of a green ctx, or ctx: it ends with either */
	pid_t tid;          /* of CU_STREAM_PER_THREAD; 0 for other streams */
	unsigned int asked; /* threads in the driver for it; it stays in the list meanwhile */
	bool beginning;     /* one of them begins it; no thread asks */
	bool ending;        /* no further thread asks */
	bool into;          /* it goes into an existing graph */
	struct capture *prev, *next;
};

FORKS_LOCK(lock);
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER; /* `asked` of one became less */
static struct capture *captures;                           /* under lock; the newest first */
static unsigned long count;                                /* under lock; also read without */

static pid_t tid_for(CUstream stream)
{
	return stream == CU_STREAM_PER_THREAD ? gettid() : 0;
}

/* A thread has a CU_STREAM_PER_THREAD in each context. */
static struct capture *find(CUstream stream, CUcontext ctx)
{
	pid_t tid = tid_for(stream);
	struct capture *c;

	DL_FOREACH(captures, c)
		if (c->stream == stream && c->tid == tid && (!tid || c->ctx == ctx))
			break;
	return c;
}

static void remove_locked(struct capture *c)
{
	DL_DELETE(captures, c);
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
	free(c);
}

struct capture *captures_begin(CUstream stream, CUcontext ctx, bool into)
{
	struct capture *c = malloc(sizeof(*c));

	if (!c)
		return NULL;
	*c = (struct capture){
		.stream = stream,
		.ctx = ctx,
		.owner = green_owner(ctx),
		.tid = tid_for(stream),
		.asked = 1,
		.beginning = true,
		.into = into,
	};
	pthread_mutex_lock(&lock);
	DL_PREPEND(captures, c);
	__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
	return c;
}

void captures_begun(struct capture *c, bool success)
{
	pthread_mutex_lock(&lock);
	c->asked = 0;
	c->beginning = false;
	pthread_cond_broadcast(&answered);
	if (!success)
		remove_locked(c);
	pthread_mutex_unlock(&lock);
}

bool captures_remove(CUstream stream, CUcontext ctx)
{
	bool newest = true, into = false;
	struct capture *c;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&lock);
	/* Others of the stream ended unseen. Another thread may remove them during a wait. */
	while ((c = find(stream, ctx))) {
		if (c->asked) {
			c->ending = true;
			pthread_cond_wait(&answered, &lock);
			continue;
		}
		if (newest)
			into = c->into;
		newest = false;
		remove_locked(c);
	}
	pthread_mutex_unlock(&lock);
	return into;
}

static bool ends_with(const struct capture *c, CUcontext ctx)
{
	return c->ctx == ctx || c->owner == ctx;
}

/* With lock held: a capture of @ctx that a thread asks about. */
static struct capture *find_asked(CUcontext ctx)
{
	struct capture *c;

	DL_FOREACH(captures, c)
		if (ends_with(c, ctx) && c->asked)
			break;
	return c;
}

/* With lock held. */
static void set_ending(CUcontext ctx, bool ending)
{
	struct capture *c;

	DL_FOREACH(captures, c)
		if (ends_with(c, ctx))
			c->ending = ending;
}

/* With lock held; releases it while it waits. */
static void end_questions(CUcontext ctx)
{
	set_ending(ctx, true);
	while (find_asked(ctx))
		pthread_cond_wait(&answered, &lock);
}

void captures_context_ending(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	end_questions(ctx);
	pthread_mutex_unlock(&lock);
}

void captures_context_lives(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	set_ending(ctx, false);
	pthread_mutex_unlock(&lock);
}

void captures_remove_context(CUcontext ctx)
{
	struct capture *c, *next;

	pthread_mutex_lock(&lock);
	end_questions(ctx);
	DL_FOREACH_SAFE(captures, c, next)
		if (ends_with(c, ctx))
			remove_locked(c);
	pthread_mutex_unlock(&lock);
}

CONTEXT_GONE(captures_remove_context);

static bool is_over(const struct cuda_driver *drv, const struct capture *c)
{
	CUstreamCaptureStatus status;
	CUcontext ctx = NULL;
	CUresult result;

	/*
	 * CU_STREAM_PER_THREAD names another stream in this thread, or in the context that is current, so the
	 * driver cannot be asked.
	 */
	if (c->tid && c->tid != gettid())
		return threads_ended(c->tid);
	if (c->tid && (drv->cuCtxGetCurrent(&ctx) || ctx != c->ctx))
		return false;
	result = drv->cuStreamIsCapturing(c->stream, &status);
	/* That this thread has no context says nothing about the stream. */
	return result ? result != CUDA_ERROR_INVALID_CONTEXT
		      : status == CU_STREAM_CAPTURE_STATUS_NONE;
}

/*
 * With lock held; releases it while it asks. @c may be gone afterwards. Returns the next capture.
 */
static struct capture *ask(const struct cuda_driver *drv, struct capture *c, bool *open)
{
	struct capture *next;
	bool over;

	c->asked++;
	pthread_mutex_unlock(&lock);
	over = is_over(drv, c);
	pthread_mutex_lock(&lock);
	c->asked--;
	next = c->next;
	/* Whatever `ending` says now: captures_context_lives() sets it back while others wait. */
	pthread_cond_broadcast(&answered);
	*open |= !over;
	if (over && !c->ending && !c->asked)
		remove_locked(c);
	return next;
}

bool captures_open(const struct cuda_driver *drv)
{
	bool open = false;
	struct capture *c;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&lock);
	for (c = captures; c;) {
		if (c->ending || c->beginning) {
			open = true;
			c = c->next;
		} else {
			c = ask(drv, c, &open);
		}
	}
	pthread_mutex_unlock(&lock);
	return open;
}

static void forget_in_child(void)
{
	pthread_cond_init(&answered, NULL);
	captures = NULL;
	count = 0;
}
FORKS_CHILD(forget_in_child);
