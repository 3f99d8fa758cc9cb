/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/waits.h"
#include "checkpoint/control/answers.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/turn/turn.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/gate/growth.h"
#include "common/clock.h"
#include "common/system/forks.h"
#include "common/log.h"
#include "common/protocol/protocol.h"
#include "common/text.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

#define WAITS_TEXT 512
#define CALM_MS    300  /* without a wait of an allocation, which may try again: it is over */
#define WHOM_MS    2000 /* more, until a wait is told of which nobody knows who has the memory */

enum kind { NOTHING, TURN, MEMORY, ALLOCATION };

static const char *const words[] = {
	[TURN] = "turn", [MEMORY] = "memory", [ALLOCATION] = "allocation"};

static struct {
	enum kind kind;
	size_t bytes;
	double since_ms, seen_ms; /* clock_ms(); seen: when the job was found to wait last */
	bool told;
} wait;

static double longest_ms; /* that was told */
static double paused_ms;  /* clock_ms(): since when the job is paused, as was told; 0: it is not */
static bool resumed;      /* it was to go on since that was told, and has not */

static void forget_in_child(void)
{
	wait.kind = NOTHING;
	wait.told = false;
	paused_ms = 0;
	resumed = false;
}
FORKS_CHILD(forget_in_child);

/* A process image that is restored may run by another machine's clock. */
static double ms_since(double begin)
{
	double ms = clock_ms() - begin;

	return ms > 0 ? ms : 0;
}

static enum kind look(size_t *bytes)
{
	struct growth growth;

	*bytes = engine_saved_bytes();
	if (job_state() == STATE_WAITING && job_now()->lease != LEASE_OURS)
		return turn_is_asked_for() ? TURN : NOTHING; /* it may be idle */
	if (job_state() == STATE_WAITING)
		return engine_lacks_host() ? NOTHING : MEMORY; /* not of the GPU */
	if (job_state() != STATE_RUNNING || !growth_waiting(&growth))
		return NOTHING;
	*bytes = growth.bytes;
	return ALLOCATION;
}

static void describe(char *text, size_t size)
{
	char bytes[FORMAT_SIZE], holders[ENGINE_HOLDERS] = "";
	const char *behind = turn_behind();

	format_bytes(bytes, wait.bytes);
	if (wait.kind == MEMORY)
		engine_holders(holders, sizeof(holders));
	switch (wait.kind) {
	case TURN:
		if (*turn_unfit()) {
			snprintf(text, size,
				 "waits for memory that no turn can give it: its job %s",
				 turn_unfit());
			return;
		}
		snprintf(text, size, "waits for its turn on the GPU%s%s%s%s%s%s",
			 wait.bytes ? ", and for " : "",
			 wait.bytes && engine_is_released() ? "its context and " : "",
			 wait.bytes ? bytes : "", *behind ? ", which " : "", behind,
			 *behind ? " has" : "");
		return;
	case ALLOCATION:
		snprintf(text, size, "an allocation of %s waits for GPU memory%s%s%s", bytes,
			 *behind ? ", which " : "", behind, *behind ? " has" : "");
		return;
	case MEMORY:
		snprintf(text, size, "resume: waits for %s of GPU memory%s%s%s", bytes,
			 engine_is_released() ? ", and for the memory of the context" : "",
			 *holders ? "; " : "", holders);
		return;
	case NOTHING:
		*text = '\0';
	}
}

static double told_after_ms(void)
{
	return 2 * longest_ms > WAITS_TOLD_MS ? 2 * longest_ms : WAITS_TOLD_MS;
}

/* When it is to be told. */
static double due_ms(void)
{
	char holders[ENGINE_HOLDERS];

	if (wait.kind == MEMORY)
		engine_holders(holders, sizeof(holders));
	else
		snprintf(holders, sizeof(holders), "%s", turn_behind());
	return wait.since_ms + told_after_ms() + (*holders ? 0 : WHOM_MS);
}

