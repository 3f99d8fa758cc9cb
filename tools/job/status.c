/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the status of a job, line by line. */
#include "tools/job/jobs.h"

#include "common/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct line_field fields[FROM_JOB] = {
	[REPORT_ID] = LINE_FIELD(job_status, id),
	[REPORT_NAME] = LINE_FIELD(job_status, name),
	[REPORT_COMMAND] = LINE_FIELD(job_status, command),
	[REPORT_STATE] = LINE_FIELD(job_status, state),
	[STATUS_REASON] = LINE_FIELD(job_status, reason),
	[STATUS_SIGNALS] = LINE_FIELD(job_status, signals),
	[STATUS_NO_TURNS] = LINE_FIELD(job_status, no_turns),
	[STATUS_CARRIED] = LINE_FIELD(job_status, carried),
	[STATUS_LEFT_TO_DRIVER] = LINE_FIELD(job_status, left_to_driver),
	[STATUS_PAUSED] = LINE_FIELD(job_status, paused),
	[STATUS_SPILLED] = LINE_FIELD(job_status, spilled),
	[STATUS_POOL] = LINE_FIELD(job_status, pool),
	[STATUS_PAUSE_BYTES] = LINE_FIELD(job_status, pause.bytes),
	[STATUS_RESUME_BYTES] = LINE_FIELD(job_status, resume.bytes),
};

static int take_gpu(struct job_status *status, const struct line *line)
{
	struct job_gpu *gpu = &status->gpus[status->ngpus];

	if (line->number[0] > 9999 || status->ngpus == JOB_GPUS)
		return -EBADMSG;
	gpu->ordinal = (int)line->number[0];
	format_copy(gpu->uuid, sizeof(gpu->uuid), line->word[0]);
	format_copy(gpu->name, sizeof(gpu->name), line->text);
	status->ngpus++;
	return 0;
}

static int take_limit(struct job_status *status, const struct line *line)
{
	struct job_gpu *gpu;

	if (!status->ngpus)
		return -EBADMSG;
	gpu = &status->gpus[status->ngpus - 1];
	gpu->limit = line->number[0];
	gpu->limit_used = line->number[1];
	return 0;
}

static int take_phase(struct job_transfer *transfer, const struct line *line)
{
	struct job_phase *phase = &transfer->phases[transfer->nphases];

	if (transfer->nphases == JOB_PHASES)
		return -EBADMSG;
	format_copy(phase->name, sizeof(phase->name), line->word[0]);
	phase->ms = line->number[0] / 1e3;
	transfer->nphases++;
	return 0;
}

/* The first figure of the last pause or resume. */
static void take_duration(struct job_transfer *transfer, const struct line *line)
{
	transfer->known = true;
	transfer->ms = line->number[0] / 1e3;
}

bool job_is_in(const struct job *job, enum job_state state)
{
	return !strcmp(job->status.state, state_names[state]);
}

int job_take_field(struct job *job, const struct line *line)
{
	struct job_status *st = &job->status;

	switch (line->id) {
	case STATUS_PROTOCOL:
		st->protocol = line->number[0] == PROTOCOL_VERSION;
		return st->protocol ? 0 : -EPROTONOSUPPORT;
	case STATUS_GPU:
		return take_gpu(st, line);
	case STATUS_LIMIT:
		return take_limit(st, line);
	case STATUS_PAUSE_PHASE:
		return take_phase(&st->pause, line);
	case STATUS_RESUME_PHASE:
		return take_phase(&st->resume, line);
	case STATUS_PAUSE_US:
		take_duration(&st->pause, line);
		break;
	case STATUS_RESUME_US:
		take_duration(&st->resume, line);
		break;
	case STATUS_ADDRESSING:
		format_copy(st->addressing, sizeof(st->addressing), line->word[0]);
		format_copy(st->addressing_why, sizeof(st->addressing_why), line->text);
		break;
	case STATUS_SNAPSHOT:
		snprintf(st->snapshot, sizeof(st->snapshot), "%s", line->text);
		break;
	case STATUS_RELEASED:
		st->released = line->number[0];
		break;
	case STATUS_FAILED_US:
		st->failed = true;
		st->failed_ms = line->number[0] / 1e3;
		break;
	case STATUS_WAITS:
		format_copy(st->waits.what, sizeof(st->waits.what), line->word[0]);
		st->waits.bytes = line->number[0];
		st->waits.ms = line->number[1] / 1e3;
		break;
	default:
		if (line->id < FROM_JOB)
			line_store(line, &fields[line->id], st);
	}
	return 0;
}
