/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/jobs.h"

#include "common/text.h"
#include "common/clock.h"
#include "common/patience.h"
#include "common/settings.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS 20 /* until a job that could not be called is called again */

const char *job_error_text(int error)
{
	switch (-error) {
	case ETIMEDOUT:
		return "no answer";
	case EAGAIN:
		return "too many requests wait for it already";
	case EBADMSG:
		return "malformed answer";
	case EPROTONOSUPPORT:
		return "it uses another version of the protocol than this command";
	case ECONNRESET:
	case EPIPE:
		return "it ended without an answer";
	case ECONNREFUSED:
	case ENOENT:
		return "it has ended";
	case JOB_STOPPED:
		return "stopped";
	case JOB_REFUSES:
		return "its program has no free descriptor (RLIMIT_NOFILE)";
	case JOB_LEFT:
		return "its program has closed the connection before the answer";
	case JOB_OTHER:
		return "another process listens on its socket";
	case EMFILE:
	case ENFILE:
		return "no file descriptor is left for a connection to it";
	default:
		return strerror(-error);
	}
}

/* As /proc has it; 0: unknown. */
static char state_of(const struct job *job)
{
	struct process now;

	return job->seen && process_find(job->pid, &now) && now.start == job->process.start
		       ? now.state
		       : 0;
}

bool job_is_suspended(const struct job *job)
{
	return state_of(job) == 'T';
}

bool job_is_stopped(const struct job *job)
{
	bool silent = job_is_silent(job) || job->error == -JOB_STOPPED;
	char state = state_of(job);

	/* A tracer like strace stops it for a moment, at each of its system calls. */
	return state == 'T' || (state == 't' && silent);
}

bool job_is_silent(const struct job *job)
{
	return job->error == -ETIMEDOUT || job->error == -EAGAIN || job->error == -JOB_LEFT;
}

bool job_is_gone(const struct job *job)
{
	return job->error == -ECONNREFUSED || job->error == -ENOENT;
}

void job_give_memory(struct job *job, int fd)
{
	if (job->memory > 0)
		close(job->memory);
	job->memory = fd;
	job->memory_sent = false;
}

static void drop_sent_memory(struct job *job)
{
	if (job->memory_sent)
		job_give_memory(job, 0);
}

static void hang_up(struct job *job, int error)
{
	if (job->fd >= 0)
		close(job->fd);
	drop_sent_memory(job);
	job->fd = -1;
	job->queued = false;
	job->error = error;
}

/*
 * Send a line, and a descriptor with the whole of it; 0 or less: none. If the job has hung up, its last lines
 * may still be there to be heard: hear() finds the end behind them.
 */
static void send_line(struct job *job, const char *text, int token)
{
	int error;

	if (strlen(text) >= PROTOCOL_LINE)
		hang_up(job, -ENAMETOOLONG);
	if (job->fd < 0)
		return;
	/* The socket has room for the few short lines of a conversation. */
	error = lines_send(job->fd, text, token, 0);
	if (error && error != -EPIPE && error != -ECONNRESET)
		hang_up(job, -EIO);
}

void job_say(struct job *job, const char *fmt, ...)
{
	char text[PROTOCOL_LINE + 1];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	send_line(job, text, 0);
}

static void begin(struct job *job)
{
	job->fd = -1;
	job->queued = true;
	job->error = 0;
	job->lines = (struct lines){0};
	job->end = END_NONE;
	job->message[0] = job->note[0] = '\0';
	job->progress = (struct job_progress){0};
	job->heard = -1;
	job->ready = false;
}

static void take_line(struct job *job, const char *text, const struct job_request *request)
{
	struct line line;
	int ret = line_parse(&lines_from_job, text, &line);

	if (!ret && line.id == REPORT_END) {
		job->end = line.end;
		format_copy(job->message, sizeof(job->message), line.text);
		hang_up(job, 0);
		return;
	}
	if (!ret && request->line)
		ret = request->line(job, &line);
	if (ret)
		hang_up(job, ret < 0 ? ret : 0);
}

/* Its end begins before its descriptors are closed. */
static bool lives(const struct job *job)
{
	struct rundir_process now;

	return rundir_process(job->pid, &now) && !now.exits;
}

