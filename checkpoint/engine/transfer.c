/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/transfer.h"
#include "checkpoint/host/claims.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/host/spill.h"
#include "common/system/hostmem.h"
#include "common/size.h"
#include "common/text.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "transfer: "
#include "common/log.h"

#define PAGE           4096UL
#define BLOCK_SLOTS    (HOSTPOOL_BLOCK / VMEM_GRANULE)
#define PIECE_GRANULES (TRANSFER_PIECE / VMEM_GRANULE)
/*
 * The buffers take time too: small transfers get small ones, and few workers. [H200, the first
 * pause of 64 MiB: 4 workers and 1 MiB 8 ms, and 2 MiB 8 to 11 ms; 8 workers and 2 MiB 13 to 17 ms;
 * 32 GiB back from memory that is not pinned: 2 MiB 770 ms, 4 MiB 716 ms]
 */
#define SMALL_BYTES  (1UL << 30)
#define SMALL_BUFFER (1UL << 20)
#define LARGE_BUFFER (4UL << 20)
#define WORKER_BYTES (16UL << 20)

struct worker {
	struct transfer *transfer;
	const struct cuda_driver *drv;
	size_t gpu;             /* whose pieces it moves, in transfer.gpus */
	CUcontext ctx;          /* of the streams */
	CUstream streams[2];    /* one for each buffer */
	char *buffers;          /* both, in one piece; NULL before the first use */
	bool pinned;            /* the buffers */
	size_t buffer;          /* bytes of one buffer */
	struct digest *digests; /* of a piece: a page where the device writes them, or NULL */
};

/* Neighbouring granules of a piece whose slots are neighbours too. */
struct run {
	CUdeviceptr dev;
	size_t size;
	uint32_t slot;
	char *host; /* NULL: in the spill file, or without a slot */
	bool pinned;
};

/* A driver's error as a negative errno; transfer.error keeps the driver's own. */
static int driver_error(struct worker *w, CUresult error)
{
	if (!error)
		return 0;
	__atomic_store_n(&w->transfer->error, error, __ATOMIC_RELAXED);
	return -EIO;
}

static int sync_stream(struct worker *w, int which)
{
	return driver_error(w, w->drv->cuStreamSynchronize(w->streams[which]));
}

static int copy(struct worker *w, CUdeviceptr dev, char *host, size_t size, int which)
{
	return driver_error(
		w, w->transfer->direction == TRANSFER_OUT
			   ? w->drv->cuMemcpyDtoHAsync_v2(host, dev, size, w->streams[which])
			   : w->drv->cuMemcpyHtoDAsync_v2(dev, host, size, w->streams[which]));
}

/*
 * Whether all workers may have buffers. As much again must be left: where memory runs out, the kernel ends a process.
 */
static bool has_room(const struct worker *w)
{
	struct transfer *t = w->transfer;
	int room = __atomic_load_n(&t->room, __ATOMIC_RELAXED);

	if (!room) {
		size_t left = size_min(hostmem_machine_available(), hostmem_cgroup_available());

		room = left / 2 / (2 * w->buffer) >= t->threads ? 1 : -1;
		__atomic_store_n(&t->room, room, __ATOMIC_RELAXED);
	}
	return room > 0;
}

/* If they cannot be pinned, the driver itself copies from and to pageable memory. */
static int make_buffers(struct worker *w)
{
	if (w->buffers)
		return 0;
	if (!has_room(w))
		return -ENOMEM;
	w->buffers = hostmem_reserve(2 * w->buffer);
	if (w->buffers && hostmem_populate(w->buffers, 2 * w->buffer)) {
		hostmem_release(w->buffers, 2 * w->buffer);
		w->buffers = NULL;
	}
	if (!w->buffers) {
		pr_debug("no memory for buffers: %s", error_text(errno));
		return -ENOMEM;
	}
	w->pinned = !w->drv->cuMemHostRegister_v2(w->buffers, 2 * w->buffer,
						  CU_MEMHOSTREGISTER_PORTABLE);
	if (!w->pinned)
		pr_warn("no pinned memory for copies; they will be slow");
	return 0;
}

static void drop_buffers(struct worker *w)
{
	if (!w->buffers)
		return;
	if (!w->pinned || hostpool_unregister(w->drv, w->buffers))
		hostmem_release(w->buffers, 2 * w->buffer);
}

/* Between a buffer and host memory or the spill file. */
static int copy_buffer(const struct worker *w, const struct run *r, size_t at, char *buffer,
		       size_t size)
{
	bool out = w->transfer->direction == TRANSFER_OUT;
	uint64_t offset = (r->slot - w->transfer->pool_slots) * VMEM_GRANULE + at;

	if (!r->host)
		return out ? spill_write(buffer, size, offset) : spill_read(buffer, size, offset);
	memcpy(out ? r->host + at : buffer, out ? buffer : r->host + at, size);
	return 0;
}

