/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The road out. Workers copy the regions. If each goes for itself, the last one goes first, and a worker
 * that has copied the rest of a region unmaps it; one unmaps at a time, while the others copy.
 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/engine/transfer.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/handles.h"
#include "checkpoint/release/release.h"
#include "checkpoint/sharing/sharing.h"
#include "common/settings.h"
#include "common/size.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define LOG_PREFIX "engine: "
#include "common/log.h"

/* Below this, finding zeros takes longer than copying them. */
#define SCAN_BYTES (1UL << 30)

struct out {
	struct engine_op *op;
	enum out_way way;
	size_t from; /* the first region that goes */

	pthread_mutex_t lock; /* of what follows */
	bool busy;            /* a thread unmaps: @next, saved.in and saved.copied are its own */
	size_t next;          /* the regions from here on are unmapped */
	CUresult error;       /* of that */
};

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

/* List the regions, unless that is done. */
static int list_regions(struct engine_op *op)
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

/* Find room for what will be saved, the regions from @from on; where they go each for itself, surely. */
static int make_room(struct engine_op *op, size_t from, bool surely)
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
		hostpool_relax(false, NULL);
		missing = saved_room(saved, slots, apart, &pool_slots, &spill_slots);
	}
	if (missing)
		return engine_fail_apart(&op->result, apart, missing);
	/* If it does not fit, it may fit without zeros. */
	if (slots > pool_slots && saved->kernels) {
		if (engine_scan(op, from))
			return -1;
		slots = saved->scanned_slots;
	}
	return engine_place(op, slots, pool_slots, spill_slots, surely);
}

/* For what may follow. */
static int check_room(struct engine_op *op)
{
	return release_wanted(op->drv, op->release) ? engine_check_room(&op->result) : 0;
}

/* Others may lack as much, and this process runs on, so that what it has pinned is of no use to it. */
static void give_pinned_back(const struct cuda_driver *drv)
{
	engine_unpin(drv, NULL);
	engine_pin_none();
	__atomic_store_n(&engine.untidy, true, __ATOMIC_RELAXED);
}

/* What is kept from the last pause must go for that. */
static void begin_file(const struct engine_op *op)
{
	int fd = ownfd_get(&op->memory), error;

	if (fd < 0 || engine.saved.used_slots)
		return;
	engine_unpin(op->drv, NULL);
	hostpool_drop(NULL);
	error = hostpool_begin_file(fd);
	if (error)
		pr_debug("the resume will read the snapshot: %s", error_text(-error));
}

static int prepare(struct engine_op *op, size_t from, bool surely)
{
	size_t to = engine.saved.copied;
	size_t bytes = from < to ? saved_region_bytes(&engine.saved, from, to) : 0;
	int ret;

	engine_set_phase(op, "copy", bytes);
	if (!bytes)
		return check_room(op);
	if (load_kernels(op))
		return -1;
	begin_file(op);
	ret = make_room(op, from, surely);
	hostpool_end_file();
	if (!ret)
		return 0;
	if (op->result.lacks_host && !engine_is_paused())
		give_pinned_back(op->drv);
	return -1;
}

/* By one thread at a time. */
static CUresult unmap_region(const struct out *out, size_t i)
{
	struct engine_op *op = out->op;
	struct saved *saved = &engine.saved;
	const struct vmem_region *r = &saved->regions[i];
	bool was_mapped = r->mapped;
	CUresult error;

	if (i < saved->copied)
		saved_settle(saved, i);
	error = engine_unmap_region(op->drv, i);
	if (was_mapped && !r->mapped && out->way != WAY_AT_ONCE)
		engine_has_moved(op, op->progress.moved + r->size, false);
	return error;
}

/* Unmap the regions that are copied, the last one first, unless another thread does. */
static void unmap_copied(struct out *out)
{
	pthread_mutex_lock(&out->lock);
	if (out->busy)
		goto unlock;
	out->busy = true;
	while (!out->error && out->next > out->from &&
	       saved_is_copied(&engine.saved, out->next - 1)) {
		CUresult error;

		pthread_mutex_unlock(&out->lock);
		error = unmap_region(out, --out->next);
		pthread_mutex_lock(&out->lock);
		out->error = error;
	}
	out->busy = false;
unlock:
	pthread_mutex_unlock(&out->lock);
}

/* Imports first. From now on the job is paused. */
static void begin_unmap(struct out *out)
{
	engine_set_out(OUT_PART);
	out->error = engine_release_imports(out->op->drv);
	unmap_copied(out);
	out->op->drv->cuCtxSetCurrent(NULL);
}

static bool goes_on(void *arg, size_t piece)
{
	struct out *out = arg;
	bool failed;

	(void)piece;
	pthread_mutex_lock(&out->lock);
	failed = out->error;
	pthread_mutex_unlock(&out->lock);
	return !failed && !engine_is_cancelled(out->op);
}

static void piece_arrived(void *arg, size_t piece)
{
	struct out *out = arg;

	if (engine.saves)
		saving_arrived(&engine.saving, piece);
	if (saved_piece_arrived(&engine.saved, out->from, piece) && out->way != WAY_AT_ONCE)
		unmap_copied(out);
}

