/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/internal.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/gate/quiet.h"
#include "checkpoint/release/release.h"
#include "checkpoint/release/unsupported.h"
#include "vmem/vmem.h"
#include "common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How often a resume that waits for its peers looks whether it is cancelled. */
#define PEERS_LOOK_MS 20

void engine_set_moves(const struct engine_moves *told)
{
	engine.moves = told;
}

/* The program runs again, with its memory where it is now. */
static void let_run(struct engine_result *result)
{
	if (engine.moves)
		engine.moves->back(result->note, sizeof(result->note));
	__atomic_store_n(&engine.paused, false, __ATOMIC_RELAXED);
	gate_open();
}

int engine_may_release(const struct cuda_driver *drv, struct engine_result *result)
{
	if (!unsupported_check(drv, result->message, sizeof(result->message)))
		return 0;
	result->code = END_UNSUPPORTED;
	return -1;
}

/* The phase "drain" of engine.h; engine.saved.contexts are those that were found. */
static int enter_quiet(const struct cuda_driver *drv, double deadline_ms,
		       const struct engine_progress *progress, struct engine_result *result)
{
	struct quiet q = {.drv = drv,
			  .deadline_ms = deadline_ms,
			  .cancel = &progress->cancel,
			  .hold = progress->hold,
			  .contexts = &engine.saved.contexts};
	int ret;

	if (release_wanted(drv))
		release_find();
	ret = quiet_enter(&q);
	if (ret == -EIO)
		return engine_fail_driver(result, drv, "the program's contexts", q.error);
	if (ret == -ECANCELED || ret == -ETIME)
		return engine_fail_wait(result, progress, q.what);
	return ret ? engine_fail(result, END_FAILED, "drain: %s", strerror(-ret)) : 0;
}

/* All but the release. On failure the job runs on, unless that too failed (END_FAILED). */
static int take_memory(const struct cuda_driver *drv, double deadline_ms,
		       const struct engine_writing *writing, struct engine_progress *progress,
		       struct engine_result *result)
{
	CUresult error;

	if (enter_quiet(drv, deadline_ms, progress, result))
		return -1;
	if (engine.moves && engine.moves->leaving(result->message, sizeof(result->message))) {
		result->code = END_UNSUPPORTED;
		engine_forget();
		gate_open();
		return -1;
	}
	vmem_trim();
	if (engine_save(drv, writing, progress, result))
		goto err_forget;
	engine_set_phase(progress, "unmap", 0);
	__atomic_store_n(&engine.paused, true, __ATOMIC_RELAXED);
	error = engine_unmap(drv);
	if (!error)
		return 0;
	engine_fail_driver(result, drv, "unmap", error);
	engine_write_drop();
	if (engine_map(drv) || engine_load_back(drv, progress, result))
		return -1; /* the data is kept; a resume tries again */
err_forget:
	engine_write_drop();
	engine_forget();
	let_run(result);
	return -1;
}

/* What is left on the GPU goes too, where that is wanted. */
static void release_rest(const struct cuda_driver *drv, struct engine_progress *progress,
			 struct engine_result *result)
{
	const char *call;
	CUresult error;

	if (!engine.saved.contexts.count || !release_wanted(drv))
		return;
	error = engine_release(drv, progress, &call);
	if (error)
		snprintf(result->note, sizeof(result->note), "the context stays on the GPU: %s: %s",
			 call, engine_error_name(drv, error));
}

void engine_pause(const struct cuda_driver *drv, int timeout_ms,
		  const struct engine_writing *writing, struct engine_progress *progress,
		  struct engine_result *result)
{
	double start = clock_ms();

	engine_begin(result);
	if (writing)
		writing->result->code = NULL;
	if (unsupported_check(drv, result->message, sizeof(result->message))) {
		result->code = END_UNSUPPORTED;
		goto out;
	}
	engine_set_phase(progress, "drain", 0);
	if (take_memory(drv, start + timeout_ms, writing, progress, result))
		goto out;
	if (engine.saves && writing->order->image)
		engine_release_all(drv, progress, writing->result);
	else
		release_rest(drv, progress, result);
	__atomic_store_n(&engine.untidy,
			 !engine.released && engine.saved.contexts.count && engine.saved.used_slots,
			 __ATOMIC_RELAXED);
	engine_succeed(result, start, saved_bytes(&engine.saved));
out:
	if (writing)
		engine_write_end(drv, writing, progress, start, result);
}

