/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/internal.h"
#include "checkpoint/release/release.h"
#include "checkpoint/sharing/sharing.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/size.h"

#include <stdio.h>
#include <string.h>

/* The job is at rest, and all of its memory is out: what is left on the GPU follows, if that was asked for. */
static void release_rest(struct engine_op *op)
{
	if (engine.saves && op->plan->image) {
		engine_release_all(op, &op->written);
		return;
	}
	if (engine_meet_released(op) || !engine.saved.contexts.count || !release_asked(op->release))
		return;
	/* A snapshot gives host memory back, when the driver can no more be called. */
	if (op->plan && op->plan->gives_back)
		engine_unpin(op->drv, NULL);
	engine_release(op);
}

/* Memory went out: update what other threads read, and whether there is host memory to pin. */
static void went_out(void)
{
	engine_publish();
	__atomic_store_n(&engine.untidy, engine_keeps_context() && engine.saved.used_slots,
			 __ATOMIC_RELAXED);
}

/* All memory of a yield is out: the driver takes the contexts, too. They stay if it cannot, or if it is not safe. */
static void release_contexts(struct engine_op *op)
{
	struct engine_result why = {.code = END_OK};

	if (!op->context || engine_is_released() || !engine_is_out() || engine_is_cancelled(op) ||
	    engine_meet_released(op))
		return;
	op->release = RELEASE_ALL;
	if (!release_is_measured(&engine.saved.contexts))
		engine_fail(&why, END_UNSUPPORTED, "NVML does not say how much memory it takes");
	else if (!engine_check_carried(op, &why) && !engine_check_room(&why))
		engine_release_all(op, &why);
	op->release = RELEASE_MEMORY;
	snprintf(op->result.note, sizeof(op->result.note), "%.255s", why.message);
	went_out();
}

static int pause_all(struct engine_op *op, double start)
{
	const struct saved *saved = &engine.saved;
	size_t in = engine_is_paused() ? saved->in : SIZE_MAX;

	if (!engine_is_released()) {
		if (engine_out(op, SIZE_MAX, WAY_AT_ONCE, limits_ms() + op->timeout_ms))
			return -1;
		release_rest(op);
		went_out();
	}
	engine_succeed(op, start,
		       saved_live(saved, 0, size_min(in, saved->nregions)) * VMEM_GRANULE);
	return 0;
}

void engine_pause(struct engine_op *op)
{
	bool was_out = engine_is_out();
	double start = clock_ms();
	int ret;

	engine_begin(op, &op->result);
	op->written.code = END_NONE;
	ret = pause_all(op, start);
	if (op->plan && !ret && was_out)
		engine_snapshot(op);
	else if (op->plan)
		engine_write_end(op, start);
}

void engine_release_kept(struct engine_op *op)
{
	struct engine_result *result = &op->result;
	double start = clock_ms();

	engine_begin(op, result);
	if (!engine_is_out()) {
		engine_fail(result, END_FAILED, "memory that it could not give back is on the GPU");
		return;
	}
	if (engine_check_carried(op, result) || engine_check_room(result))
		return;
	if (engine_meet_released(op)) {
		engine_fail(result, engine_is_cancelled(op) ? END_BUSY : END_TIMEOUT, "%s",
			    result->note);
		return;
	}
	if (engine_release_all(op, result))
		return;
	__atomic_store_n(&engine.untidy, false, __ATOMIC_RELAXED);
	snprintf(result->note, sizeof(result->note),
		 "already paused; the rest of its GPU memory is given back now");
	engine_succeed(op, start, 0);
}

void engine_yield(struct engine_op *op)
{
	bool together = op->progress.hold;
	double start = clock_ms();
	size_t left;
	int ret;

	engine_begin(op, &op->result);
	op->mapped = 0;
	/* The driver's checkpoint may hold the context: then no driver call can be made. */
	if (engine_is_out()) {
		release_contexts(op);
		engine_succeed(op, start, 0);
		return;
	}
	op->mapped = saved_mapped_bytes(&engine.saved);
	ret = engine_out(op, op->bytes, together ? WAY_EACH : WAY_ALONE,
			 limits_ms() + op->timeout_ms);
	if (!engine_is_paused())
		return;
	/* Whoever gets the memory need not wait until the others have given theirs. One that fails has yet to give it. */
	if (!ret)
		engine_has_moved(op, op->progress.moved, true);
	/* The others wait for it, also if it has failed. They may give a part only, or still copy: no context goes. */
	if (together && engine_meet_released(op))
		*op->result.note = '\0';
	went_out();
	left = saved_mapped_bytes(&engine.saved);
	engine_has_moved(op, op->mapped - left, true);
	op->mapped = left;
	if (!ret)
		release_contexts(op);
	if (!ret)
		engine_succeed(op, start, op->progress.moved);
}

static void resume(struct engine_op *op, bool all)
{
	sharing_resume();
	engine_in(op, all);
	if (op->progress.pact && op->result.code != END_OK)
		pact_stop(op->progress.pact);
	engine_end_shared(op);
}

void engine_resume(struct engine_op *op)
{
	resume(op, true);
}

void engine_fill(struct engine_op *op)
{
	resume(op, false);
}
