/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/engine/transfer.h"
#include "checkpoint/sharing/sharing.h"
#include "common/clock.h"
#include "vmem/vmem.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define REPORT_BYTES (256UL << 20) /* between two reports of what has moved */
#define LOOK_US      500           /* between two looks for room */
#define LINGER_MS    100           /* how long a fill waits for more room before it ends */
#define RETRY_MS     20 /* the first wait for GPU memory that is not there; later longer */
#define RETRY_MAX_MS 1000

/*
 * Copies of some regions, by the workers of a transfer, beside a thread that unmaps the regions that
 * have been copied, or maps those that will be. So neither waits for the other.
 */
struct parts {
	struct engine_op *op;
	size_t from, to; /* regions; those that a yield has saved before are not copied again */
	bool stop;       /* the copies have failed, or the mapping: atomic */
	CUresult error;  /* of mapping or unmapping; valid when the thread has ended */
	size_t reported; /* bytes that had moved at the last report */

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	size_t *left; /* pieces of each region that are not copied yet */
	size_t ready; /* of a fill: the pieces before it may be copied */
	bool closed;  /* no more piece arrives, or becomes ready */
};

static bool goes_on(const struct parts *p)
{
	return !__atomic_load_n(&p->stop, __ATOMIC_RELAXED) && !engine_is_cancelled(p->op);
}

static int init(struct parts *p, struct engine_op *op, size_t from, size_t to)
{
	const struct saved *saved = &engine.saved;

	*p = (struct parts){.op = op, .from = from, .to = to};
	p->left = calloc(saved->nregions + 1, sizeof(*p->left));
	if (!p->left)
		return engine_fail(&op->result, END_NOMEM, "out of memory");
	for (size_t i = from; i < to; i++)
		p->left[i] = saved->first_piece[i + 1] - saved->first_piece[i];
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	return 0;
}

static void fini(struct parts *p)
{
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p->left);
}

