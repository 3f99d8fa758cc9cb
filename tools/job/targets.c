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

void targets_id(const struct job *job, char id[RUNDIR_ID_SIZE])
{
	snprintf(id, RUNDIR_ID_SIZE, "%s", job->status.id);
	if (!*id && job->seen)
		scan_environment(&job->process, settings[SETTING_JOB].name, id, RUNDIR_ID_SIZE);
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

		if (!job->selected || targets->bears_stopped || !job_is_suspended(job))
			continue;
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

static bool select_word(struct job_list *list, const char *word)
{
	pid_t pid = select_pid_of(word);

	return select_pid(list, pid) || select_job(list, word) || select_related(list, pid);
}

/* Ask those again that were stopped when they were asked. They may say only now that they are meant. */
static void describe_woken(struct targets *targets)
{
	size_t n, nwoken = 0;
	struct job **jobs = pick(&targets->list, true, &n);

	for (size_t i = 0; jobs && i < n; i++)
		if (!jobs[i]->left_out && jobs[i]->error == -JOB_STOPPED)
			jobs[nwoken++] = jobs[i];
	if (jobs)
		jobs_describe(jobs, nwoken);
	free(jobs);
	for (int i = 0; i < targets->nwords; i++)
		select_word(&targets->list, targets->words[i]);
}

/* True if @job is selected though it is stopped. */
static bool is_borne(const struct targets *targets, const struct job *job)
{
	return (targets->bears_stopped || (targets->dry_run && job->continued)) && job->selected &&
	       job->error == -JOB_STOPPED;
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

		if ((silent->described && !silent->left_out) || job_is_gone(silent) ||
		    is_named(targets, silent) || is_borne(targets, silent))
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

/* Select the jobs that the words mean, of all. False if one means several: then none is selected. */
static bool select_meant(struct targets *targets)
{
	struct job_list *list = &targets->list;
	bool refused = false;

	for (int i = 0; i < targets->nwords; i++) {
		const char *word = targets->words[i];
		int code;

		if (select_word(list, word))
			continue;
		code = select_explain(list, word);
		targets_fail(targets, code);
		refused |= code == EXIT_USAGE;
	}
	for (size_t i = 0; i < list->n; i++) {
		select_all(targets, &list->jobs[i]);
		list->jobs[i].selected &= !refused;
	}
	return !refused;
}

static void select_words(struct targets *targets)
{
	struct job_list *list = &targets->list;
	bool look_up = targets->all;

	for (int i = 0; i < targets->nwords; i++)
		look_up |= !select_pid(list, select_pid_of(targets->words[i]));
	describe(targets, look_up);
	if (!select_meant(targets))
		return;
	wake_stopped(targets);
	describe_woken(targets);
	for (size_t i = 0; i < list->n; i++) {
		struct job *job = &list->jobs[i];

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
	if (!*code)
		*code = targets.code;
	if (*code)
		return NULL;
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
