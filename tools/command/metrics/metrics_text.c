/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/metrics/metrics_text.h"

#include "common/text.h"
#include "common/version.h"
#include "tools/command/list/ps_table.h"
#include "tools/command/list/table.h"
#include "tools/command/turns/turns_list.h"
#include "tools/job/jobs.h"
#include "tools/report/report.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known {
	struct job_list jobs;
	struct turns_list turns;
	bool daemon; /* cudawd has answered */
};

struct metric {
	const char *name, *type, *help;
	void (*say)(const struct metric *metric, FILE *out, const struct known *known);
	size_t at; /* the offset of what a function that serves several metrics is to take */
};

/* ---- labels and values */

static void put_label(FILE *out, const char *name, const char *value)
{
	char clean[256];

	format_copy(clean, sizeof(clean), value);
	fprintf(out, "%s=\"", name);
	for (const char *p = clean; *p; p++) {
		if (*p == '"' || *p == '\\')
			fputc('\\', out);
		fputc(*p, out);
	}
	fputc('"', out);
}

/* Up to its last label. None is "job" or "instance": these are Prometheus' own. */
static void begin(FILE *out, const struct metric *metric, int pid, uid_t uid, const char *id,
		  const char *name)
{
	char user[TABLE_CELL];

	fprintf(out, "%s{pid=\"%d\",", metric->name, pid);
	put_label(out, "user", table_user(uid, user));
	fputc(',', out);
	put_label(out, "id", id);
	fputc(',', out);
	put_label(out, "name", name);
}

static void begin_job(FILE *out, const struct metric *metric, const struct job *job)
{
	begin(out, metric, job->pid, job->uid, job->status.id, job->status.name);
}

static void add_label(FILE *out, const char *name, const char *value)
{
	fputc(',', out);
	put_label(out, name, value);
}

static void end(FILE *out, uint64_t value)
{
	fprintf(out, "} %" PRIu64 "\n", value);
}

static void end_seconds(FILE *out, double ms)
{
	fprintf(out, "} %.6f\n", ms / 1e3);
}

static uint64_t number_at(const void *base, size_t at)
{
	return *(const uint64_t *)((const char *)base + at);
}

/* ---- processes */

/*
 * The next one from number *@i on that has told its status. Two of other PID namespaces may have the same labels, which
 * Prometheus refuses: of these the first counts.
 */
static const struct job *next_job(const struct known *known, size_t *i)
{
	while (*i < known->jobs.n) {
		const struct job *job = &known->jobs.jobs[(*i)++];
		bool first = job->described;

		for (const struct job *other = known->jobs.jobs; first && other < job; other++)
			first = other->pid != job->pid || other->uid != job->uid ||
				strcmp(other->status.id, job->status.id) != 0;
		if (first)
			return job;
	}
	return NULL;
}

static const char *state_of(const struct job *job)
{
	if (job->described)
		return ps_state(job);
	return job_is_stopped(job) ? "stopped" : "unknown";
}

/* All states are there, so that none goes away while nobody is in it. */
static void say_processes(const struct metric *metric, FILE *out, const struct known *known)
{
	static const char *const states[] = {"starting", "running", "pausing", "paused", "resuming",
					     "waiting",  "stopped", "failed",  "unknown"};

	for (size_t s = 0; s < sizeof(states) / sizeof(states[0]); s++) {
		uint64_t n = strcmp(states[s], JOB_STARTING) ? 0 : known->jobs.nstarting;

		for (size_t i = 0; i < known->jobs.n; i++)
			n += !job_is_gone(&known->jobs.jobs[i]) &&
			     !strcmp(state_of(&known->jobs.jobs[i]), states[s]);
		fprintf(out, "%s{", metric->name);
		put_label(out, "state", states[s]);
		end(out, n);
	}
}

static void say_states(const struct metric *metric, FILE *out, const struct known *known)
{
	const struct job *job;

	for (size_t i = 0; (job = next_job(known, &i));) {
		begin_job(out, metric, job);
		add_label(out, "state", state_of(job));
		end(out, 1);
	}
}

static void say_bytes(const struct metric *metric, FILE *out, const struct known *known)
{
	const struct job *job;

	for (size_t i = 0; (job = next_job(known, &i));) {
		begin_job(out, metric, job);
		end(out, number_at(&job->status, metric->at));
	}
}

