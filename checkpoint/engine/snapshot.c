/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/host/claims.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/host/spill.h"
#include "checkpoint/release/release.h"
#include "checkpoint/snapshot/in_use.h"
#include "checkpoint/snapshot/manifest_write.h"
#include "checkpoint/sharing/sharing.h"
#include "common/system/private_dir.h"
#include "common/clock.h"
#include "common/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_PREFIX "engine: "
#include "common/log.h"

/* How often the progress of the writing is updated. */
#define PROGRESS_MS 50
#define LOCK_MS     5000 /* for other processes to finish reading the directory */

/*
 * The directory that was locked cannot be read. If another one is at its path, and has the same
 * snapshot, lock that: a copy may have taken its place.
 */
static bool lock_copy(void)
{
	struct snapshot_error ignored;
	char path[PATH_MAX];

	strcpy(path, engine.place.path);
	return !fetch_place_move(&engine.place, path, &ignored);
}

/*
 * Get room for what the snapshot holds. A job that ran gave its host memory back for the snapshot
 * alone, and other jobs may have taken it since: they give it back when they resume.
 */
static int wait_for_room(struct engine_op *op, double deadline_ms)
{
	double sleep_ms = ENGINE_FIRST_WAIT_MS;
	size_t pool_slots, spill_slots;
	int ret = 0;

	saved_room(&engine.saved, engine.snapshot_slots, 0, &pool_slots, &spill_slots);
	while (!ret && !engine_has_room(engine.snapshot_slots, pool_slots, spill_slots)) {
		__atomic_store_n(&engine.lacks_host, true, __ATOMIC_RELAXED);
		/* Two jobs that each claim a part, and wait for the rest, would wait for ever. */
		claims_drop();
		ret = engine_wait_for_memory(op, deadline_ms, &sleep_ms);
		if (ret == -ECANCELED)
			return -1;
		if (engine_is_called_back(op))
			return engine_fail_off(op);
		if (!ret)
			saved_room(&engine.saved, engine.snapshot_slots, 0, &pool_slots,
				   &spill_slots);
	}
	if (!engine_place(op, engine.snapshot_slots, pool_slots, spill_slots, false))
		return 0;
	if (ret == -ETIME)
		op->result.code = END_TIMEOUT;
	return -1;
}

static int find_room(struct engine_op *op, double deadline_ms)
{
	int ret = wait_for_room(op, deadline_ms);

	/* One that seeks again with the others waits for it still. */
	if (!ret || !engine_is_called_back(op))
		__atomic_store_n(&engine.lacks_host, false, __ATOMIC_RELAXED);
	if (!ret)
		__atomic_store_n(&op->progress.waiting, false, __ATOMIC_RELAXED);
	return ret;
}

/*
 * Lock the directory. Another process may have got it first, as for a backup. 0 or a negative errno;
 * -ECANCELED without an error.
 */
static int lock_in_time(const struct engine_op *op, double deadline_ms,
			struct snapshot_error *error)
{
	int left = op->awaits_lock ? LOCK_MS : 0, ret;

	while ((ret = engine_lock_place(error)) == -EAGAIN && left > 0 &&
	       (!deadline_ms || limits_ms() < deadline_ms)) {
		if (engine_is_cancelled(op))
			return -ECANCELED;
		usleep(ENGINE_FIRST_WAIT_MS * 1000);
		left -= ENGINE_FIRST_WAIT_MS;
	}
	return ret;
}

/* All that the snapshot has is in host memory again. */
static void set_read(void)
{
	engine.in_snapshot = false;
	engine_publish();
}

static bool is_read(void)
{
	return !engine.in_snapshot && ownfd_get(&engine.place.dir) >= 0;
}

void engine_leave_read(void)
{
	if (!is_read())
		return;
	__atomic_store_n(&engine.placed, false, __ATOMIC_RELEASE);
	snapshot_in_use_clear(ownfd_get(&engine.place.dir), getpid());
	fetch_place_unlock(&engine.place);
}