/* One worker at a time, from and to the spill file. */
static int copy_by_one_buffer(struct worker *w, const struct run *r)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	bool out = w->transfer->direction == TRANSFER_OUT;
	char *buffer = spill_buffer();
	int error = 0;

	pthread_mutex_lock(&lock);
	for (size_t at = 0, size; at < r->size && !error; at += size) {
		size = size_min(r->size - at, SPILL_BUFFER);
		if (!out)
			error = copy_buffer(w, r, at, buffer, size);
		if (!error)
			error = copy(w, r->dev + at, buffer, size, 0);
		if (!error)
			error = sync_stream(w, 0);
		if (!error && out)
			error = copy_buffer(w, r, at, buffer, size);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* Without room for buffers: the driver has its own, but cannot copy to a file. */
static int copy_unbuffered(struct worker *w, const struct run *r)
{
	return r->host ? copy(w, r->dev, r->host, r->size, 0) : copy_by_one_buffer(w, r);
}

static size_t buffer_bytes(const struct worker *w, const struct run *r, size_t at)
{
	return size_min(r->size - at, w->buffer);
}

/* Step k fills buffer k % 2 from the GPU, while the CPU empties the one of step k - 1. */
static int copy_out(struct worker *w, const struct run *r)
{
	size_t steps = (r->size + w->buffer - 1) / w->buffer;
	int error = 0;

	if (r->host) {
		error = hostmem_populate(r->host, r->size);
		if (!hostpool_block(r->slot * VMEM_GRANULE / HOSTPOOL_BLOCK)->present)
			claims_take(r->size);
	}
	if (!error && make_buffers(w))
		return copy_unbuffered(w, r);
	for (size_t k = 0; k <= steps && !error; k++) {
		size_t at = k * w->buffer, before = at - w->buffer;
		int which = k % 2;

		if (k < steps)
			error = copy(w, r->dev + at, w->buffers + which * w->buffer,
				     buffer_bytes(w, r, at), which);
		if (k == 0 || error)
			continue;
		error = sync_stream(w, !which);
		if (!error)
			error = copy_buffer(w, r, before, w->buffers + !which * w->buffer,
					    buffer_bytes(w, r, before));
	}
	return error;
}

/* Step k fills buffer k % 2, once the GPU has emptied it after step k - 2. */
static int copy_in(struct worker *w, const struct run *r)
{
	int error = 0;

	if (make_buffers(w))
		return copy_unbuffered(w, r);
	for (size_t at = 0, k = 0; at < r->size && !error; at += w->buffer, k++) {
		char *buffer = w->buffers + k % 2 * w->buffer;

		error = sync_stream(w, k % 2);
		if (!error)
			error = copy_buffer(w, r, at, buffer, buffer_bytes(w, r, at));
		if (!error)
			error = copy(w, r->dev + at, buffer, buffer_bytes(w, r, at), k % 2);
	}
	return error;
}

static int move(struct worker *w, const struct run *r)
{
	bool out = w->transfer->direction == TRANSFER_OUT;

	if (r->slot == SLOT_NONE || (r->slot == SLOT_ZERO && out))
		return 0;
	if (r->slot == SLOT_ZERO)
		return driver_error(w, w->drv->cuMemsetD8Async(r->dev, 0, r->size, w->streams[0]));
	if (r->pinned)
		return copy(w, r->dev, r->host, r->size, 0);
	return out ? copy_out(w, r) : copy_in(w, r);
}

/* The granules of @p from @at on that one copy can move. */
static struct run next_run(const struct transfer *t, const struct transfer_piece *p, size_t at)
{
	const uint32_t *slots = &t->slots[p->first];
	uint32_t slot = slots[at];
	bool numbered = slot < SLOT_MAX, pooled = slot < t->pool_slots;
	struct run r = {.dev = p->dev + at * VMEM_GRANULE, .size = VMEM_GRANULE, .slot = slot};

	while (++at < p->count && slots[at] == (numbered ? slot + 1 : slot)) {
		if (numbered)
			slot++;
		if (pooled && (slot % BLOCK_SLOTS == 0 || slot == t->pool_slots))
			break;
		r.size += VMEM_GRANULE;
	}
	if (pooled) {
		const struct hostpool_block *b = hostpool_block(r.slot / BLOCK_SLOTS);

		r.host = b->start + r.slot % BLOCK_SLOTS * VMEM_GRANULE;
		r.pinned = b->pinned;
	}
	return r;
}

static int take_digests(struct worker *w, const struct transfer_piece *p)
{
	const struct digest_kernel *kernel = w->transfer->kernels;
	int error;

	while (kernel->ctx && kernel->ctx != p->ctx)
		kernel++;
	if (!kernel->ctx)
		return driver_error(w, CUDA_ERROR_INVALID_CONTEXT);
	error = driver_error(
		w, digest_take(w->drv, kernel, p->dev, p->count, w->digests, w->streams[0]));
	return error ? error : sync_stream(w, 0);
}

/* Give a slot to every granule that needs one. */
static int assign_slots(struct worker *w, const struct transfer_piece *p)
{
	struct transfer *t = w->transfer;
	uint32_t *slots = &t->slots[p->first];
	size_t needed = 0, slot;
	int error = 0;

	if (t->digests) {
		error = take_digests(w, p);
		memcpy(&t->digests[p->first], w->digests, p->count * sizeof(*w->digests));
	}
	if (error)
		return error;
	for (size_t i = 0; i < p->count; i++) {
		if (slots[i] == SLOT_NONE)
			continue;
		slots[i] = t->digests && digest_is_zero(&t->digests[p->first + i]) ? SLOT_ZERO : 0;
		needed += slots[i] != SLOT_ZERO;
	}
	slot = __atomic_fetch_add(&t->next_slot, needed, __ATOMIC_RELAXED);
	for (size_t i = 0; i < p->count; i++)
		if (slots[i] < SLOT_MAX)
			slots[i] = slot++;
	return 0;
}

/* After the copies of a piece: its granules must be unchanged. */
static int compare_digests(struct worker *w, const struct transfer_piece *p)
{
	struct transfer *t = w->transfer;
	int error = take_digests(w, p);

	for (size_t i = 0; i < p->count && !error; i++)
		if (t->slots[p->first + i] != SLOT_NONE &&
		    !digest_equal(&w->digests[i], &t->digests[p->first + i])) {
			__atomic_store_n(&t->differs, p->dev + i * VMEM_GRANULE, __ATOMIC_RELAXED);
			error = -EILSEQ;
		}
	return error;
}

static int move_piece(struct worker *w, const struct transfer_piece *p)
{
	const struct transfer *t = w->transfer;
	int error = t->direction == TRANSFER_IN ? 0 : assign_slots(w, p);
	struct run r;

	if (t->direction == TRANSFER_SCAN)
		return error;
	for (size_t i = 0; i < p->count && !error; i += r.size / VMEM_GRANULE) {
		r = next_run(t, p, i);
		error = move(w, &r);
	}
	if (!error)
		error = sync_stream(w, 0);
	if (!error)
		error = sync_stream(w, 1);
	if (!error && t->direction == TRANSFER_IN && t->digests)
		error = compare_digests(w, p);
	return error;
}

static void drop_streams(struct worker *w)
{
	for (int i = 0; i < 2; i++) {
		if (w->streams[i] && w->streams[i] != CU_STREAM_LEGACY)
			w->drv->cuStreamDestroy_v2(w->streams[i]);
		w->streams[i] = NULL;
	}
	w->ctx = NULL;
}

/*
 * A stream takes memory of the GPU, which a full one does not have [H200]. The context's own has what it needs,
 * and nothing else runs there: the gate is closed, and no capture is open, which its use would break.
 */
static CUresult make_stream(const struct worker *w, CUstream *stream)
{
	CUresult error = w->drv->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);

	if (error != CUDA_ERROR_OUT_OF_MEMORY)
		return error;
	*stream = CU_STREAM_LEGACY;
	return CUDA_SUCCESS;
}

