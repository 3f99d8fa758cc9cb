/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine.h"
#include "checkpoint/captures.h"
#include "checkpoint/contexts.h"
#include "checkpoint/gate.h"
#include "checkpoint/hostmem.h"
#include "checkpoint/hostpool.h"
#include "checkpoint/release.h"
#include "checkpoint/transfer.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB (double)(1UL << 30)

/* What a pause has taken off the GPU. Written by the engine's thread only. */
static struct {
	struct vmem_region *regions;
	size_t nregions;
	struct context contexts[CONTEXTS_MAX];
	size_t ncontexts;
	struct transfer_piece *pieces;
	size_t npieces;
	size_t bytes; /* of all regions; read by others */
	size_t per_device[CUDA_MAX_DEVICES];
	bool paused;   /* read by others, as released and untidy are */
	bool released; /* the driver's checkpoint holds the rest */
	bool untidy;   /* engine_tidy() has something to do */
} saved;

size_t engine_paused_bytes(void)
{
	return __atomic_load_n(&saved.bytes, __ATOMIC_RELAXED);
}

bool engine_is_paused(void)
{
	return __atomic_load_n(&saved.paused, __ATOMIC_RELAXED);
}

bool engine_is_released(void)
{
	return __atomic_load_n(&saved.released, __ATOMIC_RELAXED);
}

