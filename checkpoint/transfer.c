/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/transfer.h"
#include "checkpoint/hostmem.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#define LOG_PREFIX "transfer: "
#include "vmem/log.h"

struct job {
	const struct cuda_driver *drv;
	enum transfer_direction direction;
	struct transfer_piece *pieces;
	size_t count;
	size_t *done;
	size_t next;	/* index of the next piece; atomic */
	int result;	/* first failure; atomic */
	CUresult error; /* the driver's, where result is -EIO */
};

static void fail(struct job *job, int result, CUresult error)
{
	int none = 0;

	if (error)
		__atomic_store_n(&job->error, error, __ATOMIC_RELAXED);
	__atomic_compare_exchange_n(&job->result, &none, result, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

static CUresult copy(struct job *job, struct transfer_piece *p, CUstream stream)
{
	const struct cuda_driver *drv = job->drv;
	CUresult error;

	if (!p->registered)
		p->registered = !drv->cuMemHostRegister_v2(p->host, p->size,
							   CU_MEMHOSTREGISTER_PORTABLE);
	error = job->direction == TRANSFER_OUT
			? drv->cuMemcpyDtoHAsync_v2(p->host, p->dev, p->size, stream)
			: drv->cuMemcpyHtoDAsync_v2(p->dev, p->host, p->size, stream);
	return error ? error : drv->cuStreamSynchronize(stream);
}

static void unregister(const struct cuda_driver *drv, struct transfer_piece *p)
{
	CUresult error = p->registered ? drv->cuMemHostUnregister(p->host) : CUDA_SUCCESS;

	if (error)
		pr_warn("cuMemHostUnregister: error %d", error);
	p->registered = false;
}

/* A worker keeps one stream, of the context it last worked in. */
static void *worker(void *arg)
{
	struct job *job = arg;
	const struct cuda_driver *drv = job->drv;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext ctx = NULL;
	CUstream stream = NULL;
	CUresult error = CUDA_SUCCESS;

	drv->cuThreadExchangeStreamCaptureMode(&mode);
	while (!__atomic_load_n(&job->result, __ATOMIC_RELAXED)) {
		size_t i = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
		if (i >= job->count)
			break;
		struct transfer_piece *p = &job->pieces[i];

		if (job->direction == TRANSFER_OUT && hostmem_populate(p->host, p->size)) {
			fail(job, -ENOMEM, CUDA_SUCCESS);
			break;
		}
		if (p->ctx != ctx) {
			if (stream)
				drv->cuStreamDestroy_v2(stream);
			stream = NULL;
			ctx = p->ctx;
			error = drv->cuCtxSetCurrent(ctx);
			if (!error && job->direction != TRANSFER_UNREGISTER)
				error = drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
		}
		if (!error && job->direction == TRANSFER_UNREGISTER)
			unregister(drv, p);
		else if (!error)
			error = copy(job, p, stream);
		if (error) {
			fail(job, -EIO, error);
			break;
		}
		__atomic_fetch_add(job->done, p->size, __ATOMIC_RELAXED);
	}
	if (stream)
		drv->cuStreamDestroy_v2(stream);
	drv->cuCtxSetCurrent(NULL);
	return NULL;
}

int transfer_run(const struct cuda_driver *drv, enum transfer_direction direction,
		 struct transfer_piece *pieces, size_t count, size_t *done, CUresult *error)
{
	struct job job = {drv, direction, pieces, count, done, 0, 0, CUDA_SUCCESS};
	pthread_t threads[TRANSFER_WORKERS];
	long ncpu = sysconf(_SC_NPROCESSORS_ONLN);
	size_t want = ncpu > 1 ? ncpu : 1, started = 0;

	if (want > TRANSFER_WORKERS)
		want = TRANSFER_WORKERS;
	if (want > count)
		want = count;
	while (started < want && !pthread_create(&threads[started], NULL, worker, &job))
		started++;
	if (!started && count)
		worker(&job); /* no thread to be had: the caller's will do */
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	if (job.result == -EIO)
		*error = job.error;
	return job.result;
}
