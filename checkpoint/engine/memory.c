/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/engine/transfer.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/handles.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/release/release.h"
#include "common/gpu.h"
#include "common/hostmem.h"
#include "common/nvml.h"
#include "common/settings.h"
#include "vmem/objects.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "engine: "
#include "common/log.h"

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
					      error_text(EIO));
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
				   error_text(-t->workers.result));
	}
}

/* Of the regions from @from to @to, exclusive. */
static int transfer(struct engine_op *op, enum transfer_direction direction, size_t from, size_t to,
		    size_t *done)
{
	struct transfer t = saved_transfer(&engine.saved, op->drv, direction, from, to, done);

	if (direction == TRANSFER_OUT && engine.saves) {
		t.cancel = &engine.saving.stop;
		t.arrived = saving_arrived;
		t.arg = &engine.saving;
	}
	transfer_run(&t);
	if (direction == TRANSFER_SCAN)
		engine.saved.scanned_slots = t.next_slot;
	return engine_end_transfer(op, &t);
}

int engine_end_transfer(struct engine_op *op, const struct transfer *t)
{
	engine.unsettled = t->unsettled;
	return fail_transfer(op, t);
}

int engine_scan(struct engine_op *op, size_t from)
{
	size_t done = 0;

	return transfer(op, TRANSFER_SCAN, from, engine.saved.copied, &done);
}

/*
 * Kernels for digests: to check the data, to find zeros in much of it, or so that a later snapshot
 * can tell what has changed. All that is out has digests, or nothing has.
 */
static int load_kernels(struct engine_op *op)
{
	bool verify = setting_enabled(SETTING_VERIFY);
	bool first = engine.saved.copied == engine.saved.nregions;
	CUresult error;

	if (first ? !verify && !op->plan && saved_bytes(&engine.saved) < SCAN_BYTES
		  : !engine.saved.digests)
		return 0;
	error = saved_load_kernels(&engine.saved, op->drv);
	if (!error)
		return 0;
	if (verify)
		return engine_fail_driver(&op->result, op->drv, "CUDAW_VERIFY: loading the kernel",
					  error);
	saved_drop_digests(&engine.saved);
	pr_debug("zeros are copied: no kernel to find them: driver error %d", error);
	return 0;
}

static int fail_room(struct engine_result *result, size_t slots, size_t pool_slots,
		     size_t spill_slots)
{
	size_t need = slots * VMEM_GRANULE, host = pool_slots * VMEM_GRANULE;
	size_t disk = spill_slots * VMEM_GRANULE;

	if (disk)
		return engine_fail(result, END_NOMEM,
				   PRI_GIB " to be saved, " PRI_GIB
					   " of host memory available (" PRI_GIB " is "
					   "left to others) and " PRI_GIB
					   " of disk in CUDAW_SPILL_DIR: " PRI_GIB " are "
					   "missing",
				   GIB_ARGS(need), GIB_ARGS(host), GIB_ARGS(HOSTMEM_RESERVE),
				   GIB_ARGS(disk), GIB_ARGS(need - host - disk));
	return engine_fail(result, END_NOMEM,
			   PRI_GIB " to be saved, " PRI_GIB " of host memory available (" PRI_GIB
				   " is left to "
				   "others): " PRI_GIB " are missing",
			   GIB_ARGS(need), GIB_ARGS(host), GIB_ARGS(HOSTMEM_RESERVE),
			   GIB_ARGS(need - host));
}

bool engine_has_room(size_t slots, size_t pool_slots, size_t spill_slots)
{
	return slots <= pool_slots || slots - pool_slots <= spill_slots;
}

int engine_place(struct engine_op *op, size_t slots, size_t pool_slots, size_t spill_slots)
{
	int error;

	if (!engine_has_room(slots, pool_slots, spill_slots))
		return fail_room(&op->result, slots, pool_slots, spill_slots);
	error = saved_place(&engine.saved, slots, pool_slots);
	if (error)
		return engine_fail(&op->result, END_NOMEM, "room for " PRI_GIB ": %s",
				   GIB_ARGS(slots * VMEM_GRANULE), error_text(-error));
	return 0;
}

static int fail_apart(struct engine_result *result, size_t apart, size_t missing)
{
	return engine_fail(result, END_NOMEM,
			   PRI_GIB " of host memory needed for the driver's checkpoint (" PRI_GIB
				   " are left to "
				   "others): " PRI_GIB " are missing",
			   GIB_ARGS(apart), GIB_ARGS(HOSTMEM_RESERVE), GIB_ARGS(missing));
}

int engine_check_room(struct engine_result *result)
{
	size_t apart = release_host_bytes(&engine.saved.contexts), pool_slots, spill_slots;
	size_t missing = saved_room(&engine.saved, 0, apart, &pool_slots, &spill_slots);

	return missing ? fail_apart(result, apart, missing) : 0;
}

