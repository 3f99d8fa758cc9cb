/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/party/together.h"

#include "common/clock.h"
#include "tools/job/party/coordinate.h"
#include "tools/job/outcome.h"
#include "tools/report/progress.h"
#include "tools/report/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GRACE_MS    2000  /* beside a limit, which the job itself keeps */
#define AGAIN_MS    30000 /* without a limit: how long a pause is asked for again */
#define RUN_MS      100 /* between two requests; twice as long each time, so that the job gets on */
#define RUN_MOST_MS 800
#define LENT        "snapshot" /* until this process is done */

/* To a process, and to one that has a party. */
static const struct {
	const char *alone, *party;
} requests[] = {
	[TOGETHER_PAUSE] = {"pause", "hold"},
	[TOGETHER_RESUME] = {"resume", "regain"},
	[TOGETHER_TRIM] = {"trim", "trim"},
};

double together_tick(struct job **jobs, size_t n)
{
	return coordinate_tick(jobs, n, jobs_show_progress(jobs, n));
}

bool together_waits_for_turn(const struct job *job)
{
	return !job->error && job->end == END_TURN && !coordinate_gave_up(job);
}

struct job_transfer *together_moved(enum together_what what, struct job *job)
{
	return what == TOGETHER_PAUSE ? &job->status.pause : &job->status.resume;
}

/* Ask them once; @timeout_ms: what is left of the limit, or 0. */
static void ask(struct job **jobs, size_t n, const struct together *how, double timeout_ms)
{
	char text[64], party_text[64], timeout[32] = "";
	const char *before = how->release ? " " : "", *release = how->release ? how->release : "";
	struct job_request request = {.text = text,
				      .party_text = party_text,
				      .line = how->line,
				      .tick = how->tick,
				      .limit_ms = how->silence_ms,
				      .silence = true};

	if (timeout_ms)
		snprintf(timeout, sizeof(timeout), " %.0f", timeout_ms);
	if (timeout_ms && timeout_ms + GRACE_MS < request.limit_ms)
		request.limit_ms = timeout_ms + GRACE_MS;
	snprintf(text, sizeof(text), "%s%s%s%s", requests[how->what].alone, timeout, before,
		 release);
	snprintf(party_text, sizeof(party_text), "%s%s%s%s", requests[how->what].party, timeout,
		 before, release);
	/* The figures of an earlier operation are not the outcome of this one. */
	for (size_t i = 0; i < n; i++)
		*together_moved(how->what, jobs[i]) = (struct job_transfer){0};
	progress_begin(how->doing);
	jobs_ask(jobs, n, &request);
	progress_end();
}

/*
 * Bring those to the front that are to be asked again: they cannot pause now, but soon; or they wait for their
 * turn, and the next request waits with them. Returns how many there are.
 */
static size_t find_again(struct job **jobs, size_t n, bool pauses)
{
	size_t again = 0;

	for (size_t i = 0; i < n; i++)
		if (pauses ? coordinate_asks_again(jobs, n, jobs[i])
			   : together_waits_for_turn(jobs[i])) {
			struct job *job = jobs[i];

			jobs[i] = jobs[again];
			jobs[again++] = job;
		}
	return again;
}

int together_ask(struct job **jobs, size_t n, const struct together *how)
{
	const bool pauses = how->what == TOGETHER_PAUSE, resumes = how->what == TOGETHER_RESUME;
	double timeout_ms = how->timeout_ms;
	double end_ms = clock_ms() + (timeout_ms ? timeout_ms : AGAIN_MS), left_ms;
	bool alone = how->what == TOGETHER_TRIM,
	     lends = how->release && !strcmp(how->release, LENT);
	enum coordinate_what what = resumes ? COORDINATE_RESUME
				    : lends ? COORDINATE_LEND
					    : COORDINATE_PAUSE;

	for (useconds_t run_ms = RUN_MS;; run_ms += run_ms < RUN_MOST_MS ? run_ms : 0) {
		size_t again = 0;
		int err = alone ? 0 : coordinate_begin(jobs, n, what);

		if (err)
			return err;
		ask(jobs, n, how, timeout_ms);
		if (pauses && !how->once)
			coordinate_mend(jobs, n, OUTCOME_SILENCE_MS);
		if (!how->once && !alone && (resumes || clock_ms() < end_ms))
			again = find_again(jobs, n, pauses);
		how->report(how->arg, jobs + again, n - again);
		coordinate_end(jobs, n);
		if (!again)
			return 0;
		n = again;
		alone = resumes;
		if (pauses)
			usleep(run_ms * 1000);
		left_ms = end_ms - clock_ms();
		if (timeout_ms)
			timeout_ms = left_ms > RUN_MS ? left_ms : RUN_MS;
	}
}

/* What a command that does more than this says of the first failure. */
struct failure {
	const char *verb;
	bool turns; /* waiting for a turn is one */
	int code;
};

static void explain(void *arg, struct job **jobs, size_t n)
{
	struct failure *failure = arg;
	char text[PROTOCOL_MESSAGE];

	for (size_t i = 0; i < n && !failure->code; i++) {
		if (outcome_is_good(jobs[i]) || coordinate_gave_up(jobs[i]) ||
		    (!failure->turns && together_waits_for_turn(jobs[i])))
			continue;
		failure->code = outcome_explain(jobs[i], text, sizeof(text));
		complain("%s %s: %s", failure->verb, outcome_label(jobs[i]), text);
	}
}

static int ask_for(struct job **jobs, size_t n, struct together *how, struct failure *failure)
{
	how->silence_ms = OUTCOME_SILENCE_MS;
	how->report = explain;
	how->arg = failure;
	return together_ask(jobs, n, how) ? EXIT_FAILED : failure->code;
}

static void (*hold_interrupts)(bool on);

static double pause_tick(struct job **jobs, size_t n)
{
	double look_ms;

	hold_interrupts(true);
	look_ms = together_tick(jobs, n);
	if (!coordinate_has_agreed(jobs[0]))
		hold_interrupts(false);
	return look_ms;
}

int together_pause(struct job **jobs, size_t n, const char *verb, double timeout_ms,
		   void (*hold)(bool on))
{
	struct failure failure = {.verb = verb, .turns = true};
	struct together how = {.what = TOGETHER_PAUSE,
			       .doing = "pausing",
			       .release = LENT,
			       .timeout_ms = timeout_ms,
			       .line = outcome_line,
			       .tick = pause_tick};

	hold_interrupts = hold;
	return ask_for(jobs, n, &how, &failure);
}

int together_resume(struct job **jobs, size_t n, const char *verb, const char *doing, bool turns,
		    int (*line)(struct job *job, const struct line *line))
{
	struct failure failure = {.verb = verb, .turns = turns};
	struct together how = {.what = TOGETHER_RESUME,
			       .doing = doing,
			       .once = !turns,
			       .line = line,
			       .tick = together_tick};

	return ask_for(jobs, n, &how, &failure);
}