/* Sleep between two attempts to get GPU memory. False when it is time to give up. */
static bool wait_for_memory(double deadline_ms, unsigned int *sleep_ms,
			    struct engine_progress *progress, struct engine_result *result)
{
	engine_set_phase(progress, "memory", 0);
	__atomic_store_n(&progress->waiting, true, __ATOMIC_RELAXED);
	if (engine_is_cancelled(progress)) {
		engine_fail(result, END_BUSY, "cancelled by a later request");
		return false;
	}
	if (deadline_ms && clock_ms() > deadline_ms) {
		engine_fail(result, END_TIMEOUT, "%.2f GiB of GPU memory did not come free in time",
			    engine.saved.ngranules * VMEM_GRANULE / GIB);
		return false;
	}
	usleep(*sleep_ms * 1000);
	if (*sleep_ms < 1000)
		*sleep_ms *= 2;
	return true;
}

/* Context and memory back, if they fit now. CUDA_ERROR_OUT_OF_MEMORY: they do not, yet. */
static CUresult regain_once(const struct cuda_driver *drv, struct engine_progress *progress,
			    const char **call)
{
	CUresult error;

	if (engine.released) {
		if (!release_fits(engine.saved.per_device))
			return CUDA_ERROR_OUT_OF_MEMORY;
		engine_set_phase(progress, "restore", 0);
		error = release_restore(drv, call);
		__atomic_store_n(&engine.released, error != CUDA_SUCCESS, __ATOMIC_RELAXED);
		if (error)
			return error;
	}
	engine_set_phase(progress, "map", 0);
	if (vmem_has_left()) {
		*call = "unmap";
		error = engine_unmap(drv);
		if (error)
			return error;
	}
	*call = "map";
	return engine_memory_is_free(drv) ? engine_map(drv) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Get context and memory back, waiting for free memory as long as allowed. */
static int regain(const struct cuda_driver *drv, double deadline_ms,
		  struct engine_progress *progress, struct engine_result *result)
{
	unsigned int sleep_ms = 20;
	const char *call = "";

	for (;;) {
		/*
		 * Other jobs that wait for the same GPU must not take what this one was promised.
		 */
		int lock = release_lock(engine.saved.per_device);
		CUresult error = lock == -EAGAIN ? CUDA_ERROR_OUT_OF_MEMORY
						 : regain_once(drv, progress, &call);

		release_unlock();
		if (!error)
			break;
		if (error != CUDA_ERROR_OUT_OF_MEMORY)
			return engine_fail_driver(result, drv, call, error);
		if (!wait_for_memory(deadline_ms, &sleep_ms, progress, result))
			return -1;
	}
	__atomic_store_n(&progress->waiting, false, __ATOMIC_RELAXED);
	return 0;
}

/* Wait until the other processes of the job have their memory too. False: they will not. */
static bool wait_for_peers(struct engine_progress *progress)
{
	const struct hold_report ready = {.drained = true};
	struct hold_order order = {0};

	if (!progress->hold)
		return true;
	engine_set_phase(progress, "peers", 0);
	hold_say(progress->hold, &ready);
	while (!order.commit) {
		hold_take_order(progress->hold, PEERS_LOOK_MS, &order);
		if (!order.commit && engine_is_cancelled(progress))
			return false;
	}
	return true;
}

/*
 * As before the resume began: nothing has run, so what is saved is still so. The memory stays
 * mapped where copies may still write to it. The driver's error.
 */
static CUresult step_back(const struct cuda_driver *drv, bool was_released,
			  struct engine_progress *progress)
{
	const char *call;
	CUresult error;

	if (engine.released || engine.unsettled)
		return CUDA_SUCCESS;
	engine_set_phase(progress, "unmap", 0);
	error = engine_unmap(drv);
	if (!error && was_released)
		engine_release(drv, progress, &call);
	return error;
}

void engine_resume(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		   struct engine_result *result)
{
	double start = clock_ms();
	bool was_released = engine.released;
	CUresult error;

	engine_begin(result);
	if (engine.held && engine_fetch(progress, result))
		return;
	if (regain(drv, timeout_ms ? start + timeout_ms : 0, progress, result) ||
	    engine_load_back(drv, progress, result)) {
		step_back(drv, was_released, progress);
		return;
	}
	if (!wait_for_peers(progress)) {
		error = step_back(drv, was_released, progress);
		if (error)
			engine_fail_driver(result, drv, "unmap", error);
		else
			engine_fail(result, END_BUSY,
				    "another process of the job did not resume, or a pause was "
				    "asked for");
		return;
	}
	progress->ready();
	let_run(result);
	engine_succeed(result, start, saved_bytes(&engine.saved));
	engine_forget();
}
