/* SPDX-License-Identifier: Apache-2.0 */
/* The program comes to rest, and runs again. */
#include "checkpoint/engine/internal.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/quiet.h"
#include "checkpoint/ledger/queries.h"
#include "checkpoint/ledger/ranks.h"
#include "checkpoint/release/release.h"
#include "checkpoint/sharing/sharing.h"
#include "vmem/vmem.h"

#include <errno.h>

#define LONGER " (--timeout waits longer)"

void engine_set_moves(const struct engine_moves *told)
{
	engine.moves = told;
}

/* Puts the contexts into engine.saved.contexts. */
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
		return engine_fail_wait(op, q.what, LONGER);
	if (ret)
		return engine_fail(&op->result, END_FAILED, "drain: %s", error_text(-ret));
	/* A pause that was held has its time from quiet_enter(). */
	if (queries_ask(op->drv, &engine.saved.contexts, q.deadline_ms, q.cancel)) {
		gate_open();
		return engine_fail_wait(
			op, "the questions about all events and streams did not end", LONGER);
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
	op->result.bound = true;
	return engine_fail(
		&op->result, END_UNSUPPORTED,
		"this process alone is asked to stop, and other processes wait for its kernels (a "
		"communicator of %u ranks); the job runs on; 'cudaw pause %s' pauses all of them",
		ranks, engine_job_name(id));
}

/* With the gate closed and the GPU idle. */
static int settle(struct engine_op *op, double deadline_ms)
{
	struct engine_result *result = &op->result;

	if (check_alone(op) || engine_check_shared(op, result))
		return -1;
	/* From the meeting on, the others count on all that this process has shared, and still has. */
	vmem_trim();
	/* What the others have freed, or ended with, is left to the driver after it. */
	if (engine_meet_at_rest(op, deadline_ms) || engine_check_carried(op, result))
		return -1;
	if (!engine.moves || !engine.moves->leaving(result->message, sizeof(result->message)))
		return 0;
	result->code = END_UNSUPPORTED;
	return -1;
}

int engine_rest(struct engine_op *op, double deadline_ms)
{
	if (engine_is_paused())
		return 0;
	sharing_pause();
	engine_set_phase(op, "drain", 0);
	if (enter_quiet(op, deadline_ms)) {
		sharing_run();
		return -1;
	}
	if (settle(op, deadline_ms)) {
		engine_run(op);
		return -1;
	}
	engine_set_out(OUT_REST);
	return 0;
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
