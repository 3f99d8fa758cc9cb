/* SPDX-License-Identifier: Apache-2.0 */
/* The resume of several processes of one job (pact.h), as one of them sees it. */
#include "checkpoint/engine/internal.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/release/devices.h"
#include "common/clock.h"
#include "common/limits.h"

#include <errno.h>
#include <unistd.h>

#define LOOK_MS    5   /* between two looks at the others */
#define SHARERS_MS 100 /* and at those that share memory with this process, when it is whole */
#define LACK_MS \
	2000 /* how long one that does not find its memory keeps the others from giving theirs back */

/* What this process takes of each device, in all. */
static void set_needs(struct pact *pact, const size_t *needed)
{
	size_t count;
	const struct gpu *gpus = devices_all(&count);

	for (size_t dev = 0; dev < count; dev++)
		pact_set_need(pact, dev, gpus[dev].uuid,
			      needed[dev] + (engine_is_released() ? release_held()[dev] : 0));
}

/* True if the GPUs of this process have room for what all processes of the job take there. */
static bool has_room_for_all(struct engine_op *op, const size_t *needed)
{
	size_t sum[GPU_MAX] = {0}, count;
	const struct gpu *gpus = devices_all(&count);
	bool fits;

	for (size_t dev = 0; dev < count; dev++) {
		sum[dev] = needed[dev];
		if (needed[dev] || (engine_is_released() && release_held()[dev]))
			sum[dev] += pact_others_need(op->progress.pact, gpus[dev].uuid);
	}
	engine.lack = (struct gpu_lack){.dev = -1};
	fits = engine_is_released() ? release_fits(sum, &engine.lack)
				    : engine_memory_is_free(op->drv, sum);
	/* It waits for that now, not for host memory. */
	if (!fits)
		__atomic_store_n(&engine.lacks_host, false, __ATOMIC_RELAXED);
	return fits;
}

static void seek(struct engine_op *op, const size_t *needed)
{
	struct pact *pact = op->progress.pact;
	bool room;

	pact_begin_round(pact);
	set_needs(pact, needed);
	op->lacks = (struct patience){0};
	pact_say(pact, PACT_SEEKS);
	op->seen.known = pact_is_known(pact);
	/* It waits for them now, not for what a GPU lacked before. */
	if (!op->seen.known)
		engine.lack = (struct gpu_lack){.dev = -1};
	room = op->seen.known && pact_is_due(pact, clock_ms()) && has_room_for_all(op, needed);
	if (room)
		pact_say(pact, PACT_ROOM);
}

bool engine_may_take(struct engine_op *op, const size_t *needed)
{
	struct pact *pact = op->progress.pact;

	if (!pact)
		return true;
	if (pact_look(pact) == PACT_SEEK)
		seek(op, needed);
	op->seen.phase = pact_look(pact);
	return op->seen.phase == PACT_TAKE && !pact_is_called_back(pact);
}

void engine_say(const struct engine_op *op, enum pact_says says)
{
	if (op->progress.pact)
		pact_say(op->progress.pact, says);
}

/* In the phase TAKE. Those that take their memory for the first time get further: that may take its time. */
static void lack(struct engine_op *op)
{
	struct pact *pact = op->progress.pact;

	if (pact_others_take(pact))
		op->lacks = (struct patience){0};
	if (patience_ms(&op->lacks) > LACK_MS)
		pact_call_back(pact);
}

/* Since engine_may_take() looked, which may be before this wait began. */
static bool has_news(const struct engine_op *op, enum pact_phase phase)
{
	const struct pact *pact = op->progress.pact;

	return phase != op->seen.phase || pact_is_called_back(pact) ||
	       pact_is_known(pact) != op->seen.known;
}

int engine_wait_for_others(struct engine_op *op, double ms)
{
	double until = clock_ms() + ms;
	enum pact_phase phase;

	do {
		usleep(LOOK_MS * 1000);
		phase = pact_look(op->progress.pact);
		if (phase == PACT_STOP)
			return engine_fail(&op->result, END_BUSY, ENGINE_ALONE);
		if (phase == PACT_TAKE)
			lack(op);
	} while (!has_news(op, phase) && !engine_is_cancelled(op) && clock_ms() < until);
	return 0;
}

bool engine_is_called_back(const struct engine_op *op)
{
	const struct pact *pact = op->progress.pact;

	return pact && !engine_is_cancelled(op) && pact_is_called_back(pact);
}

/* Those that share memory with this process, and are in no pact or in another one, may give up still. */
static int look_at_sharers(struct engine_op *op, double *looked_ms)
{
	int ret;

	if (clock_ms() - *looked_ms < SHARERS_MS)
		return 0;
	ret = engine_meet_again(op);
	*looked_ms = clock_ms();
	if (ret != -EAGAIN)
		return ret;
	pact_call_back(op->progress.pact);
	return 0;
}

static int fail_late(struct engine_op *op)
{
	char waited[FORMAT_SIZE];

	return engine_fail(&op->result, END_TIMEOUT,
			   "another process of the job did not have its memory within %s; the job "
			   "stays paused",
			   format_seconds(waited, op->timeout_ms));
}

int engine_go_with_others(struct engine_op *op, double deadline_ms)
{
	struct pact *pact = op->progress.pact;
	double looked_ms = clock_ms();
	enum pact_phase phase;

	pact_say(pact, PACT_WHOLE);
	while ((phase = pact_look(pact)) != PACT_GO) {
		bool late = deadline_ms && limits_ms() > deadline_ms + ENGINE_WHOLE_MS;

		if (phase == PACT_STOP || pact_is_called_back(pact))
			return engine_fail(&op->result, END_BUSY, ENGINE_ALONE);
		if (engine_is_cancelled(op) && pact_stop(pact))
			return engine_fail(&op->result, END_BUSY, ENGINE_ALONE);
		if (late && pact_stop(pact))
			return fail_late(op);
		if (look_at_sharers(op, &looked_ms) && pact_stop(pact))
			return -1;
		usleep(LOOK_MS * 1000);
	}
	return 0;
}
