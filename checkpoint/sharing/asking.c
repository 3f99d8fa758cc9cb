/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/asking.h"
#include "checkpoint/sharing/sharers.h"
#include "common/limits.h"
#include "common/protocol/pact.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

double sharing_waited_ms(void)
{
	return patience_ms(&sharing.patience);
}

void sharing_say_stage(enum sharing_stage stage, enum sharing_vote vote)
{
	pthread_mutex_lock(&sharing.lock);
	sharing.stage = stage;
	sharing.vote = vote;
	for (size_t i = 0; i < sharing.nmembers; i++)
		sharing.members[i].heard = false;
	pthread_mutex_unlock(&sharing.lock);
}

int sharing_ask(const struct sharing_process *process, enum sharing_kind kind,
		const unsigned char *key, struct sharing_answer *answer)
{
	struct sharing_request request;
	int fd, error;

	sharing_request_begin(&request, kind);
	if (key)
		memcpy(request.key, key, sizeof(request.key));
	error = sharers_ask(&sharing.patience, process, &request, answer, &fd);
	if (fd >= 0)
		close(fd);
	return error;
}

/* In the pause in which this process takes part. */
static bool says_failed(const struct sharing_member *m)
{
	return m->answer.cycle == m->cycle && m->answer.stage == SHARING_RELEASED &&
	       m->answer.vote == SHARING_OFF;
}

bool sharing_is_gone(const struct sharing_member *m)
{
	return m->error == -ESRCH;
}

void sharing_ask_member(struct sharing_member *m, enum sharing_kind kind,
			struct sharing_answer *answer)
{
	int error = sharing_ask(&m->process, kind, NULL, answer);

	m->error = error;
	if (!error || sharing_is_gone(m))
		m->silent_ms = 0;
	else if (m->silent_ms <= 0)
		m->silent_ms = sharing_waited_ms();
	if (!error)
		memcpy(&m->answer, answer, offsetof(struct sharing_answer, sharers));
	if (error || !says_failed(m))
		m->failed_ms = 0;
	else if (!m->failed_ms)
		m->failed_ms = sharing_waited_ms();
}

bool sharing_is_joint(void)
{
	return sharing.nmembers;
}

pid_t sharing_other(const int *pids, size_t n)
{
	for (size_t i = 0; i < sharing.nmembers; i++) {
		pid_t pid = sharing.members[i].process.pid;
		bool found = sharing_is_gone(&sharing.members[i]);

		for (size_t k = 0; k < n && !found; k++)
			found = pids[k] == pid;
		if (!found)
			return pid;
	}
	return 0;
}

struct sharing_member *sharing_find_member(const struct sharing_process *process)
{
	for (size_t i = 0; i < sharing.nmembers; i++)
		if (sharing_lists(process, 1, &sharing.members[i].process))
			return &sharing.members[i];
	return NULL;
}

static void add_members(const struct sharing_process *list, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (sharers_is_self(&list[i]) || sharing_find_member(&list[i]) ||
		    sharing.nmembers == SHARING_PROCESSES)
			continue;
		pthread_mutex_lock(&sharing.lock);
		sharing.members[sharing.nmembers++] =
			(struct sharing_member){.process = list[i], .holds = true};
		pthread_mutex_unlock(&sharing.lock);
	}
}

void sharing_drop_members(void)
{
	pthread_mutex_lock(&sharing.lock);
	sharing.nmembers = 0;
	pthread_mutex_unlock(&sharing.lock);
}

/* False if it is none. */
static bool forget_importer(const struct sharing_process *importer)
{
	bool found;

	pthread_mutex_lock(&sharing.lock);
	found = sharing_forget_importer(importer);
	pthread_mutex_unlock(&sharing.lock);
	return found;
}

bool sharing_gather(const bool *cancel)
{
	struct sharing_process list[SHARING_PROCESSES];
	struct sharing_answer answer;
	bool settled = true;

	sharing_drop_members();
	add_members(list, sharing_list_sharers(list));
	for (size_t i = 0; i < sharing.nmembers; i++) {
		struct sharing_member *m = &sharing.members[i];

		if (__atomic_load_n(cancel, __ATOMIC_RELAXED)) {
			m->error = -EAGAIN;
			continue;
		}
		sharing_ask_member(m, SHARING_STATE, &answer);
		if (sharing_is_gone(m) || (!m->error && !answer.holds))
			settled &= !forget_importer(&m->process);
		if (m->error)
			continue;
		m->cycle = answer.cycle;
		add_members(answer.sharers, answer.nsharers);
	}
	return settled;
}

