/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The road in. The contexts come back first. Then the memory is mapped: all of it while no other job takes what
 * this one was promised, or else each region when there is room for it, by the worker that copies its first
 * piece; one maps at a time, while the others copy.
 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/engine/transfer.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/release/release.h"
#include "checkpoint/sharing/sharing.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/settings.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#define RANKS_LOOK_MS \
	20 /* between two looks for a cancellation while the other ranks are waited for */
#define LOOK_US      500 /* between two looks for room */
#define LINGER_MS    100 /* how long a fill waits for more room before it ends */
#define RETRY_MS     20  /* the first wait for GPU memory that is not there; later longer */
#define RETRY_MAX_MS 1000

struct in {
	struct engine_op *op;
	bool all;    /* it is mapped before, and the copies are not cancelled */
	size_t from; /* the first region that comes */

	pthread_mutex_t lock; /* of what follows */
	size_t next;          /* the regions before it are mapped; written atomically */
	size_t mapped;        /* bytes of all regions */
	double since_ms;      /* since when there is no room for the next one; 0: there is */
	double sleep_ms;
	bool ended;     /* no further region is mapped */
	CUresult error; /* of that */

	bool lets_go; /* of what is saved of the regions that have come back */
	pthread_mutex_t letting_go;
};

static int load_kernels(struct engine_op *op)
{
	CUresult error;

	if (!engine.saved.digests || !setting_enabled(SETTING_VERIFY))
		return 0;
	error = saved_load_kernels(&engine.saved, op->drv);
	return error ? engine_fail_driver(&op->result, op->drv, "CUDAW_VERIFY: loading the kernel",
					  error)
		     : 0;
}

/* Restore the context, if it fits beside @needed bytes of each device. */
static CUresult restore_once(struct engine_op *op, const size_t *needed, const char **call)
{
	CUresult error;

	if (!engine_is_released())
		return CUDA_SUCCESS;
	if (!release_fits(needed, &engine.lack))
		return CUDA_ERROR_OUT_OF_MEMORY;
	engine_set_phase(op, "restore", 0);
	engine_say(op, PACT_TAKES);
	error = release_restore(op->drv, call);
	if (!error)
		engine_set_out(engine_memory_out());
	return error;
}

/*
 * A GPU lacks @bytes, which the page tables of the pool may have: a job that was paused on a full GPU must fit
 * into what it left. Later copies are slower then.
 */
static void give_tables_back(const struct engine_op *op, size_t bytes)
{
	size_t pinned = hostpool_pinned();

	if (pinned && bytes <= HOSTPOOL_TABLES(pinned))
		engine_unpin(op->drv, NULL);
}

