/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/turn/turn_idle.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/server.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/growth.h"
#include "common/clock.h"

#include <inttypes.h>
#include <string.h>

#define LOOK_MAX_MS  100 /* between two looks whether a call has come; less if the limit is short */
#define LOOK_MIN_MS  10
#define PROBE_MAX_MS 5000 /* the longest time between two probes of a job that makes no calls */
#define PROBE_MIN_MS \
	200 /* after one that failed, also if calls come: each may hold up a call for 20 ms */

static struct {
	double limit_ms; /* without calls */
	double since_ms; /* no call has come since; clock_ms(); 0: not looked yet */
	double probe_ms; /* after so long without calls; more than limit_ms after a probe that failed */
	bool probing;
} idle;

static double spared_ms; /* not probed before; clock_ms() */
static bool told;        /* the daemon counts the job as idle */

void turn_idle_set(double ms)
{
	idle.limit_ms = ms;
	idle.probe_ms = ms;
}

double turn_idle_look_ms(void)
{
	double ms = idle.limit_ms / 2;

	if (job_now()->lease != LEASE_OURS)
		return LOOK_MAX_MS;
	return ms < LOOK_MIN_MS ? LOOK_MIN_MS : ms > LOOK_MAX_MS ? LOOK_MAX_MS : ms;
}

static void stop(void)
{
	double limit_ms = idle.limit_ms;

	gate_unwatch();
	memset(&idle, 0, sizeof(idle));
	idle.limit_ms = limit_ms;
}

void turn_idle_forget(void)
{
	told = false;
}

void turn_idle_stop(void)
{
	told = false;
	stop();
}

/* The job runs, and nothing else is asked of it. */
static bool runs(void)
{
	const struct control_state *s = job_now();

	return s->lease == LEASE_OURS && s->rest == STATE_RUNNING && !control_wants_paused(s) &&
	       (s->activity == ACTIVITY_IDLE || s->activity == ACTIVITY_PROBING);
}

static void begin_anew(void)
{
	idle.since_ms = clock_ms();
	idle.probe_ms = idle.limit_ms;
	gate_watch();
}

/* A probe has ended. */
static void end_probe(const struct client *c)
{
	idle.probing = false;
	told = gate_is_unused() && job_came_to_rest();
	if (told) {
		server_say(c, "idle %" PRIu64, clock_us_of(clock_ms() - idle.since_ms) / 1000);
		return;
	}
	spared_ms = clock_ms() + PROBE_MIN_MS;
	if (idle.probe_ms < PROBE_MAX_MS)
		idle.probe_ms += clock_ms() - idle.since_ms;
	else
		idle.probe_ms += PROBE_MAX_MS;
}

void turn_idle_look(const struct client *c, bool watched)
{
	double now = clock_ms();

	if (!runs() || !(watched || told)) {
		if (idle.since_ms)
			stop();
		return;
	}
	if (idle.probing && job_now()->activity != ACTIVITY_PROBING)
		end_probe(c);
	if (idle.probing)
		return;
	if (told) {
		/* After something else, like a pause, it is not idle before it says so again. */
		if (!idle.since_ms || !gate_is_unused()) {
			server_say(c, "busy");
			turn_idle_stop();
		}
		return;
	}
	if (gate_is_unused() && !gate_inside(GATE_HOLD) && !gate_inside(GATE_WAIT) &&
	    !growth_waits()) {
		if (now - idle.since_ms < idle.probe_ms || now < spared_ms)
			return;
		idle.probing = true;
		job_probe();
	} else if (now - idle.since_ms >= turn_idle_look_ms()) {
		begin_anew();
	}
}