/* Read the available bytes after @listened milliseconds, and take the complete lines. */
static void hear(struct job *job, const struct job_request *request, double listened)
{
	int came = lines_read(&job->lines, job->fd, NULL), error = 0;
	char *line = NULL;

	if (came < 0) {
		hang_up(job, lives(job) ? -JOB_LEFT : -ECONNRESET);
		return;
	}
	if (came && request->silence)
		job->heard = listened;
	if (came)
		drop_sent_memory(job);
	while (job->fd >= 0 && !(error = lines_next(&job->lines, &line)) && line)
		take_line(job, line, request);
	if (error)
		hang_up(job, -EBADMSG);
}

/* One conversation with many jobs. */
struct round {
	struct job **jobs; /* in the order of their turns */
	size_t n, open;
	const struct job_request *request;
	struct patience patience;
	double listened; /* by that */
	double retry;    /* when to call those jobs again that could not be called */
	struct pollfd *fds;
	struct job **polled; /* the job of each of fds */
};

static void count_open(struct round *round)
{
	round->open = 0;
	for (size_t i = 0; i < round->n; i++)
		if (round->jobs[i]->fd >= 0) {
			round->fds[round->open] =
				(struct pollfd){.fd = round->jobs[i]->fd, .events = POLLIN};
			round->polled[round->open++] = round->jobs[i];
		}
}

/*
 * Make the call, unless the backlog of the socket is full: then it is put off, and counts as
 * silence. A job of a party cannot be put off, as the others wait for it. False if no descriptor is
 * left.
 */
static bool call(struct round *round, struct job *job)
{
	const struct job_request *request = round->request;
	const char *text = request->text;
	int fd = job_connect(job);

	if ((fd == -EMFILE || fd == -ENFILE) && round->open && !job->party)
		return false;
	if (job->heard < 0)
		job->heard = round->listened;
	if (fd == -EAGAIN && !job->party)
		return true;
	job->queued = false;
	if (fd < 0) {
		hang_up(job, fd);
		return true;
	}
	job->fd = fd;
	round->open++;
	if (job->request)
		text = job->request;
	else if (job->party && request->party_text)
		text = request->party_text;
	if (job->pact > 0)
		send_line(job, "pact", job->pact);
	job->pact = 0;
	if (job->memory > 0)
		send_line(job, "memory", job->memory);
	job->memory_sent = true;
	send_line(job, text, job->party && !request->party_text ? 0 : job->token);
	return true;
}

/* The same for the job at @i and all jobs of its party. */
static bool call_party(struct round *round, size_t i)
{
	const struct job *first = round->jobs[i];

	for (size_t k = i; k < round->n; k++)
		if (round->jobs[k] == first ||
		    (first->party && round->jobs[k]->party == first->party))
			if (!call(round, round->jobs[k]))
				return false;
	return true;
}

/* Call the next jobs, as many as there is room for. */
static void call_next(struct round *round)
{
	bool again = round->listened >= round->retry;

	if (again)
		round->retry = round->listened + RETRY_MS;
	for (size_t i = 0; i < round->n && round->open < JOBS_AT_ONCE; i++) {
		const struct job *job = round->jobs[i];

		if (job->queued && (again || job->heard < 0) && !call_party(round, i))
			return;
	}
}

bool jobs_are_asked(struct job *const *jobs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (jobs[i]->queued)
			return false;
	return true;
}

static bool any_queued(const struct round *round)
{
	return !jobs_are_asked(round->jobs, round->n);
}

/*
 * Hang up on jobs past their limit. Returns how long to listen to the others, at most @wait; -1: no
 * limit.
 */
static double check_limits(const struct round *round, double wait)
{
	const struct job_request *request = round->request;

	if ((request->limit_ms >= 0 || any_queued(round)) && (wait < 0 || wait > PATIENCE_SLICE_MS))
		wait = any_queued(round) ? RETRY_MS : PATIENCE_SLICE_MS;
	for (size_t i = 0; i < round->n && request->limit_ms >= 0; i++) {
		struct job *job = round->jobs[i];
		double left = job->heard + request->limit_ms - round->listened;

		if ((job->fd < 0 && !job->queued) || job->heard < 0)
			continue;
		if (left <= 0)
			hang_up(job, job->queued ? -EAGAIN : -ETIMEDOUT);
		else if (left < wait)
			wait = left;
	}
	return wait;
}

