/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/select.h"

#include "common/settings.h"
#include "tools/job/scan.h"
#include "tools/process/cuda_use.h"
#include "tools/process/criu/tree.h"
#include "tools/report/report.h"
#include "tools/report/similar.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDS_SIZE 256

pid_t select_pid_of(const char *target)
{
	char *end;
	long pid;

	if (!*target || target[strspn(target, "0123456789")])
		return -1;
	errno = 0;
	pid = strtol(target, &end, 10);
	return errno || pid > INT_MAX ? -1 : pid;
}

/* A job in another PID namespace that has the number @pid there; NULL: none, or *@n of them. */
static struct job *find_own_pid(const struct job_list *list, pid_t pid, size_t *n)
{
	struct job *found = NULL;

	*n = 0;
	for (size_t i = 0; i < list->n; i++) {
		struct job *job = &list->jobs[i];

		if (job->own_pid == pid && !(job->seen && job->pid == pid)) {
			found = job;
			++*n;
		}
	}
	return *n == 1 ? found : NULL;
}

static bool is_free(pid_t pid)
{
	return pid == 0 || (kill(pid, 0) < 0 && errno == ESRCH);
}

struct job *select_find_pid(const struct job_list *list, pid_t pid)
{
	size_t n;

	for (size_t i = 0; i < list->n; i++)
		if (list->jobs[i].seen && list->jobs[i].pid == pid)
			return &list->jobs[i];
	return pid >= 0 && is_free(pid) ? find_own_pid(list, pid, &n) : NULL;
}

size_t select_processes(pid_t pid, struct process *processes, size_t max)
{
	struct dirent *entry;
	size_t n = 0;
	DIR *proc;

	if (pid < 0)
		return 0;
	if (!is_free(pid))
		return process_find(pid, processes);
	proc = opendir("/proc");
	while (proc && n < max && (entry = readdir(proc)))
		n += process_find(atoi(entry->d_name), &processes[n]) &&
		     processes[n].own_pid == pid;
	if (proc)
		closedir(proc);
	return n;
}

/* Whether @process was started with the ID of @job. */
static bool has_id_of(const struct process *process, const struct job *job)
{
	char id[RUNDIR_ID_SIZE];

	/* Any user can claim an ID. */
	if (process->uid != job->uid)
		return false;
	scan_environment(process, settings[SETTING_JOB].name, id, sizeof(id));
	return *id && !strcmp(id, job->status.id);
}

bool select_relates(const struct job *job, const struct process *processes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct process *p = &processes[i];

		if (!job->seen || !process_is_of(p, job->uid))
			continue;
		if (tree_is_below(p->pid, job->pid) || has_id_of(p, job) ||
		    (p->pid != 1 && tree_is_below(job->pid, p->pid)))
			return true;
	}
	return false;
}

static bool same_job(const struct job *a, const struct job *b)
{
	return a == b || (*a->status.id && a->uid == b->uid && !strcmp(a->status.id, b->status.id));
}

/* A text that grows as far as its room. */
struct words {
	char text[IDS_SIZE];
	size_t len;
};

static void add_word(struct words *words, const char *word)
{
	size_t room = sizeof(words->text) - words->len;

	words->len +=
		snprintf(words->text + words->len, room, "%s%s", words->len ? ", " : "", word);
	if (words->len >= sizeof(words->text))
		words->len = sizeof(words->text) - 1;
}

/* Or the PID, if the ID is unknown. */
static void add_id(struct words *words, const struct job *job)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", job->pid);
	add_word(words, *job->status.id ? job->status.id : number);
}

/*
 * The jobs that the process @pid belongs to: the first process of the first of them, and how many
 * jobs there are, with their IDs in @ids.
 */
static struct job *find_related(const struct job_list *list, pid_t pid, size_t *njobs,
				struct words *ids)
{
	struct process processes[SELECT_PROCESSES];
	size_t n = select_processes(pid, processes, SELECT_PROCESSES);
	struct job **found = calloc(list->n + 1, sizeof(*found)), *first;

	*njobs = 0;
	for (size_t i = 0; i < list->n && n && found; i++) {
		struct job *job = &list->jobs[i];
		bool again = false;

		if (job_is_gone(job) || !select_relates(job, processes, n))
			continue;
		for (size_t k = 0; k < *njobs; k++)
			again |= same_job(found[k], job);
		if (again)
			continue;
		found[(*njobs)++] = job;
		add_id(ids, job);
	}
	first = *njobs ? found[0] : NULL;
	free(found);
	return first;
}

bool select_related(struct job_list *list, pid_t pid)
{
	struct words ids = {0};
	size_t njobs;
	struct job *first = find_related(list, pid, &njobs, &ids);

	if (njobs != 1)
		return false;
	for (size_t i = 0; i < list->n; i++)
		if (same_job(&list->jobs[i], first))
			list->jobs[i].selected = true;
	return true;
}

int select_explain_pid(const struct job_list *list, pid_t pid)
{
	struct words ids = {0};
	struct process process;
	struct job *job;
	size_t n;

	job = find_own_pid(list, pid, &n);
	if (n > 1) {
		complain("%d is the PID of %zu jobs in different PID namespaces; give an ID", pid,
			 n);
		return EXIT_USAGE;
	}
	find_related(list, pid, &n, &ids);
	if (n > 1) {
		complain("process %d belongs to %zu jobs: %s; give an ID", pid, n, ids.text);
		return EXIT_USAGE;
	}
	if (is_free(pid)) {
		complain("there is no process %d", pid);
		return EXIT_NO_JOB;
	}
	if (geteuid() != 0 &&
	    (kill(pid, 0) < 0 || (process_find(pid, &process) && process.uid != geteuid()))) {
		complain("process %d belongs to another user", pid);
		return EXIT_DENIED;
	}
	if (job && job->seen)
		complain("process %d is not a cudaw job; the job that is %d in another PID "
			 "namespace is %d here",
			 pid, pid, job->pid);
	else if (cuda_use(pid) == CUDA_USE_NATIVE)
		complain("process %d is not a cudaw job: it uses CUDA without cudaw; 'cudaw pause "
			 "--driver %d' asks the driver to pause it",
			 pid, pid);
	else
		complain("process %d is not a cudaw job: it was not started with cudaw, or has not "
			 "used CUDA yet",
			 pid);
	return EXIT_NO_JOB;
}

