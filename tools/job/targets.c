/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/targets.h"

#include "common/settings.h"
#include "common/processes/proc.h"
#include "tools/job/outcome.h"
#include "tools/job/scan.h"
#include "tools/job/select.h"
#include "tools/job/whole.h"
#include "tools/process/criu/tcp.h"
#include "tools/process/monitors.h"
#include "tools/report/report.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void targets_fail(struct targets *targets, int code)
{
	if (!targets->code)
		targets->code = code;
}

/* The selected jobs, or all: an array of *@n, to be freed. NULL: out of memory. */
static struct job **pick(struct job_list *list, bool all, size_t *n)
{
	struct job **jobs = calloc(list->n + 1, sizeof(*jobs));

	*n = 0;
	for (size_t i = 0; jobs && i < list->n; i++)
		if (all || list->jobs[i].selected)
			jobs[(*n)++] = &list->jobs[i];
	return jobs;
}

/* Ask for the status of all jobs, or of the selected ones. */
static void describe(struct targets *targets, bool all)
{
	size_t n;
	struct job **jobs = pick(&targets->list, all, &n);

	if (jobs)
		jobs_describe(jobs, n);
	free(jobs);
}

/* A variable of the environment that @job was started with; empty if it is not visible. */
static void environment_of(const struct job *job, const char *name, char *buf, size_t size)
{
	buf[0] = '\0';
	if (job->seen)
		scan_environment(&job->process, name, buf, size);
}

/* True if @job was started as a process of one of the jobs that @words name. */
static bool is_part(const struct job *job, char **words, int n)
{
	char id[RUNDIR_ID_SIZE], name[sizeof(job->status.name)];

	environment_of(job, settings[SETTING_JOB].name, id, sizeof(id));
	environment_of(job, settings[SETTING_NAME].name, name, sizeof(name));
	for (int i = 0; i < n; i++)
		if (*words[i] && (!strcmp(words[i], id) || !strcmp(words[i], name)))
			return true;
	return false;
}

/* True if a word is the PID of a process that belongs to @job without being a job's own. */
static bool is_related(const struct targets *targets, const struct job *job)
{
	struct process processes[SELECT_PROCESSES];

	for (int i = 0; i < targets->nwords; i++) {
		pid_t pid = select_pid_of(targets->words[i]);

		if (!select_find_pid(&targets->list, pid) &&
		    select_relates(job, processes,
				   select_processes(pid, processes, SELECT_PROCESSES)))
			return true;
	}
	return false;
}

/*
 * True if all jobs are meant, and @job may be one of them. A stopped process does not say which
 * GPUs it uses.
 */
static bool is_among_all(const struct targets *targets, const struct job *job)
{
	return targets->all && !*targets->only.gpu && narrow_has_user(&targets->only, job);
}

void targets_id(const struct job *job, char id[RUNDIR_ID_SIZE])
{
	if (job->described)
		snprintf(id, RUNDIR_ID_SIZE, "%s", job->status.id);
	else
		environment_of(job, settings[SETTING_JOB].name, id, RUNDIR_ID_SIZE);
}

/* A snapshot or restore that was killed with its children leaves those blocked that use NVML alone. */
static void revive(struct targets *targets, const struct job *job, const struct tree *tree)
{
	pid_t *jobs = calloc(targets->list.n + 1, sizeof(*jobs));
	char why[256] = "out of memory";
	size_t n = 0;

	for (size_t i = 0; jobs && i < targets->list.n; i++)
		if (targets->list.jobs[i].seen)
			jobs[n++] = targets->list.jobs[i].pid;
	if (!jobs || !monitors_revive(tree, jobs, n, why, sizeof(why))) {
		complain("%s %d: %s; NVML may stay blocked", targets->verb, job->pid, why);
		targets_fail(targets, EXIT_FAILED);
	}
	free(jobs);
}

/*
 * Continue a job that is stopped, with all its processes: an interrupted snapshot stops them all. With @others a job
 * that runs: an interrupted restore leaves the others stopped. False if nothing was continued, after a message unless
 * nothing was to be.
 */
