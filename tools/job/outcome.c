/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/outcome.h"

#include "common/text.h"
#include "tools/job/party/coordinate.h"
#include "tools/report/progress.h"
#include "tools/report/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *outcome_label(const struct job *job)
{
	static char buf[160];

	if (job->status.name[0])
		snprintf(buf, sizeof(buf), "%d (%s)", job->pid, job->status.name);
	else
		snprintf(buf, sizeof(buf), "%d", job->pid);
	return buf;
}

int outcome_line(struct job *job, const struct line *line)
{
	switch (line->id) {
	case REPORT_PROGRESS:
		job_progress_take(job, line);
		return 0;
	case STATUS_WAITING:
		format_copy(job->progress.waiting, sizeof(job->progress.waiting), line->text);
		return 0;
	case REPORT_HELD:
	case REPORT_COMMS:
		return coordinate_take(job, line);
	case REPORT_READY:
		job->ready = true;
		strcpy(job->status.state, state_names[STATE_RUNNING]);
		return 0;
	case REPORT_NOTE:
		format_copy(job->note, sizeof(job->note), line->text);
		return 0;
	default:
		return job_take_field(job, line);
	}
}

static int exit_code_of(enum end_code end)
{
	static const int codes[ENDS] = {[END_TIMEOUT] = EXIT_TIMEOUT,
					[END_DENIED] = EXIT_DENIED,
					[END_UNSUPPORTED] = EXIT_UNSUPPORTED};

	return codes[end] ? codes[end] : EXIT_FAILED;
}

bool outcome_is_good(const struct job *job)
{
	if (job->error)
		return job->ready && (job->error == -ECONNRESET || job->error == -JOB_LEFT);
	return job->end == END_OK;
}

int outcome_explain(const struct job *job, char *text, size_t size)
{
	if (job_is_silent(job) && job_is_stopped(job)) {
		snprintf(text, size, OUTCOME_STOPPED);
		return EXIT_FAILED;
	}
	if (job->error == -ETIMEDOUT) {
		snprintf(text, size, "no answer; the request may still succeed, see 'cudaw ps'");
		return EXIT_TIMEOUT;
	}
	if (job->error == -EACCES || job->error == -EPERM) {
		snprintf(text, size, "not permitted");
		return EXIT_DENIED;
	}
	if (job->error) {
		snprintf(text, size, "%s", job_error_text(job->error));
		return job_is_silent(job) ? EXIT_TIMEOUT : EXIT_FAILED;
	}
	snprintf(text, size, "%s", job->message[0] ? job->message : end_names[job->end]);
	return exit_code_of(job->end);
}

static int ask(struct job **jobs, size_t n, const char *verb, const char *doing,
	       const char *request, int (*line)(struct job *job, const struct line *line))
{
	struct job_request ask = {
		.text = request,
		.line = line,
		.tick = jobs_show_progress,
		.limit_ms = OUTCOME_SILENCE_MS,
		.silence = true,
	};
	char text[PROTOCOL_MESSAGE];
	int code = EXIT_DONE;

	for (size_t i = 0; i < n; i++)
		jobs[i]->note[0] = '\0';
	progress_begin(doing);
	jobs_ask(jobs, n, &ask);
	progress_end();
	for (size_t i = 0; i < n; i++) {
		int one;

		if (outcome_is_good(jobs[i]))
			continue;
		one = outcome_explain(jobs[i], text, sizeof(text));
		if (verb)
			complain("%s %s: %s", verb, outcome_label(jobs[i]), text);
		code = code ? code : one;
	}
	return code;
}

int outcome_ask(struct job *job, const char *verb, const char *doing, const char *request)
{
	return ask(&job, 1, verb, doing, request, outcome_line);
}

int outcome_ask_each(struct job **jobs, size_t n, const char *verb, const char *doing,
		     int (*line)(struct job *job, const struct line *line))
{
	int code = ask(jobs, n, verb, doing, NULL, line);

	for (size_t i = 0; i < n; i++)
		jobs[i]->request = NULL;
	return code;
}
