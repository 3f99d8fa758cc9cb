/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/engine/transfer.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/release/release.h"
#include "common/hostmem.h"
#include "common/settings.h"
#include "vmem/objects.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "engine: "
#include "common/log.h"
#include "common/gpu.h"

/* Below this, finding zeros takes longer than copying them. */
#define SCAN_BYTES (1UL << 30)

static int fail_transfer(struct engine_op *op, const struct transfer *t)
{
	struct engine_result *result = &op->result;

	switch (t->workers.result) {
	case 0:
		return 0;
	case -EIO:
		return t->error ? engine_fail_driver(result, op->drv, "copy", t->error)
				: engine_fail(result, END_FAILED, "the spill file: %s",
					      strerror(EIO));
	case -ENOMEM:
		return engine_fail(result, END_NOMEM, "host memory ran out during the copy");
	case -ECANCELED:
		return engine_write_fail(result);
	case -EILSEQ:
		return engine_fail(result, END_FAILED,
				   "the 2 MiB at %#llx came back different from what was saved "
				   "(CUDAW_VERIFY)",
				   t->differs);
	default:
		return engine_fail(result, END_FAILED, "the spill file: %s",
				   strerror(-t->workers.result));
	}
}

static int transfer(struct engine_op *op, enum transfer_direction direction, size_t *done)
{
	struct transfer t = saved_transfer(&engine.saved, op->drv, direction, done);

	if (direction == TRANSFER_OUT && engine.saves) {
		t.cancel = &engine.saving.stop;
		t.arrived = saving_arrived;
		t.arg = &engine.saving;
	}
	transfer_run(&t);
	engine.unsettled = t.unsettled;
	if (direction != TRANSFER_IN)
		engine.saved.used_slots = t.next_slot;
	return fail_transfer(op, &t);
}

int engine_scan(struct engine_op *op)
{
	size_t done = 0;

	return transfer(op, TRANSFER_SCAN, &done);
}

/*
 * Kernels for digests: to check the data, to find zeros in much of it, or so that a later snapshot
 * can tell what has changed.
 */
static int load_kernels(struct engine_op *op)
{
	bool verify = setting_enabled(SETTING_VERIFY);
	CUresult error;

	if (!verify && !op->order && saved_bytes(&engine.saved) < SCAN_BYTES)
		return 0;
	error = saved_load_kernels(&engine.saved, op->drv);
	if (!error)
		return 0;
	if (verify)
		return engine_fail_driver(&op->result, op->drv, "CUDAW_VERIFY: loading the kernel",
					  error);
	pr_debug("zeros are copied: no kernel to find them: driver error %d", error);
	return 0;
}

static int fail_room(struct engine_result *result, size_t slots, size_t pool_slots,
		     size_t spill_slots)
{
	size_t need = slots * VMEM_GRANULE, host = pool_slots * VMEM_GRANULE;
	size_t disk = spill_slots * VMEM_GRANULE;

	if (disk)
		return engine_fail(
			result, END_NOMEM,
			"%.2f GiB to be saved, %.2f GiB of host memory available (%.2f GiB is "
			"left to others) and %.2f GiB of disk in CUDAW_SPILL_DIR: %.2f GiB are "
			"missing",
			need / GIB, host / GIB, HOSTMEM_RESERVE / GIB, disk / GIB,
			(need - host - disk) / GIB);
	return engine_fail(
		result, END_NOMEM,
		"%.2f GiB to be saved, %.2f GiB of host memory available (%.2f GiB is left to "
		"others): %.2f GiB are missing",
		need / GIB, host / GIB, HOSTMEM_RESERVE / GIB, (need - host) / GIB);
}

int engine_place(struct engine_op *op, size_t slots, size_t pool_slots, size_t spill_slots)
{
	int error;

	if (slots > pool_slots && slots - pool_slots > spill_slots)
		return fail_room(&op->result, slots, pool_slots, spill_slots);
	error = saved_place(&engine.saved, slots, pool_slots);
	if (error)
		return engine_fail(&op->result, END_NOMEM, "room for %.2f GiB: %s",
				   slots * VMEM_GRANULE / GIB, strerror(-error));
	return 0;
}

