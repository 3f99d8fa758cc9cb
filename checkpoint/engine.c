/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine.h"
#include "checkpoint/claims.h"
#include "checkpoint/contexts.h"
#include "checkpoint/gate.h"
#include "checkpoint/hold.h"
#include "checkpoint/hostmem.h"
#include "checkpoint/hostpool.h"
#include "checkpoint/quiet.h"
#include "checkpoint/release.h"
#include "checkpoint/saved.h"
#include "checkpoint/spill.h"
#include "checkpoint/trace.h"
#include "checkpoint/transfer.h"
#include "checkpoint/unsupported.h"
#include "vmem/symbols.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "engine: "
#include "vmem/log.h"

#define GIB (double)(1UL << 30)

/* Below this, finding zeros takes longer than copying them. */
#define SCAN_BYTES (1UL << 30)

/* How long a prepare() waits for the program's calls, and lets them run after each block. */
#define PREPARE_PATIENCE_MS 10
#define PREPARE_PAUSE_US    10000
/* How often a resume that waits for its peers looks whether it is cancelled. */
#define PEERS_LOOK_MS 20

static struct saved saved;

/* Written by the engine's thread, read by others. */
static struct {
	bool paused;
	bool released; /* the driver's checkpoint holds the rest */
	bool untidy;   /* engine_tidy() has something to do */
	size_t host, spilled, pool;
	size_t prepared; /* what was mapped when prepare() last looked */
	bool held;       /* what was saved is in the snapshot alone, in held_slots slots */
} now;

static struct snapshot_place place = {.dir = -1};
static size_t held_slots;

/* The operation under way and its current phase. */
static struct {
	struct engine_result *result;
	const char *phase;
	double start;
} timed;

size_t engine_paused_bytes(void)
{
	return __atomic_load_n(&now.host, __ATOMIC_RELAXED);
}

size_t engine_spilled_bytes(void)
{
	return __atomic_load_n(&now.spilled, __ATOMIC_RELAXED);
}

size_t engine_pool_bytes(void)
{
	return __atomic_load_n(&now.pool, __ATOMIC_RELAXED);
}

bool engine_is_paused(void)
{
	return __atomic_load_n(&now.paused, __ATOMIC_RELAXED);
}

bool engine_is_released(void)
{
	return __atomic_load_n(&now.released, __ATOMIC_RELAXED);
}

const char *engine_held_in(void)
{
	return __atomic_load_n(&now.held, __ATOMIC_ACQUIRE) ? place.path : NULL;
}

static bool asked_for(const char *variable)
{
	const char *value = secure_getenv(variable);

	return value && *value && strcmp(value, "0");
}

bool engine_prepares(void)
{
	return asked_for("CUDAW_PREPARE");
}

__attribute__((format(printf, 3, 4))) static int fail(struct engine_result *result,
						      const char *code, const char *fmt, ...)
{
	va_list ap;

	result->code = code;
	va_start(ap, fmt);
	vsnprintf(result->message, sizeof(result->message), fmt, ap);
	va_end(ap);
	return -1;
}

static const char *error_name(const struct cuda_driver *drv, CUresult error)
{
	const char *name = NULL;

	drv->cuGetErrorName(error, &name);
	return name ? name : "unknown error";
}

static int fail_driver(struct engine_result *result, const struct cuda_driver *drv,
		       const char *what, CUresult error)
{
	return fail(result, END_FAILED, "%s: %s", what, error_name(drv, error));
}

/* Add the time since the current phase began to it. */
static void end_phase(void)
{
	struct engine_result *r = timed.result;
	double ms = gate_now_ms() - timed.start;
	size_t i = 0;

	if (!timed.phase)
		return;
	while (i < r->nphases && strcmp(r->phases[i].name, timed.phase))
		i++;
	if (i < r->nphases)
		r->phases[i].ms += ms;
	else if (i < ENGINE_PHASES)
		r->phases[r->nphases++] = (struct engine_phase){timed.phase, ms};
}

static void set_phase(struct engine_progress *progress, const char *phase, size_t total)
{
	end_phase();
	timed.phase = phase;
	timed.start = gate_now_ms();
	__atomic_store_n(&progress->done, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&progress->total, total, __ATOMIC_RELAXED);
	__atomic_store_n(&progress->phase, phase, __ATOMIC_RELEASE);
	trace_phase(phase);
}

