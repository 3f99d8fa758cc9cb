/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/quiet.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/release/release.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/settings.h"
#include "common/size.h"
#include "common/system/hostmem.h"
#include "vmem/vmem.h"

#include <stdio.h>
#include <unistd.h>

/*
 * How long prepare() waits for the program's calls, and how long it lets them run after each block.
 */
#define PREPARE_PATIENCE_MS 10
#define PREPARE_PAUSE_US    10000
#define UNPINNED_MS         600000
#define KEEP_BESIDE         2 /* times the pool, which must be ready beside it */

/* A context that lives as long as the program is held; NULL: none is known. */
static CUcontext any_context(const struct cuda_driver *drv)
{
	struct context_list list = {0};
	CUcontext ctx = NULL;

	if (!contexts_get(drv, &list) && list.count)
		ctx = list.items[0].ctx;
	contexts_free(&list);
	return ctx;
}

void engine_trim(struct engine_op *op)
{
	struct engine_result *result = &op->result;
	double start = clock_ms();
	struct vmem_stats before, after;
	size_t resident = hostpool_resident(), host, gpu;
	struct quiet q = {.drv = op->drv,
			  .deadline_ms = limits_ms() + op->timeout_ms,
			  .cancel = &op->progress.cancel};
	CUcontext ctx;

	engine_begin(op, result);
	if (engine_is_paused()) {
		snprintf(result->note, sizeof(result->note),
			 "the job is paused: there is nothing to give back");
		engine_succeed(op, start, 0);
		return;
	}
	engine_set_phase(op, "drain", 0);
	vmem_get_stats(&before);
	/* No context may end while the host memory is unpinned with it. */
	if (quiet_close(&q)) {
		engine_fail_wait(op, q.what, "");
		return;
	}
	vmem_trim();
	ctx = any_context(op->drv);
	if (ctx)
		hostpool_unpin(op->drv, ctx, 0, NULL);
	gate_open();
	hostpool_drop(NULL);
	engine_publish();
	vmem_get_stats(&after);
	host = resident - hostpool_resident();
	gpu = before.mapped > after.mapped ? before.mapped - after.mapped : 0;
	snprintf(result->note, sizeof(result->note),
		 "gave back " PRI_GIB " of host memory and " PRI_GIB " of GPU memory",
		 GIB_ARGS(host), GIB_ARGS(gpu));
	engine_succeed(op, start, 0);
}

void engine_probe(struct engine_op *op)
{
	double start = clock_ms();
	struct context_list list = {0};
	struct quiet q = {.drv = op->drv,
			  .deadline_ms = limits_ms() + op->timeout_ms,
			  .cancel = &op->progress.cancel,
			  .contexts = &list};
	int ret;

	engine_begin(op, &op->result);
	ret = quiet_enter(&q);
	if (!ret)
		gate_open();
	contexts_free(&list);
	if (ret)
		engine_fail_wait(op, q.what, "");
	else
		engine_succeed(op, start, 0);
}

void engine_pin_none(void)
{
	__atomic_store_n(&engine.unpinned_until, (long)clock_ms() + UNPINNED_MS, __ATOMIC_RELAXED);
	if (engine_is_paused())
		__atomic_store_n(&engine.untidy, true, __ATOMIC_RELAXED);
}

/* Blocks that may be pinned. Without CUDAW_HOST_POOL that reads files. */
static size_t find_limit(void)
{
	if ((long)clock_ms() < __atomic_load_n(&engine.unpinned_until, __ATOMIC_RELAXED))
		return 0;
	return hostpool_limit() / HOSTPOOL_BLOCK;
}

bool engine_prepares(void)
{
	return setting_enabled(SETTING_PREPARE);
}

bool engine_is_untidy(void)
{
	struct vmem_stats stats;

	if (__atomic_load_n(&engine.untidy, __ATOMIC_RELAXED))
		return true;
	if (engine_is_paused() || !engine_prepares())
		return false;
	vmem_get_stats(&stats);
	return stats.mapped > __atomic_load_n(&engine.prepared, __ATOMIC_RELAXED) && find_limit();
}

/*
 * Pin the first @blocks blocks, which are present. The program is held for each of them, as no
 * context may end meanwhile. That takes a millisecond or two, and the program runs in between.
 */
static void pin_ready(const struct cuda_driver *drv, size_t blocks, const bool *cancel)
{
	for (size_t i = 0; i < blocks && !__atomic_load_n(cancel, __ATOMIC_RELAXED);) {
		gate_close();
		if (gate_wait_until_out(GATE_HOLD, limits_ms() + PREPARE_PATIENCE_MS, cancel)) {
			CUcontext ctx = any_context(drv);

			if (ctx)
				hostpool_pin(drv, ctx, i + 1, cancel);
			i++;
		}
		gate_open();
		usleep(PREPARE_PAUSE_US);
	}
}

/* Host memory for the next pause of what is mapped now, as far as it is available. */
static void prepare(struct engine_op *op)
{
	const bool *cancel = &op->progress.cancel;
	size_t pool_slots, spill_slots, limit = hostpool_limit(), blocks;
	struct vmem_stats stats;

	vmem_get_stats(&stats);
	__atomic_store_n(&engine.prepared, stats.mapped, __ATOMIC_RELAXED);
	saved_room(&engine.saved, 0, 0, &pool_slots, &spill_slots);
	if (limit > pool_slots * VMEM_GRANULE)
		limit = pool_slots * VMEM_GRANULE;
	blocks = stats.mapped < limit ? (stats.mapped + HOSTPOOL_BLOCK - 1) / HOSTPOOL_BLOCK
				      : limit / HOSTPOOL_BLOCK;
	if (!hostpool_grow(blocks) && !hostpool_populate(blocks, cancel) &&
	    !release_wanted(op->drv, op->release))
		pin_ready(op->drv, blocks, cancel);
}

/* No driver call may be made while the driver's checkpoint holds the context. */
static void pin_saved(const struct cuda_driver *drv, const bool *cancel)
{
	size_t limit = find_limit(), blocks = saved_blocks(&engine.saved);

	if (!limit)
		engine_unpin(drv, cancel);
	else if (!engine_is_released() && engine.saved.contexts.count)
		hostpool_pin(drv, engine.saved.contexts.items[0].ctx, size_min(limit, blocks),
			     cancel);
}

bool engine_keeps_pages(void)
{
	return hostpool_limit() &&
	       hostmem_ready() / KEEP_BESIDE >= hostpool_count() * HOSTPOOL_BLOCK;
}

void engine_tidy(struct engine_op *op)
{
	const bool *cancel = &op->progress.cancel;

	/* There may be more to do meanwhile. */
	__atomic_store_n(&engine.untidy, false, __ATOMIC_RELAXED);
	/* While the job runs its contexts may end at any time: make no driver call then. */
	if (engine_is_paused())
		pin_saved(op->drv, cancel);
	else if (engine_prepares() && find_limit())
		prepare(op);
	else if (engine_keeps_pages())
		hostpool_relax(true, cancel);
	else
		hostpool_drop(cancel);
	engine_publish();
	/* Work remains then, unless the operation that cancelled it changes that. */
	if (__atomic_load_n(cancel, __ATOMIC_RELAXED))
		__atomic_store_n(&engine.untidy, true, __ATOMIC_RELAXED);
}
