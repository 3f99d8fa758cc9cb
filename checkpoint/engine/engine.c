/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/internal.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/gate/quiet.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/ledger/ranks.h"
#include "checkpoint/ledger/queries.h"
#include "checkpoint/release/release.h"
#include "checkpoint/release/unsupported.h"
#include "checkpoint/sharing/sharing.h"
#include "common/clock.h"
#include "common/pact.h"
#include "common/rundir.h"
#include "common/settings.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How often a resume that waits for the other ranks looks for a cancellation. */
#define RANKS_LOOK_MS 20

void engine_set_moves(const struct engine_moves *told)
{
	engine.moves = told;
}

void engine_run(struct engine_op *op)
{
	struct engine_result *result = &op->result;

	if (engine.out >= OUT_REST && engine.moves)
		engine.moves->back(result->note, sizeof(result->note));
	vmem_objects_let_go();
	engine_set_out(OUT_NOTHING);
	sharing_run();
	queries_settle(op->drv);
	gate_open();
	engine_forget();
}

int engine_check_carried(const struct engine_op *op, struct engine_result *result)
{
	if (!unsupported_check(op->drv, op->release, result->message, sizeof(result->message)))
		return 0;
	result->code = sharing_may_close() ? END_AGAIN : END_UNSUPPORTED;
	return -1;
}

/* The phase "drain" of engine.h. Puts the contexts into engine.saved.contexts. */
static int enter_quiet(struct engine_op *op, double deadline_ms)
{
	struct quiet q = {.drv = op->drv,
			  .deadline_ms = deadline_ms,
			  .cancel = &op->progress.cancel,
			  .hold = op->progress.hold,
			  .contexts = &engine.saved.contexts};
	int ret;

	release_find();
	ret = quiet_enter(&q);
	if (ret == -EIO)
		return engine_fail(
			&op->result, END_FAILED,
			"the program's CUDA context is in error (%s), which its next CUDA "
			"call reports; the job runs on unchanged",
			engine_error_name(op->drv, q.error));
	if (ret == -ECANCELED || ret == -ETIME)
		return engine_fail_wait(op, q.what, " (--timeout waits longer)");
	if (ret)
		return engine_fail(&op->result, END_FAILED, "drain: %s", error_text(-ret));
	/* A pause that was held has its time from quiet_enter(). */
	if (queries_ask(op->drv, &engine.saved.contexts, q.deadline_ms, q.cancel)) {
		gate_open();
		return engine_fail_wait(op,
					"the questions about all events and streams did not end",
					" (--timeout waits longer)");
	}
	gate_rest();
	return 0;
}

/*
 * Refuse to pause this process alone if kernels of others wait for its kernels. What is known of its
 * communicators is only right now, as the program may have destroyed them.
 */
static int check_alone(struct engine_op *op)
{
	char id[RUNDIR_ID_SIZE];
	uint32_t ranks;

	if (!op->alone)
		return 0;
	ranks_read(op->drv, &engine.saved.contexts, true);
	ranks = ranks_outside();
	if (!ranks)
		return 0;
	return engine_fail(
		&op->result, END_UNSUPPORTED,
		"this process alone is asked to stop, and other processes wait for its kernels (a "
		"communicator of %u ranks); the job runs on; 'cudaw pause %s' pauses all of them",
		ranks, engine_job_name(id));
}

/* The memory is mapped: copy it back, and get what is imported. */
static int load_all(struct engine_op *op, double deadline_ms)
{
	sharing_rebuilt();
	return engine_load_back(op) ? -1 : engine_get_imports(op, deadline_ms);
}

int engine_rest(struct engine_op *op, double deadline_ms)
{
	struct engine_result *result = &op->result;

	if (engine_is_paused())
		return 0;
	sharing_pause();
	engine_set_phase(op, "drain", 0);
	if (enter_quiet(op, deadline_ms)) {
		sharing_run();
		return -1;
	}
	if (check_alone(op) || engine_check_shared(op, result))
		goto err_rest;
	/* From the meeting on, the others count on all that this process has shared, and still has. */
	vmem_trim();
	/* What the others have freed, or ended with, is left to the driver after it. */
	if (engine_meet_at_rest(op, deadline_ms) || engine_check_carried(op, result))
		goto err_rest;
	if (engine.moves && engine.moves->leaving(result->message, sizeof(result->message))) {
		result->code = END_UNSUPPORTED;
		goto err_rest;
	}
	engine_set_out(OUT_REST);
	return 0;
err_rest:
	engine_run(op);
	return -1;
}