static void begin(struct engine_result *result)
{
	memset(result, 0, sizeof(*result));
	timed.result = result;
	timed.phase = NULL;
}

/* The operation that began at @start succeeded. */
static void succeed(struct engine_result *result, double start, size_t bytes)
{
	end_phase();
	result->code = END_OK;
	result->bytes = bytes;
	result->ms = gate_now_ms() - start;
}

static bool cancelled(const struct engine_progress *progress)
{
	return __atomic_load_n(&progress->cancel, __ATOMIC_RELAXED);
}

/* A wait of a pause ended without what it waited for. */
static int fail_wait(struct engine_result *result, const struct engine_progress *progress,
		     const char *what)
{
	if (cancelled(progress))
		return fail(result, END_BUSY,
			    "cancelled: a resume was asked for, or the process exits");
	return fail(result, END_TIMEOUT, "%s in time", what);
}

/* The phase "drain" of engine.h; saved.contexts are those that were found. */
static int enter_quiet(const struct cuda_driver *drv, double deadline_ms,
		       const struct engine_progress *progress, struct engine_result *result)
{
	struct quiet q = {.drv = drv,
			  .deadline_ms = deadline_ms,
			  .cancel = &progress->cancel,
			  .hold = progress->hold,
			  .contexts = saved.contexts};
	int ret = quiet_enter(&q);

	saved.ncontexts = q.ncontexts;
	if (ret == -EIO)
		return fail_driver(result, drv, "the program's contexts", q.error);
	if (ret == -ECANCELED || ret == -ETIME)
		return fail_wait(result, progress, q.what);
	return ret ? fail(result, END_FAILED, "drain: %s", strerror(-ret)) : 0;
}

/* Bring up to date what others read of the saved memory and the pool. */
static void publish(void)
{
	__atomic_store_n(&now.host, saved_host_bytes(&saved), __ATOMIC_RELAXED);
	__atomic_store_n(&now.spilled, saved_spilled_bytes(&saved), __ATOMIC_RELAXED);
	__atomic_store_n(&now.pool, hostpool_held(), __ATOMIC_RELAXED);
}

static void forget_saved(void)
{
	saved_forget(&saved);
	spill_close();
	publish();
	__atomic_store_n(&now.untidy, hostpool_count() > 0, __ATOMIC_RELAXED);
}

static int fail_transfer(struct engine_result *result, const struct cuda_driver *drv,
			 const struct transfer *t)
{
	switch (t->workers.result) {
	case 0:
		return 0;
	case -EIO:
		return t->error ? fail_driver(result, drv, "copy", t->error)
				: fail(result, END_FAILED, "the spill file: %s", strerror(EIO));
	case -ENOMEM:
		return fail(result, END_NOMEM, "host memory ran out during the copy");
	case -EILSEQ:
		return fail(result, END_FAILED,
			    "the 2 MiB at %#llx came back different from what was saved "
			    "(CUDAW_VERIFY)",
			    t->differs);
	default:
		return fail(result, END_FAILED, "the spill file: %s", strerror(-t->workers.result));
	}
}

static int transfer(const struct cuda_driver *drv, enum transfer_direction direction,
		    struct engine_progress *progress, struct engine_result *result)
{
	struct transfer t = saved_transfer(&saved, drv, direction, &progress->done);

	transfer_run(&t);
	if (direction != TRANSFER_IN)
		saved.used_slots = t.next_slot;
	return fail_transfer(result, drv, &t);
}

/* Kernels for digests: to check the data, or to find zeros in much of it. */
static int load_kernels(const struct cuda_driver *drv, struct engine_result *result)
{
	bool verify = asked_for("CUDAW_VERIFY");
	CUresult error;

	if (!verify && saved_bytes(&saved) < SCAN_BYTES)
		return 0;
	error = saved_load_kernels(&saved, drv);
	if (!error)
		return 0;
	if (verify)
		return fail_driver(result, drv, "CUDAW_VERIFY: loading the kernel", error);
	pr_debug("zeros are copied: no kernel to find them: driver error %d", error);
	return 0;
}

