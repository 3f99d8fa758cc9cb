/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: a queue and a worker thread each, started with the first operation.
 *
 * Every operation takes a ticket when it is submitted. The legacy default stream of a context and
 * its blocking streams order themselves by tickets: an operation on the legacy stream starts when
 * the blocking streams hold nothing older, and one on a blocking stream starts when the legacy
 * stream holds nothing older. Per-thread default streams are blocking streams.
 */
#include "tests/sim/sim.h"

#include <signal.h>
#include <stdlib.h>

struct sim_op *op_new(enum sim_op_kind kind)
{
	struct sim_op *op = calloc(1, sizeof(*op));

	if (op)
		op->kind = kind;
	return op;
}

struct sim_op *op_copy(const struct sim_op *op)
{
	struct sim_op *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *op;
	copy->next = NULL;
	return copy;
}

void op_free(struct sim_op *op)
{
	if (op->kind == OP_RECORD || op->kind == OP_WAIT)
		mark_put(op->mark);
	free(op);
}

struct sim_stream *stream_new(struct sim_ctx *ctx, unsigned int flags, int priority)
{
	struct sim_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->ctx = ctx;
	s->tail = &s->head;
	s->refs = 1;
	s->flags = flags;
	s->priority = priority;
	s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
	s->id = ++sim.next_id;
	s->next = ctx->streams;
	ctx->streams = s;
	object_add(KIND_STREAM, &s->obj);
	return s;
}

static void stream_put(struct sim_stream *s)
{
	if (--s->refs == 0)
		free(s);
}

static void stream_unlink(struct sim_stream *s)
{
	struct sim_stream **p = &s->ctx->streams;

	while (*p != s)
		p = &(*p)->next;
	*p = s->next;
	stream_put(s);
	sim_changed();
}

void stream_close(struct sim_stream *s)
{
	capture_stream_ends(s);
	object_remove(&s->obj);
	s->closing = true;
	if (s->started)
		sim_changed();
	else
		stream_unlink(s);
}

/* The calling thread's own default stream of the context. */
static struct sim_stream *stream_of_thread(struct sim_ctx *ctx)
{
	unsigned long id = sim_thread_id();
	struct sim_stream *s;

	for (s = ctx->streams; s; s = s->next)
		if (s->thread == id && !s->closing)
			return s;
	s = stream_new(ctx, CU_STREAM_DEFAULT, 0);
	if (s)
		s->thread = id;
	return s;
}

static struct sim_stream *stream_legacy(struct sim_ctx *ctx)
{
	struct sim_stream *s = ctx->streams;

	while (s && !s->legacy)
		s = s->next;
	return s;
}