static void end_wait(void)
{
	char lasted[FORMAT_SIZE];
	double ms = wait.seen_ms - wait.since_ms;

	if (wait.told && ms > longest_ms)
		longest_ms = ms;
	if (wait.told && job_state() == STATE_RUNNING)
		log_notice("goes on, after %s", format_duration(lasted, ms));
	wait.kind = NOTHING;
	wait.told = false;
}

/* By its user, and not for a snapshot. */
static void look_for_pause(void)
{
	const struct control_state *s = job_now();
	char text[FORMAT_SIZE];

	if ((!paused_ms || (resumed && !s->stopping)) && job_state() == STATE_PAUSED &&
	    control_wants_paused(s) && s->snapshot == SNAPSHOT_NONE) {
		log_notice("%s, with %s of GPU memory; 'cudaw resume' lets it go on",
			   paused_ms ? "stays paused" : "paused",
			   format_bytes(text, engine_saved_bytes()));
		paused_ms = paused_ms ? paused_ms : clock_ms();
		resumed = false;
	} else if (paused_ms && job_state() == STATE_RUNNING) {
		log_notice("goes on, after a pause of %s",
			   format_duration(text, ms_since(paused_ms)));
		paused_ms = 0;
		wait.told = resumed = false;
	} else if (paused_ms && !control_wants_paused(s)) {
		resumed = true;
	}
}

static void follow(void)
{
	double now = clock_ms();
	char text[WAITS_TEXT];
	size_t bytes;
	enum kind kind = look(&bytes);

	look_for_pause();
	if (kind != NOTHING) {
		if (wait.kind == NOTHING)
			wait.since_ms = now;
		wait.kind = kind;
		wait.bytes = bytes;
		wait.seen_ms = now;
	} else if (wait.kind != NOTHING && job_state() != STATE_RESUMING &&
		   (wait.kind != ALLOCATION || now - wait.seen_ms > CALM_MS)) {
		end_wait();
	}
	if (wait.kind == NOTHING || wait.told || now < due_ms())
		return;
	wait.told = true;
	describe(text, sizeof(text));
	log_notice("%s; 'cudaw ps' shows more", text);
}

double waits_patience_ms(void)
{
	double now = clock_ms(), left = INFINITY;

	if (wait.kind == NOTHING || job_state() == STATE_RESUMING)
		return -1;
	if (wait.kind == ALLOCATION)
		left = wait.seen_ms + CALM_MS - now;
	if (!wait.told && due_ms() - now < left)
		left = due_ms() - now;
	if (isinf(left))
		return -1;
	return left > 0 ? left : 0;
}

/* Returns its word, with the words that say it in @text; NULL: it does not wait. */
static const char *look_now(char text[WAITS_TEXT])
{
	follow();
	if (wait.kind == NOTHING || job_state() == STATE_RESUMING)
		return NULL;
	describe(text, WAITS_TEXT);
	return words[wait.kind];
}

void waits_look(void)
{
	char text[WAITS_TEXT];

	if (look_now(text))
		answers_wait(text);
}

const struct answers_facts *waits_facts(void)
{
	static struct answers_facts f;
	static char text[WAITS_TEXT];
	bool ours = job_now()->lease == LEASE_OURS;

	f = job_facts();
	f.no_turns = turn_why_not();
	f.waits = look_now(text);
	f.waits_bytes = wait.bytes;
	f.waits_ms = ms_since(wait.since_ms);
	/* A yield or a fill that failed says why the turn does not come. */
	if (f.waits && !(f.state == STATE_WAITING && !ours && *f.reason)) {
		f.reason = text;
	} else if (f.state == STATE_WAITING && ours && engine_lacks_host()) {
		snprintf(text, sizeof(text),
			 "resume: waits for " PRI_GIB " of host memory, to read the snapshot",
			 GIB_ARGS(engine_snapshot_bytes()));
		f.reason = text;
	}
	if (f.reason == text)
		f.failed_for_ms = 0;
	return &f;
}
