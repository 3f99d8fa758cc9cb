/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/windows.h"
#include "wrapper/real.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "wrapper/translated/rewrite.h"

#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

struct window {
	CUstream stream;
	CUcontext ctx;
	CUlaunchAttributeValue value; /* with a virtual address */
	struct window *next;
};

FORKS_LOCK(lock);
static struct window *windows; /* under lock */

/* Remove the windows of @stream, or of @ctx; NULL stands for any. */
static void remove_locked(const CUstream *stream, CUcontext ctx)
{
	struct window *w, *next;

	LL_FOREACH_SAFE(windows, w, next) {
		if ((stream && w->stream != *stream) || (ctx && w->ctx != ctx))
			continue;
		LL_DELETE(windows, w);
		free(w);
	}
}

void windows_set(CUstream stream, const CUlaunchAttributeValue *value)
{
	struct window *w = malloc(sizeof(*w));
	CUcontext ctx = NULL;

	real.cuCtxGetCurrent(&ctx);
	pthread_mutex_lock(&lock);
	remove_locked(&stream, ctx);
	if (w) {
		*w = (struct window){.stream = stream, .ctx = ctx, .value = *value};
		if (rewrite_access_policy_back(&w->value) && stream != CU_STREAM_PER_THREAD)
			LL_PREPEND(windows, w);
		else
			free(w);
	}
	pthread_mutex_unlock(&lock);
}

void windows_copied(CUstream stream)
{
	CUlaunchAttributeValue value;

	if (!real.cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value))
		windows_set(stream, &value);
}

void windows_remove(CUstream stream)
{
	pthread_mutex_lock(&lock);
	remove_locked(&stream, NULL);
	pthread_mutex_unlock(&lock);
}

static void forget_context(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	remove_locked(NULL, ctx);
	pthread_mutex_unlock(&lock);
}

CONTEXT_GONE(forget_context);

void windows_move(void)
{
	struct window *w;

	for (w = windows; w; w = w->next) {
		CUlaunchAttributeValue value = w->value;

		/* If it fails, a hint is lost. */
		if (!real.cuCtxSetCurrent(w->ctx))
			real.cuStreamSetAttribute(w->stream,
						  CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
						  rewrite_access_policy(&value));
	}
}