bool engine_is_untidy(void)
{
	return __atomic_load_n(&saved.untidy, __ATOMIC_RELAXED);
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

static void set_phase(struct engine_progress *progress, const char *phase, size_t total)
{
	__atomic_store_n(&progress->done, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&progress->total, total, __ATOMIC_RELAXED);
	__atomic_store_n(&progress->phase, phase, __ATOMIC_RELEASE);
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

/* What is pinned in the pool is ours already; its other pages count as available. */
static int check_host_memory(size_t bytes, struct engine_result *result)
{
	size_t available = hostmem_available(), pinned = 0;

	for (size_t i = 0; i < hostpool_blocks(); i++)
		pinned += *hostpool_pin(hostpool_block(i)) ? HOSTPOOL_BLOCK : 0;
	bytes -= pinned < bytes ? pinned : bytes;
	if (available >= bytes && available - bytes >= HOSTMEM_RESERVE)
		return 0;
	return fail(
		result, END_NOMEM,
		"%.2f GiB of host memory needed and %.2f GiB to be left free, %.2f GiB available",
		bytes / GIB, HOSTMEM_RESERVE / GIB, available / GIB);
}

/* Close the gate at a moment when no capture is open and no call is inside. */
static int enter_quiet(const struct cuda_driver *drv, double deadline_ms,
		       const struct engine_progress *progress, struct engine_result *result)
{
	for (;;) {
		while (captures_open(drv)) {
			if (cancelled(progress) || gate_now_ms() > deadline_ms)
				return fail_wait(result, progress, "a stream capture did not end");
			usleep(500);
		}
		gate_close();
		if (!gate_wait_until_out(GATE_HOLD, deadline_ms, &progress->cancel)) {
			gate_open();
			return fail_wait(result, progress, "a driver call did not return");
		}
		if (!captures_open(drv))
			return 0;
		gate_open();
	}
}

/* With the gate closed: wait for the GPU, and for the threads that wait for it. */
static int drain(const struct cuda_driver *drv, double deadline_ms,
		 const struct engine_progress *progress, struct engine_result *result)
{
	CUresult error = CUDA_SUCCESS;
	int ret;

	ret = contexts_drain(drv, saved.contexts, &saved.ncontexts, deadline_ms, &progress->cancel,
			     &error);
	if (ret == -EIO)
		return fail_driver(result, drv, "the program's contexts", error);
	if (ret == -ECANCELED || ret == -ETIME)
		return fail_wait(result, progress, "kernels did not end");
	if (ret)
		return fail(result, END_FAILED, "drain: %s", strerror(-ret));
	if (!gate_wait_until_out(GATE_WAIT, deadline_ms, &progress->cancel))
		return fail_wait(result, progress, "a synchronising call did not return");
	return cancelled(progress) ? fail_wait(result, progress, "") : 0;
}

static void forget_saved(void)
{
	free(saved.regions);
	free(saved.pieces);
	saved.regions = NULL;
	saved.pieces = NULL;
	saved.nregions = saved.npieces = 0;
	__atomic_store_n(&saved.bytes, 0, __ATOMIC_RELAXED);
	memset(saved.per_device, 0, sizeof(saved.per_device));
	__atomic_store_n(&saved.untidy, hostpool_blocks() > 0, __ATOMIC_RELAXED);
}

/* Pin or unpin the first @count blocks of the pool, with the gate closed. */
static void pin_blocks(const struct cuda_driver *drv, enum transfer_direction direction,
		       CUcontext ctx, size_t count, const bool *cancel)
{
	size_t done = 0;
	struct transfer_piece *blocks = calloc(count + 1, sizeof(*blocks));
	struct transfer t = {.drv = drv, .direction = direction, .done = &done, .cancel = cancel};

	if (!blocks)
		return; /* what is not pinned is copied more slowly */
	for (size_t i = 0; i < count; i++) {
		char *host = hostpool_block(i);

		blocks[t.count++] = (struct transfer_piece){.ctx = ctx,
							    .host = host,
							    .size = HOSTPOOL_BLOCK,
							    .pinned = hostpool_pin(host)};
	}
	t.pieces = blocks;
	transfer_run(&t);
	free(blocks);
}

/* A piece lies in one region and in one block of the pool. Small jobs get small pieces. */
static int cut_pieces(char *host, size_t total)
{
	size_t limit =
		(total / (2 * TRANSFER_WORKERS) + VMEM_GRANULE - 1) / VMEM_GRANULE * VMEM_GRANULE;
	size_t room, size, offset = 0;

	if (limit > HOSTPOOL_BLOCK)
		limit = HOSTPOOL_BLOCK;
	/* A region or a block ends at most one piece each before its limit. */
	saved.pieces = calloc(total / limit + saved.nregions + total / HOSTPOOL_BLOCK + 2,
			      sizeof(*saved.pieces));
	if (!saved.pieces)
		return -ENOMEM;
	for (size_t i = 0; i < saved.nregions; i++) {
		const struct vmem_region *r = &saved.regions[i];

		for (size_t at = 0; at < r->size; at += size, offset += size) {
			room = HOSTPOOL_BLOCK - offset % HOSTPOOL_BLOCK;
			size = r->size - at < limit ? r->size - at : limit;
			if (size > room)
				size = room;
			saved.pieces[saved.npieces++] =
				(struct transfer_piece){r->ctx, r->start + at, host + offset, size,
							hostpool_pin(host + offset)};
		}
	}
	return 0;
}

/* List the regions and find host memory for them. */
static int plan(const struct cuda_driver *drv, struct engine_result *result)
{
	size_t total = 0;
	char *host;

	saved.nregions = vmem_regions(NULL, 0);
	saved.regions = calloc(saved.nregions + 1, sizeof(*saved.regions));
	if (!saved.regions)
		return fail(result, END_NOMEM, "out of memory");
	vmem_regions(saved.regions, saved.nregions);
	for (size_t i = 0; i < saved.nregions; i++) {
		total += saved.regions[i].size;
		saved.per_device[saved.regions[i].dev] += saved.regions[i].size;
	}
	if (!total)
		return 0;
	if (check_host_memory(total, result))
		return -1;
	if (total > hostpool_blocks() * HOSTPOOL_BLOCK && saved.ncontexts)
		pin_blocks(drv, TRANSFER_UNPIN, saved.contexts[0].ctx, hostpool_blocks(), NULL);
	host = hostpool_get(total);
	if (!host || cut_pieces(host, total))
		return fail(result, END_NOMEM, "%.2f GiB of address space: %s", total / GIB,
			    strerror(errno));
	__atomic_store_n(&saved.bytes, total, __ATOMIC_RELAXED);
	return 0;
}

static int copy(const struct cuda_driver *drv, enum transfer_direction direction,
		struct engine_progress *progress, struct engine_result *result)
{
	struct transfer t = {.drv = drv,
			     .direction = direction,
			     .pieces = saved.pieces,
			     .count = saved.npieces,
			     .done = &progress->done};
	int ret;

	set_phase(progress, "copy", saved.bytes);
	ret = transfer_run(&t);
	if (ret == -EIO)
		return fail_driver(result, drv, "copy", t.error);
	if (ret)
		return fail(result, END_NOMEM, "host memory ran out during the copy");
	return 0;
}

/*
 * True where every device has free what is to be mapped: an attempt that cannot succeed would take,
 * for a moment, what another job that waits as well could use.
 */
static bool memory_is_free(const struct cuda_driver *drv)
{
	bool asked[CUDA_MAX_DEVICES] = {false}, enough = true;
	size_t free, total;

	for (size_t i = 0; i < saved.nregions && enough; i++) {
		const struct vmem_region *r = &saved.regions[i];

		if (asked[r->dev] || r->mapped)
			continue;
		asked[r->dev] = true;
		enough = drv->cuCtxSetCurrent(r->ctx) || drv->cuMemGetInfo_v2(&free, &total) ||
			 free >= saved.per_device[r->dev];
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

/* Steps 1 to 5 of engine.h. On failure the job runs on, unless that too failed (END_FAILED). */
static int take_memory(const struct cuda_driver *drv, double deadline_ms,
		       struct engine_progress *progress, struct engine_result *result)
{
	struct vmem_stats stats;
	CUresult error;

	vmem_get_stats(&stats);
	if (stats.mapped && check_host_memory(stats.mapped, result))
		return -1;
	if (enter_quiet(drv, deadline_ms, progress, result))
		return -1;
	if (drain(drv, deadline_ms, progress, result))
		goto err_open;
	vmem_trim();
	if (plan(drv, result) || copy(drv, TRANSFER_OUT, progress, result))
		goto err_forget;
	set_phase(progress, "release", saved.bytes);
	__atomic_store_n(&saved.paused, true, __ATOMIC_RELAXED);
	error = unmap_regions(drv);
	if (!error)
		return 0;
	fail_driver(result, drv, "unmap", error);
	if (map_regions(drv) || copy(drv, TRANSFER_IN, progress, result))
		return -1; /* the data is kept; a resume tries again */
	__atomic_store_n(&saved.paused, false, __ATOMIC_RELAXED);
err_forget:
	forget_saved();
err_open:
	gate_open();
	return -1;
}

void engine_pause(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		  struct engine_result *result)
{
	double start = gate_now_ms();
	const char *call = "";
	CUresult error;

	memset(result, 0, sizeof(*result));
	set_phase(progress, "drain", 0);
	if (take_memory(drv, start + timeout_ms, progress, result))
		return;
	if (saved.ncontexts && release_wanted(drv)) {
		error = release_checkpoint(drv, saved.contexts, saved.ncontexts, &call);
		__atomic_store_n(&saved.released, !error, __ATOMIC_RELAXED);
		if (error)
			snprintf(result->note, sizeof(result->note),
				 "the context stays on the GPU: %s: %s", call,
				 error_name(drv, error));
	}
	__atomic_store_n(&saved.untidy, !saved.released && saved.ncontexts && saved.bytes,
			 __ATOMIC_RELAXED);
	result->code = END_OK;
	result->bytes = saved.bytes;
	result->ms = gate_now_ms() - start;
}

/* Sleep between two attempts to get GPU memory. False when it is time to give up. */
static bool wait_for_memory(double deadline_ms, unsigned int *sleep_ms,
			    struct engine_progress *progress, struct engine_result *result)
{
	set_phase(progress, "memory", saved.bytes);
	__atomic_store_n(&progress->waiting, true, __ATOMIC_RELAXED);
	if (cancelled(progress)) {
		fail(result, END_BUSY, "cancelled by a pause");
		return false;
	}
	if (deadline_ms && gate_now_ms() > deadline_ms) {
		fail(result, END_TIMEOUT, "%.2f GiB of GPU memory did not come free in time",
		     saved.bytes / GIB);
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

	if (saved.released) {
		if (!release_fits(saved.per_device))
			return CUDA_ERROR_OUT_OF_MEMORY;
		set_phase(progress, "restore", 0);
		error = release_restore(drv, call);
		__atomic_store_n(&saved.released, error != CUDA_SUCCESS, __ATOMIC_RELAXED);
		if (error)
			return error;
	}
	*call = "map";
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

void engine_resume(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		   struct engine_result *result)
{
	double start = gate_now_ms();

	memset(result, 0, sizeof(*result));
	if (regain(drv, timeout_ms ? start + timeout_ms : 0, progress, result) ||
	    copy(drv, TRANSFER_IN, progress, result))
		return;
	__atomic_store_n(&saved.paused, false, __ATOMIC_RELAXED);
	gate_open();
	result->code = END_OK;
	result->bytes = saved.bytes;
	result->ms = gate_now_ms() - start;
	forget_saved();
}

void engine_tidy(const struct cuda_driver *drv, const bool *cancel)
{
	size_t keep = hostpool_keep_blocks(), blocks = hostpool_blocks();

	/* While the job runs its contexts may go at any time: no driver call then. */
	if (saved.paused)
		pin_blocks(drv, TRANSFER_PIN, saved.contexts[0].ctx, keep < blocks ? keep : blocks,
			   cancel);
	else if (keep)
		hostpool_relax();
	else
		hostpool_drop();
	__atomic_store_n(&saved.untidy, false, __ATOMIC_RELAXED);
}