CUresult stream_get(CUstream handle, bool ptds, struct sim_stream **stream)
{
	struct sim_ctx *ctx = ctx_current();

	if (!handle)
		handle = ptds ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (handle == CU_STREAM_LEGACY)
		*stream = stream_legacy(ctx);
	else if (handle == CU_STREAM_PER_THREAD)
		*stream = stream_of_thread(ctx);
	else if (object_known(KIND_STREAM, handle))
		*stream = (struct sim_stream *)handle;
	else
		return CUDA_ERROR_INVALID_HANDLE;
	return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* True where the operation must wait for another stream. */
static bool op_blocked(const struct sim_stream *s, const struct sim_op *op)
{
	if (!s->ctx->active)
		return false;
	if (op->kind == OP_WAIT && !mark_is_done(op->mark))
		return true;
	for (const struct sim_stream *t = s->ctx->streams; t; t = t->next) {
		bool ordered = (s->legacy && t->blocking) || (s->blocking && t->legacy);

		if (t != s && ordered && t->head && t->head->ticket < op->ticket)
			return true;
	}
	return false;
}

/* Everything but the running itself, which is done without the lock. */
static void op_complete(struct sim_stream *s, struct sim_op *op, CUresult result)
{
	struct sim_map *map;

	if (result != CUDA_SUCCESS && s->ctx->error == CUDA_SUCCESS)
		s->ctx->error = result;
	if (op->kind == OP_RECORD)
		mark_complete(op->mark);
	if (op->kind == OP_FREE) {
		map = map_find(op->free);
		if (map && map->start == op->free)
			memory_free(map);
	}
	s->head = op->next;
	if (!s->head)
		s->tail = &s->head;
	op_free(op);
	sim_changed();
}

static void *worker(void *arg)
{
	struct sim_stream *s = arg;

	pthread_mutex_lock(&sim.lock);
	sim_thread.worker = true;
	while (s->head || !s->closing) {
		struct sim_op *op = s->head;
		CUresult result = CUDA_SUCCESS, status = s->ctx->error;

		if (!op || op_blocked(s, op)) {
			sim_wait(op && op->kind == OP_WAIT ? mark_deadline(op->mark) : 0);
			continue;
		}
		if (op->kind == OP_KERNEL && s->ctx->active && !kernel_reaches(s->ctx, op)) {
			result = CUDA_ERROR_ILLEGAL_ADDRESS;
		} else if (op->kind <= OP_CALLBACK && s->ctx->active) {
			pthread_mutex_unlock(&sim.lock);
			result = op_run(op, status);
			pthread_mutex_lock(&sim.lock);
		}
		op_complete(s, op, result);
	}
	stream_unlink(s);
	pthread_mutex_unlock(&sim.lock);
	return NULL;
}

static CUresult start_worker(struct sim_stream *s)
{
	sigset_t all, old;
	pthread_t thread;
	int err;

	run_init();
	/* The program's signals are for its own threads; faults cannot wait. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGABRT);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, worker, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_detach(thread);
	s->started = true;
	return CUDA_SUCCESS;
}

CUresult stream_submit(struct sim_stream *s, struct sim_op *op)
{
	CUresult result = s->ctx->active ? s->ctx->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;

	if (result == CUDA_SUCCESS && s->capture)
		return capture_add(s, op);
	if (result == CUDA_SUCCESS && s->legacy && capture_blocks_legacy(s->ctx)) {
		capture_invalidate(s->ctx);
		result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (result == CUDA_SUCCESS && !s->started)
		result = start_worker(s);
	if (result != CUDA_SUCCESS) {
		op_free(op);
		return result;
	}
	op->ticket = ++sim.ticket;
	*s->tail = op;
	s->tail = &op->next;
	sim_changed();
	return CUDA_SUCCESS;
}

static bool older_work(const struct sim_stream *s, uint64_t ticket)
{
	return s->head && s->head->ticket <= ticket;
}

/* The legacy stream stands for all blocking streams of its context. */
static bool stream_has_older(const struct sim_stream *s, uint64_t ticket)
{
	if (!s->legacy)
		return older_work(s, ticket);
	for (const struct sim_stream *t = s->ctx->streams; t; t = t->next)
		if (t->blocking && older_work(t, ticket))
			return true;
	return false;
}

static bool ctx_has_older(const struct sim_ctx *ctx, uint64_t ticket)
{
	for (const struct sim_stream *s = ctx->streams; s; s = s->next)
		if (older_work(s, ticket))
			return true;
	return false;
}

/* The green contexts of a primary one are among its parts. */
static bool parts_have_older(const struct sim_ctx *ctx, uint64_t ticket)
{
	for (const struct sim_object *o = sim.objects[KIND_CTX]; o; o = o->next) {
		const struct sim_ctx *part = (const struct sim_ctx *)o;

		if ((part == ctx || part->whole == ctx) && ctx_has_older(part, ticket))
			return true;
	}
	return false;
}

bool stream_busy(const struct sim_stream *s)
{
	return stream_has_older(s, UINT64_MAX);
}

CUresult stream_wait(struct sim_stream *s)
{
	struct sim_ctx *ctx = s->ctx;
	uint64_t ticket = sim.ticket;

	s->refs++;
	while (stream_has_older(s, ticket))
		sim_wait(0);
	stream_put(s);
	return ctx->error;
}

CUresult ctx_wait(struct sim_ctx *ctx)
{
	uint64_t ticket = sim.ticket;

	while (parts_have_older(ctx, ticket))
		sim_wait(0);
	return ctx->error;
}

bool streams_pending(void)
{
	for (struct sim_object *o = sim.objects[KIND_CTX]; o; o = o->next)
		if (ctx_has_older((struct sim_ctx *)o, UINT64_MAX))
			return true;
	return false;
}