static int copy(struct out *out)
{
	struct engine_op *op = out->op;
	struct saved *saved = &engine.saved;
	size_t to = saved->copied > out->from ? saved->copied : out->from;
	struct transfer t =
		saved_transfer(saved, op->drv, TRANSFER_OUT, out->from, to, &op->progress.done);
	int ret;

	t.arrived = piece_arrived;
	t.arg = out;
	if (engine.saves)
		t.cancel = &engine.saving.stop;
	if (out->way != WAY_AT_ONCE) {
		t.await = goes_on;
		t.backwards = t.in_order = true;
		begin_unmap(out);
	}
	ret = engine_transfer(op, &t);
	return t.workers.result == -ECANCELED ? engine_write_fail(&op->result) : ret;
}

static int fail_unmap(const struct out *out)
{
	struct engine_op *op = out->op;

	if (!out->error)
		return 0;
	if (out->way != WAY_AT_ONCE || !sharing_is_joint())
		return engine_fail_driver(&op->result, op->drv, "unmap", out->error);
	/*
	 * All bytes are saved, and the others have no way back: the job is paused as well. All that
	 * was saved counts as out, also what is mapped: a resume copies it back.
	 */
	engine.saved.in = size_min(engine.saved.in, out->from);
	snprintf(op->result.note, sizeof(op->result.note), "memory stays on the GPU: unmap: %s",
		 engine_error_name(op->drv, out->error));
	return 0;
}

static int copy_each(struct out *out)
{
	struct engine_op *op = out->op;
	int ret = copy(out);

	if (!ret)
		ret = fail_unmap(out);
	if (!ret && engine.saved.in > out->from)
		ret = engine_fail(&op->result, END_BUSY, "cancelled by a later request");
	return ret;
}

/* And write a snapshot of it, if there is a plan. */
static int copy_all(struct out *out)
{
	struct engine_op *op = out->op;
	int ret;

	if (op->plan && engine_write_begin(op))
		return -1;
	ret = copy(out);
	if (!ret)
		saved_settle(&engine.saved, out->from);
	/* The last moment to cancel the pause at no cost. */
	if (!ret && engine.saves && __atomic_load_n(&engine.saving.stop, __ATOMIC_RELAXED))
		ret = engine_write_fail(&op->result);
	if (engine.saves)
		saving_close(&engine.saving, !ret);
	return ret;
}

static int take(struct out *out, bool rested)
{
	struct engine_op *op = out->op;
	/* A job at rest has met those that share memory with it before. */
	bool meets = out->way != WAY_ALONE && !rested;
	int ret = prepare(op, out->from, out->way != WAY_AT_ONCE);

	if (!ret && meets && out->way == WAY_EACH && engine_meet_saved(op))
		ret = -1;
	if (!ret)
		ret = out->way == WAY_AT_ONCE ? copy_all(out) : copy_each(out);
	saved_unload_kernels(&engine.saved, op->drv);
	engine_publish();
	if (ret || out->way != WAY_AT_ONCE)
		return ret;
	if (meets && engine_meet_saved(op))
		return -1;
	engine_set_phase(op, "unmap", 0);
	begin_unmap(out);
	return fail_unmap(out);
}

/* The region from which on the mapped ones have @bytes, and the same part or more of what each GPU has. */
static size_t find_from(const struct saved *saved, size_t bytes)
{
	size_t i = saved->nregions, all = saved_mapped_bytes(saved), on[GPU_MAX] = {0}, left = 0;

	for (size_t r = 0; r < saved->nregions; r++)
		on[saved->regions[r].dev] += saved->regions[r].mapped ? saved->regions[r].size : 0;
	for (size_t dev = 0; dev < GPU_MAX && all; dev++) {
		on[dev] = ((unsigned __int128)size_min(bytes, all) * on[dev] + all - 1) / all;
		left += on[dev];
	}
	while (i > 0 && left) {
		const struct vmem_region *r = &saved->regions[--i];
		size_t goes = r->mapped ? size_min(r->size, on[r->dev]) : 0;

		on[r->dev] -= goes;
		left -= goes;
	}
	return size_min(i, saved->in);
}

int engine_out(struct engine_op *op, size_t bytes, enum out_way way, double deadline_ms)
{
	struct out out = {.op = op, .way = way, .lock = PTHREAD_MUTEX_INITIALIZER};
	const struct saved *saved = &engine.saved;
	bool rested = engine_is_paused();
	int ret;

	if (engine_check_carried(op, &op->result))
		return -1;
	if (engine_is_out())
		return check_room(op);
	if (engine_rest(op, deadline_ms))
		return -1;
	ret = list_regions(op);
	if (!ret) {
		out.from = find_from(saved, bytes);
		out.next = saved->nregions;
		op->mapped = saved_mapped_bytes(saved);
		ret = take(&out, rested);
	}
	if (!ret)
		return 0;
	engine_write_drop();
	if (rested || (way != WAY_AT_ONCE && saved->in < saved->nregions))
		return -1;
	/* Those that share memory with it have no way back either. */
	if (way == WAY_EACH && engine_is_paused() && sharing_is_joint())
		return -1;
	if (!engine_is_paused() || !engine_put_back(op))
		engine_run(op);
	return -1;
}
