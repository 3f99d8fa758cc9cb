/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTCOME_H
#define CUDAW_OUTCOME_H
/* How a request to a job ends: the lines of its answer, and the failure in words. */
#include "tools/job/jobs.h"

/* How long a job may stay silent: one that pauses or resumes reports ten times a second. */
#define OUTCOME_SILENCE_MS 10000

#define OUTCOME_STOPPED "it is stopped; SIGCONT, 'cudaw resume' or its debugger continues it"

/* "1234 (train)", in a static buffer. */
const char *outcome_label(const struct job *job);

/* The line function of struct job_request for a request that has an outcome. */
int outcome_line(struct job *job, const struct line *line);

/* True if the job did what the request asks, or did it and has ended since. */
bool outcome_is_good(const struct job *job);

/* Why a request failed for @job, in @text. Returns the exit code. */
int outcome_explain(const struct job *job, char *text, size_t size);

/*
 * Send @request to one job and wait for its end, with the progress shown as @doing. Returns an exit
 * code; a failure has been printed, after @verb.
 */
int outcome_ask(struct job *job, const char *verb, const char *doing, const char *request);

/*
 * The same for @n of them at once, each with its job->request, which is cleared, and with a line function that calls
 * outcome_line(). @verb NULL: nothing is printed. Returns the exit code of the first failure.
 */
int outcome_ask_each(struct job **jobs, size_t n, const char *verb, const char *doing,
		     int (*line)(struct job *job, const struct line *line));

#endif
