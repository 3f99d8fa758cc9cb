/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/claims.h"
#include "checkpoint/engine_internal.h"
#include "checkpoint/gate.h"
#include "checkpoint/hostpool.h"
#include "checkpoint/release.h"
#include "checkpoint/spill.h"

#include <errno.h>
#include <stdio.h>

int engine_fetch(struct engine_progress *progress, struct engine_result *result)
{
	size_t pool_slots, spill_slots;
	struct snapshot_error error;
	int ret;

	engine_set_phase(progress, "read", engine.saved.ngranules * VMEM_GRANULE);
	saved_room(engine.held_slots * VMEM_GRANULE, 0, &pool_slots, &spill_slots);
	if (engine_place(engine.held_slots, pool_slots, spill_slots, result))
		return -1;
	ret = snapshot_saved_fetch(&engine.saved, &engine.place, &progress->done, &progress->cancel,
				   &error);
	if (ret == -ECANCELED)
		return engine_fail(result, END_BUSY, "cancelled by a pause");
	if (ret)
		return engine_fail(result, END_FAILED, "%.255s: %.250s", engine.place.path,
				   error.text);
	snapshot_place_unlock(&engine.place);
	engine.saved.used_slots = engine.held_slots;
	__atomic_store_n(&engine.held, false, __ATOMIC_RELEASE);
	engine_publish();
	return 0;
}

/* Have the driver take what is left on the GPU, whatever CUDAW_RELEASE says. */
static int release_all(const struct cuda_driver *drv, struct engine_progress *progress,
		       struct engine_result *result)
{
	const char *call = "no cuCheckpointProcessCheckpoint";
	CUresult error = CUDA_ERROR_NOT_SUPPORTED;

	if (engine.released || !engine.saved.ncontexts)
		return 0;
	engine_set_phase(progress, "release", 0);
	hostpool_unpin(drv, engine.saved.contexts[0].ctx, 0);
	if (drv->cuCheckpointProcessCheckpoint)
		error = release_checkpoint(drv, engine.saved.contexts, engine.saved.ncontexts,
					   &call);
	if (error)
		return engine_fail(result, END_UNSUPPORTED,
				   "the driver does not release the GPU: %s: %s", call,
				   engine_error_name(drv, error));
	__atomic_store_n(&engine.released, true, __ATOMIC_RELAXED);
	return 0;
}

/* The snapshot alone has it from now on. */
static void give_host_memory_back(const struct cuda_driver *drv)
{
	if (!engine.released && engine.saved.ncontexts)
		hostpool_unpin(drv, engine.saved.contexts[0].ctx, 0);
	engine.held_slots = engine.saved.used_slots;
	engine.saved.used_slots = 0;
	hostpool_drop();
	spill_close();
	__atomic_store_n(&engine.untidy, false, __ATOMIC_RELAXED);
	__atomic_store_n(&engine.held, true, __ATOMIC_RELEASE);
	engine_publish();
}

static int write_snapshot(const struct snapshot_order *order, struct snapshot_facts *facts,
			  struct engine_progress *progress, struct engine_result *result)
{
	struct snapshot_totals totals;
	struct snapshot_error error;
	int ret;

	engine_set_phase(progress, "write", engine.saved.ngranules * VMEM_GRANULE);
	ret = snapshot_saved_write(&engine.saved, order, facts, &engine.place, &totals,
				   &progress->done, &progress->cancel, &error);
	if (ret == -ECANCELED)
		return engine_fail(result, END_BUSY,
				   "cancelled: a resume was asked for, or the process exits");
	if (ret)
		return engine_fail(result, END_FAILED, "%.255s: %.250s", order->path, error.text);
	snprintf(result->note, sizeof(result->note),
		 "%.2f GiB written; %.2f GiB zeros, %.2f GiB equal to others, %.2f GiB as before",
		 totals.written / GIB, totals.zero / GIB, totals.duplicate / GIB,
		 totals.unchanged / GIB);
	return 0;
}

void engine_snapshot(const struct cuda_driver *drv, const struct snapshot_order *order,
		     struct snapshot_facts *facts, struct engine_progress *progress,
		     struct engine_result *result)
{
	struct snapshot_context contexts[CONTEXTS_MAX];
	double start = gate_now_ms();

	engine_begin(result);
	if (!engine.paused || engine.held) {
		engine_fail(result, END_BUSY,
			    engine.held ? "the job is in a snapshot already, in %.400s"
					: "the job is not paused%s",
			    engine.held ? engine.place.path : "");
		return;
	}
	for (size_t i = 0; i < engine.saved.ncontexts; i++)
		contexts[i] = (struct snapshot_context){engine.saved.contexts[i].dev,
							engine.saved.contexts[i].primary};
	if (order->image)
		claims_close();
	facts->contexts = contexts;
	facts->ncontexts = engine.saved.ncontexts;
	if ((order->image && release_all(drv, progress, result)) ||
	    write_snapshot(order, facts, progress, result))
		return;
	if (!order->hold)
		snapshot_place_unlock(&engine.place);
	else
		give_host_memory_back(drv);
	engine_succeed(result, start, saved_bytes(&engine.saved));
}

int engine_moved(const char *path, const CUcheckpointGpuPair *pairs, size_t count,
		 struct snapshot_error *error)
{
	int ret;

	if (!engine.held)
		return snapshot_fail(error, -ENOENT, "the job is in no snapshot");
	ret = snapshot_place_move(&engine.place, path, error);
	if (!ret)
		release_remap(pairs, count);
	return ret;
}