int engine_fetch(struct engine_op *op, double deadline_ms)
{
	struct engine_result *result = &op->result;
	bool locked = ownfd_get(&engine.place.dir) >= 0;
	struct snapshot_error error;
	int ret;

	/*
	 * A directory that was locked, or a copy of it, stays locked if this fails: nothing else has
	 * the job's memory.
	 */
	ret = locked ? 0 : lock_in_time(op, deadline_ms, &error);
	if (!ret && find_room(op, deadline_ms))
		return -1;
	engine_set_phase(op, "read", engine.saved.ngranules * VMEM_GRANULE);
	engine_say(op, PACT_TAKES);
	if (!ret)
		ret = fetch_saved(&engine.saved, &engine.place, &op->progress, &error);
	if (ret && ret != -ECANCELED && locked && lock_copy()) {
		op->progress.done = 0;
		ret = fetch_saved(&engine.saved, &engine.place, &op->progress, &error);
	}
	/* What was read so far is of no use, and another attempt needs the room. */
	if (ret) {
		hostpool_drop(NULL);
		spill_close();
		claims_drop();
		engine_publish();
	}
	/* Unless another directory is in its place: the right one may come back. */
	if (!locked && (ret == -ENOENT || ret == -ESTALE))
		fetch_place_unlock(&engine.place);
	if (ret == -ECANCELED)
		return engine_fail_off(op);
	if (ret)
		return engine_fail(result, ret == -EAGAIN ? END_BUSY : END_FAILED, "%.255s: %.250s",
				   engine.place.path, error.text);
	engine.saved.used_slots = engine.snapshot_slots;
	set_read();
	/* It has yet to try to take its GPU memory. */
	engine_say(op, PACT_ROOM);
	if (!op->progress.pact)
		engine_leave_read();
	return 0;
}

/* From now on the snapshot alone has the data. */
static void give_host_memory_back(const struct cuda_driver *drv)
{
	engine_unpin(drv, NULL);
	engine.snapshot_slots = engine.saved.used_slots;
	engine.in_file =
		!saved_spilled_bytes(&engine.saved) && hostpool_leave(saved_blocks(&engine.saved));
	engine.saved.used_slots = 0;
	if (!engine.in_file)
		hostpool_drop(NULL);
	spill_close();
	__atomic_store_n(&engine.untidy, false, __ATOMIC_RELAXED);
	engine.in_snapshot = true;
	__atomic_store_n(&engine.placed, true, __ATOMIC_RELEASE);
	engine_publish();
}

void engine_drop_read(const struct cuda_driver *drv)
{
	if (is_read())
		give_host_memory_back(drv);
}

int engine_write_fail(struct engine_result *result)
{
	const struct saving *s = &engine.saving;

	while (!saving_is_over(&engine.saving, PROGRESS_MS))
		;
	if (s->result == -ECANCELED)
		return engine_fail(
			result, END_BUSY,
			"cancelled: a resume was asked for, the requester disconnected, or the "
			"process exits");
	return engine_fail(result, END_FAILED, "%.255s: %.250s", s->plan->path, s->error.text);
}

void engine_write_drop(void)
{
	if (!engine.saves)
		return;
	saving_close(&engine.saving, false);
	saving_end(&engine.saving);
	engine.saves = false;
}

/*
 * Lock the directory, and see that it has room for @slots slots. 0 or a negative errno, which
 * op->written explains.
 */
static int begin_saving(struct engine_op *op, size_t slots)
{
	struct snapshot_error error;
	int ret = saving_begin(&engine.saving, &engine.saved, op->plan, slots * VMEM_GRANULE,
			       &op->progress.cancel, &error);

	engine.saves = !ret;
	if (ret)
		engine_fail(&op->written, END_FAILED, "%.255s: %.250s", op->plan->path, error.text);
	return ret;
}

int engine_write_begin(struct engine_op *op)
{
	size_t scanned = engine.saved.scanned_slots;
	int ret = begin_saving(op, scanned ? scanned : engine.saved.nlive);

	/* Zeros are not written, and so far only the GPU can tell how many there are. */
	if (ret == -ENOSPC && !scanned && engine.saved.kernels) {
		if (engine_scan(op, 0))
			return -1;
		ret = begin_saving(op, engine.saved.scanned_slots);
	}
	if (!ret) {
		op->written.code = END_NONE;
		saving_start(&engine.saving);
		return 0;
	}
	if (!op->plan->pause)
		return 0;
	return engine_fail(&op->result, op->written.code, "%s", op->written.message);
}