/* Find room for what will be saved, the regions from @from on. */
static int make_room(struct engine_op *op, size_t from)
{
	struct saved *saved = &engine.saved;
	size_t slots = saved->used_slots + saved_live(saved, from, saved->copied);
	size_t pool_slots, spill_slots, apart = 0, missing;

	saved->scanned_slots = 0;
	if (release_wanted(op->drv, op->release))
		apart = release_host_bytes(&saved->contexts);
	missing = saved_room(saved, slots, apart, &pool_slots, &spill_slots);
	/* Pages of a resume just before have not been given back yet (engine_tidy()). */
	if ((missing || slots > pool_slots) && saved->copied == saved->nregions &&
	    __atomic_load_n(&engine.untidy, __ATOMIC_RELAXED)) {
		hostpool_relax(false);
		missing = saved_room(saved, slots, apart, &pool_slots, &spill_slots);
	}
	if (missing)
		return fail_apart(&op->result, apart, missing);
	/* If it does not fit, it may fit without zeros. */
	if (slots > pool_slots && saved->kernels) {
		if (engine_scan(op, from))
			return -1;
		slots = saved->scanned_slots;
	}
	return engine_place(op, slots, pool_slots, spill_slots);
}

static int copy_out(struct engine_op *op)
{
	size_t *done = &op->progress.done;
	int ret = 0;

	if (op->plan && engine_write_begin(op))
		return -1;
	if (engine.saved.copied)
		ret = transfer(op, TRANSFER_OUT, 0, engine.saved.copied, done);
	if (!ret)
		saved_settle(&engine.saved, 0);
	/* The last moment to cancel the pause at no cost. */
	if (!ret && engine.saves && __atomic_load_n(&engine.saving.stop, __ATOMIC_RELAXED))
		ret = engine_write_fail(&op->result);
	if (engine.saves)
		saving_close(&engine.saving, !ret);
	return ret;
}

static CUresult hold_in_each(const struct cuda_driver *drv, CUresult (*hold)(CUcontext, CUdevice))
{
	const struct context_list *list = &engine.saved.contexts;
	CUresult error = CUDA_SUCCESS;

	for (size_t i = 0; i < list->count && !error; i++) {
		error = drv->cuCtxSetCurrent(list->items[i].ctx);
		if (!error)
			error = hold(list->items[i].ctx, list->items[i].dev);
	}
	drv->cuCtxSetCurrent(NULL);
	return error;
}

/* The program's own objects are among the regions from now on. */
static CUresult hold_objects(const struct cuda_driver *drv)
{
	CUresult error = hold_in_each(drv, vmem_objects_hold);
	CUmemGenericAllocationHandle handle;
	size_t size;

	if (!error)
		error = hold_in_each(drv, vmem_objects_hold_far);
	while (!error && (size = vmem_objects_leave_far(&handle)))
		handles_add(handle, DRIVER_MEMORY_VMM, size);
	return error;
}

int engine_list(struct engine_op *op)
{
	CUresult error;

	if (saved_is_listed(&engine.saved))
		return 0;
	error = hold_objects(op->drv);
	if (error)
		return engine_fail_driver(&op->result, op->drv, "memory of cuMemCreate", error);
	if (saved_list(&engine.saved))
		return engine_fail(&op->result, END_NOMEM, "out of memory");
	return 0;
}

int engine_save_begin(struct engine_op *op, size_t from)
{
	size_t to = engine.saved.copied;
	size_t bytes = from < to ? saved_region_bytes(&engine.saved, from, to) : 0;

	engine_set_phase(op, "copy", bytes);
	if (!bytes)
		return release_wanted(op->drv, op->release) ? engine_check_room(&op->result) : 0;
	return load_kernels(op) ? -1 : make_room(op, from);
}

void engine_save_end(struct engine_op *op)
{
	saved_unload_kernels(&engine.saved, op->drv);
	engine_publish();
}

int engine_save(struct engine_op *op)
{
	int ret = engine_list(op);

	if (ret)
		return ret;
	ret = engine_save_begin(op, 0);
	if (!ret)
		ret = copy_out(op);
	engine_save_end(op);
	return ret;
}

int engine_load_begin(struct engine_op *op)
{
	size_t bytes = saved_region_bytes(&engine.saved, engine.saved.in, engine.saved.nregions);
	CUresult error;

	engine_set_phase(op, "copy", bytes);
	if (!bytes || !engine.saved.digests || !setting_enabled(SETTING_VERIFY))
		return 0;
	error = saved_load_kernels(&engine.saved, op->drv);
	return error ? engine_fail_driver(&op->result, op->drv, "CUDAW_VERIFY: loading the kernel",
					  error)
		     : 0;
}

int engine_load_end(struct engine_op *op)
{
	CUresult error = CUDA_SUCCESS;

	if (engine.moves)
		error = engine.moves->copied(op->drv);
	return error ? engine_fail_driver(&op->result, op->drv, "pointers in variables of modules",
					  error)
		     : 0;
}

