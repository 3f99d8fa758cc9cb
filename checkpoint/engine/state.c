/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/host/spill.h"
#include "common/clock.h"
#include "common/trace/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TELL_BYTES (256UL << 20) /* between two reports of what has moved */

struct engine engine = {.place = {.dir = OWNFD_NONE}, .lack = {.dev = -1}};

size_t engine_paused_bytes(void)
{
	return __atomic_load_n(&engine.host, __ATOMIC_RELAXED);
}

size_t engine_spilled_bytes(void)
{
	return __atomic_load_n(&engine.spilled, __ATOMIC_RELAXED);
}

size_t engine_saved_bytes(void)
{
	size_t bytes = engine_paused_bytes() + engine_spilled_bytes();

	return !bytes && engine_snapshot_dir() ? engine_snapshot_bytes() : bytes;
}

size_t engine_pool_bytes(void)
{
	return __atomic_load_n(&engine.pool, __ATOMIC_RELAXED);
}

bool engine_is_paused(void)
{
	return __atomic_load_n(&engine.out, __ATOMIC_RELAXED) >= OUT_PART;
}

bool engine_is_partly_out(void)
{
	return __atomic_load_n(&engine.out, __ATOMIC_RELAXED) == OUT_PART;
}

bool engine_is_released(void)
{
	return __atomic_load_n(&engine.out, __ATOMIC_RELAXED) == OUT_RELEASED;
}

bool engine_keeps_context(void)
{
	enum engine_out out = __atomic_load_n(&engine.out, __ATOMIC_RELAXED);

	return out == OUT_PART || out == OUT_MEMORY;
}

bool engine_is_off_gpu(void)
{
	return __atomic_load_n(&engine.out, __ATOMIC_RELAXED) >= OUT_ALL && !release_is_locked();
}

const char *engine_snapshot_dir(void)
{
	return __atomic_load_n(&engine.placed, __ATOMIC_ACQUIRE) ? engine.place.path : NULL;
}

size_t engine_snapshot_bytes(void)
{
	return engine.snapshot_slots * VMEM_GRANULE;
}

bool engine_lacks_host(void)
{
	return __atomic_load_n(&engine.lacks_host, __ATOMIC_RELAXED);
}

bool engine_is_out(void)
{
	return engine.out == OUT_RELEASED ||
	       (engine.out >= OUT_PART && !saved_mapped_bytes(&engine.saved));
}

void engine_set_out(enum engine_out out)
{
	__atomic_store_n(&engine.out, out, __ATOMIC_RELAXED);
}

enum engine_out engine_memory_out(void)
{
	if (engine.saved.in)
		return OUT_PART;
	return engine.saved.contexts.count ? OUT_MEMORY : OUT_ALL;
}

int engine_fail(struct engine_result *result, enum end_code code, const char *fmt, ...)
{
	va_list ap;

	result->code = code;
	va_start(ap, fmt);
	vsnprintf(result->message, sizeof(result->message), fmt, ap);
	va_end(ap);
	return -1;
}

const char *engine_error_name(const struct cuda_driver *drv, CUresult error)
{
	const char *name = NULL;

	drv->cuGetErrorName(error, &name);
	return name ? name : "unknown error";
}

int engine_fail_driver(struct engine_result *result, const struct cuda_driver *drv,
		       const char *what, CUresult error)
{
	return engine_fail(result, END_FAILED, "%s: %s", what, engine_error_name(drv, error));
}

bool engine_is_cancelled(const struct engine_op *op)
{
	return __atomic_load_n(&op->progress.cancel, __ATOMIC_RELAXED);
}

int engine_fail_off(struct engine_op *op)
{
	return engine_fail(&op->result, END_BUSY,
			   engine_is_cancelled(op) ? "cancelled by a later request" : ENGINE_ALONE);
}

int engine_fail_wait(struct engine_op *op, const char *what, const char *advice)
{
	char waited[FORMAT_SIZE];

	if (engine_is_cancelled(op))
		return engine_fail(&op->result, END_BUSY,
				   "cancelled: a resume was asked for, or the process exits");
	return engine_fail(&op->result, END_TIMEOUT, "%s within %s; the job runs on%s", what,
			   format_seconds(waited, op->timeout_ms), advice);
}

/* A phase that came before gets the sum of the times. */
static void time_phase(struct engine_result *r, const char *name, double ms)
{
	size_t i = 0;

	while (i < r->nphases && strcmp(r->phases[i].name, name))
		i++;
	if (i < r->nphases)
		r->phases[i].ms += ms;
	else if (i < ENGINE_PHASES)
		r->phases[r->nphases++] = (struct engine_phase){name, ms};
}

void engine_end_phase(struct engine_op *op)
{
	if (op->phase)
		time_phase(op->timed, op->phase, clock_ms() - op->phase_start_ms);
	op->phase = NULL;
}

void engine_add_phase(struct engine_op *op, const char *phase, double ms)
{
	if (ms <= 0)
		return;
	time_phase(op->timed, phase, ms);
	op->phase_start_ms += ms;
}

void engine_set_phase(struct engine_op *op, const char *phase, size_t total)
{
	struct engine_progress *progress = &op->progress;

	engine_end_phase(op);
	op->phase = phase;
	op->phase_start_ms = clock_ms();
	__atomic_store_n(&progress->done, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&progress->total, total, __ATOMIC_RELAXED);
	__atomic_store_n(&progress->phase, phase, __ATOMIC_RELEASE);
	trace_phase(phase);
}

void engine_has_moved(struct engine_op *op, size_t bytes, bool now)
{
	__atomic_store_n(&op->progress.moved, bytes, __ATOMIC_RELAXED);
	if (bytes == op->told || (!now && bytes - op->told < TELL_BYTES))
		return;
	op->told = bytes;
	op->progress.tell();
}

void engine_begin(struct engine_op *op, struct engine_result *result)
{
	memset(result, 0, sizeof(*result));
	op->told = 0;
	op->timed = result;
	op->phase = NULL;
}

void engine_succeed(struct engine_op *op, double start, size_t bytes)
{
	struct engine_result *result = op->timed;

	engine_end_phase(op);
	result->code = END_OK;
	*result->message = '\0';
	result->bytes = bytes;
	result->ms = clock_ms() - start;
}

void engine_publish(void)
{
	if (engine.out >= OUT_PART && engine.out < OUT_RELEASED)
		engine_set_out(engine_memory_out());
	__atomic_store_n(&engine.host, saved_host_bytes(&engine.saved), __ATOMIC_RELAXED);
	__atomic_store_n(&engine.spilled, saved_spilled_bytes(&engine.saved), __ATOMIC_RELAXED);
	__atomic_store_n(&engine.pool, hostpool_held(0), __ATOMIC_RELAXED);
}

void engine_forget(void)
{
	saved_forget(&engine.saved);
	spill_close();
	engine_publish();
	__atomic_store_n(&engine.untidy, hostpool_count() > 0, __ATOMIC_RELAXED);
}