static void close_parts(struct parts *p)
{
	pthread_mutex_lock(&p->lock);
	p->closed = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

/* @moved: bytes that a yield has unmapped, or that are mapped after a fill. */
static void report(struct parts *p, size_t moved, bool now)
{
	struct engine_progress *progress = &p->op->progress;

	__atomic_store_n(&progress->moved, moved, __ATOMIC_RELAXED);
	if (moved == p->reported || (!now && moved - p->reported < REPORT_BYTES))
		return;
	p->reported = moved;
	progress->tell();
}

/* For the workers: a piece, counted from the first of @from on, has been copied. */
static void piece_arrived(void *arg, size_t piece)
{
	struct parts *p = arg;
	size_t region = saved_region_of(&engine.saved, engine.saved.first_piece[p->from] + piece);

	pthread_mutex_lock(&p->lock);
	if (!--p->left[region])
		pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static bool await_anything(void *arg, size_t piece)
{
	(void)piece;
	return goes_on(arg);
}

static bool await_mapped(void *arg, size_t piece)
{
	struct parts *p = arg;
	bool ready;

	pthread_mutex_lock(&p->lock);
	while (piece >= p->ready && !p->closed)
		pthread_cond_wait(&p->changed, &p->lock);
	ready = piece < p->ready;
	pthread_mutex_unlock(&p->lock);
	return ready && goes_on(p);
}

/* Wait until a region is copied. False: it will not be. */
static bool is_copied(struct parts *p, size_t region)
{
	bool copied;

	pthread_mutex_lock(&p->lock);
	while (p->left[region] && !p->closed)
		pthread_cond_wait(&p->changed, &p->lock);
	copied = !p->left[region];
	pthread_mutex_unlock(&p->lock);
	return copied;
}

/* Run @beside in a thread of its own during the transfer; or, if none can be started, by itself. */
static int transfer_beside(struct parts *p, struct transfer *t, void *(*beside)(void *))
{
	bool out = t->direction == TRANSFER_OUT;
	bool threaded;
	pthread_t thread;

	t->await = out ? await_anything : await_mapped;
	t->arrived = piece_arrived;
	t->arg = p;
	threaded = !pthread_create(&thread, NULL, beside, p);
	if (!threaded && !out)
		beside(p);
	if (transfer_run(t))
		__atomic_store_n(&p->stop, true, __ATOMIC_RELAXED);
	if (out)
		close_parts(p);
	if (threaded)
		pthread_join(thread, NULL);
	else if (out)
		beside(p);
	return engine_end_transfer(p->op, t);
}

/* Imports first, then the last region first, each as soon as it is saved. */
static void *unmap_main(void *arg)
{
	struct parts *p = arg;
	const struct cuda_driver *drv = p->op->drv;
	struct saved *saved = &engine.saved;
	size_t moved = 0;

	p->error = engine_release_imports(drv);
	for (size_t i = saved->nregions; i-- > p->from && !p->error && is_copied(p, i);) {
		bool was_mapped = saved->regions[i].mapped;

		if (i < saved->copied)
			saved_settle(saved, i);
		p->error = engine_unmap_region(drv, i);
		if (was_mapped && !saved->regions[i].mapped)
			moved += saved->regions[i].size;
		report(p, moved, false);
	}
	if (p->error)
		__atomic_store_n(&p->stop, true, __ATOMIC_RELAXED);
	drv->cuCtxSetCurrent(NULL);
	report(p, moved, true);
	return NULL;
}

/* The region from which on the mapped ones have @bytes. */
static size_t find_from(const struct saved *saved, size_t bytes)
{
	size_t i = saved->nregions, sum = 0;

	while (i > 0 && sum < bytes)
		if (saved->regions[--i].mapped)
			sum += saved->regions[i].size;
	return i < saved->in ? i : saved->in;
}

static int push(struct engine_op *op, size_t from)
{
	struct saved *saved = &engine.saved;
	size_t to = saved->copied > from ? saved->copied : from;
	struct transfer t =
		saved_transfer(saved, op->drv, TRANSFER_OUT, from, to, &op->progress.done);
	struct parts p;
	int ret = init(&p, op, from, to);

	if (ret)
		return ret;
	t.backwards = true;
	engine_set_out(OUT_PART);
	ret = transfer_beside(&p, &t, unmap_main);
	fini(&p);
	if (!ret && p.error)
		ret = engine_fail_driver(&op->result, op->drv, "unmap", p.error);
	if (!ret && saved->in > from)
		ret = engine_fail(&op->result, END_BUSY, "cancelled by a later request");
	return ret;
}

/* The yield has failed before anything was out: the program runs on. */
static int run_on(struct engine_op *op)
{
	if (engine_is_paused()) {
		sharing_rebuilt();
		if (engine_get_imports(op, 0)) {
			sharing_back();
			return -1;
		}
	}
	engine_run(op);
	return 0;
}

/* Several processes yield: whoever shares memory with others gives it back when all have saved theirs. */
static void yield_together(struct engine_op *op, double start)
{
	const struct saved *saved = &engine.saved;
	size_t before = engine_is_paused() ? saved_mapped_bytes(saved) : SIZE_MAX;
	int ret = engine_take_memory(op, start + op->timeout_ms);

	if (!engine_is_paused())
		return;
	if (!ret)
		engine_meet_released(op);
	engine_paused();
	op->mapped = saved_mapped_bytes(saved);
	if (before == SIZE_MAX)
		before = saved_region_bytes(saved, 0, saved->nregions);
	__atomic_store_n(&op->progress.moved, before - op->mapped, __ATOMIC_RELAXED);
	if (!ret)
		engine_succeed(op, start, before - op->mapped);
}

void engine_yield(struct engine_op *op)
{
	struct saved *saved = &engine.saved;
	bool was_paused = engine_is_paused();
	double start = clock_ms();
	size_t from;
	int ret;

	engine_begin(op, &op->result);
	op->mapped = 0;
	/* The driver's checkpoint may hold the context: then no driver call can be made. */
	if (engine_is_out()) {
		engine_succeed(op, start, 0);
		return;
	}
	if (engine_check_carried(op, &op->result))
		return;
	if (op->progress.hold) {
		yield_together(op, start);
		return;
	}
	if (engine_rest(op, start + op->timeout_ms))
		return;
	ret = engine_list(op);
	if (!ret) {
		from = find_from(saved, op->bytes);
		ret = engine_save_begin(op, from);
		if (!ret)
			ret = push(op, from);
		engine_save_end(op);
	}
	if (ret && !was_paused && saved->in == saved->nregions && !run_on(op))
		return;
	engine_paused();
	op->mapped = saved_mapped_bytes(saved);
	if (!ret)
		engine_succeed(op, start, op->progress.moved);
}

/* There is no room for the next region. False: the fill ends. */
static bool wait_for_room(struct parts *p, double *since_ms)
{
	double now = clock_ms();

	if (!*since_ms)
		*since_ms = now;
	__atomic_store_n(&p->op->progress.waiting, true, __ATOMIC_RELAXED);
	if (now - *since_ms > LINGER_MS)
		return false;
	usleep(LOOK_US);
	return true;
}

/* There is room, but somebody else has the memory. */
static void wait_for_memory(struct parts *p, unsigned int *sleep_ms)
{
	double until = clock_ms() + *sleep_ms;

	__atomic_store_n(&p->op->progress.waiting, true, __ATOMIC_RELAXED);
	while (clock_ms() < until && goes_on(p))
		usleep(RETRY_MS * 1000);
	*sleep_ms = *sleep_ms * 2 < RETRY_MAX_MS ? *sleep_ms * 2 : RETRY_MAX_MS;
}

static void set_ready(struct parts *p, size_t region)
{
	__atomic_store_n(&p->op->progress.waiting, false, __ATOMIC_RELAXED);
	pthread_mutex_lock(&p->lock);
	p->ready = engine.saved.first_piece[region + 1] - engine.saved.first_piece[p->from];
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

/* The first region that is out first, each as soon as there is room. */
static void *map_main(void *arg)
{
	struct parts *p = arg;
	const struct engine_op *op = p->op;
	const struct saved *saved = &engine.saved;
	size_t mapped = saved_mapped_bytes(saved), size;
	unsigned int sleep_ms = RETRY_MS;
	double since_ms = 0;

	for (size_t i = p->from; i < p->to && goes_on(p);) {
		size = saved->regions[i].mapped ? 0 : saved->regions[i].size;
		p->op->room = __atomic_load_n(&op->progress.room, __ATOMIC_RELAXED);
		if (size && mapped + size > op->room) {
			report(p, mapped, true);
			if (!wait_for_room(p, &since_ms))
				break;
			continue;
		}
		since_ms = 0;
		p->error = engine_map_region(op->drv, i);
		if (p->error == CUDA_ERROR_OUT_OF_MEMORY) {
			p->error = CUDA_SUCCESS;
			wait_for_memory(p, &sleep_ms);
			continue;
		}
		if (p->error)
			break;
		sleep_ms = RETRY_MS;
		mapped += size;
		report(p, mapped, false);
		set_ready(p, i++);
	}
	op->drv->cuCtxSetCurrent(NULL);
	close_parts(p);
	return NULL;
}

static int pop(struct engine_op *op)
{
	struct saved *saved = &engine.saved;
	struct transfer t = saved_transfer(saved, op->drv, TRANSFER_IN, saved->in, saved->nregions,
					   &op->progress.done);
	struct parts p;
	CUresult error = CUDA_SUCCESS;
	int ret = init(&p, op, saved->in, saved->nregions);

	if (ret)
		return ret;
	ret = transfer_beside(&p, &t, map_main);
	while (saved->in < saved->nregions && !p.left[saved->in])
		saved->in++;
	/* What is mapped without its contents goes back. */
	if (!engine.unsettled)
		error = engine_unmap(op->drv, saved->in);
	report(&p, saved_mapped_bytes(saved), true);
	fini(&p);
	if (!ret && p.error)
		ret = engine_fail_driver(&op->result, op->drv, "map", p.error);
	if (!ret && error)
		ret = engine_fail_driver(&op->result, op->drv, "unmap", error);
	if (!ret && saved->in < saved->nregions && engine_is_cancelled(op))
		ret = engine_fail(&op->result, END_BUSY, "cancelled by a later request");
	return ret;
}

/* All memory is mapped, with its contents. */
static int end_fill(struct engine_op *op, size_t in, bool was_released)
{
	sharing_rebuilt();
	if (!engine_load_end(op) && !engine_get_imports(op, 0) &&
	    !engine_run_on(op, in, was_released, 0))
		return 0;
	sharing_back();
	return -1;
}

static void fill(struct engine_op *op)
{
	struct saved *saved = &engine.saved;
	bool was_released = engine_is_released();
	double start = clock_ms();
	size_t in = saved->in, bytes;
	int ret;

	engine_begin(op, &op->result);
	if ((engine.held && engine_fetch(op, 0)) || engine_regain(op, 0, false))
		return;
	ret = engine_load_begin(op);
	if (!ret)
		ret = pop(op);
	saved_unload_kernels(saved, op->drv);
	engine_publish();
	bytes = saved_live(saved, in, saved->in) * VMEM_GRANULE;
	if (!ret && saved->in == saved->nregions)
		ret = end_fill(op, in, was_released);
	if (!ret)
		engine_succeed(op, start, bytes);
}

void engine_fill(struct engine_op *op)
{
	sharing_resume();
	fill(op);
	engine_end_shared(op);
}