static bool wake(struct targets *targets, const struct job *job, bool others)
{
	struct tree tree = {.head = job->pid};
	char id[RUNDIR_ID_SIZE];
	struct process root, above;
	pid_t unknown, parent = 0;

	targets_id(job, id);
	if (!*id && scan_is_overwritten(&job->process) && host_process(job->pid, &parent) &&
	    process_find(parent, &above) && above.uid == job->directory->owner &&
	    above.state == 'T') {
		complain(
			"%s %d: it has overwritten its environment, so that its job is not known, and "
			"its parent %d is stopped: continue all its processes with kill -CONT",
			targets->verb, job->pid, parent);
		return false;
	}
	whole_root(job, id, &root, &unknown);
	tree_find(&tree, &root, job->directory->owner);
	if (others && !tree_waits_for(&tree, job->pid)) {
		revive(targets, job, &tree);
		return false;
	}
	if (tcp_repair(&tree, false) == -EPERM) {
		complain("%s %d: a snapshot that was killed has left its TCP connections unusable, "
			 "which takes root to mend: run the command as root",
			 targets->verb, job->pid);
		return false;
	}
	tree_signal(&tree, SIGCONT);
	revive(targets, job, &tree);
	return true;
}

/*
 * A stopped process answers nobody. A resume continues it, and a wait waits for it; every other request leaves it out.
 */
static void wake_stopped(struct targets *targets)
{
	for (size_t i = 0; i < targets->list.n; i++) {
		struct job *job = &targets->list.jobs[i];

		if (!job_is_stopped(job) ||
		    !(job->selected || is_among_all(targets, job) ||
		      is_part(job, targets->words, targets->nwords) || is_related(targets, job)))
			continue;
		if (targets->bears_stopped) {
			job->selected = true;
			continue;
		}
		job->continued =
			targets->continues && (targets->dry_run || wake(targets, job, false));
		if (job->continued && process_can_signal())
			continue;
		if (job->continued || !targets->continues)
			complain("%s %d: " OUTCOME_STOPPED, targets->verb, job->pid);
		targets_fail(targets, EXIT_FAILED);
		job->left_out = true;
	}
}

static bool is_borne(const struct targets *targets, const struct job *job)
{
	return targets->bears_stopped && job->selected && job->error == -JOB_STOPPED;
}

/* True if @word names a stopped process, which wake_stopped() has complained of or selected. */
static bool is_dealt_with(const struct targets *targets, char **word)
{
	for (size_t i = 0; i < targets->list.n; i++) {
		const struct job *job = &targets->list.jobs[i];

		if ((job->left_out || is_borne(targets, job)) && is_part(job, word, 1))
			return true;
	}
	return false;
}

/* True if a word is the PID of @job. */
static bool is_named(const struct targets *targets, const struct job *job)
{
	for (int i = 0; i < targets->nwords; i++)
		if (select_find_pid(&targets->list, select_pid_of(targets->words[i])) == job)
			return true;
	return false;
}

/*
 * Deselect a job if one of its processes gives no answer: the others must not pause or resume
 * without it.
 */
static void spare_parts(struct targets *targets)
{
	struct job_list *list = &targets->list;
	char id[RUNDIR_ID_SIZE], other[RUNDIR_ID_SIZE];

	for (size_t i = 0; i < list->n; i++) {
		struct job *silent = &list->jobs[i];
		bool any = false;

		if (silent->described || job_is_gone(silent) || is_named(targets, silent) ||
		    is_borne(targets, silent))
			continue;
		targets_id(silent, id);
		for (size_t k = 0; k < list->n && *id; k++) {
			struct job *job = &list->jobs[k];

			/* Any user can claim an ID. */
			if (k == i || !job->selected || is_named(targets, job) ||
			    job->directory->owner != silent->directory->owner)
				continue;
			targets_id(job, other);
			if (strcmp(other, id))
				continue;
			job->selected = false;
			any = true;
		}
		if (!any)
			continue;
		silent->selected = false;
		if (!silent->left_out)
			complain("%s %s: its process %d: %s", targets->verb, id, silent->pid,
				 job_error_text(silent->error));
		targets_fail(targets, job_is_silent(silent) ? EXIT_TIMEOUT : EXIT_FAILED);
	}
}

