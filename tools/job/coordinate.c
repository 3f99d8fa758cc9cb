/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/coordinate.h"

#include "tools/job/reach.h"
#include "tools/job/steps.h"
#include "common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_MS 2 /* while jobs are held */

struct party {
	struct party *next;
	struct steps steps;
	struct steps_rank *ranks;
	struct reach reach;
	struct reach_rank *reaching;
	bool by_steps; /* the targets have not helped */
	bool committed;
	int token; /* an eventfd of all ranks; once written, they commit (protocol.h) */
	const struct job *culprit; /* it failed, so the others must not commit; or NULL */
};

static struct party *parties;

static bool same_job(const struct job *a, const struct job *b)
{
	/* Any user can claim an ID. */
	return a->described && b->described && a->directory->owner == b->directory->owner &&
	       !strcmp(a->status.id, b->status.id);
}

/* Make a party of @first and the other processes of its job, if there are any. */
static int found_party(struct job **jobs, size_t n, struct job *first)
{
	struct party *party;
	size_t count = 1;

	for (size_t i = 0; i < n; i++)
		count += jobs[i] != first && same_job(jobs[i], first);
	if (count == 1)
		return 0;
	party = calloc(1, sizeof(*party));
	if (!party)
		return -ENOMEM;
	party->ranks = calloc(count, sizeof(*party->ranks));
	party->reaching = calloc(count, sizeof(*party->reaching));
	party->next = parties;
	parties = party;
	party->token = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!party->ranks || !party->reaching)
		return -ENOMEM;
	reach_begin(&party->reach, party->reaching, count, clock_ms());
	steps_begin(&party->steps, party->ranks, count, (uint32_t)getpid(), clock_ms());
	count = 0;
	for (size_t i = 0; i < n; i++)
		if (same_job(jobs[i], first)) {
			jobs[i]->party = party;
			jobs[i]->token = party->token;
			jobs[i]->rank = count++;
		}
	return 0;
}

int coordinate_begin(struct job **jobs, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		if (!jobs[i]->party)
			err = found_party(jobs, n, jobs[i]);
	if (err)
		coordinate_end(jobs, n);
	return err;
}

void coordinate_end(struct job **jobs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		jobs[i]->party = NULL, jobs[i]->token = 0;
	while (parties) {
		struct party *party = parties;

		parties = party->next;
		if (party->token >= 0)
			close(party->token);
		free(party->ranks);
		free(party->reaching);
		free(party);
	}
}

int coordinate_take(struct job *job, const char *value)
{
	bool drained = !strncmp(value, "drained ", 8);
	struct party *party = job->party;
	unsigned int came, number = 0;

	if (!party || (!drained && strncmp(value, "stuck ", 6)) ||
	    sscanf(value, "%*s %u %u", &came, &number) < 1)
		return -EBADMSG;
	/* A step may have taken the place of an order to reach targets, which is not answered then. */
	if (!party->committed && !party->culprit &&
	    (party->by_steps || reach_take_held(&party->reach, job->rank, number, clock_ms())))
		steps_take(&party->steps, job->rank, drained, came, clock_ms());
	return 0;
}

int coordinate_take_peers(struct job *job, const char *value)
{
	struct party *party = job->party;

	return party ? reach_take_peers(&party->reach, job->rank, value, clock_ms()) : 0;
}

static bool ended_well(const struct job *job)
{
	return job->fd < 0 && !job->error && !strcmp(job->end, END_OK);
}

/* A job of the party that ended before all were ready, or NULL. */
static const struct job *find_culprit(struct job **jobs, size_t n, struct party *party)
{
	for (size_t i = 0; i < n; i++) {
		if (jobs[i]->party != party || jobs[i]->fd >= 0 || jobs[i]->queued)
			continue;
		if (!ended_well(jobs[i]))
			return jobs[i];
		/* It was already paused, or running. */
		steps_leave(&party->steps, jobs[i]->rank);
	}
	return NULL;
}

static void say_to_all(struct job **jobs, size_t n, const struct party *party, const char *order)
{
	for (size_t i = 0; i < n; i++)
		if (jobs[i]->party == party)
			job_say(jobs[i], "%s", order);
}

