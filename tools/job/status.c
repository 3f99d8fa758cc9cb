/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the status of a job, line by line. */
#include "tools/job/jobs.h"

#include "common/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON's numbers are signed. */
static int take_number(const char *text, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EBADMSG;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno || *end || *value > INT64_MAX ? -EBADMSG : 0;
}

/* ORDINAL UUID NAME */
static int take_gpu(struct job_status *status, char *value)
{
	struct job_gpu *gpu = &status->gpus[status->ngpus];
	char *uuid = strchr(value, ' ');
	char *name = uuid ? strchr(uuid + 1, ' ') : NULL;
	uint64_t ordinal;

	if (!name || status->ngpus == JOB_GPUS)
		return -EBADMSG;
	*uuid++ = *name++ = '\0';
	if (take_number(value, &ordinal) || ordinal > 9999)
		return -EBADMSG;
	gpu->ordinal = ordinal;
	format_copy(gpu->uuid, sizeof(gpu->uuid), uuid);
	format_copy(gpu->name, sizeof(gpu->name), name);
	status->ngpus++;
	return 0;
}

/* WORD [WHY...] */
static int take_addressing(struct job_status *status, char *value)
{
	char *why = strchr(value, ' ');

	if (why)
		*why++ = '\0';
	format_copy(status->addressing, sizeof(status->addressing), value);
	format_copy(status->addressing_why, sizeof(status->addressing_why), why ? why : "");
	return 0;
}

static int take_us(const char *text, double *ms)
{
	uint64_t us;
	int error = take_number(text, &us);

	*ms = error ? 0 : us / 1e3;
	return error;
}

static int take_text(char *buf, size_t size, const char *text)
{
	format_copy(buf, size, text);
	return 0;
}

/* NAME US */
static int take_phase(struct job_transfer *transfer, char *value)
{
	struct job_phase *phase = &transfer->phases[transfer->nphases];
	char *us = strchr(value, ' ');

	if (!us || transfer->nphases == JOB_PHASES)
		return -EBADMSG;
	*us++ = '\0';
	format_copy(phase->name, sizeof(phase->name), value);
	transfer->nphases++;
	return take_us(us, &phase->ms);
}

/* "us", "bytes" or "phase" of the last pause or resume; others are of a later protocol. */
static int take_transfer(struct job_transfer *transfer, const char *what, char *value)
{
	transfer->known = true;
	if (!strcmp(what, "us"))
		return take_us(value, &transfer->ms);
	if (!strcmp(what, "bytes"))
		return take_number(value, &transfer->bytes);
	return !strcmp(what, "phase") ? take_phase(transfer, value) : 0;
}

/* WHAT BYTES US */
static int take_waits(struct job_status *st, char *value)
{
	char *bytes = strchr(value, ' '), *us = bytes ? strchr(bytes + 1, ' ') : NULL;

	if (!us)
		return -EBADMSG;
	*bytes++ = *us++ = '\0';
	format_copy(st->waits.what, sizeof(st->waits.what), value);
	if (take_number(bytes, &st->waits.bytes))
		return -EBADMSG;
	return take_us(us, &st->waits.ms);
}

int job_take_field(struct job *job, const char *key, char *value)
{
	struct job_status *st = &job->status;

	if (!strcmp(key, "id"))
		return take_text(st->id, sizeof(st->id), value);
	if (!strcmp(key, "name"))
		return take_text(st->name, sizeof(st->name), value);
	if (!strcmp(key, "command"))
		return take_text(st->command, sizeof(st->command), value);
	if (!strcmp(key, "state"))
		return take_text(st->state, sizeof(st->state), value);
	if (!strcmp(key, "reason"))
		return take_text(st->reason, sizeof(st->reason), value);
	if (!strcmp(key, "failed_us")) {
		st->failed = true;
		return take_us(value, &st->failed_ms);
	}
	if (!strcmp(key, "waits"))
		return take_waits(st, value);
	if (!strcmp(key, "signals"))
		return take_text(st->signals, sizeof(st->signals), value);
	if (!strcmp(key, "no_turns"))
		return take_text(st->no_turns, sizeof(st->no_turns), value);
	if (!strcmp(key, "snapshot")) {
		snprintf(st->snapshot, sizeof(st->snapshot), "%s", value);
		return 0;
	}
	if (!strcmp(key, "gpu"))
		return take_gpu(st, value);
	if (!strcmp(key, "addressing"))
		return take_addressing(st, value);
	if (!strcmp(key, "carried"))
		return take_number(value, &st->carried);
	if (!strcmp(key, "left_to_driver"))
		return take_number(value, &st->left_to_driver);
	if (!strcmp(key, "paused"))
		return take_number(value, &st->paused);
	if (!strcmp(key, "spilled"))
		return take_number(value, &st->spilled);
	if (!strcmp(key, "pool"))
		return take_number(value, &st->pool);
	if (!strncmp(key, "pause_", strlen("pause_")))
		return take_transfer(&st->pause, key + strlen("pause_"), value);
	if (!strncmp(key, "resume_", strlen("resume_")))
		return take_transfer(&st->resume, key + strlen("resume_"), value);
	return 0;
}

static int status_line(struct job *job, const char *key, char *value)
{
	uint64_t version;

	if (strcmp(key, "protocol") != 0)
		return job_take_field(job, key, value);
	if (take_number(value, &version))
		return -EBADMSG;
	job->status.protocol = version == PROTOCOL_VERSION;
	return job->status.protocol ? 0 : -EPROTONOSUPPORT;
}

void jobs_describe(struct job **jobs, size_t n)
{
	static const struct job_request request = {
		.text = "status",
		.limit_ms = JOBS_STATUS_MS,
		.line = status_line,
	};

	for (size_t i = 0; i < n; i++)
		jobs[i]->status = (struct job_status){0};
	jobs_ask(jobs, n, &request);
	for (size_t i = 0; i < n; i++) {
		struct job *job = jobs[i];

		if (!job->error && job->end == END_DENIED)
			job->error = -EACCES;
		else if (!job->error && (job->end != END_OK || !job->status.protocol ||
					 !job->status.id[0] || !job->status.state[0]))
			job->error = -EBADMSG;
		if (job_is_silent(job) && job_is_stopped(job))
			job->error = -JOB_STOPPED;
		job->described = !job->error;
		if (job->error)
			job->status = (struct job_status){0};
	}
}