static int fail_apart(struct engine_result *result, size_t apart, size_t missing)
{
	return engine_fail(
		result, END_NOMEM,
		"%.2f GiB of host memory needed for the driver's checkpoint (%.2f GiB are left to "
		"others): %.2f GiB are missing",
		apart / GIB, HOSTMEM_RESERVE / GIB, missing / GIB);
}

int engine_check_room(struct engine_op *op)
{
	size_t apart = release_host_bytes(&engine.saved.contexts), pool_slots, spill_slots;
	size_t missing = saved_room(0, apart, &pool_slots, &spill_slots);

	return missing ? fail_apart(&op->result, apart, missing) : 0;
}

/* Find room for all data that will be saved. */
static int make_room(struct engine_op *op)
{
	size_t slots = engine.saved.nlive, pool_slots, spill_slots, apart = 0, missing;
	size_t bytes = slots * VMEM_GRANULE, held = hostpool_held();

	if (release_wanted(op->drv, op->release))
		apart = release_host_bytes(&engine.saved.contexts);
	missing = saved_room(bytes > held ? bytes - held : 0, apart, &pool_slots, &spill_slots);
	if (missing)
		return fail_apart(&op->result, apart, missing);
	/* If it does not fit, it may fit without zeros. */
	if (slots > pool_slots && engine.saved.kernels) {
		if (engine_scan(op))
			return -1;
		slots = engine.saved.used_slots;
	}
	return engine_place(op, slots, pool_slots, spill_slots);
}

static int copy_out(struct engine_op *op)
{
	int ret;

	if (op->order && engine_write_begin(op))
		return -1;
	ret = engine.saved.ngranules ? transfer(op, TRANSFER_OUT, &op->progress.done) : 0;
	/* The last moment to cancel the pause at no cost. */
	if (!ret && engine.saves && __atomic_load_n(&engine.saving.stop, __ATOMIC_RELAXED))
		ret = engine_write_fail(&op->result);
	if (engine.saves)
		saving_close(&engine.saving, !ret);
	return ret;
}

/* The program's own objects are among the regions from now on. */
static CUresult hold_objects(const struct cuda_driver *drv)
{
	const struct context_list *list = &engine.saved.contexts;
	CUresult error = CUDA_SUCCESS;

	for (size_t i = 0; i < list->count && !error; i++) {
		error = drv->cuCtxSetCurrent(list->items[i].ctx);
		if (!error)
			error = vmem_objects_hold(list->items[i].ctx, list->items[i].dev);
	}
	drv->cuCtxSetCurrent(NULL);
	return error;
}

int engine_save(struct engine_op *op)
{
	CUresult error = hold_objects(op->drv);
	int ret = -1;

	if (error)
		return engine_fail_driver(&op->result, op->drv, "memory of cuMemCreate", error);
	if (saved_list(&engine.saved))
		return engine_fail(&op->result, END_NOMEM, "out of memory");
	engine_set_phase(op, "copy", engine.saved.ngranules * VMEM_GRANULE);
	if (!engine.saved.ngranules)
		return copy_out(op);
	if (load_kernels(op))
		return -1;
	if (!make_room(op))
		ret = copy_out(op);
	saved_unload_kernels(&engine.saved, op->drv);
	engine_publish();
	return ret;
}

int engine_load_back(struct engine_op *op)
{
	struct engine_result *result = &op->result;
	CUresult error = CUDA_SUCCESS;
	int ret;

	engine_set_phase(op, "copy", engine.saved.ngranules * VMEM_GRANULE);
	if (engine.saved.digests && setting_enabled(SETTING_VERIFY)) {
		error = saved_load_kernels(&engine.saved, op->drv);
		if (error)
			return engine_fail_driver(result, op->drv,
						  "CUDAW_VERIFY: loading the kernel", error);
	}
	ret = transfer(op, TRANSFER_IN, &op->progress.done);
	saved_unload_kernels(&engine.saved, op->drv);
	if (!ret && engine.moves)
		error = engine.moves->copied(op->drv);
	return error ? engine_fail_driver(result, op->drv, "pointers in variables of modules",
					  error)
		     : ret;
}