int engine_take_memory(struct engine_op *op, double deadline_ms)
{
	bool was_paused = engine_is_paused();
	CUresult error;

	if (engine_rest(op, deadline_ms))
		return -1;
	/* A job at rest has met those that share memory with it before. */
	if (engine_save(op) || (!was_paused && engine_meet_saved(op)))
		goto err_save;
	engine_set_phase(op, "unmap", 0);
	engine_set_out(OUT_PART);
	error = engine_unmap(op->drv, 0);
	if (!error)
		return 0;
	/*
	 * All bytes are saved, and the others have no way back: the job is paused as well. All of
	 * its memory counts as out, also that which is mapped: a resume copies it back.
	 */
	if (sharing_is_joint()) {
		engine.saved.in = 0;
		snprintf(op->result.note, sizeof(op->result.note),
			 "memory stays on the GPU: unmap: %s", engine_error_name(op->drv, error));
		return 0;
	}
	engine_fail_driver(&op->result, op->drv, "unmap", error);
	engine_write_drop();
	if (was_paused)
		return -1;
	if (engine_map(op->drv) || load_all(op, 0)) {
		sharing_back();
		return -1; /* the data is kept: a resume may still succeed */
	}
err_save:
	engine_write_drop();
	if (!was_paused)
		engine_run(op);
	return -1;
}

/* Release what is left on the GPU, if that was asked for. */
static void release_rest(struct engine_op *op)
{
	const char *call;
	CUresult error;

	if (!engine.saved.contexts.count || !release_asked(op->release))
		return;
	/* A snapshot gives host memory back, when the driver can no more be called. */
	if (op->plan && op->plan->hold)
		hostpool_unpin(op->drv, engine.saved.contexts.items[0].ctx, 0);
	error = engine_release(op, &call);
	if (error)
		snprintf(op->result.note, sizeof(op->result.note),
			 "the context stays on the GPU: %s: %s%s", call,
			 engine_error_name(op->drv, error), release_hint(call, error));
}

void engine_paused(void)
{
	engine_publish();
	__atomic_store_n(&engine.untidy, engine_keeps_context() && engine.saved.used_slots,
			 __ATOMIC_RELAXED);
}

/* The job is at rest, and all of its memory is out. The context may have to follow. */
static void pause_rest(struct engine_op *op, double start)
{
	struct engine_result *result = &op->result;

	if (!engine_is_released()) {
		if (engine_check_carried(op, result))
			return;
		if (release_wanted(op->drv, op->release) && engine_check_room(result))
			return;
		if (!engine_meet_released(op))
			release_rest(op);
		engine_paused();
	}
	engine_succeed(op, start, 0);
}

void engine_pause(struct engine_op *op)
{
	size_t in = engine_is_paused() ? engine.saved.in : SIZE_MAX;
	double start = clock_ms();

	engine_begin(op, &op->result);
	op->written.code = END_NONE;
	if (engine_is_out()) {
		pause_rest(op, start);
		if (op->plan && op->result.code == END_OK)
			engine_snapshot(op);
		else
			op->written = op->result;
		return;
	}
	if (engine_check_carried(op, &op->result))
		goto out;
	if (engine_take_memory(op, start + op->timeout_ms))
		goto out;
	if (engine.saves && op->plan->image)
		engine_release_all(op, &op->written);
	else if (!engine_meet_released(op))
		release_rest(op);
	engine_paused();
	in = in < engine.saved.nregions ? in : engine.saved.nregions;
	engine_succeed(op, start, saved_live(&engine.saved, 0, in) * VMEM_GRANULE);
out:
	if (op->plan)
		engine_write_end(op, start);
}

void engine_release_kept(struct engine_op *op)
{
	struct engine_result *result = &op->result;
	double start = clock_ms();

	engine_begin(op, result);
	if (engine_check_carried(op, result) || engine_check_room(result))
		return;
	if (engine_meet_released(op)) {
		engine_fail(result, END_TIMEOUT, "%s", result->note);
		return;
	}
	if (engine_release_all(op, result))
		return;
	__atomic_store_n(&engine.untidy, false, __ATOMIC_RELAXED);
	snprintf(result->note, sizeof(result->note),
		 "already paused; the rest of its GPU memory is given back now");
	engine_succeed(op, start, 0);
}

int engine_wait_for_memory(struct engine_op *op, double deadline_ms, unsigned int *sleep_ms)
{
	double left_ms = deadline_ms ? deadline_ms - clock_ms() : *sleep_ms;
	double ms = left_ms < *sleep_ms ? left_ms : *sleep_ms;

	engine_set_phase(op, "memory", 0);
	__atomic_store_n(&op->progress.waiting, true, __ATOMIC_RELAXED);
	if (engine_is_cancelled(op)) {
		engine_fail(&op->result, END_BUSY, "cancelled by a later request");
		return -ECANCELED;
	}
	if (left_ms < 0)
		return -ETIME;
	engine_look_at_lack(op);
	if (!op->progress.pact)
		usleep((useconds_t)(ms * 1000));
	else if (engine_wait_for_others(op, ms))
		return -ECANCELED;
	if (*sleep_ms < 1000)
		*sleep_ms *= 2;
	return 0;
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
	engine_takes(op);
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

	if (!engine_is_released() && engine.saved.contexts.count && pinned &&
	    bytes <= HOSTPOOL_TABLES(pinned))
		hostpool_unpin(op->drv, engine.saved.contexts.items[0].ctx, 0);
}

