/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/transfer.h"
#include "checkpoint/hostmem.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "transfer: "
#include "vmem/log.h"

struct worker {
	struct transfer *transfer;
	const struct cuda_driver *drv;
	CUcontext ctx;       /* the one that the streams belong to */
	CUstream streams[2]; /* one for each slot */
	char *slots;         /* pinned, or NULL before the first unpinned piece */
};

static void fail(struct transfer *t, int result, CUresult error)
{
	int none = 0;

	if (error)
		__atomic_store_n(&t->error, error, __ATOMIC_RELAXED);
	__atomic_compare_exchange_n(&t->result, &none, result, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

static CUresult copy(const struct worker *w, CUdeviceptr dev, char *host, size_t size,
		     CUstream stream)
{
	return w->transfer->direction == TRANSFER_OUT
		       ? w->drv->cuMemcpyDtoHAsync_v2(host, dev, size, stream)
		       : w->drv->cuMemcpyHtoDAsync_v2(dev, host, size, stream);
}

static CUresult copy_pinned(const struct worker *w, const struct transfer_piece *p)
{
	CUresult error = copy(w, p->dev, p->host, p->size, w->streams[0]);

	return error ? error : w->drv->cuStreamSynchronize(w->streams[0]);
}

static size_t slot_bytes(const struct transfer_piece *p, size_t at)
{
	return p->size - at < TRANSFER_SLOT ? p->size - at : TRANSFER_SLOT;
}

/* Step k fills slot k % 2 from the GPU, while the CPU empties the slot of step k - 1. */
static CUresult copy_out(const struct worker *w, const struct transfer_piece *p)
{
	size_t steps = (p->size + TRANSFER_SLOT - 1) / TRANSFER_SLOT;
	CUresult error;

	for (size_t k = 0; k <= steps; k++) {
		size_t at = k * TRANSFER_SLOT, before = at - TRANSFER_SLOT;
		int slot = k % 2;

		if (k < steps) {
			error = copy(w, p->dev + at, w->slots + slot * TRANSFER_SLOT,
				     slot_bytes(p, at), w->streams[slot]);
			if (error)
				return error;
		}
		if (k == 0)
			continue;
		error = w->drv->cuStreamSynchronize(w->streams[!slot]);
		if (error)
			return error;
		memcpy(p->host + before, w->slots + !slot * TRANSFER_SLOT, slot_bytes(p, before));
	}
	return CUDA_SUCCESS;
}

/* Step k fills slot k % 2 from memory, once the GPU has emptied it after step k - 2. */
static CUresult copy_in(const struct worker *w, const struct transfer_piece *p)
{
	CUresult error;

	for (size_t at = 0, k = 0; at < p->size; at += TRANSFER_SLOT, k++) {
		char *slot = w->slots + k % 2 * TRANSFER_SLOT;

		error = w->drv->cuStreamSynchronize(w->streams[k % 2]);
		if (error)
			return error;
		memcpy(slot, p->host + at, slot_bytes(p, at));
		error = copy(w, p->dev + at, slot, slot_bytes(p, at), w->streams[k % 2]);
		if (error)
			return error;
	}
	error = w->drv->cuStreamSynchronize(w->streams[0]);
	return error ? error : w->drv->cuStreamSynchronize(w->streams[1]);
}

/* Where the slots cannot be pinned the driver copies from and to pageable memory by itself. */
static int make_slots(struct worker *w)
{
	w->slots = hostmem_reserve(2 * TRANSFER_SLOT);
	if (!w->slots)
		return -ENOMEM;
	if (hostmem_populate(w->slots, 2 * TRANSFER_SLOT))
		return -ENOMEM;
	if (w->drv->cuMemHostRegister_v2(w->slots, 2 * TRANSFER_SLOT, CU_MEMHOSTREGISTER_PORTABLE))
		pr_warn("no pinned memory for copies; they will be slow");
	return 0;
}

static void drop_streams(struct worker *w)
{
	for (int i = 0; i < 2; i++)
		if (w->streams[i])
			w->drv->cuStreamDestroy_v2(w->streams[i]);
	w->streams[0] = w->streams[1] = NULL;
}

static CUresult enter_context(struct worker *w, CUcontext ctx)
{
	CUresult error;

	if (ctx == w->ctx)
		return CUDA_SUCCESS;
	drop_streams(w);
	w->ctx = ctx;
	error = w->drv->cuCtxSetCurrent(ctx);
	if (error || w->transfer->direction > TRANSFER_IN)
		return error;
	for (int i = 0; i < 2 && !error; i++)
		error = w->drv->cuStreamCreate(&w->streams[i], CU_STREAM_NON_BLOCKING);
	return error;
}

static CUresult move(struct worker *w, struct transfer_piece *p)
{
	enum transfer_direction direction = w->transfer->direction;

	switch (direction) {
	case TRANSFER_PIN:
		if (!*p->pinned)
			*p->pinned = !w->drv->cuMemHostRegister_v2(p->host, p->size,
								   CU_MEMHOSTREGISTER_PORTABLE);
		return CUDA_SUCCESS;
	case TRANSFER_UNPIN:
		if (*p->pinned && w->drv->cuMemHostUnregister(p->host))
			pr_warn("cuMemHostUnregister failed");
		*p->pinned = false;
		return CUDA_SUCCESS;
	default:
		if (*p->pinned)
			return copy_pinned(w, p);
		return direction == TRANSFER_OUT ? copy_out(w, p) : copy_in(w, p);
	}
}

/* What a piece needs before it is moved. */
static int prepare(struct worker *w, const struct transfer_piece *p)
{
	enum transfer_direction direction = w->transfer->direction;

	if (direction > TRANSFER_IN || *p->pinned)
		return 0;
	if (!w->slots && make_slots(w))
		return -ENOMEM;
	return direction == TRANSFER_OUT ? hostmem_populate(p->host, p->size) : 0;
}

static void *worker_main(void *arg)
{
	struct transfer *t = arg;
	struct worker w = {.transfer = t, .drv = t->drv};
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	w.drv->cuThreadExchangeStreamCaptureMode(&mode);
	while (!__atomic_load_n(&t->result, __ATOMIC_RELAXED)) {
		size_t i = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED);
		struct transfer_piece *p = &t->pieces[i];
		CUresult error;

		if (i >= t->count)
			break;
		if (t->cancel && __atomic_load_n(t->cancel, __ATOMIC_RELAXED)) {
			fail(t, -ECANCELED, CUDA_SUCCESS);
			break;
		}
		error = enter_context(&w, p->ctx);
		if (!error && prepare(&w, p)) {
			fail(t, -ENOMEM, CUDA_SUCCESS);
			break;
		}
		if (!error)
			error = move(&w, p);
		if (error) {
			fail(t, -EIO, error);
			break;
		}
		__atomic_fetch_add(t->done, p->size, __ATOMIC_RELAXED);
	}
	drop_streams(&w);
	if (w.slots) {
		w.drv->cuMemHostUnregister(w.slots); /* fails where they could not be pinned */
		hostmem_release(w.slots, 2 * TRANSFER_SLOT);
	}
	w.drv->cuCtxSetCurrent(NULL);
	return NULL;
}

int transfer_run(struct transfer *t)
{
	pthread_t threads[TRANSFER_WORKERS];
	long ncpu = sysconf(_SC_NPROCESSORS_ONLN);
	size_t want = ncpu > 1 ? ncpu : 1, started = 0;

	t->next = 0;
	t->result = 0;
	if (want > TRANSFER_WORKERS)
		want = TRANSFER_WORKERS;
	if (want > t->count)
		want = t->count;
	while (started < want && !pthread_create(&threads[started], NULL, worker_main, t))
		started++;
	if (!started && t->count)
		worker_main(t); /* no thread to be had: the caller's will do */
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return t->result;
}