static void say_freed(const struct metric *metric, FILE *out, const struct known *known)
{
	const struct job *job;

	for (size_t i = 0; (job = next_job(known, &i));) {
		begin_job(out, metric, job);
		end(out, job->status.released);
	}
}

static void say_waits(const struct metric *metric, FILE *out, const struct known *known)
{
	const struct job *job;

	for (size_t i = 0; (job = next_job(known, &i));) {
		if (!*job->status.waits.what)
			continue;
		begin_job(out, metric, job);
		add_label(out, "for", job->status.waits.what);
		end_seconds(out, job->status.waits.ms);
	}
}

static const struct job_transfer *transfer_at(const struct job *job, size_t at)
{
	return (const struct job_transfer *)((const char *)&job->status + at);
}

/* How long the transfer took, or the bytes that it @moved. */
static void say_transfer(const struct metric *metric, FILE *out, const struct known *known,
			 bool moved)
{
	const struct job *job;

	for (size_t i = 0; (job = next_job(known, &i));) {
		const struct job_transfer *transfer = transfer_at(job, metric->at);

		if (!transfer->known)
			continue;
		begin_job(out, metric, job);
		if (moved)
			end(out, transfer->bytes);
		else
			end_seconds(out, transfer->ms);
	}
}

static void say_seconds(const struct metric *metric, FILE *out, const struct known *known)
{
	say_transfer(metric, out, known, false);
}

static void say_moved(const struct metric *metric, FILE *out, const struct known *known)
{
	say_transfer(metric, out, known, true);
}

/* ---- turns */

static void say_build(const struct metric *metric, FILE *out, const struct known *known)
{
	(void)known;
	fprintf(out, "%s{", metric->name);
	put_label(out, "version", cudaw_version);
	end(out, 1);
}

static void say_daemon(const struct metric *metric, FILE *out, const struct known *known)
{
	fprintf(out, "%s %d\n", metric->name, known->daemon);
}

static void begin_gpu(FILE *out, const struct metric *metric, const char *uuid)
{
	fprintf(out, "%s{", metric->name);
	put_label(out, "gpu", uuid);
}

static void say_gpu_bytes(const struct metric *metric, FILE *out, const struct known *known)
{
	for (int i = 0; i < known->turns.ngpus; i++) {
		begin_gpu(out, metric, known->turns.gpus[i].uuid);
		end(out, number_at(&known->turns.gpus[i], metric->at));
	}
}

static void say_gpu_open(const struct metric *metric, FILE *out, const struct known *known)
{
	for (int i = 0; i < known->turns.ngpus; i++) {
		begin_gpu(out, metric, known->turns.gpus[i].uuid);
		end(out, !strcmp(known->turns.gpus[i].state, "open"));
	}
}

/* Those that the daemon sees; of the others it does not know the PID. */
static const struct turns_member *next_member(const struct known *known, int *i)
{
	while (*i < known->turns.nmembers) {
		const struct turns_member *m = &known->turns.members[(*i)++];

		if (m->pid)
			return m;
	}
	return NULL;
}

static void begin_member(FILE *out, const struct metric *metric, const struct turns_member *m)
{
	begin(out, metric, m->pid, m->uid, m->id, m->name);
}

static void say_turns(const struct metric *metric, FILE *out, const struct known *known)
{
	const struct turns_member *m;

	for (int i = 0; (m = next_member(known, &i));) {
		begin_member(out, metric, m);
		end(out, m->turns);
	}
}

/* Of a wait or a turn that is not, there is no sample. */
static void say_member_time(const struct metric *metric, FILE *out, const struct known *known)
{
	const struct turns_member *m;

	for (int i = 0; (m = next_member(known, &i));) {
		double ms = *(const double *)((const char *)m + metric->at);

		if (ms <= 0)
			continue;
		begin_member(out, metric, m);
		end_seconds(out, ms);
	}
}

static void say_needs(const struct metric *metric, FILE *out, const struct known *known)
{
	const struct turns_member *m;

	for (int i = 0; (m = next_member(known, &i));)
		for (int k = 0; k < m->nneeds; k++) {
			begin_member(out, metric, m);
			add_label(out, "gpu", m->needs[k].uuid);
			end(out, number_at(&m->needs[k], metric->at));
		}
}

#define OF_JOB(field)    offsetof(struct job_status, field)
#define OF_GPU(field)    offsetof(struct turns_gpu, field)
#define OF_MEMBER(field) offsetof(struct turns_member, field)
#define OF_NEED(field)   offsetof(struct turns_need, field)

