/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"
#include "common/text.h"
#include "tools/job/jobs.h"
#include "tools/report/progress.h"

#include <stdio.h>
#include <string.h>

void job_progress_take(struct job *job, const struct line *line)
{
	struct job_progress *progress = &job->progress;
	char phase[sizeof(progress->phase)];

	format_copy(phase, sizeof(phase), line->word[0]);
	progress->done = line->number[0];
	progress->total = line->number[1];
	/* Each phase moves bytes at a rate of its own. */
	if (!progress->any || strcmp(phase, progress->phase) != 0) {
		strcpy(progress->phase, phase);
		progress->first_done = progress->done;
		progress->first_ms = clock_ms();
		progress->any = true;
	}
}

double jobs_show_progress(struct job **jobs, size_t n)
{
	const struct job *first = NULL;
	uint64_t done = 0, total = 0;
	double rate = 0, now = clock_ms();
	char who[64];

	if (!progress_is_due())
		return PROGRESS_MS;
	for (size_t i = 0; i < n; i++) {
		const struct job_progress *progress = &jobs[i]->progress;

		done += progress->done;
		total += progress->total;
		if (jobs[i]->fd < 0)
			continue;
		if (!first)
			first = jobs[i];
		if (progress->done > progress->first_done && now > progress->first_ms)
			rate += (progress->done - progress->first_done) /
				(now - progress->first_ms);
	}
	if (n > 1)
		snprintf(who, sizeof(who), "%zu processes", n);
	else
		snprintf(who, sizeof(who), "%d", jobs[0]->pid);
	if (first && !strcmp(first->progress.phase, "waiting") && first->progress.waiting[0])
		progress_text(who, first->progress.waiting);
	else
		progress_phase(who, first ? first->progress.phase : "", done, total, rate);
	return PROGRESS_MS;
}
