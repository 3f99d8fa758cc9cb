/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_POOLING_H
#define CUDAW_POOLING_H
/* For tests of stream-ordered allocations, over a driver whose events pass when a test says so. */
#include "calls.h"
#include "tests/check_suite.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/hooks/ordered/pools.h"

#include <pthread.h>

#define HANDLE(n) ((void *)(uintptr_t)(0x1000 + 16 * (n)))
#define CONTEXT   HANDLE(1)
#define STREAM(n) ((CUstream)HANDLE(100 + (n)))
#define SIZE      ((size_t)2 << 20)

/* An event, and the stream in which it was recorded last. */
struct event {
	CUstream stream;
	bool passed;
};

static unsigned int flags; /* of each stream */
static bool idle;          /* are all streams */
static CUstream captured;
static CUevent waited; /* by the last cuStreamWaitEvent() */
static CUstream waits; /* in it */
static unsigned int records;
static bool full;               /* is the GPU: it has no memory for events */
static void (*asked)(void);     /* in the next cuEventQuery() */
static void (*meanwhile)(void); /* in the next call that records an event or waits for one */

static CUcontext current = CONTEXT;

static inline CUresult get_current(CUcontext *ctx)
{
	*ctx = current;
	return CUDA_SUCCESS;
}

static inline CUresult get_device(CUdevice *dev)
{
	*dev = 0;
	return CUDA_SUCCESS;
}

static inline CUresult stream_ctx(CUstream stream, CUcontext *ctx)
{
	(void)stream;
	return get_current(ctx);
}

static inline CUresult stream_flags(CUstream stream, unsigned int *found)
{
	(void)stream;
	*found = flags;
	return CUDA_SUCCESS;
}

/* Work never ends by itself. */
static inline CUresult stream_query(CUstream stream)
{
	(void)stream;
	return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static inline CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	*status = stream == captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE
				     : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

/* An event that ends with its context is not destroyed. */
static inline CUresult event_create(CUevent *event, unsigned int how)
{
	static struct event events[256];
	static size_t n;

	ck_assert_uint_eq(how, CU_EVENT_DISABLE_TIMING);
	if (full)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ck_assert_uint_lt(n, sizeof(events) / sizeof(events[0]));
	*event = (CUevent)&events[n++];
	return CUDA_SUCCESS;
}

static inline CUresult event_destroy(CUevent event)
{
	*(struct event *)event = (struct event){0};
	return CUDA_SUCCESS;
}

/* Only once. */
static inline void interrupt(void (**by)(void))
{
	void (*now)(void) = *by;

	*by = NULL;
	if (now)
		now();
}

static inline CUresult event_record(CUevent event, CUstream stream)
{
	interrupt(&meanwhile);
	ck_assert_ptr_ne(stream, captured);
	*(struct event *)event = (struct event){.stream = stream};
	records++;
	return CUDA_SUCCESS;
}

static inline CUresult event_query(CUevent event)
{
	interrupt(&asked);
	return ((struct event *)event)->passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static inline CUresult wait_event(CUstream stream, CUevent event, unsigned int how)
{
	ck_assert_uint_eq(how, CU_EVENT_WAIT_DEFAULT);
	interrupt(&meanwhile);
	waits = stream;
	waited = event;
	return CUDA_SUCCESS;
}

static inline CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	return CUDA_SUCCESS;
}

static struct pool pool;

static inline void setup(void)
{
	real.cuCtxGetCurrent = get_current;
	real.cuCtxGetDevice = get_device;
	real.cuStreamGetCtx = stream_ctx;
	real.cuStreamGetFlags = stream_flags;
	real.cuStreamQuery = stream_query;
	real.cuStreamIsCapturing = is_capturing;
	real.cuEventCreate = event_create;
	real.cuEventDestroy_v2 = event_destroy;
	real.cuEventRecord = event_record;
	real.cuEventQuery = event_query;
	real.cuStreamWaitEvent = wait_event;
	real.cuThreadExchangeStreamCaptureMode = exchange_mode;
	flags = CU_STREAM_NON_BLOCKING;
	pool = (struct pool){.handle = HANDLE(2), .dependencies = true};
}

static inline struct stream *stream_of(CUstream stream)
{
	struct stream *s;

	pthread_mutex_lock(&pools_lock);
	s = stream_get(stream, CONTEXT);
	pthread_mutex_unlock(&pools_lock);
	return s;
}

static struct pool_block blocks[256];
static size_t nblocks;

/* A block of the pool that is freed in @s. */
static inline struct pool_block *freed(struct stream *s)
{
	struct pool_block *b = &blocks[nblocks++];

	ck_assert_uint_le(nblocks, sizeof(blocks) / sizeof(blocks[0]));
	*b = (struct pool_block){.room = SIZE, .ctx = CONTEXT, .pool = &pool};
	ck_assert_int_eq(stream_mark_free(s), CUDA_SUCCESS);
	stream_put(s, stream_list(s, &pool), b);
	return b;
}

static inline void passes(CUevent event)
{
	ck_assert_ptr_nonnull(event);
	((struct event *)event)->passed = true;
}

/* What the pool has, as far as an event in a stream shows it. */
static inline struct pool_block *look(void)
{
	struct pool_block *b;

	pthread_mutex_lock(&pools_lock);
	streams_ask(&pool, STREAM_LOOK_AND_RECORD);
	streams_settle(&pool);
	b = pool_list_find(&pool.passed, SIZE);
	pthread_mutex_unlock(&pools_lock);
	return b;
}

#endif
