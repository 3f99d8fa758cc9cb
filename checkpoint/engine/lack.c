/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/release/freemem.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/text.h"
#include "common/system/forks.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define ASK_AFTER_MS 900  /* before a wait is told (checkpoint/control/waits.h) */
#define ASK_AGAIN_MS 5000 /* who has the memory that is missing */

/* If the driver said that memory is missing, but not where, and the job uses one GPU: it is there. */
static struct gpu_lack guess(void)
{
	struct gpu_lack lack = {.dev = -1, .free = SIZE_MAX};
	size_t missing[GPU_MAX];

	engine_missing(missing);
	for (int dev = 0; dev < GPU_MAX; dev++) {
		size_t needed = missing[dev];

		if (engine_is_released())
			needed += release_held()[dev];
		if (!needed)
			continue;
		if (lack.dev >= 0)
			return (struct gpu_lack){.dev = -1};
		lack.dev = dev;
		lack.needed = needed;
	}
	return lack;
}

FORKS_LOCK(lock);
static char known[ENGINE_HOLDERS]; /* what engine_holders() gives */

/*
 * What @lack says, or what can be guessed: "GPU 0 (...) lacks ...; 12 (train) has 3.0 GiB", with @after before the
 * semicolon. False: nothing.
 */
static bool describe(struct gpu_lack lack, const char *after, char *text, size_t size)
{
	char amount[96], holders[160] = "";
	const struct gpu *gpu;
	size_t count;

	if (lack.error) {
		snprintf(text, size, "how much GPU memory is free cannot be asked for%s: %s", after,
			 error_text(-lack.error));
		return true;
	}
	if (lack.dev < 0)
		lack = guess();
	if (lack.dev < 0)
		return false;
	gpu = &devices_all(&count)[lack.dev];
	freemem_holders(gpu, holders, sizeof(holders));
	if (lack.free == SIZE_MAX)
		snprintf(amount, sizeof(amount),
			 "has less free than the " PRI_GIB " that are needed",
			 GIB_ARGS(lack.needed));
	else
		snprintf(amount, sizeof(amount),
			 "lacks " PRI_GIB " of the " PRI_GIB " that are needed",
			 GIB_ARGS(lack.needed - lack.free), GIB_ARGS(lack.needed));
	snprintf(text, size, "GPU %d (%s, %s) %s%s%s%s", lack.dev, gpu->name, gpu->uuid, amount,
		 after, *holders ? "; " : "", holders);
	return true;
}

static void set_known(const char *text)
{
	pthread_mutex_lock(&lock);
	snprintf(known, sizeof(known), "%s", text);
	pthread_mutex_unlock(&lock);
}

static void look(struct engine_op *op)
{
	char text[ENGINE_HOLDERS];
	double now = clock_ms();

	if (!op->waits_since_ms) {
		op->waits_since_ms = now;
		set_known("");
	}
	/* Not for every short wait: a process is made to ask. */
	if (now - op->waits_since_ms < ASK_AFTER_MS || now - op->asked_ms < ASK_AGAIN_MS)
		return;
	op->asked_ms = now;
	if (describe(engine.lack, "", text, sizeof(text)))
		set_known(text);
}

void engine_holders(char *text, size_t size)
{
	pthread_mutex_lock(&lock);
	snprintf(text, size, "%s", known);
	pthread_mutex_unlock(&lock);
}

int engine_fail_lack(struct engine_op *op)
{
	char text[ENGINE_HOLDERS], waited[FORMAT_SIZE], after[FORMAT_SIZE + 16];

	format_seconds(waited, op->timeout_ms);
	if (engine.lacks_host)
		return engine_fail(&op->result, END_TIMEOUT,
				   PRI_GIB
				   " of host memory, to read the snapshot, did not come free "
				   "within %s; the job stays paused",
				   GIB_ARGS(engine_snapshot_bytes()), waited);
	if (op->progress.pact && op->seen.phase == PACT_SEEK && engine.lack.dev < 0 &&
	    !engine.lack.error)
		return engine_fail(&op->result, END_TIMEOUT,
				   "another process of the job was not ready to take its memory "
				   "within %s; the job stays paused",
				   waited);
	snprintf(after, sizeof(after), ", after %s", waited);
	if (!describe(engine.lack, after, text, sizeof(text)))
		return engine_fail(&op->result, END_TIMEOUT,
				   PRI_GIB " of GPU memory did not come free within %s; the job "
					   "stays paused",
				   GIB_ARGS(saved_bytes(&engine.saved)), waited);
	return engine_fail(&op->result, END_TIMEOUT, "%s; the job stays paused", text);
}

int engine_wait_for_memory(struct engine_op *op, double deadline_ms, double *sleep_ms)
{
	double left_ms = deadline_ms ? deadline_ms - limits_ms() : *sleep_ms;
	double ms = left_ms < *sleep_ms ? left_ms : *sleep_ms;

	engine_set_phase(op, "memory", 0);
	__atomic_store_n(&op->progress.waiting, true, __ATOMIC_RELAXED);
	if (engine_is_cancelled(op)) {
		engine_fail(&op->result, END_BUSY, "cancelled by a later request");
		return -ECANCELED;
	}
	if (left_ms < 0)
		return -ETIME;
	look(op);
	if (!op->progress.pact)
		limits_sleep(ms);
	else if (engine_wait_for_others(op, ms))
		return -ECANCELED;
	if (*sleep_ms < 1000)
		*sleep_ms *= 2;
	return 0;
}