int engine_load_back(struct engine_op *op)
{
	struct saved *saved = &engine.saved;
	int ret = engine_load_begin(op);

	if (ret)
		return ret;
	ret = transfer(op, TRANSFER_IN, saved->in, saved->nregions, &op->progress.done);
	saved_unload_kernels(saved, op->drv);
	if (!ret)
		ret = engine_load_end(op);
	if (!ret)
		saved->in = saved->nregions;
	return ret;
}

void engine_missing(size_t needed[GPU_MAX])
{
	memset(needed, 0, GPU_MAX * sizeof(*needed));
	for (size_t i = 0; i < engine.saved.nregions; i++)
		if (!engine.saved.regions[i].mapped)
			needed[engine.saved.regions[i].dev] += engine.saved.regions[i].size;
}

static bool is_on(CUcontext ctx, CUdevice dev)
{
	const struct context_list *list = &engine.saved.contexts;

	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].ctx == ctx)
			return list->items[i].dev == dev;
	return false;
}

/* The free memory of the device of @r; false: not known. */
static bool free_memory(const struct cuda_driver *drv, const struct vmem_region *r, size_t *free)
{
	size_t total, ndevices;
	const struct gpu *devices = devices_all(&ndevices);

	if (is_on(r->ctx, r->dev))
		return !drv->cuCtxSetCurrent(r->ctx) && !drv->cuMemGetInfo_v2(free, &total);
	return (size_t)r->dev < ndevices && !nvml_free_memory(devices[r->dev].uuid, free);
}

bool engine_memory_is_free(const struct cuda_driver *drv, const size_t *needed)
{
	bool asked[GPU_MAX] = {false}, enough = true;
	size_t free;

	for (size_t i = 0; i < engine.saved.nregions && enough; i++) {
		const struct vmem_region *r = &engine.saved.regions[i];

		if (asked[r->dev] || r->mapped)
			continue;
		asked[r->dev] = true;
		enough = !free_memory(drv, r, &free) || free >= needed[r->dev];
		if (!enough)
			engine.lack = (struct gpu_lack){r->dev, needed[r->dev], free};
	}
	drv->cuCtxSetCurrent(NULL);
	return enough;
}

CUresult engine_map_region(const struct cuda_driver *drv, size_t i)
{
	struct vmem_region *r = &engine.saved.regions[i];
	CUresult error;

	if (r->mapped)
		return CUDA_SUCCESS;
	error = drv->cuCtxSetCurrent(r->ctx);
	if (!error)
		error = vmem_region_map(r->start);
	r->mapped = !error;
	return error;
}

CUresult engine_unmap_region(const struct cuda_driver *drv, size_t i)
{
	struct vmem_region *r = &engine.saved.regions[i];
	CUresult error = drv->cuCtxSetCurrent(r->ctx);

	if (!error)
		error = vmem_region_unmap(r->start);
	/* What is left is completed by the next map. */
	if (!error || vmem_has_left())
		r->mapped = false;
	if (!r->mapped && i < engine.saved.in)
		engine.saved.in = i;
	return error;
}

CUresult engine_map(const struct cuda_driver *drv)
{
	CUresult error = CUDA_SUCCESS;

	for (size_t i = 0; i < engine.saved.nregions && !error; i++)
		error = engine_map_region(drv, i);
	/*
	 * If this fails too, the regions say what is still mapped; the next try does not map it
	 * again.
	 */
	if (error)
		engine_unmap(drv, engine.saved.in);
	drv->cuCtxSetCurrent(NULL);
	return error;
}

CUresult engine_release_imports(const struct cuda_driver *drv)
{
	const struct context_list *list = &engine.saved.contexts;
	CUresult error = list->count ? drv->cuCtxSetCurrent(list->items[0].ctx) : CUDA_SUCCESS;

	return error ? error : objects_release_imports(NULL);
}

CUresult engine_unmap(const struct cuda_driver *drv, size_t from)
{
	CUresult error = engine_release_imports(drv);

	for (size_t i = engine.saved.nregions; i-- > from && !error;)
		error = engine_unmap_region(drv, i);
	drv->cuCtxSetCurrent(NULL);
	return error;
}

CUresult engine_release(struct engine_op *op, const char **call)
{
	CUresult error;

	engine_set_phase(op, "release", 0);
	error = release_checkpoint(op->drv, &engine.saved.contexts, call);
	engine_set_out(!error || release_is_locked() ? OUT_RELEASED : engine_memory_out());
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
		engine_set_out(engine_memory_out());
	if (engine_is_released() || !engine.saved.contexts.count)
		return 0;
	hostpool_unpin(drv, engine.saved.contexts.items[0].ctx, 0);
	error = engine_release(op, &call);
	if (!error)
		return 0;
	return engine_fail(result, END_UNSUPPORTED, "the driver does not release the GPU: %s: %s%s",
			   call, engine_error_name(drv, error), release_hint(call, error));
}