static bool share_gpu(const struct job *a, const struct job *b)
{
	for (int i = 0; i < a->status.ngpus; i++)
		for (int j = 0; j < b->status.ngpus; j++)
			if (!strcmp(a->status.gpus[i].uuid, b->status.gpus[j].uuid))
				return true;
	return false;
}

/* Tell the processes that wait for others, and share a GPU with one that does so, too (protocol.h). */
static void tell_of_sharing(struct job **jobs, size_t n, const struct party *party)
{
	for (size_t i = 0; i < n; i++) {
		if (jobs[i]->party != party || !party->reaching[jobs[i]->rank].n)
			continue;
		for (size_t k = 0; k < n; k++) {
			if (k == i || jobs[k]->party != party ||
			    !party->reaching[jobs[k]->rank].n || !share_gpu(jobs[i], jobs[k]))
				continue;
			job_say(jobs[i], "shares %d", jobs[k]->pid);
			break;
		}
	}
}

/* Lead to rest by targets. False: steps are to be made. */
static bool lead_by_targets(struct job **jobs, size_t n, struct party *party)
{
	enum reach_verdict verdict;
	char text[REACH_TEXT];

	if (party->by_steps || steps_are_over(&party->steps))
		return false;
	verdict = reach_next(&party->reach, &party->steps, clock_ms());
	party->by_steps = verdict == REACH_OVER;
	for (size_t i = 0; i < n; i++) {
		if (verdict == REACH_WAIT || jobs[i]->party != party ||
		    !party->reaching[jobs[i]->rank].ordered)
			continue;
		reach_write(&party->reach, jobs[i]->rank, text);
		job_say(jobs[i], "%s", text);
	}
	return !party->by_steps;
}

static void lead(struct job **jobs, size_t n, struct party *party)
{
	party->culprit = find_culprit(jobs, n, party);
	if (party->culprit) {
		say_to_all(jobs, n, party, "abort");
		return;
	}
	if (lead_by_targets(jobs, n, party))
		return;
	switch (steps_next(&party->steps, clock_ms())) {
	case STEPS_READY:
		tell_of_sharing(jobs, n, party);
		party->committed = true;
		/* From here on all commit, even if this process is killed between two lines. */
		if (party->token >= 0)
			eventfd_write(party->token, 1);
		say_to_all(jobs, n, party, "commit");
		break;
	case STEPS_GO:
		for (size_t i = 0; i < n; i++)
			if (jobs[i]->party == party && party->ranks[jobs[i]->rank].step)
				job_say(jobs[i], "step %u", party->ranks[jobs[i]->rank].step);
		break;
	case STEPS_WAIT:
		break;
	}
}

int coordinate_tick(struct job **jobs, size_t n, int idle_ms)
{
	int look_ms = idle_ms;

	for (struct party *party = parties; party; party = party->next) {
		if (party->committed || party->culprit)
			continue;
		lead(jobs, n, party);
		look_ms = LOOK_MS;
	}
	return look_ms;
}

bool coordinate_is_over(const struct job *job)
{
	return !job->party || job->party->committed;
}

/* Before this command asked it to pause. */
static bool was_paused(const struct job *job)
{
	return job->described && !strcmp(job->status.state, "paused");
}

bool coordinate_gave_up(const struct job *job)
{
	return job->party && job->party->culprit && job->party->culprit != job && !job->error &&
	       (!strcmp(job->end, END_BUSY) || (!strcmp(job->end, END_OK) && !was_paused(job)));
}

static int skip_line(struct job *job, const char *key, char *value)
{
	(void)job, (void)key, (void)value;
	return 0;
}

void coordinate_mend(struct job **jobs, size_t n, int silence_ms)
{
	const struct job_request request = {
		.text = "resume", .limit_ms = silence_ms, .silence = true, .line = skip_line};
	struct job **again = calloc(n + 1, sizeof(*again));
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		if (jobs[i]->party && jobs[i]->party->committed && !ended_well(jobs[i]))
			jobs[i]->party->culprit = jobs[i];
	for (size_t i = 0; again && i < n; i++)
		if (jobs[i]->party && jobs[i]->party->culprit && ended_well(jobs[i]) &&
		    !was_paused(jobs[i]))
			again[count++] = jobs[i];
	jobs_ask(again, count, &request);
	free(again);
}