static int enter_context(struct worker *w, CUcontext ctx)
{
	CUresult error;

	if (w->ctx != ctx)
		drop_streams(w);
	error = w->drv->cuCtxSetCurrent(ctx);
	if (error || w->ctx == ctx)
		return driver_error(w, error);
	w->ctx = ctx;
	for (int i = 0; i < 2 && !error; i++)
		error = make_stream(w, &w->streams[i]);
	return driver_error(w, error);
}

/* Allocate a page that the device can write. */
static int make_digests(struct worker *w)
{
	if (w->digests)
		return 0;
	w->digests = aligned_alloc(PAGE, PAGE);
	if (!w->digests)
		return -ENOMEM;
	if (w->drv->cuMemHostRegister_v2(w->digests, PAGE, CU_MEMHOSTREGISTER_PORTABLE)) {
		free(w->digests);
		w->digests = NULL;
		return -ENOMEM;
	}
	return 0;
}

static void drop_digests(struct worker *w)
{
	if (!w->digests)
		return;
	if (hostpool_unregister(w->drv, w->digests))
		free(w->digests);
}

static int prepare(struct worker *w, const struct transfer_piece *p)
{
	int error = enter_context(w, p->ctx);

	return !error && w->transfer->digests ? make_digests(w) : error;
}

