/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/select.h"

#include "tools/report/report.h"

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

int select_explain_pid(const struct job_list *list, pid_t pid)
{
	struct process process;
	struct job *job;
	size_t n;

	job = find_own_pid(list, pid, &n);
	if (n > 1) {
		complain("%d is the PID of %zu jobs in different PID namespaces; give an ID", pid,
			 n);
		return EXIT_NO_JOB;
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
	return job->described && *target &&
	       !strcmp(by_name ? job->status.name : job->status.id, target);
}

/* The IDs of the jobs that have the name @target, in @ids. Returns how many there are. */
static size_t ids_of(const struct job_list *list, const char *target, char *ids, size_t size)
{
	size_t n = 0, len = 0;

	ids[0] = '\0';
	for (size_t i = 0; i < list->n; i++) {
		const char *id = list->jobs[i].status.id;

		if (!is_called(&list->jobs[i], target, true) || strstr(ids, id))
			continue;
		n++;
		len += snprintf(ids + len, size - len, "%s%s", n > 1 ? ", " : "", id);
		if (len >= size)
			len = size - 1;
	}
	return n;
}

bool select_job(struct job_list *list, const char *target)
{
	char ids[IDS_SIZE];
	bool found = false;

	for (int by_name = 0; by_name < 2 && !found; by_name++) {
		if (by_name && ids_of(list, target, ids, sizeof(ids)) > 1)
			return false;
		for (size_t i = 0; i < list->n; i++)
			if (is_called(&list->jobs[i], target, by_name))
				list->jobs[i].selected = found = true;
	}
	return found;
}

int select_explain(const struct job_list *list, const char *target)
{
	pid_t pid = select_pid_of(target);
	char ids[IDS_SIZE];
	size_t silent = 0, n = ids_of(list, target, ids, sizeof(ids));

	if (n > 1) {
		complain("'%s' is the name of %zu jobs: %s; give an ID", target, n, ids);
		return EXIT_NO_JOB;
	}
	if (pid >= 0)
		return select_explain_pid(list, pid);
	for (size_t i = 0; i < list->n; i++)
		silent += !list->jobs[i].described && !job_is_gone(&list->jobs[i]);
	if (silent)
		complain("no job that answers is called '%s' (%zu do not answer; try a PID)",
			 target, silent);
	else
		complain("there is no job '%s'; 'cudaw ps' lists those that use CUDA", target);
	return EXIT_NO_JOB;
}