static int fail_room(struct engine_result *result, size_t slots, size_t pool_slots,
		     size_t spill_slots)
{
	size_t need = slots * VMEM_GRANULE, host = pool_slots * VMEM_GRANULE;
	size_t disk = spill_slots * VMEM_GRANULE;

	if (disk)
		return fail(result, END_NOMEM,
			    "%.2f GiB to be saved, %.2f GiB of host memory available (%.2f GiB is "
			    "left to others) and %.2f GiB of disk in CUDAW_SPILL_DIR: %.2f GiB are "
			    "missing",
			    need / GIB, host / GIB, HOSTMEM_RESERVE / GIB, disk / GIB,
			    (need - host - disk) / GIB);
	return fail(result, END_NOMEM,
		    "%.2f GiB to be saved, %.2f GiB of host memory available (%.2f GiB is left to "
		    "others): %.2f GiB are missing",
		    need / GIB, host / GIB, HOSTMEM_RESERVE / GIB, (need - host) / GIB);
}

/* Get room for @slots slots, where saved_room() found so much. */
static int place_slots(size_t slots, size_t pool_slots, size_t spill_slots,
		       struct engine_result *result)
{
	int error;

	if (slots > pool_slots && slots - pool_slots > spill_slots)
		return fail_room(result, slots, pool_slots, spill_slots);
	error = saved_place(&saved, slots, pool_slots);
	if (error)
		return fail(result, END_NOMEM, "room for %.2f GiB: %s", slots * VMEM_GRANULE / GIB,
			    strerror(-error));
	return 0;
}

/* Find a place for all that is to be saved. */
static int make_room(const struct cuda_driver *drv, struct engine_progress *progress,
		     struct engine_result *result)
{
	size_t slots = saved.nlive, pool_slots, spill_slots, apart = 0, missing;
	size_t bytes = slots * VMEM_GRANULE, held = hostpool_held();

	if (release_wanted(drv))
		apart = release_host_bytes(drv, saved.contexts, saved.ncontexts);
	missing = saved_room(bytes > held ? bytes - held : 0, apart, &pool_slots, &spill_slots);
	if (missing)
		return fail(
			result, END_NOMEM,
			"%.2f GiB of host memory needed for the driver's checkpoint (%.2f GiB are "
			"left to others): %.2f GiB are missing",
			apart / GIB, HOSTMEM_RESERVE / GIB, missing / GIB);
	/* Where it would not fit as it is, it may without its zeros. */
	if (slots > pool_slots && saved.kernels) {
		if (transfer(drv, TRANSFER_SCAN, progress, result))
			return -1;
		slots = saved.used_slots;
	}
	return place_slots(slots, pool_slots, spill_slots, result);
}

/* Copy everything out. On failure the caller forgets what was saved. */
static int save(const struct cuda_driver *drv, struct engine_progress *progress,
		struct engine_result *result)
{
	int ret = -1;

	if (saved_list(&saved))
		return fail(result, END_NOMEM, "out of memory");
	set_phase(progress, "copy", saved.ngranules * VMEM_GRANULE);
	if (!saved.ngranules)
		return 0;
	if (load_kernels(drv, result))
		return -1;
	if (!make_room(drv, progress, result))
		ret = transfer(drv, TRANSFER_OUT, progress, result);
	saved_unload_kernels(&saved, drv);
	publish();
	return ret;
}

/* Get what a snapshot holds back into host memory. */
static int fetch(struct engine_progress *progress, struct engine_result *result)
{
	size_t pool_slots, spill_slots;
	struct snapshot_error error;
	int ret;

	set_phase(progress, "read", saved.ngranules * VMEM_GRANULE);
	saved_room(held_slots * VMEM_GRANULE, 0, &pool_slots, &spill_slots);
	if (place_slots(held_slots, pool_slots, spill_slots, result))
		return -1;
	ret = snapshot_saved_fetch(&saved, &place, &progress->done, &progress->cancel, &error);
	if (ret == -ECANCELED)
		return fail(result, END_BUSY, "cancelled by a pause");
	if (ret)
		return fail(result, END_FAILED, "%.255s: %.250s", place.path, error.text);
	snapshot_place_unlock(&place);
	saved.used_slots = held_slots;
	__atomic_store_n(&now.held, false, __ATOMIC_RELEASE);
	publish();
	return 0;
}

