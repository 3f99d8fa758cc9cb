/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/together.h"

#include "common/clock.h"
#include "tools/job/coordinate.h"
#include "tools/job/outcome.h"
#include "tools/report/progress.h"
#include "tools/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define AGAIN_MS 30000 /* without a time limit: how long a pause is asked for again */
#define RUN_MS   100   /* between two requests, so that the job gets on */

static double tick(struct job **jobs, size_t n)
{
	return coordinate_tick(jobs, n, jobs_show_progress(jobs, n));
}

static bool waits_for_turn(const struct job *job)
{
	return !job->error && job->end == END_TURN;
}

/* The exit code of the first that failed by itself, after a message. */
static int explain(struct job **jobs, size_t n, const char *verb, bool turns)
{
	char text[PROTOCOL_MESSAGE];
	int code = EXIT_DONE;

	for (size_t i = 0; i < n && !code; i++) {
		if (outcome_is_good(jobs[i]) || coordinate_gave_up(jobs[i]) ||
		    (!turns && waits_for_turn(jobs[i])))
			continue;
		code = outcome_explain(jobs[i], text, sizeof(text));
		complain("%s %s: %s", verb, outcome_label(jobs[i]), text);
	}
	return code;
}

/* Ask them once. 0, or -ENOMEM after a message; coordinate_end() follows. */
static int ask(struct job **jobs, size_t n, const struct job_request *request, bool resume,
	       const char *doing)
{
	int err = coordinate_begin(jobs, n, resume);

	if (err) {
		complain("out of memory");
		return err;
	}
	progress_begin(doing);
	jobs_ask(jobs, n, request);
	progress_end();
	return 0;
}

static void (*hold_interrupts)(bool on);

static double pause_tick(struct job **jobs, size_t n)
{
	double look_ms;

	hold_interrupts(true);
	look_ms = tick(jobs, n);
	if (!coordinate_has_agreed(jobs[0]))
		hold_interrupts(false);
	return look_ms;
}

int together_pause(struct job **jobs, size_t n, const char *verb, double timeout_ms,
		   void (*hold)(bool on))
{
	double end_ms = clock_ms() + (timeout_ms ? timeout_ms : AGAIN_MS);
	char text[64], party_text[64], limit[32] = "";
	const struct job_request request = {.text = text,
					    .party_text = party_text,
					    .line = outcome_line,
					    .tick = pause_tick,
					    .limit_ms = OUTCOME_SILENCE_MS,
					    .silence = true};

	hold_interrupts = hold;
	if (timeout_ms)
		snprintf(limit, sizeof(limit), " %.0f", timeout_ms);
	snprintf(text, sizeof(text), "pause%s all", limit);
	snprintf(party_text, sizeof(party_text), "hold%s all", limit);
	for (;;) {
		bool again;
		int code;

		if (ask(jobs, n, &request, false, "pausing"))
			return EXIT_FAILED;
		coordinate_mend(jobs, n, OUTCOME_SILENCE_MS);
		again = clock_ms() < end_ms && coordinate_asks_again(jobs, n, jobs[0]);
		code = again ? EXIT_DONE : explain(jobs, n, verb, true);
		coordinate_end(jobs, n);
		if (!again)
			return code;
		usleep(RUN_MS * 1000);
	}
}

/* They run together when they get their turn: wait for that. */
static void await_turn(struct job **jobs, size_t n, const struct job_request *request)
{
	struct job **again = calloc(n + 1, sizeof(*again));
	size_t count = 0;

	for (size_t i = 0; again && i < n; i++)
		if (waits_for_turn(jobs[i]))
			again[count++] = jobs[i];
	if (count)
		jobs_ask(again, count, request);
	free(again);
}

int together_resume(struct job **jobs, size_t n, const char *verb, const char *doing, bool turns,
		    int (*line)(struct job *job, const struct line *line))
{
	const struct job_request request = {.text = "resume",
					    .party_text = "regain",
					    .line = line,
					    .tick = tick,
					    .limit_ms = OUTCOME_SILENCE_MS,
					    .silence = true};
	const struct job_request alone = {.text = "resume",
					  .line = line,
					  .tick = jobs_show_progress,
					  .limit_ms = OUTCOME_SILENCE_MS,
					  .silence = true};
	int code;

	if (ask(jobs, n, &request, true, doing))
		return EXIT_FAILED;
	progress_begin(doing);
	if (turns)
		await_turn(jobs, n, &alone);
	progress_end();
	code = explain(jobs, n, verb, turns);
	coordinate_end(jobs, n);
	return code;
}
