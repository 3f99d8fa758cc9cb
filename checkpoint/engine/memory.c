/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/engine/transfer.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/release/release.h"
#include "checkpoint/release/unsupported.h"
#include "checkpoint/sharing/sharing.h"
#include "common/gpu/gpu.h"
#include "common/system/hostmem.h"
#include "common/gpu/nvml.h"
#include "vmem/objects/objects.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int engine_transfer(struct engine_op *op, struct transfer *t)
{
	struct engine_result *result = &op->result;

	transfer_run(t);
	engine.unsettled = t->unsettled;
	if (t->workers.result == -EIO && t->error)
		return engine_fail_driver(result, op->drv, "copy", t->error);
	switch (t->workers.result) {
	case 0:
		return 0;
	case -ENOMEM:
		return engine_fail(result, END_NOMEM, "host memory ran out during the copy");
	case -ECANCELED:
		return -1;
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

int engine_scan(struct engine_op *op, size_t from)
{
	struct saved *saved = &engine.saved;
	size_t done = 0;
	struct transfer t =
		saved_transfer(saved, op->drv, TRANSFER_SCAN, from, saved->copied, &done);
	int ret = engine_transfer(op, &t);

	saved->scanned_slots = t.next_slot;
	return ret;
}

/* Others may have pinned host memory that they do not use now. */
static void note_shortage(struct engine_result *result)
{
	result->lacks_host = true;
	result->group = 0;
	if (hostmem_cgroup_available() < hostmem_machine_available())
		hostmem_group(&result->group);
}

static int fail_room(struct engine_result *result, size_t slots, size_t pool_slots,
		     size_t spill_slots)
{
	size_t need = slots * VMEM_GRANULE, host = pool_slots * VMEM_GRANULE;
	size_t disk = spill_slots * VMEM_GRANULE;
	char on_disk[64] = "";

	if (disk)
		snprintf(on_disk, sizeof(on_disk), " and " PRI_GIB " of disk in CUDAW_SPILL_DIR",
			 GIB_ARGS(disk));
	note_shortage(result);
	return engine_fail(result, END_NOMEM,
			   PRI_GIB " to be %s, " PRI_GIB " of host memory available (" PRI_GIB
				   " is left to others)%s: " PRI_GIB " are missing",
			   GIB_ARGS(need), engine.in_snapshot ? "read" : "saved", GIB_ARGS(host),
			   GIB_ARGS(HOSTMEM_RESERVE), on_disk, GIB_ARGS(need - host - disk));
}

bool engine_has_room(size_t slots, size_t pool_slots, size_t spill_slots)
{
	return slots <= pool_slots || slots - pool_slots <= spill_slots;
}

int engine_place(struct engine_op *op, size_t slots, size_t pool_slots, size_t spill_slots,
		 bool surely)
{
	int error;

	if (!engine_has_room(slots, pool_slots, spill_slots))
		return fail_room(&op->result, slots, pool_slots, spill_slots);
	error = saved_place(&engine.saved, slots, pool_slots, surely);
	if (error == -EOPNOTSUPP)
		return engine_fail(&op->result, END_NOMEM,
				   "the file system of CUDAW_SPILL_DIR cannot reserve " PRI_GIB
				   ", as it must for a job that takes turns; a pause works without",
				   GIB_ARGS((slots - pool_slots) * VMEM_GRANULE));
	if (error)
		return engine_fail(&op->result, END_NOMEM, "room for " PRI_GIB ": %s",
				   GIB_ARGS(slots * VMEM_GRANULE), error_text(-error));
	return 0;
}

int engine_fail_apart(struct engine_result *result, size_t apart, size_t missing)
{
	note_shortage(result);
	return engine_fail(result, END_NOMEM,
			   PRI_GIB " of host memory needed for the driver's checkpoint (" PRI_GIB
				   " are left to "
				   "others): " PRI_GIB " are missing",
			   GIB_ARGS(apart), GIB_ARGS(HOSTMEM_RESERVE), GIB_ARGS(missing));
}

int engine_check_carried(const struct engine_op *op, struct engine_result *result)
{
	if (!unsupported_check(op->drv, op->release, result->message, sizeof(result->message)))
		return 0;
	result->code = sharing_may_close() ? END_AGAIN : END_UNSUPPORTED;
	return -1;
}

int engine_check_room(struct engine_result *result)
{
	size_t apart = release_host_bytes(&engine.saved.contexts), pool_slots, spill_slots;
	size_t missing = saved_room(&engine.saved, 0, apart, &pool_slots, &spill_slots);

	return missing ? engine_fail_apart(result, apart, missing) : 0;
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
			engine.lack = (struct gpu_lack){
				.dev = r->dev, .needed = needed[r->dev], .free = free};
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

void engine_unpin(const struct cuda_driver *drv, const bool *cancel)
{
	if (!engine_is_released() && engine.saved.contexts.count)
		hostpool_unpin(drv, engine.saved.contexts.items[0].ctx, 0, cancel);
}

static CUresult release(struct engine_op *op, const char **call)
{
	CUresult error;

	engine_set_phase(op, "release", 0);
	error = release_checkpoint(op->drv, &engine.saved.contexts, call);
	engine_set_out(!error || release_is_locked() ? OUT_RELEASED : engine_memory_out());
	return error;
}

void engine_release(struct engine_op *op)
{
	const char *call;
	CUresult error = release(op, &call);

	if (error)
		snprintf(op->result.note, sizeof(op->result.note),
			 "the context stays on the GPU: %s: %s%s", call,
			 engine_error_name(op->drv, error), release_hint(call, error));
}

int engine_release_all(struct engine_op *op, struct engine_result *result)
{
	const struct cuda_driver *drv = op->drv;
	const char *call = "";
	bool was_locked = release_is_locked();
	/* Such a process has some files of the driver all the same, unless its cuInit() failed. CRIU takes none. */
	bool bare = !engine.saved.contexts.count;
	CUresult error = release_unlock_process(drv, &call);

	if (error)
		return engine_fail_driver(result, drv, call, error);
	if (was_locked)
		engine_set_out(engine_memory_out());
	if (engine_is_released() || (bare && !(op->plan && op->plan->image)))
		return 0;
	engine_unpin(drv, NULL);
	error = release(op, &call);
	if (!error || (bare && error == CUDA_ERROR_NOT_INITIALIZED))
		return 0;
	return engine_fail(result, END_UNSUPPORTED, "the driver does not release the GPU: %s: %s%s",
			   call, engine_error_name(drv, error), release_hint(call, error));
}