/* Get context and memory back, if they fit. CUDA_ERROR_OUT_OF_MEMORY: they do not fit yet. */
static CUresult regain_once(struct engine_op *op, const size_t *needed, bool map, const char **call)
{
	CUresult error;

	engine.lack = (struct gpu_lack){.dev = -1};
	error = restore_once(op, needed, call);
	if (error || !map)
		return error;
	engine_set_phase(op, "map", 0);
	if (vmem_has_left()) {
		*call = "unmap";
		error = engine_unmap(op->drv, engine.saved.in);
		if (error)
			return error;
	}
	*call = "map";
	if (engine_memory_is_free(op->drv, needed)) {
		engine_takes(op);
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

/* The same; no other job that waits for this GPU may take what this one was promised. */
static CUresult regain_locked(struct engine_op *op, size_t *needed, bool map, const char **call)
{
	CUresult error = CUDA_ERROR_OUT_OF_MEMORY;

	if (map)
		engine_missing(needed);
	if (!engine_may_take(op, needed))
		return error;
	if (release_lock(needed) != -EAGAIN)
		error = regain_once(op, needed, map, call);
	release_unlock();
	return error;
}

int engine_regain(struct engine_op *op, double deadline_ms, bool map)
{
	size_t needed[GPU_MAX] = {0};
	unsigned int sleep_ms = ENGINE_FIRST_WAIT_MS;
	const char *call = "";

	for (;;) {
		CUresult error = regain_locked(op, needed, map, &call);
		int ret;

		if (!error)
			break;
		if (error != CUDA_ERROR_OUT_OF_MEMORY)
			return engine_fail_driver(&op->result, op->drv, call, error);
		if (engine.lack.dev >= 0)
			give_tables_back(op, engine.lack.needed - engine.lack.free);
		ret = engine_wait_for_memory(op, deadline_ms, &sleep_ms);
		if (ret == -ETIME)
			engine_fail_lack(op);
		if (ret || engine_is_called_back(op))
			return -1;
	}
	engine_has(op);
	__atomic_store_n(&op->progress.waiting, false, __ATOMIC_RELAXED);
	return 0;
}

/* Wait until the other processes of the job have their memory too. False: give up. */
static bool wait_for_ranks(struct engine_op *op, double deadline_ms)
{
	struct hold *hold = op->progress.hold;
	const struct hold_report ready = {.drained = true};
	struct hold_order order = {0};

	if (!hold)
		return true;
	/* A resume that nobody holds has its order from the beginning. */
	hold_take_order(hold, 0, &order);
	if (!order.commit || op->progress.pact)
		engine_set_phase(op, "ranks", 0);
	hold_say(hold, &ready);
	if (op->progress.pact)
		return engine_goes_with_others(op, deadline_ms);
	while (!order.commit) {
		hold_take_order(hold, RANKS_LOOK_MS, &order);
		if (!order.commit && engine_is_cancelled(op))
			return false;
	}
	return true;
}

/*
 * Return to the state before the resume, in which the regions from @in on were out. No kernel has
 * run, so the saved data is still valid. The memory stays mapped if copies may still write to it.
 * Returns the driver's error.
 */
static CUresult step_back(struct engine_op *op, size_t in, bool was_released)
{
	const char *call;
	CUresult error;

	engine.saved.in = in;
	engine_publish();
	sharing_back();
	if (engine_is_released() || engine.unsettled)
		return CUDA_SUCCESS;
	engine_set_phase(op, "unmap", 0);
	error = engine_unmap(op->drv, in);
	if (!error && was_released)
		engine_release(op, &call);
	return error;
}

int engine_run_on(struct engine_op *op, size_t in, bool was_released, double deadline_ms)
{
	struct engine_result *result = &op->result;
	CUresult error;

	if (wait_for_ranks(op, deadline_ms)) {
		if (engine_meet_whole(op, deadline_ms)) {
			step_back(op, in, was_released);
			return -1;
		}
		op->progress.ready();
		engine_run(op);
		return 0;
	}
	error = step_back(op, in, was_released);
	if (error)
		return engine_fail_driver(result, op->drv, "unmap", error);
	return engine_fail(result, END_BUSY, ENGINE_ALONE);
}

static void resume(struct engine_op *op)
{
	bool was_released = engine_is_released();
	double start = clock_ms(), deadline_ms = op->timeout_ms ? start + op->timeout_ms : 0;
	size_t bytes = 0;
	int ret;

	engine_begin(op, &op->result);
	op->lacks_since_ms = 0;
	if (engine.held && engine_fetch(op, deadline_ms))
		return;
	do {
		size_t in;

		ret = engine_regain(op, deadline_ms, true);
		in = engine.saved.in;
		bytes = saved_live(&engine.saved, in, engine.saved.nregions) * VMEM_GRANULE;
		if (!ret)
			ret = load_all(op, deadline_ms);
		if (ret)
			step_back(op, in, was_released);
		else
			ret = engine_run_on(op, in, was_released, deadline_ms);
	} while (ret && engine_is_called_back(op));
	if (!ret)
		engine_succeed(op, start, bytes);
}

void engine_resume(struct engine_op *op)
{
	sharing_resume();
	resume(op);
	if (op->progress.pact && op->result.code != END_OK)
		pact_stop(op->progress.pact);
	engine_end_shared(op);
}