/* Wait for the copies of a transfer that failed. False: they may still be under way. */
static bool settle(const struct worker *w)
{
	bool settled = true;

	for (int i = 0; i < 2; i++)
		if (w->streams[i])
			settled &= !w->drv->cuStreamSynchronize(w->streams[i]);
	return settled || !w->drv->cuCtxSynchronize();
}

/* Under lock. */
static bool next_of_gpu(struct transfer *t, CUdevice gpu, size_t *piece)
{
	while (t->next[gpu] < t->count) {
		size_t i = t->next[gpu]++;

		*piece = t->backwards ? t->count - 1 - i : i;
		if (t->in_order || t->pieces[*piece].gpu == gpu)
			return true;
	}
	return false;
}

/* Of its own GPU, or of the next one that has some left. */
static bool next_piece(struct worker *w, size_t *piece)
{
	struct transfer *t = w->transfer;
	size_t lists = t->in_order ? 1 : t->ngpus;
	bool found = false;

	if (!workers_go_on(&t->workers))
		return false;
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < lists && !found; i++)
		found = next_of_gpu(t, t->gpus[(w->gpu + i) % lists], piece);
	pthread_mutex_unlock(&t->lock);
	return found;
}

static void *worker_main(void *arg)
{
	struct transfer *t = arg;
	struct worker w = {.transfer = t,
			   .drv = t->drv,
			   .gpu = __atomic_fetch_add(&t->begun, 1, __ATOMIC_RELAXED),
			   .buffer = t->bytes < SMALL_BYTES ? SMALL_BUFFER : LARGE_BUFFER};
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	size_t piece;

	w.drv->cuThreadExchangeStreamCaptureMode(&mode);
	while (next_piece(&w, &piece)) {
		const struct transfer_piece *p = &t->pieces[piece];
		int error;

		if (t->await && !t->await(t->arg, piece))
			break;
		error = prepare(&w, p);
		if (!error)
			error = move_piece(&w, p);
		if (error) {
			workers_fail(&t->workers, error);
			continue;
		}
		__atomic_fetch_add(t->done, p->count * VMEM_GRANULE, __ATOMIC_RELAXED);
		if (t->arrived && t->direction != TRANSFER_SCAN)
			t->arrived(t->arg, piece);
	}
	/* await() and arrived() may have left another one. */
	if (w.ctx)
		w.drv->cuCtxSetCurrent(w.ctx);
	/* After a failure the device may still write to the memory that is given back here. */
	if (__atomic_load_n(&t->workers.result, __ATOMIC_RELAXED) && w.ctx && !settle(&w)) {
		__atomic_store_n(&t->unsettled, true, __ATOMIC_RELAXED);
	} else {
		drop_streams(&w);
		drop_buffers(&w);
		drop_digests(&w);
	}
	w.drv->cuCtxSetCurrent(NULL);
	return NULL;
}

static void find_gpus(struct transfer *t)
{
	bool has[GPU_MAX] = {false};

	t->ngpus = 0;
	for (size_t i = 0; i < t->count; i++) {
		CUdevice gpu = t->pieces[i].gpu;

		if (has[gpu])
			continue;
		has[gpu] = true;
		t->next[gpu] = 0;
		t->gpus[t->ngpus++] = gpu;
	}
}

/* The slots that it may take. */
static size_t count_slots(const struct transfer *t)
{
	size_t count = 0;

	for (const struct transfer_piece *p = t->pieces; p < t->pieces + t->count; p++)
		for (size_t i = 0; i < p->count; i++)
			count += t->slots[p->first + i] != SLOT_NONE;
	return count;
}

/* Whether all slots that it may use are in pinned memory. */
static bool is_pinned(const struct transfer *t)
{
	size_t end = t->next_slot + (t->direction == TRANSFER_OUT ? count_slots(t) : 0);
	size_t blocks = (end + BLOCK_SLOTS - 1) / BLOCK_SLOTS;

	if (end > t->pool_slots || blocks > hostpool_count())
		return false;
	while (blocks && hostpool_block(blocks - 1)->pinned)
		blocks--;
	return !blocks;
}

int transfer_run(struct transfer *t)
{
	size_t threads = t->bytes / WORKER_BYTES;

	_Static_assert(PIECE_GRANULES * sizeof(struct digest) <= PAGE,
		       "the digests of a piece lie in a page");
	t->workers = (struct workers){.count = t->count, .cancel = t->cancel};
	t->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	find_gpus(t);
	if (t->direction != TRANSFER_SCAN && (t->ngpus == 1 || !t->in_order) && is_pinned(t))
		threads = size_min(threads, TRANSFER_PINNED * t->ngpus);
	else
		threads = size_min(threads, TRANSFER_WORKERS);
	t->threads = threads ? threads : 1;
	t->room = 0;
	t->begun = 0;
	return workers_run(&t->workers, t->threads, worker_main, t);
}