static void listen_to(struct round *round, double wait)
{
	count_open(round);
	poll(round->fds, round->open, clock_poll(wait));
	round->listened = patience_ms(&round->patience);
	for (size_t i = 0; i < round->open; i++)
		if (round->polled[i]->fd >= 0 && round->fds[i].revents)
			hear(round->polled[i], round->request, round->listened);
	count_open(round);
}

static int by_turn(const void *a, const void *b)
{
	const struct job *x = *(struct job *const *)a, *y = *(struct job *const *)b;

	if (x->turn != y->turn)
		return x->turn < y->turn ? -1 : 1;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

void jobs_ask(struct job **jobs, size_t n, const struct job_request *request)
{
	struct round round = {.n = n, .request = request};
	double tick_ms = request->tick ? 0 : -1;

	round.jobs = calloc(n + 1, sizeof(*round.jobs));
	round.polled = calloc(n + 1, sizeof(*round.polled));
	round.fds = calloc(n + 1, sizeof(*round.fds));
	for (size_t i = 0; i < n; i++)
		begin(jobs[i]);
	if (!round.jobs || !round.polled || !round.fds) {
		for (size_t i = 0; i < n; i++)
			hang_up(jobs[i], -ENOMEM);
		goto out;
	}
	memcpy(round.jobs, jobs, n * sizeof(*jobs));
	qsort(round.jobs, n, sizeof(*round.jobs), by_turn);
	patience_ms(&round.patience);
	for (call_next(&round); round.open || any_queued(&round); call_next(&round)) {
		listen_to(&round, check_limits(&round, tick_ms));
		if (request->tick)
			tick_ms = request->tick(jobs, n);
	}
out:
	free(round.jobs);
	free(round.polled);
	free(round.fds);
}

static void setting_of(const struct job *job, enum setting_id setting, char *buf, size_t size)
{
	char value[256];

	scan_environment(&job->process, settings[setting].name, value, sizeof(value));
	format_copy(buf, size, value);
}

/* What its environment says of a job that gives no answer. */
static void read_environment(struct job *job)
{
	char id[2 * RUNDIR_ID_SIZE];

	if (!job->seen || job_is_gone(job))
		return;
	setting_of(job, SETTING_JOB, id, sizeof(id));
	if (rundir_is_id(id))
		strcpy(job->status.id, id);
	setting_of(job, SETTING_NAME, job->status.name, sizeof(job->status.name));
}

/* Ask those of @jobs that are not suspended: such a one would only let us wait. */
static void ask_awake(struct job **jobs, size_t n, const struct job_request *request)
{
	struct job **awake = calloc(n + 1, sizeof(*awake));
	size_t nawake = 0;

	for (size_t i = 0; i < n; i++) {
		jobs[i]->error = awake ? 0 : -ENOMEM;
		if (awake && job_is_suspended(jobs[i]))
			jobs[i]->error = -JOB_STOPPED;
		else if (awake)
			awake[nawake++] = jobs[i];
	}
	if (nawake)
		jobs_ask(awake, nawake, request);
	free(awake);
}

void jobs_describe(struct job **jobs, size_t n)
{
	static const struct job_request request = {
		.text = "status",
		.limit_ms = JOBS_STATUS_MS,
		.line = job_take_field,
	};

	for (size_t i = 0; i < n; i++)
		jobs[i]->status = (struct job_status){0};
	ask_awake(jobs, n, &request);
	for (size_t i = 0; i < n; i++) {
		struct job *job = jobs[i];

		if (!job->error && job->end == END_DENIED)
			job->error = -EACCES;
		else if (!job->error && !job->status.protocol && job->end == END_FAILED)
			job->error = -JOB_REFUSES;
		else if (!job->error && !job->status.protocol && job->end == END_BUSY)
			job->error = -EAGAIN;
		else if (!job->error && (job->end != END_OK || !job->status.protocol ||
					 !job->status.id[0] || !job->status.state[0]))
			job->error = -EBADMSG;
		if (job_is_silent(job) && job_is_stopped(job))
			job->error = -JOB_STOPPED;
		job->described = !job->error;
		if (job->error) {
			job->status = (struct job_status){0};
			read_environment(job);
		}
	}
}

int jobs_describe_all(struct job_list *list)
{
	struct job **jobs = calloc(list->n + 1, sizeof(*jobs));

	if (!jobs)
		return -ENOMEM;
	for (size_t i = 0; i < list->n; i++)
		jobs[i] = &list->jobs[i];
	jobs_describe(jobs, list->n);
	free(jobs);
	return 0;
}