/* Wait until all is written. The phase gets the writer's time, which began with the first chunk. */
static void wait_for_writing(struct engine_op *op)
{
	struct saving *s = &engine.saving;

	engine_set_phase(op, "write", engine.saved.ngranules * VMEM_GRANULE);
	while (!saving_is_over(s, PROGRESS_MS))
		__atomic_store_n(&op->progress.done, __atomic_load_n(&s->done, __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
	engine_end_phase(op);
	op->written.phases[op->written.nphases - 1].ms = s->ms;
}

/* What a snapshot says of the program's own objects; each list in one piece of memory. */
struct object_lists {
	struct snapshot_object *objects;
	struct snapshot_mapping *mappings;
	struct vmem_mapping *read; /* for one object */
	size_t nobjects;
};

static void free_objects(struct object_lists *lists)
{
	free(lists->objects);
	free(lists->mappings);
	free(lists->read);
}

static int list_objects(const struct saved *saved, struct object_lists *lists)
{
	size_t count, all = 0, most = 0;

	for (size_t i = 0; i < saved->nregions; i++) {
		CUdeviceptr start = saved->regions[saved->by_address[i]].start;

		count = vmem_object_mappings(start, NULL, 0);
		if (count == SIZE_MAX)
			continue;
		lists->nobjects++;
		all += count;
		most = count > most ? count : most;
	}
	lists->objects = calloc(lists->nobjects + 1, sizeof(*lists->objects));
	lists->mappings = calloc(all + 1, sizeof(*lists->mappings));
	lists->read = calloc(most + 1, sizeof(*lists->read));
	if (!lists->objects || !lists->mappings || !lists->read)
		return -ENOMEM;
	lists->nobjects = all = 0;
	for (size_t i = 0; i < saved->nregions; i++) {
		CUdeviceptr start = saved->regions[saved->by_address[i]].start;
		struct snapshot_mapping *mappings = lists->mappings + all;

		count = vmem_object_mappings(start, lists->read, most);
		if (count == SIZE_MAX)
			continue;
		for (size_t m = 0; m < count; m++, all++)
			mappings[m] = (struct snapshot_mapping){
				lists->read[m].start, lists->read[m].size, lists->read[m].offset};
		lists->objects[lists->nobjects++] =
			(struct snapshot_object){start, mappings, count};
	}
	return 0;
}

static int commit_snapshot(struct engine_op *op)
{
	struct engine_result *result = &op->written;
	struct snapshot_facts *facts = op->facts;
	size_t count = engine.saved.contexts.count;
	struct snapshot_context *contexts = calloc(count + 1, sizeof(*contexts));
	struct object_lists lists = {0};
	struct snapshot_totals totals;
	int ret;

	if (!contexts || list_objects(&engine.saved, &lists)) {
		free(contexts);
		free_objects(&lists);
		return engine_fail(result, END_NOMEM, "out of memory");
	}
	for (size_t i = 0; i < count; i++)
		contexts[i] = (struct snapshot_context){engine.saved.contexts.items[i].dev,
							engine.saved.contexts.items[i].primary};
	facts->contexts = contexts;
	facts->ncontexts = count;
	facts->objects = lists.objects;
	facts->nobjects = lists.nobjects;
	facts->parts = op->plan->parts;
	facts->nparts = op->plan->nparts;
	facts->gpus = engine_is_released() ? release_gpus(&facts->uuids) : 0;
	facts->held = engine_is_released() ? release_held() : NULL;
	for (size_t i = 0; i < result->nphases && facts->nphases < MANIFEST_PHASES; i++)
		facts->phases[facts->nphases++] =
			(struct snapshot_phase){result->phases[i].name, result->phases[i].ms};
	ret = saving_commit(&engine.saving, facts, &engine.place, &totals);
	facts->contexts = NULL;
	facts->objects = NULL;
	facts->nobjects = 0;
	free(contexts);
	free_objects(&lists);
	if (ret)
		return engine_write_fail(result);
	snprintf(result->note, sizeof(result->note),
		 PRI_GIB " written; " PRI_GIB " zeros, " PRI_GIB " equal to others, " PRI_GIB
			 " as before",
		 GIB_ARGS(totals.written), GIB_ARGS(totals.zero), GIB_ARGS(totals.duplicate),
		 GIB_ARGS(totals.unchanged));
	return 0;
}

/* The job is paused: finish the snapshot of the operation that began at @start. */
static void end_snapshot(struct engine_op *op, double start)
{
	int ret;

	/*
	 * No further host memory is taken, and a process image must not have the file of claims
	 * open.
	 */
	claims_drop();
	wait_for_writing(op);
	ret = commit_snapshot(op);
	engine_write_drop();
	if (ret)
		return;
	if (op->plan->gives_back)
		give_host_memory_back(op->drv);
	else
		fetch_place_unlock(&engine.place);
	engine_succeed(op, start, saved_bytes(&engine.saved));
}

void engine_write_end(struct engine_op *op, double start)
{
	const struct engine_result *pause = &op->result;
	struct engine_result *result = &op->written;

	if (pause->code != END_OK) {
		*result = *pause;
		return;
	}
	if (result->code) {
		engine_write_drop();
		return;
	}
	*result = *pause;
	result->code = END_NONE;
	result->note[0] = '\0';
	op->timed = result;
	__atomic_store_n(&op->progress.settled, true, __ATOMIC_RELAXED);
	end_snapshot(op, start);
}

/* All processes that share memory with this one must be in the snapshot: they come back together. */
static int check_sharers(const struct snapshot_plan *plan, struct engine_result *result)
{
	pid_t other = sharing_other(plan->parts, plan->nparts);

	return other ? engine_fail(
			       result, END_UNSUPPORTED,
			       "process %d shares GPU memory with this one, and is not in the snapshot",
			       other)
		     : 0;
}

/* The directory of a part, or that of all parts alone. If it cannot be made, the snapshot fails. */
static void make_part(const struct snapshot_plan *plan)
{
	char path[PATH_MAX];

	if (!plan->nparts || plan->parts[0] == getpid())
		return;
	strcpy(path, plan->path);
	private_dir_make(AT_FDCWD, dirname(path));
	if (plan->incremental)
		snapshot_inherit(plan->path);
}

void engine_snapshot(struct engine_op *op)
{
	struct engine_result *result = &op->written;
	double start = clock_ms();

	engine_begin(op, result);
	if (!engine_is_paused() || engine.in_snapshot || engine_is_partly_out()) {
		engine_fail(result, END_BUSY,
			    engine.in_snapshot ? "the job is in a snapshot already, in %.400s"
					       : "the job is not paused%s",
			    engine.in_snapshot ? engine.place.path : "");
		return;
	}
	if (check_sharers(op->plan, result) || engine_check_host_memory(result))
		return;
	if (op->plan->image && !engine_is_released() &&
	    (engine_check_carried(op, result) || engine_check_room(result)))
		return;
	make_part(op->plan);
	if ((op->plan->image && engine_release_all(op, result)) ||
	    begin_saving(op, engine.saved.used_slots))
		return;
	saving_close(&engine.saving, true);
	saving_start(&engine.saving);
	end_snapshot(op, start);
}

/* The snapshot is no longer the only place of the memory. Nothing is read there, so it need not be locked. */
static void leave_place(void)
{
	int dir = open(engine.place.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return;
	snapshot_in_use_clear(dir, getpid());
	close(dir);
}

int engine_take_back(int memory)
{
	struct saved *saved = &engine.saved;
	int ret;

	if (!engine.in_snapshot || !engine.in_file)
		return -EINVAL;
	/* A resume that could not read the snapshot may have looked for other room. */
	saved->used_slots = saved->pool_slots = engine.snapshot_slots;
	ret = hostpool_take_back(memory, saved_blocks(saved));
	if (ret) {
		saved->used_slots = 0;
		return ret;
	}
	engine.in_file = false;
	__atomic_store_n(&engine.placed, false, __ATOMIC_RELEASE);
	leave_place();
	set_read();
	return 0;
}

int engine_lock_place(struct snapshot_error *error)
{
	return engine.in_snapshot ? fetch_place_lock(&engine.place, error) : 0;
}

/* If that fails, as in a directory that is read-only, the job goes on without it. */
static void occupy_place(void)
{
	int dir = ownfd_get(&engine.place.dir);
	struct snapshot_error ignored;

	if (!snapshot_in_use_check(dir, getpid(), &ignored))
		snapshot_in_use_set(dir, &ignored);
}

int engine_moved(const char *path, const CUcheckpointGpuPair *pairs, size_t count, int memory,
		 struct snapshot_error *error)
{
	struct snapshot_error why;
	int ret;

	if (!engine.in_snapshot)
		return snapshot_fail(error, -ENOENT, "the job is in no snapshot");
	/* Not since the image was made: other files have the same numbers by now. */
	engine.in_file = false;
	ret = fetch_place_move(&engine.place, path, error);
	if (ret)
		return ret;
	if (memory >= 0 && !fetch_filled(&engine.saved, &engine.place, memory, &why)) {
		set_read();
		engine_leave_read();
	} else {
		/* It is only quicker with the memory: the resume reads the directory. */
		if (memory >= 0)
			pr_warn("%s: %s", path, why.text);
		occupy_place();
	}
	release_remap(pairs, count);
	return 0;
}