/* Select @job if all jobs are meant, and it is one of them. */
static void select_all(struct targets *targets, struct job *job)
{
	if (!targets->all || !narrow_has_user(&targets->only, job))
		return;
	if (!*targets->only.gpu || narrow_has_gpu(&targets->only, &targets->list, job)) {
		job->selected = true;
	} else if (!job->described && !job_is_gone(job)) {
		complain("%s %d: its GPUs are unknown: %s", targets->verb, job->pid,
			 job_error_text(job->error));
		targets_fail(targets, job_is_silent(job) ? EXIT_TIMEOUT : EXIT_FAILED);
	}
}

static void select_words(struct targets *targets)
{
	struct job_list *list = &targets->list;
	bool look_up = targets->all;

	for (int i = 0; i < targets->nwords; i++)
		look_up |= !select_pid(list, select_pid_of(targets->words[i]));
	wake_stopped(targets);
	describe(targets, look_up);
	for (int i = 0; i < targets->nwords; i++) {
		const char *word = targets->words[i];

		if (!select_pid(list, select_pid_of(word)) && !select_job(list, word) &&
		    !is_dealt_with(targets, targets->words + i) &&
		    !select_related(list, select_pid_of(word)))
			targets_fail(targets, select_explain(list, word));
	}
	for (size_t i = 0; i < list->n; i++) {
		struct job *job = &list->jobs[i];

		select_all(targets, job);
		job->selected &= !job->left_out;
		if (targets->continues && !targets->dry_run && job->selected && job->described &&
		    job->seen && !job->continued)
			job->continued = wake(targets, job, true);
		if (!job->selected || !job_is_gone(job))
			continue;
		job->selected = false;
		if (!targets->all)
			targets_fail(targets, select_explain_pid(list, job->pid));
	}
	if (look_up)
		spare_parts(targets);
}

static bool has_selected(const struct job_list *list, const char *id)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->jobs[i].selected && *id && !strcmp(list->jobs[i].status.id, id))
			return true;
	return false;
}

/* Name the processes of the selected jobs whose calls, or some of them, no pause reaches. */
static void warn_of_past(const struct targets *targets)
{
	const struct job_list *list = &targets->list;
	char text[SCAN_PAST_TEXT];

	for (size_t i = 0; i < list->n; i++)
		if (list->jobs[i].selected && *list->jobs[i].past)
			complain("warning: process %d %s: a pause does not stop that",
				 list->jobs[i].pid, job_past_text(&list->jobs[i], text));
	for (size_t i = 0; i < list->nstarting; i++) {
		const struct job *job = &list->starting[i];

		if (*job->past && (targets->all || has_selected(list, job->status.id)))
			complain("warning: process %d %s: it is not paused", job->pid,
				 job_past_text(job, text));
	}
}

int targets_find(struct targets *targets)
{
	int err = jobs_find(&targets->list);

	if (!err)
		select_words(targets);
	if (!err && !strcmp(targets->verb, "pause"))
		warn_of_past(targets);
	return err;
}

struct job **targets_selected(struct targets *targets, size_t *n)
{
	return pick(&targets->list, false, n);
}

static bool same_job(const struct job *a, const struct job *b)
{
	char id[RUNDIR_ID_SIZE], other[RUNDIR_ID_SIZE];

	targets_id(a, id);
	targets_id(b, other);
	return *id && !strcmp(id, other) && a->directory->owner == b->directory->owner;
}

struct job *targets_find_one(const char *verb, const char *word, bool one, struct job_list *list,
			     int *code)
{
	char *words[] = {(char *)word};
	struct targets targets = {.verb = verb, .words = words, .nwords = 1};
	struct job *found = NULL;
	bool several = false;
	size_t n = 0;

	*code = targets_find(&targets);
	*list = targets.list;
	if (*code)
		return NULL;
	*code = targets.code;
	for (size_t i = 0; i < list->n; i++) {
		if (!list->jobs[i].selected)
			continue;
		n++;
		if (!found)
			found = &list->jobs[i];
		else
			several |= one || !same_job(found, &list->jobs[i]);
	}
	if (!several)
		return found;
	complain(one ? "'%s': expected one process that uses the GPU, found %zu"
		     : "'%s': expected one job, found several, of %zu processes",
		 word, n);
	*code = EXIT_UNSUPPORTED;
	return NULL;
}