static int load_back(const struct cuda_driver *drv, struct engine_progress *progress,
		     struct engine_result *result)
{
	CUresult error = CUDA_SUCCESS;
	int ret;

	set_phase(progress, "copy", saved.ngranules * VMEM_GRANULE);
	if (saved.digests && asked_for("CUDAW_VERIFY")) {
		error = saved_load_kernels(&saved, drv);
		if (error)
			return fail_driver(result, drv, "CUDAW_VERIFY: loading the kernel", error);
	}
	ret = transfer(drv, TRANSFER_IN, progress, result);
	saved_unload_kernels(&saved, drv);
	if (!ret)
		error = symbols_renew(drv);
	return error ? fail_driver(result, drv, "pointers in variables of modules", error) : ret;
}

/*
 * True where every device has free what is to be mapped: an attempt that cannot succeed would take,
 * for a moment, what another job that waits as well could use.
 */
static bool memory_is_free(const struct cuda_driver *drv)
{
	bool asked[CUDA_MAX_DEVICES] = {false}, enough = true;
	size_t needed[CUDA_MAX_DEVICES] = {0}, free, total;

	for (size_t i = 0; i < saved.nregions; i++)
		if (!saved.regions[i].mapped)
			needed[saved.regions[i].dev] += saved.regions[i].size;
	for (size_t i = 0; i < saved.nregions && enough; i++) {
		const struct vmem_region *r = &saved.regions[i];

		if (asked[r->dev] || r->mapped)
			continue;
		asked[r->dev] = true;
		enough = drv->cuCtxSetCurrent(r->ctx) || drv->cuMemGetInfo_v2(&free, &total) ||
			 free >= needed[r->dev];
	}
	drv->cuCtxSetCurrent(NULL);
	return enough;
}

/* Map what is not mapped; all or nothing. */
static CUresult map_regions(const struct cuda_driver *drv)
{
	CUresult error = CUDA_SUCCESS;
	size_t i;

	for (i = 0; i < saved.nregions && !error; i++) {
		if (saved.regions[i].mapped)
			continue;
		error = drv->cuCtxSetCurrent(saved.regions[i].ctx);
		if (!error)
			error = vmem_region_map(saved.regions[i].start);
		saved.regions[i].mapped = !error;
	}
	for (size_t j = 0; error && j < i; j++)
		if (saved.regions[j].mapped) {
			vmem_region_unmap(saved.regions[j].start);
			saved.regions[j].mapped = false;
		}
	drv->cuCtxSetCurrent(NULL);
	return error;
}

static CUresult unmap_regions(const struct cuda_driver *drv)
{
	CUresult error = CUDA_SUCCESS;

	for (size_t i = 0; i < saved.nregions && !error; i++) {
		error = drv->cuCtxSetCurrent(saved.regions[i].ctx);
		if (!error)
			error = vmem_region_unmap(saved.regions[i].start);
		if (!error)
			saved.regions[i].mapped = false;
	}
	drv->cuCtxSetCurrent(NULL);
	return error;
}

/* All but the release. On failure the job runs on, unless that too failed (END_FAILED). */
static int take_memory(const struct cuda_driver *drv, double deadline_ms,
		       struct engine_progress *progress, struct engine_result *result)
{
	CUresult error;

	if (enter_quiet(drv, deadline_ms, progress, result))
		return -1;
	vmem_trim();
	if (save(drv, progress, result))
		goto err_forget;
	set_phase(progress, "unmap", 0);
	__atomic_store_n(&now.paused, true, __ATOMIC_RELAXED);
	error = unmap_regions(drv);
	if (!error)
		return 0;
	fail_driver(result, drv, "unmap", error);
	if (map_regions(drv) || load_back(drv, progress, result))
		return -1; /* the data is kept; a resume tries again */
	__atomic_store_n(&now.paused, false, __ATOMIC_RELAXED);
err_forget:
	forget_saved();
	gate_open();
	return -1;
}

