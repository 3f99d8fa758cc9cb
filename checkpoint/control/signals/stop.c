/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/signals/stop.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/signals/signals.h"
#include "checkpoint/control/turn/turn.h"
#include "common/patience.h"
#include "common/settings.h"

#include <stdbool.h>
#include <stdio.h>

#define LOG_PREFIX "SIGTSTP: "
#include "common/log.h"

#define STOP_S     5     /* for the GPU to be free, unless CUDAW_TSTP_TIMEOUT is set */
#define IGNORED_MS 30000 /* that SIGSTOP may take to follow a SIGTSTP that the kernel ignores */
#define RESCUE_MS  60000 /* for the GPU to be free, if the process was continued for that */
#define LOOK_MS    50    /* between two looks whether SIGCONT has come */

static struct {
	bool on;
	bool by_turn;             /* the daemon was asked */
	struct patience patience; /* at its end the process stops, or goes on if that was ignored */
	bool ignored;
	bool surely;    /* it was stopped by SIGSTOP before */
	double free_ms; /* for the GPU to be free */
} stop;

void stop_begin(void)
{
	unsigned long seconds = STOP_S;

	if (setting_time(SETTING_TSTP_TIMEOUT, &seconds) && !seconds)
		seconds = SETTING_TIME_MAX;
	stop.free_ms = seconds * 1e3;
	signals_await_stop();
}

static double limit_ms(void)
{
	return stop.ignored ? IGNORED_MS : stop.surely ? RESCUE_MS : stop.free_ms;
}

/* By the end of the patience that began with the stop. */
static void free_gpu(void)
{
	double left = limit_ms() - patience_ms(&stop.patience);

	stop.by_turn = turn_stops(true);
	job_take(&(struct control_event){
		.kind = EV_STOP,
		.by_signal = true,
		.by_lease = stop.by_turn,
		.options = {.timeout_ms = left > 1 ? left : 1, .own_limit = true}});
	job_settle();
}

static void begin(bool surely)
{
	stop.surely = surely;
	stop.ignored = false;
	stop.patience = (struct patience){0};
	if (!stop.on)
		free_gpu();
	stop.on = true;
}

/*
 * SIGSTOP came before the GPU was free. From the daemon's SIGCONT until the GPU is, the program's own code on the
 * CPU runs, with its handler of SIGCONT.
 */
static void begin_again(void)
{
	signals_want_stop();
	begin(true);
}

static void end(void)
{
	stop.on = false;
	signals_end_stop();
	if (stop.by_turn)
		turn_stops(false);
	job_take(&(struct control_event){.kind = EV_GO_ON});
	job_settle();
}

static bool is_free(void)
{
	const struct control_state *s = job_now();

	return stop.by_turn ? turn_may_stop() : s->rest != STATE_RUNNING && !s->partly;
}

/* All is done that could be. */
static bool is_done(void)
{
	const struct control_state *s = job_now();

	if (s->activity != ACTIVITY_IDLE)
		return false;
	return is_free() || (!stop.by_turn && !control_wants_paused(s));
}

static void carry_out(void)
{
	const char *reason = job_facts().reason;
	enum signal_stop outcome;
	char late[48];

	snprintf(late, sizeof(late), "it takes longer than %d s", (int)(limit_ms() / 1000));
	if (!is_free())
		pr_err("the GPU is not free: %s; the process stops all the same",
		       *reason ? reason : late);
	outcome = signals_stop(stop.surely);
	stop.ignored = outcome == STOP_IGNORED;
	stop.patience = (struct patience){0};
	if (!stop.ignored)
		end();
}

void stop_look(void)
{
	bool late;

	if (signals_take_stop())
		begin(false);
	if (turn_take_rescue())
		begin_again();
	if (!stop.on)
		return;
	/* The daemon that was asked has gone. */
	if (stop.by_turn && !turn_is_on())
		free_gpu();
	late = patience_ms(&stop.patience) >= limit_ms();
	if (!signals_stop_is_wanted() || !job_now()->stopping || (stop.ignored && late))
		end();
	else if (!stop.ignored && (late || is_done()))
		carry_out();
}

double stop_patience_ms(void)
{
	return stop.on ? LOOK_MS : -1;
}