/* Get all memory, if it fits. */
static CUresult map_once(struct engine_op *op, const size_t *needed, const char **call)
{
	CUresult error;

	engine_set_phase(op, "map", 0);
	if (vmem_has_left()) {
		*call = "unmap";
		error = engine_unmap(op->drv, engine.saved.in);
		if (error)
			return error;
	}
	*call = "map";
	if (engine_memory_is_free(op->drv, needed)) {
		engine_say(op, PACT_TAKES);
		error = engine_map(op->drv);
		/* The driver counts some MiB as free that it does not give. */
		if (error == CUDA_ERROR_OUT_OF_MEMORY)
			give_tables_back(op, 0);
		return error;
	}
	if (engine.saved.in == engine.saved.copied || engine.unsettled)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* Others may wait for what is saved as well. */
	*call = "unmap";
	error = engine_unmap(op->drv, engine.saved.copied);
	return error ? error : CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * Get the contexts back, and with @all the memory too; no other job that waits for this GPU may take what this
 * one was promised. Before that, what a snapshot alone has: in host memory others may be in the way as well. -EAGAIN:
 * not yet; -1 with a result.
 */
static int regain_once(struct engine_op *op, size_t *needed, bool all, double deadline_ms)
{
	CUresult error = CUDA_ERROR_OUT_OF_MEMORY;
	const char *call = "";

	if (all)
		engine_missing(needed);
	if (!engine_may_take(op, needed))
		return -EAGAIN;
	if (engine.in_snapshot && engine_fetch(op, deadline_ms))
		return -1;
	if (release_lock(needed, &engine.lack) != -EAGAIN) {
		engine.lack = (struct gpu_lack){.dev = -1};
		error = restore_once(op, needed, &call);
		if (!error && all)
			error = map_once(op, needed, &call);
		if (error == CUDA_ERROR_OUT_OF_MEMORY)
			engine_say(op, PACT_LACKS);
	}
	release_unlock();
	if (error == CUDA_ERROR_OUT_OF_MEMORY)
		return -EAGAIN;
	return error ? engine_fail_driver(&op->result, op->drv, call, error) : 0;
}

/* The same, waiting for free memory until @deadline_ms (limits_ms(); 0: no limit). */
static int regain(struct engine_op *op, bool all, double deadline_ms)
{
	size_t needed[GPU_MAX] = {0};
	double sleep_ms = ENGINE_FIRST_WAIT_MS;
	int ret;

	while ((ret = regain_once(op, needed, all, deadline_ms))) {
		if (ret != -EAGAIN)
			return ret;
		if (engine.lack.dev >= 0)
			give_tables_back(op, engine.lack.needed - engine.lack.free);
		ret = engine_wait_for_memory(op, deadline_ms, &sleep_ms);
		if (ret == -ETIME)
			engine_fail_lack(op);
		if (ret)
			return -1;
		if (engine_is_called_back(op))
			return engine_fail_off(op);
	}
	engine_say(op, PACT_HAS);
	__atomic_store_n(&op->progress.waiting, false, __ATOMIC_RELAXED);
	return 0;
}

static bool goes_on(const struct in *in)
{
	return !in->ended && (in->all || !engine_is_cancelled(in->op));
}

/* There is no room for the next region. For a moment, more may come. */
static void wait_for_room(struct in *in)
{
	double now = clock_ms();

	engine_has_moved(in->op, in->mapped, true);
	if (!in->since_ms)
		in->since_ms = now;
	__atomic_store_n(&in->op->progress.waiting, true, __ATOMIC_RELAXED);
	in->ended = now - in->since_ms > LINGER_MS;
	if (!in->ended)
		usleep(LOOK_US);
}

/* There is room, but somebody else has the memory. */
static void wait_for_memory(struct in *in)
{
	double until = clock_ms() + in->sleep_ms;

	__atomic_store_n(&in->op->progress.waiting, true, __ATOMIC_RELAXED);
	while (clock_ms() < until && goes_on(in))
		usleep(RETRY_MS * 1000);
	in->sleep_ms = in->sleep_ms * 2 < RETRY_MAX_MS ? in->sleep_ms * 2 : RETRY_MAX_MS;
}

/* Under lock. Try to map the next region. */
static void map_next(struct in *in)
{
	struct engine_op *op = in->op;
	const struct vmem_region *r = &engine.saved.regions[in->next];
	size_t size = r->mapped ? 0 : r->size;

	op->room = __atomic_load_n(&op->progress.room, __ATOMIC_RELAXED);
	if (size && in->mapped + size > op->room) {
		wait_for_room(in);
		return;
	}
	in->since_ms = 0;
	in->error = engine_map_region(op->drv, in->next);
	if (in->error == CUDA_ERROR_OUT_OF_MEMORY) {
		in->error = CUDA_SUCCESS;
		wait_for_memory(in);
		return;
	}
	in->ended = in->error;
	if (in->ended)
		return;
	in->sleep_ms = RETRY_MS;
	in->mapped += size;
	if (!in->all)
		engine_has_moved(op, in->mapped, false);
	__atomic_store_n(&op->progress.waiting, false, __ATOMIC_RELAXED);
	__atomic_store_n(&in->next, in->next + 1, __ATOMIC_RELEASE);
}

static bool await_mapped(void *arg, size_t piece)
{
	struct in *in = arg;
	size_t region = saved_region_of(&engine.saved, in->from, piece);
	bool mapped;

	if (region < __atomic_load_n(&in->next, __ATOMIC_ACQUIRE))
		return in->all || !engine_is_cancelled(in->op);
	pthread_mutex_lock(&in->lock);
	while (in->next <= region && goes_on(in))
		map_next(in);
	mapped = in->next > region;
	pthread_mutex_unlock(&in->lock);
	return mapped;
}

static void piece_arrived(void *arg, size_t piece)
{
	struct in *in = arg;

	if (!saved_piece_arrived(&engine.saved, in->from, piece) || !in->lets_go)
		return;
	/* Nobody waits for this: another one, or the end, takes what it leaves. */
	if (pthread_mutex_trylock(&in->letting_go))
		return;
	saved_let_go(&engine.saved);
	pthread_mutex_unlock(&in->letting_go);
}

/* Others need the host memory, and no other process can make this one give back what it has got. */
static bool may_let_go(const struct in *in)
{
	return !in->all && !in->op->progress.hold && !sharing_is_joint() && !engine_keeps_pages();
}

static int copy(struct in *in)
{
	struct saved *saved = &engine.saved;
	struct transfer t = saved_transfer(saved, in->op->drv, TRANSFER_IN, in->from,
					   saved->nregions, &in->op->progress.done);
	int ret;

	t.await = await_mapped;
	t.arrived = piece_arrived;
	t.arg = in;
	t.in_order = !in->all;
	in->lets_go = may_let_go(in) && saved_let_go_begin(saved);
	ret = engine_transfer(in->op, &t);
	while (saved->in < saved->nregions && saved_has_arrived(saved, saved->in))
		saved->in++;
	if (in->lets_go)
		saved_let_go_end(saved);
	return ret;
}

/* Copy back to where it is mapped, and map what is not. The regions before saved.in are on the GPU then. */
static int load(struct engine_op *op, bool all)
{
	struct saved *saved = &engine.saved;
	struct in in = {.op = op,
			.all = all,
			.from = saved->in,
			.lock = PTHREAD_MUTEX_INITIALIZER,
			.letting_go = PTHREAD_MUTEX_INITIALIZER,
			.next = saved->in,
			.mapped = saved_mapped_bytes(saved),
			.sleep_ms = RETRY_MS};
	size_t bytes = saved_region_bytes(saved, saved->in, saved->nregions);
	CUresult error = CUDA_SUCCESS;
	int ret = 0;

	engine_set_phase(op, "copy", bytes);
	if (bytes)
		ret = load_kernels(op);
	if (!ret)
		ret = copy(&in);
	saved_unload_kernels(saved, op->drv);
	/* What is mapped without its contents goes back. */
	if (saved->in < saved->nregions && !engine.unsettled)
		error = engine_unmap(op->drv, saved->in);
	if (!all)
		engine_has_moved(op, saved_mapped_bytes(saved), true);
	engine_publish();
	if (ret)
		return ret;
	if (in.error || error)
		return engine_fail_driver(&op->result, op->drv, in.error ? "map" : "unmap",
					  in.error ? in.error : error);
	if (saved->in < saved->nregions && engine_is_cancelled(op))
		return engine_fail(&op->result, END_BUSY, "cancelled by a later request");
	return 0;
}

/* All memory has its contents: get what is imported. */
static int complete(struct engine_op *op, double deadline_ms)
{
	CUresult error = CUDA_SUCCESS;

	sharing_rebuilt();
	if (engine.moves)
		error = engine.moves->copied(op->drv);
	if (error)
		return engine_fail_driver(&op->result, op->drv, "pointers in variables of modules",
					  error);
	return engine_get_imports(op, deadline_ms);
}

int engine_put_back(struct engine_op *op)
{
	if (!engine_map(op->drv) && !load(op, true) && !complete(op, 0))
		return 0;
	sharing_back();
	return -1; /* the data is kept: a resume may still succeed */
}

/* Wait until the other processes of the job have their memory too. */
static int wait_for_ranks(struct engine_op *op, double deadline_ms)
{
	struct hold *hold = op->progress.hold;
	const struct hold_report ready = {.drained = true};
	struct hold_order order = {0};

	if (!hold)
		return 0;
	/* A resume that nobody holds has its order from the beginning. */
	hold_take_order(hold, 0, &order);
	if (!order.commit || op->progress.pact)
		engine_set_phase(op, "ranks", 0);
	hold_say(hold, &ready);
	if (op->progress.pact)
		return engine_go_with_others(op, deadline_ms);
	while (!order.commit) {
		hold_take_order(hold, RANKS_LOOK_MS, &order);
		if (!order.commit && engine_is_cancelled(op))
			return engine_fail(&op->result, END_BUSY, ENGINE_ALONE);
	}
	return 0;
}

/*
 * Return to the state in which the regions from @in on were out. Their saved data is still valid: no kernel has run,
 * and nothing was let go where this may be called (may_let_go()). The memory stays mapped if copies may still write to
 * it, or if the driver fails.
 */
static void step_back(struct engine_op *op, size_t in, bool was_released)
{
	CUresult error = CUDA_SUCCESS;

	/* First: the others need not wait until this one has given its memory back. */
	if (op->progress.pact && !engine_is_called_back(op))
		pact_stop(op->progress.pact);
	engine.saved.in = in;
	engine_publish();
	sharing_back();
	if (engine.unsettled)
		return;
	if (!engine_is_released()) {
		engine_set_phase(op, "unmap", 0);
		error = engine_unmap(op->drv, in);
	}
	if (error) {
		if (op->result.code != END_FAILED)
			engine_fail_driver(&op->result, op->drv, "unmap", error);
		return;
	}
	engine_drop_read(op->drv);
	if (was_released && !engine_is_released() && !engine_meet_gone_back(op))
		engine_release(op);
}

/* A fill keeps what is whole; but exporters cannot give back what others have. */
static void keep_own(struct engine_op *op)
{
	sharing_back();
	if (engine_is_released())
		return;
	engine_release_imports(op->drv);
	op->drv->cuCtxSetCurrent(NULL);
}

/*
 * Let the program run, once the other ranks and those that share memory with it have their memory. If they
 * do not get it until @deadline_ms, the regions from @in on are taken back, and the contexts if they were out.
 */
static int run_with_others(struct engine_op *op, size_t in, bool was_released, double deadline_ms)
{
	if (!wait_for_ranks(op, deadline_ms) && !engine_meet_whole(op, deadline_ms)) {
		engine_leave_read();
		op->progress.ready();
		engine_run(op);
		return 0;
	}
	step_back(op, in, was_released);
	return -1;
}

/* Adds to *@granules what has come back. */
static int bring(struct engine_op *op, bool all, bool was_released, double deadline_ms,
		 size_t *granules)
{
	const struct saved *saved = &engine.saved;
	int ret = regain(op, all, deadline_ms);
	size_t in = saved->in;

	if (!ret)
		ret = load(op, all);
	*granules = saved_live(saved, in, saved->in);
	if (!ret && saved->in < saved->nregions)
		return 0;
	if (!ret)
		ret = complete(op, deadline_ms);
	if (!ret)
		ret = engine_meet_complete(op, deadline_ms);
	if (!ret)
		return run_with_others(op, in, was_released, deadline_ms);
	if (all)
		step_back(op, in, was_released);
	else
		keep_own(op);
	return ret;
}

void engine_in(struct engine_op *op, bool all)
{
	bool was_released = engine_is_released();
	double start = clock_ms(),
	       deadline_ms = all && op->timeout_ms ? limits_ms() + op->timeout_ms : 0;
	size_t granules;
	int ret;

	engine_begin(op, &op->result);
	op->lacks = (struct patience){0};
	/* Not if it has failed itself: it may still have its memory, which it must not keep from others. */
	while ((ret = bring(op, all, was_released, deadline_ms, &granules)) &&
	       op->result.code == END_BUSY && engine_is_called_back(op)) {
		sharing_resume();
		*op->result.note = '\0';
	}
	__atomic_store_n(&engine.lacks_host, false, __ATOMIC_RELAXED);
	op->kept = ret && all && was_released && !engine_is_released() && engine_is_out();
	if (!ret)
		engine_succeed(op, start, granules * VMEM_GRANULE);
}