/* The ID of a member's job; NULL: it is this process's, or not known. */
static const char *other_job(const struct sharing_member *m)
{
	return m && *m->answer.job && strcmp(m->answer.job, sharers_job()) ? m->answer.job : NULL;
}

/* Those that have room. */
static void list_jobs(char jobs[SHARING_JOBS])
{
	size_t len = 0;

	*jobs = '\0';
	for (size_t i = 0; i < sharing.nmembers; i++) {
		const char *job = other_job(&sharing.members[i]);

		if (job && !strstr(jobs, job) && len + RUNDIR_ID_SIZE < SHARING_JOBS)
			len += (size_t)sprintf(jobs + len, " %s", job);
	}
}

size_t sharing_sharers(const bool *cancel, char jobs[SHARING_JOBS])
{
	struct sharing_process list[SHARING_PROCESSES];

	objects_close_exports();
	sharing_gather(cancel);
	list_jobs(jobs);
	sharing_drop_members();
	return sharing_list_sharers(list);
}

void sharing_ask_all(enum sharing_kind kind)
{
	struct sharing_answer answer;

	for (size_t i = 0; i < sharing.nmembers; i++)
		sharing_ask_member(&sharing.members[i], kind, &answer);
}

static enum verdict judge_unasked(const struct sharing_member *m)
{
	return sharing_waited_ms() - m->silent_ms > SHARING_SILENT_MS ? SILENT : UNASKED;
}

struct sharing_member *sharing_find(enum verdict (*judge)(const struct sharing_member *),
				    enum verdict *verdict)
{
	struct sharing_member *found = NULL;

	*verdict = GO_ON;
	for (size_t i = 0; i < sharing.nmembers; i++) {
		struct sharing_member *m = &sharing.members[i];
		enum verdict one = m->error && !sharing_is_gone(m) ? judge_unasked(m) : judge(m);

		if (one <= *verdict)
			continue;
		*verdict = one;
		found = m;
	}
	return found;
}

bool sharing_is_cancelled(const struct sharing_wait *w)
{
	return __atomic_load_n(w->cancel, __ATOMIC_RELAXED) || (w->pact && pact_is_ended(w->pact));
}

bool sharing_is_late(const struct sharing_wait *w)
{
	return w->deadline_ms && limits_ms() > w->deadline_ms;
}

int sharing_ended(const struct sharing_wait *w)
{
	return sharing_is_cancelled(w) ? -ECANCELED : sharing_is_late(w) ? -ETIME : 0;
}

const char *sharing_describe(pid_t pid, const struct sharing_member *m, char buf[SHARING_WHO])
{
	const char *job = other_job(m);

	snprintf(buf, SHARING_WHO, "process %d%s%s", pid, job ? " of job " : "", job ? job : "");
	return buf;
}

int sharing_fail_wait(struct sharing_wait *w, int error, const struct sharing_member *m,
		      const char *why)
{
	char unasked[SHARING_WHY], who[SHARING_WHO];

	if (m->error && !sharing_is_gone(m)) {
		sharers_why(&m->process, m->error, unasked, sizeof(unasked));
		why = unasked;
	}
	snprintf(w->text, sizeof(w->text), "%s, which shares memory with this one, %s",
		 sharing_describe(m->process.pid, m, who), why);
	list_jobs(w->jobs);
	return error;
}

enum verdict sharing_judge_failed(const struct sharing_member *m)
{
	return m->failed_ms && sharing_waited_ms() - m->failed_ms > SHARING_BEGIN_MS ? FAILED
										     : GO_ON;
}

int sharing_follow(struct sharing_wait *w, const struct sharing_member *m)
{
	sharing.follows = true;
	return sharing_fail_wait(w, -ENOLINK, m, "has failed to resume");
}