/* What is left on the GPU goes by the driver's checkpoint, where that is wanted. */
static void release(const struct cuda_driver *drv, struct engine_progress *progress,
		    struct engine_result *result)
{
	const char *call = "";
	CUresult error;

	if (!saved.ncontexts || !release_wanted(drv))
		return;
	set_phase(progress, "release", 0);
	error = release_checkpoint(drv, saved.contexts, saved.ncontexts, &call);
	__atomic_store_n(&now.released, !error, __ATOMIC_RELAXED);
	if (error)
		snprintf(result->note, sizeof(result->note), "the context stays on the GPU: %s: %s",
			 call, error_name(drv, error));
}

void engine_pause(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		  struct engine_result *result)
{
	double start = gate_now_ms();

	begin(result);
	if (unsupported_check(drv, result->message, sizeof(result->message))) {
		result->code = END_UNSUPPORTED;
		return;
	}
	set_phase(progress, "drain", 0);
	if (take_memory(drv, start + timeout_ms, progress, result))
		return;
	release(drv, progress, result);
	__atomic_store_n(&now.untidy, !now.released && saved.ncontexts && saved.used_slots,
			 __ATOMIC_RELAXED);
	succeed(result, start, saved_bytes(&saved));
}

/* Sleep between two attempts to get GPU memory. False when it is time to give up. */
static bool wait_for_memory(double deadline_ms, unsigned int *sleep_ms,
			    struct engine_progress *progress, struct engine_result *result)
{
	set_phase(progress, "memory", 0);
	__atomic_store_n(&progress->waiting, true, __ATOMIC_RELAXED);
	if (cancelled(progress)) {
		fail(result, END_BUSY, "cancelled by a pause");
		return false;
	}
	if (deadline_ms && gate_now_ms() > deadline_ms) {
		fail(result, END_TIMEOUT, "%.2f GiB of GPU memory did not come free in time",
		     saved.ngranules * VMEM_GRANULE / GIB);
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

	if (now.released) {
		if (!release_fits(saved.per_device))
			return CUDA_ERROR_OUT_OF_MEMORY;
		set_phase(progress, "restore", 0);
		error = release_restore(drv, call);
		__atomic_store_n(&now.released, error != CUDA_SUCCESS, __ATOMIC_RELAXED);
		if (error)
			return error;
	}
	*call = "map";
	set_phase(progress, "map", 0);
	return memory_is_free(drv) ? map_regions(drv) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Get context and memory back, waiting for free memory as long as allowed. */
static int regain(const struct cuda_driver *drv, double deadline_ms,
		  struct engine_progress *progress, struct engine_result *result)
{
	unsigned int sleep_ms = 20;
	const char *call = "";

	for (;;) {
		/* Other jobs that wait for the same GPU must not take what this one was promised. */
		int lock = release_lock();
		CUresult error = lock == -EAGAIN ? CUDA_ERROR_OUT_OF_MEMORY
						 : regain_once(drv, progress, &call);

		release_unlock(lock);
		if (!error)
			break;
		if (error != CUDA_ERROR_OUT_OF_MEMORY)
			return fail_driver(result, drv, call, error);
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
	set_phase(progress, "peers", 0);
	hold_say(progress->hold, &ready);
	while (!order.commit) {
		hold_take_order(progress->hold, PEERS_LOOK_MS, &order);
		if (!order.commit && cancelled(progress))
			return false;
	}
	return true;
}

/* Off the GPU again: nothing has run since the memory came back, so what is saved is still so. */
static void step_back(const struct cuda_driver *drv, struct engine_progress *progress,
		      struct engine_result *result)
{
	CUresult error;

	set_phase(progress, "unmap", 0);
	error = unmap_regions(drv);
	if (error) {
		fail_driver(result, drv, "unmap", error);
		return;
	}
	release(drv, progress, result);
	fail(result, END_BUSY,
	     "another process of the job did not resume, or a pause was asked for");
}

void engine_resume(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		   struct engine_result *result)
{
	double start = gate_now_ms();
	bool was_released = now.released;

	begin(result);
	if (now.held && fetch(progress, result))
		return;
	if (regain(drv, timeout_ms ? start + timeout_ms : 0, progress, result) ||
	    load_back(drv, progress, result)) {
		/* Paused is paused: what came back goes again. What does not is tried at the next. */
		if (!now.released) {
			unmap_regions(drv);
			if (was_released)
				release(drv, progress, result);
		}
		return;
	}
	if (!wait_for_peers(progress)) {
		step_back(drv, progress, result);
		return;
	}
	__atomic_store_n(&now.paused, false, __ATOMIC_RELAXED);
	gate_open();
	succeed(result, start, saved_bytes(&saved));
	forget_saved();
}

/* Have the driver take what is left on the GPU, whatever CUDAW_RELEASE says. */
static int release_all(const struct cuda_driver *drv, struct engine_progress *progress,
		       struct engine_result *result)
{
	const char *call = "no cuCheckpointProcessCheckpoint";
	CUresult error = CUDA_ERROR_NOT_SUPPORTED;

	if (now.released || !saved.ncontexts)
		return 0;
	set_phase(progress, "release", 0);
	hostpool_unpin(drv, saved.contexts[0].ctx, 0);
	if (drv->cuCheckpointProcessCheckpoint)
		error = release_checkpoint(drv, saved.contexts, saved.ncontexts, &call);
	if (error)
		return fail(result, END_UNSUPPORTED, "the driver does not release the GPU: %s: %s",
			    call, error_name(drv, error));
	__atomic_store_n(&now.released, true, __ATOMIC_RELAXED);
	return 0;
}

/* The snapshot alone has it from now on. */
static void give_host_memory_back(const struct cuda_driver *drv)
{
	if (!now.released && saved.ncontexts)
		hostpool_unpin(drv, saved.contexts[0].ctx, 0);
	held_slots = saved.used_slots;
	saved.used_slots = 0;
	hostpool_drop();
	spill_close();
	__atomic_store_n(&now.untidy, false, __ATOMIC_RELAXED);
	__atomic_store_n(&now.held, true, __ATOMIC_RELEASE);
	publish();
}

static int write_snapshot(const struct snapshot_order *order, struct snapshot_facts *facts,
			  struct engine_progress *progress, struct engine_result *result)
{
	struct snapshot_totals totals;
	struct snapshot_error error;
	int ret;

	set_phase(progress, "write", saved.ngranules * VMEM_GRANULE);
	ret = snapshot_saved_write(&saved, order, facts, &place, &totals, &progress->done,
				   &progress->cancel, &error);
	if (ret == -ECANCELED)
		return fail(result, END_BUSY,
			    "cancelled: a resume was asked for, or the process exits");
	if (ret)
		return fail(result, END_FAILED, "%.255s: %.250s", order->path, error.text);
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

	begin(result);
	if (!now.paused || now.held) {
		fail(result, END_BUSY,
		     now.held ? "the job is in a snapshot already, in %.400s"
			      : "the job is not paused%s",
		     now.held ? place.path : "");
		return;
	}
	for (size_t i = 0; i < saved.ncontexts; i++)
		contexts[i] =
			(struct snapshot_context){saved.contexts[i].dev, saved.contexts[i].primary};
	if (order->image)
		claims_close();
	facts->contexts = contexts;
	facts->ncontexts = saved.ncontexts;
	if ((order->image && release_all(drv, progress, result)) ||
	    write_snapshot(order, facts, progress, result))
		return;
	if (!order->hold)
		snapshot_place_unlock(&place);
	else
		give_host_memory_back(drv);
	succeed(result, start, saved_bytes(&saved));
}

int engine_moved(const char *path, const CUcheckpointGpuPair *pairs, size_t count,
		 struct snapshot_error *error)
{
	int ret;

	if (!now.held)
		return snapshot_fail(error, -ENOENT, "the job is in no snapshot");
	ret = snapshot_place_move(&place, path, error);
	if (!ret)
		release_remap(pairs, count);
	return ret;
}

void engine_trim(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		 struct engine_result *result)
{
	double start = gate_now_ms();
	struct vmem_stats before, after;
	size_t held = hostpool_held(), count = 0;
	struct context list[CONTEXTS_MAX];

	begin(result);
	if (now.paused) {
		snprintf(result->note, sizeof(result->note),
			 "the job is paused: there is nothing that it does not need");
		succeed(result, start, 0);
		return;
	}
	set_phase(progress, "drain", 0);
	vmem_get_stats(&before);
	/* No context may go while the host memory is unpinned with it. */
	gate_close();
	if (!gate_wait_until_out(GATE_HOLD, start + timeout_ms, &progress->cancel)) {
		gate_open();
		fail_wait(result, progress, "a driver call did not return");
		return;
	}
	vmem_trim();
	if (!contexts_get(drv, list, &count) && count)
		hostpool_unpin(drv, list[0].ctx, 0);
	contexts_put(drv, list, count);
	gate_open();
	hostpool_relax();
	hostpool_drop();
	publish();
	vmem_get_stats(&after);
	snprintf(result->note, sizeof(result->note),
		 "gave back %.2f GiB of host memory and %.2f GiB of GPU memory",
		 (held - hostpool_held()) / GIB,
		 (before.mapped > after.mapped ? before.mapped - after.mapped : 0) / GIB);
	succeed(result, start, 0);
}

bool engine_is_untidy(void)
{
	struct vmem_stats stats;

	if (__atomic_load_n(&now.untidy, __ATOMIC_RELAXED))
		return true;
	if (engine_is_paused() || !engine_prepares())
		return false;
	vmem_get_stats(&stats);
	return stats.mapped > __atomic_load_n(&now.prepared, __ATOMIC_RELAXED);
}

/*
 * Pin the first @blocks blocks, which are present. The program is held for each of them, as its
 * contexts must not go meanwhile; that takes a millisecond or two, and it may run in between.
 */
static void pin_ready(const struct cuda_driver *drv, size_t blocks, const bool *cancel)
{
	struct context list[CONTEXTS_MAX];
	size_t count;

	for (size_t i = 0; i < blocks && !__atomic_load_n(cancel, __ATOMIC_RELAXED);) {
		gate_close();
		if (gate_wait_until_out(GATE_HOLD, gate_now_ms() + PREPARE_PATIENCE_MS, cancel)) {
			if (!contexts_get(drv, list, &count) && count)
				hostpool_pin(drv, list[0].ctx, i + 1, cancel);
			contexts_put(drv, list, count);
			i++;
		}
		gate_open();
		usleep(PREPARE_PAUSE_US);
	}
}

/* Host memory for the next pause of what is mapped now. What cannot be had is done without. */
static void prepare(const struct cuda_driver *drv, const bool *cancel)
{
	size_t pool_slots, spill_slots, limit = hostpool_limit(), blocks;
	struct vmem_stats stats;

	vmem_get_stats(&stats);
	__atomic_store_n(&now.prepared, stats.mapped, __ATOMIC_RELAXED);
	saved_room(0, 0, &pool_slots, &spill_slots);
	if (limit > pool_slots * VMEM_GRANULE)
		limit = pool_slots * VMEM_GRANULE;
	blocks = stats.mapped < limit ? (stats.mapped + HOSTPOOL_BLOCK - 1) / HOSTPOOL_BLOCK
				      : limit / HOSTPOOL_BLOCK;
	if (!hostpool_grow(blocks) && !hostpool_populate(blocks, cancel) && !release_wanted(drv))
		pin_ready(drv, blocks, cancel);
}

/* No driver call may be made while the driver's checkpoint holds the context. */
static void pin_saved(const struct cuda_driver *drv, size_t blocks, const bool *cancel)
{
	if (!now.released && saved.ncontexts)
		hostpool_pin(drv, saved.contexts[0].ctx, blocks, cancel);
}

void engine_tidy(const struct cuda_driver *drv, const bool *cancel)
{
	size_t limit = hostpool_limit() / HOSTPOOL_BLOCK, blocks = saved_blocks(&saved);

	/* While the job runs its contexts may go at any time: no driver call then. */
	if (now.paused)
		pin_saved(drv, limit < blocks ? limit : blocks, cancel);
	else if (engine_prepares())
		prepare(drv, cancel);
	else if (limit)
		hostpool_relax();
	else
		hostpool_drop();
	publish();
	/* What was cancelled is left to be done, unless the operation that did it changes that. */
	__atomic_store_n(&now.untidy, __atomic_load_n(cancel, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}