bool engine_memory_is_free(const struct cuda_driver *drv)
{
	bool asked[GPU_MAX] = {false}, enough = true;
	size_t needed[GPU_MAX] = {0}, free, total;

	for (size_t i = 0; i < engine.saved.nregions; i++)
		if (!engine.saved.regions[i].mapped)
			needed[engine.saved.regions[i].dev] += engine.saved.regions[i].size;
	for (size_t i = 0; i < engine.saved.nregions && enough; i++) {
		const struct vmem_region *r = &engine.saved.regions[i];

		if (asked[r->dev] || r->mapped)
			continue;
		asked[r->dev] = true;
		enough = drv->cuCtxSetCurrent(r->ctx) || drv->cuMemGetInfo_v2(&free, &total) ||
			 free >= needed[r->dev];
		if (!enough)
			engine.lack = (struct gpu_lack){r->dev, needed[r->dev], free};
	}
	drv->cuCtxSetCurrent(NULL);
	return enough;
}

CUresult engine_map(const struct cuda_driver *drv)
{
	CUresult error = CUDA_SUCCESS;

	for (size_t i = 0; i < engine.saved.nregions && !error; i++) {
		if (engine.saved.regions[i].mapped)
			continue;
		error = drv->cuCtxSetCurrent(engine.saved.regions[i].ctx);
		if (!error)
			error = vmem_region_map(engine.saved.regions[i].start);
		engine.saved.regions[i].mapped = !error;
	}
	/*
	 * If this fails too, the regions say what is still mapped; the next try does not map it
	 * again.
	 */
	if (error)
		engine_unmap(drv);
	drv->cuCtxSetCurrent(NULL);
	return error;
}

CUresult engine_release_imports(const struct cuda_driver *drv)
{
	const struct context_list *list = &engine.saved.contexts;
	CUresult error = list->count ? drv->cuCtxSetCurrent(list->items[0].ctx) : CUDA_SUCCESS;

	return error ? error : objects_release_imports(NULL);
}

CUresult engine_unmap(const struct cuda_driver *drv)
{
	CUresult error = engine_release_imports(drv);

	for (size_t i = 0; i < engine.saved.nregions && !error; i++) {
		error = drv->cuCtxSetCurrent(engine.saved.regions[i].ctx);
		if (!error)
			error = vmem_region_unmap(engine.saved.regions[i].start);
		/* What is left is completed by the next map. */
		if (!error || vmem_has_left())
			engine.saved.regions[i].mapped = false;
	}
	drv->cuCtxSetCurrent(NULL);
	return error;
}

CUresult engine_release(struct engine_op *op, const char **call)
{
	CUresult error;

	engine_set_phase(op, "release", 0);
	error = release_checkpoint(op->drv, &engine.saved.contexts, call);
	__atomic_store_n(&engine.released, !error || release_is_locked(), __ATOMIC_RELAXED);
	return error;
}

int engine_release_all(struct engine_op *op, struct engine_result *result)
{
	const struct cuda_driver *drv = op->drv;
	const char *call = "";
	bool was_locked = release_is_locked();
	CUresult error = release_unlock_process(drv, &call);

	if (error)
		return engine_fail_driver(result, drv, call, error);
	if (was_locked)
		__atomic_store_n(&engine.released, false, __ATOMIC_RELAXED);
	if (engine.released || !engine.saved.contexts.count)
		return 0;
	error = CUDA_ERROR_NOT_SUPPORTED;
	hostpool_unpin(drv, engine.saved.contexts.items[0].ctx, 0);
	call = "no cuCheckpointProcessCheckpoint";
	if (drv->cuCheckpointProcessCheckpoint)
		error = engine_release(op, &call);
	if (!error)
		return 0;
	return engine_fail(result, END_UNSUPPORTED, "the driver does not release the GPU: %s: %s%s",
			   call, engine_error_name(drv, error), release_hint(call, error));
}
