/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that processes share, in a pause and a resume: the stages of sharing.h, and their failures. */
#include "checkpoint/engine/internal.h"
#include "checkpoint/sharing/sharing.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "vmem/objects/host_objects.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct sharing_wait wait_of(const struct engine_op *op, double deadline_ms)
{
	return (struct sharing_wait){.deadline_ms = deadline_ms,
				     .cancel = &op->progress.cancel,
				     .pact = op->progress.pact};
}

const char *engine_job_name(char id[RUNDIR_ID_SIZE])
{
	const char *name = setting_text(SETTING_NAME);

	rundir_job_id(id);
	return name ? name : id;
}

/* The pause fails, and the job runs on. */
static int fail_pause(struct engine_op *op, const struct sharing_wait *w, int error)
{
	char id[RUNDIR_ID_SIZE];

	if (engine_is_cancelled(op))
		return engine_fail_wait(op, "", "");
	op->result.bound = error == -ENOTSUP || error == -EPERM || error == -EHOSTUNREACH;
	if (error == -ENOTSUP)
		return engine_fail(&op->result, END_UNSUPPORTED,
				   "%s; the job runs on; 'cudaw pause %s%s' pauses all of them",
				   w->text, engine_job_name(id), w->jobs);
	return engine_fail(&op->result,
			   error == -ETIME    ? END_TIMEOUT
			   : op->result.bound ? END_UNSUPPORTED
					      : END_BUSY,
			   "%s; the job runs on", w->text);
}

int engine_check_host_memory(struct engine_result *result)
{
	if (!host_objects_are_shared())
		return 0;
	return engine_fail(result, END_UNSUPPORTED,
			   "other processes may share host memory with this one (cuMemCreate), "
			   "which no snapshot has yet");
}

int engine_check_shared(struct engine_op *op, struct engine_result *result)
{
	char id[RUNDIR_ID_SIZE], jobs[SHARING_JOBS];
	size_t sharers = op->alone || op->plan ? sharing_sharers(&op->progress.cancel, jobs) : 0;

	if (!sharers)
		return op->plan ? engine_check_host_memory(result) : 0;
	if (op->plan)
		return engine_fail(result, END_UNSUPPORTED,
				   "%zu other process%s not in the snapshot", sharers,
				   sharers == 1 ? " shares GPU memory with this one, and is"
						: "es share GPU memory with this one, and are");
	result->bound = true;
	return engine_fail(
		result, END_UNSUPPORTED,
		"this process alone is asked to stop, and %zu other process%s GPU memory "
		"with it; the job runs on; 'cudaw pause %s%s' pauses all of them",
		sharers, sharers == 1 ? " shares" : "es share", engine_job_name(id), jobs);
}

int engine_meet_at_rest(struct engine_op *op, double deadline_ms)
{
	struct sharing_wait w = wait_of(op, deadline_ms);
	int error = sharing_rest(&w);

	return error ? fail_pause(op, &w, error) : 0;
}

int engine_meet_saved(struct engine_op *op)
{
	struct sharing_wait w = wait_of(op, 0);
	/* Those that find all of them saved at their first look ask no more. */
	int error = engine_is_cancelled(op) ? -ECANCELED : sharing_saved(&w);

	return error ? fail_pause(op, &w, error) : 0;
}

static int keep_context(struct engine_op *op, const struct sharing_wait *w)
{
	snprintf(op->result.note, sizeof(op->result.note), "the context stays on the GPU: %s",
		 w->text);
	return -1;
}

int engine_meet_released(struct engine_op *op)
{
	struct sharing_wait w = wait_of(op, 0);

	return sharing_released(&w) ? keep_context(op, &w) : 0;
}

int engine_meet_gone_back(struct engine_op *op)
{
	/* A resume may go back since it is cancelled. */
	static const bool never;
	struct sharing_wait w = {.cancel = &never};

	return sharing_gone_back(&w) ? keep_context(op, &w) : 0;
}

/* The resume fails; the job stays paused. */
static int fail_resume(struct engine_op *op, const struct sharing_wait *w, int error)
{
	if (error == -EIO && w->error)
		return engine_fail_driver(&op->result, op->drv, w->text, w->error);
	if (engine_is_cancelled(op) || (op->progress.pact && pact_is_ended(op->progress.pact)))
		return engine_fail_off(op);
	return engine_fail(&op->result, error == -ETIME ? END_TIMEOUT : END_FAILED,
			   "%s; the job stays paused, and can%s", w->text,
			   error == -ESRCH || error == -ENODATA ? "not run without that memory"
								: " be resumed again");
}

int engine_get_imports(struct engine_op *op, double deadline_ms)
{
	struct sharing_wait w = wait_of(op, deadline_ms);
	struct object_import import = {0};
	int error;

	if (!objects_next_import(&import))
		return 0;
	engine_set_phase(op, "sharing", 0);
	/* An import that the pause could not give back is of the memory before. */
	w.error = engine_release_imports(op->drv);
	if (w.error)
		return engine_fail_driver(&op->result, op->drv, "imported memory", w.error);
	error = sharing_get_imports(&w);
	engine_add_phase(op, "imports", w.got_ms);
	op->drv->cuCtxSetCurrent(NULL);
	return error ? fail_resume(op, &w, error) : 0;
}

static int meet_in(struct engine_op *op, double deadline_ms, int (*stage)(struct sharing_wait *))
{
	struct sharing_wait w = wait_of(op, deadline_ms);
	int error = stage(&w);

	engine_add_phase(op, "imports", w.got_ms);
	return error ? fail_resume(op, &w, error) : 0;
}

int engine_meet_complete(struct engine_op *op, double deadline_ms)
{
	if (!op->progress.pact)
		return 0;
	if (sharing_is_joint())
		engine_set_phase(op, "sharing", 0);
	return meet_in(op, deadline_ms ? deadline_ms + ENGINE_WHOLE_MS : 0, sharing_complete);
}

int engine_meet_again(struct engine_op *op)
{
	struct sharing_wait w = wait_of(op, 0);
	int error = sharing_remains(&w);

	return error && error != -EAGAIN ? fail_resume(op, &w, error) : error;
}

int engine_meet_whole(struct engine_op *op, double deadline_ms)
{
	int ret;

	__atomic_store_n(&op->progress.agreed, op->progress.pact, __ATOMIC_RELAXED);
	/* All others of the pact run. */
	ret = meet_in(op, op->progress.pact ? 0 : deadline_ms, sharing_whole);
	__atomic_store_n(&op->progress.agreed, false, __ATOMIC_RELAXED);
	return ret;
}

/* A cancelled one may be followed by another one, and a time limit is of this process alone. */
void engine_end_shared(const struct engine_op *op)
{
	enum end_code code = op->result.code;

	if (code != END_OK && code != END_BUSY && code != END_TIMEOUT)
		sharing_failed();
}