/* clang-format off */
static const struct metric metrics[] = {
	{"cudaw_build_info", "gauge", "The version of cudaw, always 1", say_build, 0},
	{"cudaw_processes", "gauge", "Processes that use CUDA under cudaw, by state", say_processes, 0},
	{"cudaw_process_state", "gauge", "The state of a process, always 1", say_states, 0},
	{"cudaw_process_carried_bytes", "gauge", "GPU memory that cudaw carries through a pause",
	 say_bytes, OF_JOB(carried)},
	{"cudaw_process_left_to_driver_bytes", "gauge", "GPU memory that is left to the driver",
	 say_bytes, OF_JOB(left_to_driver)},
	{"cudaw_process_host_bytes", "gauge", "Its GPU memory that is in host memory now", say_bytes, OF_JOB(paused)},
	{"cudaw_process_disk_bytes", "gauge", "Its GPU memory that is on disk now", say_bytes, OF_JOB(spilled)},
	{"cudaw_process_pool_bytes", "gauge", "Host memory that is kept for the next pause", say_bytes, OF_JOB(pool)},
	{"cudaw_process_freed", "gauge", "1 if the process is paused and nothing of it is on the GPU, else 0",
	 say_freed, 0},
	{"cudaw_process_wait_seconds", "gauge", "For how long the process has waited for a turn or memory", say_waits, 0},
	{"cudaw_process_last_pause_seconds", "gauge", "How long its last pause took", say_seconds, OF_JOB(pause)},
	{"cudaw_process_last_pause_bytes", "gauge", "GPU memory that its last pause moved", say_moved, OF_JOB(pause)},
	{"cudaw_process_last_resume_seconds", "gauge", "How long its last resume took", say_seconds, OF_JOB(resume)},
	{"cudaw_process_last_resume_bytes", "gauge", "GPU memory that its last resume moved",
	 say_moved, OF_JOB(resume)},
	{"cudaw_daemon_up", "gauge", "1 if cudawd answers, else 0", say_daemon, 0},
	{"cudaw_gpu_memory_bytes", "gauge", "Memory of a GPU on which jobs take turns; 0: NVML does not know it",
	 say_gpu_bytes, OF_GPU(total)},
	{"cudaw_gpu_used_bytes", "gauge", "Memory of the GPU that is in use", say_gpu_bytes, OF_GPU(used)},
	{"cudaw_gpu_others_bytes", "gauge", "Memory in use that no job that takes turns can move",
	 say_gpu_bytes, OF_GPU(others)},
	{"cudaw_gpu_capacity_bytes", "gauge", "Memory that jobs that take turns may have together",
	 say_gpu_bytes, OF_GPU(capacity)},
	{"cudaw_gpu_open", "gauge", "1 if jobs get turns on the GPU, 0 if it is drained or excluded", say_gpu_open, 0},
	{"cudaw_member_turns_total", "counter", "Turns that the process got", say_turns, 0},
	{"cudaw_member_wait_seconds", "gauge", "For how long the process has waited for its turn",
	 say_member_time, OF_MEMBER(wait_ms)},
	{"cudaw_member_turn_left_seconds", "gauge", "How long its turn lasts at least, while others wait",
	 say_member_time, OF_MEMBER(left_ms)},
	{"cudaw_member_mapped_bytes", "gauge", "Its memory that is on the GPU now", say_needs, OF_NEED(mapped)},
	{"cudaw_member_needed_bytes", "gauge", "Its memory that is on the GPU when it runs", say_needs, OF_NEED(total)},
};
/* clang-format on */

/* Returns 0 or a negative errno. */
static int write_all(const struct known *known, char **text, size_t *size)
{
	FILE *out = open_memstream(text, size);

	if (!out)
		return -errno;
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		const struct metric *metric = &metrics[i];

		fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help,
			metric->name, metric->type);
		metric->say(metric, out, known);
	}
	return fclose(out) ? -errno : 0;
}

int metrics_text_make(char **text, size_t *size)
{
	struct known known;
	char where[PATH_MAX];
	int code = jobs_find(&known.jobs), err;

	if (code)
		return code;
	err = jobs_describe_all(&known.jobs);
	known.daemon = !ask_for_turns(&known.turns, where);
	if (!err)
		err = write_all(&known, text, size);
	free_turns(&known.turns);
	jobs_free(&known.jobs);
	if (!err)
		return EXIT_DONE;
	complain("metrics: %s", strerror(-err));
	return EXIT_FAILED;
}