bool select_pid(const struct job_list *list, pid_t pid)
{
	struct job *job = select_find_pid(list, pid);

	if (job)
		job->selected = true;
	return job;
}

static bool is_called(const struct job *job, const char *target, bool by_name)
{
	return *target && !strcmp(by_name ? job->status.name : job->status.id, target);
}

/* Number @i of the processes of @list, of which the starting ones are the last. */
static const struct job *process_at(const struct job_list *list, size_t i)
{
	return i < list->n ? &list->jobs[i] : &list->starting[i - list->n];
}

/* True if a process before number @i of @list is of the same job, and has its name. */
static bool is_counted(const struct job_list *list, size_t i)
{
	const struct job *job = process_at(list, i);

	for (size_t k = 0; k < i; k++)
		if (same_job(process_at(list, k), job) &&
		    !strcmp(process_at(list, k)->status.name, job->status.name))
			return true;
	return false;
}

/*
 * The IDs of the jobs that have the name @target, in @ids. Returns how many there are. A process that is starting and
 * has no ID may be a helper of one of them.
 */
static size_t ids_of(const struct job_list *list, const char *target, struct words *ids)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n + list->nstarting; i++) {
		const struct job *job = process_at(list, i);

		if (!is_called(job, target, true) || is_counted(list, i) ||
		    (i >= list->n && !*job->status.id))
			continue;
		n++;
		add_id(ids, job);
	}
	return n;
}

/* The starting job that @target means. NULL: none. */
static const struct job *find_starting(const struct job_list *list, const char *target)
{
	struct process processes[SELECT_PROCESSES];
	size_t n = select_processes(select_pid_of(target), processes, SELECT_PROCESSES);

	for (size_t i = 0; i < list->nstarting; i++) {
		const struct job *job = &list->starting[i];

		if (is_called(job, target, false) || is_called(job, target, true) ||
		    select_relates(job, processes, n))
			return job;
		for (size_t k = 0; k < n; k++)
			if (processes[k].pid == job->pid)
				return job;
	}
	return NULL;
}

/* Only its PID means a process that may get the request later than others of its job, or never. */
static bool is_meant(const struct job *job)
{
	return job->described || job->error == -JOB_STOPPED;
}

bool select_job(struct job_list *list, const char *target)
{
	struct words ids = {0};
	bool called = false, found = false;

	for (int by_name = 0; by_name < 2 && !called; by_name++) {
		if (by_name && ids_of(list, target, &ids) > 1)
			return false;
		for (size_t i = 0; i < list->n; i++) {
			if (!is_called(&list->jobs[i], target, by_name))
				continue;
			called = true;
			if (is_meant(&list->jobs[i]))
				list->jobs[i].selected = found = true;
		}
	}
	return found;
}

/* The name or ID of a job that @target may be meant for; NULL: none. */
static const char *find_similar(const struct job_list *list, const char *target)
{
	const char **words = calloc(2 * (list->n + list->nstarting) + 1, sizeof(*words)), *meant;
	size_t count = 0;

	for (size_t i = 0; words && i < list->n + list->nstarting; i++) {
		const struct job *job = process_at(list, i);

		words[count++] = job->status.name;
		words[count++] = job->status.id;
	}
	meant = words ? similar_word(target, words, count) : NULL;
	free(words);
	return meant;
}

/* No job is called @target. */
static void explain_name(const struct job_list *list, const char *target)
{
	const char *meant = find_similar(list, target);
	size_t silent = 0;

	for (size_t i = 0; i < list->n; i++)
		silent += !list->jobs[i].described && !job_is_gone(&list->jobs[i]);
	if (silent)
		complain("no job that answers is called '%s' (%zu do not answer; try a PID)",
			 target, silent);
	else if (meant)
		complain("there is no job '%s'; did you mean '%s'?", target, meant);
	else
		complain("there is no job '%s'; 'cudaw ps' lists the jobs", target);
}

int select_explain(const struct job_list *list, const char *target)
{
	pid_t pid = select_pid_of(target);
	const struct job *starting = find_starting(list, target);
	struct words ids = {0};
	char text[SCAN_PAST_TEXT];
	size_t n = ids_of(list, target, &ids);

	if (n > 1) {
		complain("'%s' is the name of %zu jobs: %s; give an ID", target, n, ids.text);
		return EXIT_USAGE;
	}
	if (starting) {
		complain(
			"job %s, process %d, is starting: it %s",
			*starting->status.id ? starting->status.id : "without an ID", starting->pid,
			*starting->past
				? job_past_text(starting, text)
				: "has made no CUDA call yet; or it found no driver, or could not make "
				  "its socket (its stderr says why)");
		return EXIT_NO_JOB;
	}
	if (list->denied) {
		complain("'%s' may be a job to which this command may not connect", target);
		return EXIT_DENIED;
	}
	if (pid >= 0)
		return select_explain_pid(list, pid);
	explain_name(list, target);
	return EXIT_NO_JOB;
}
