/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/party/coordinate.h"

#include "tools/job/party/rest.h"
#include "common/patience.h"
#include "common/protocol/pact.h"
#include "common/text.h"
#include "tools/report/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_MS  2    /* while jobs are held */
#define LATER_MS 100  /* for a request to a job that is silent */
#define MADE_MS  5000 /* for a job to listen again after its program has closed its socket */

struct party {
	struct party *next;
	struct rest rest;
	bool committed, aborted;
	int token; /* of all ranks (protocol.h): of a pause an eventfd, of a resume the pact; -1: none */
	struct pact *pact;
	int kept;       /* of those that are lent: a pact for the end of that; -1: none */
	size_t members; /* of that */
	int error;      /* why there is no pact of those that resume */
	const struct job *culprit; /* it failed, so the others must not commit; or NULL */

	int awaited; /* a process that is silent, for which the others resume not yet; 0: none */

	/* In a mend. */
	double further_ms; /* listened_ms() when one of its processes last got further, or ended */
	size_t open;       /* processes that have not ended */
	bool stuck;        /* none has got further in time: all end for that */
	const struct job *missing; /* the last one that has not resumed; before that, the culprit */
};

static struct party *parties;

/* Of the jobs that were lent last, and paused; -1: they have no pact, or have used it. */
static int lent = -1;
static size_t lent_members;

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* The clock of all that is waited for here, which looks at it after each line and each LOOK_MS. */
static double listened_ms(void)
{
	static struct patience patience;

	return patience_ms(&patience);
}

static bool same_job(const struct job *a, const struct job *b)
{
	/* Any user can claim an ID. */
	return a->described && b->described && a->directory->owner == b->directory->owner &&
	       !strcmp(a->status.id, b->status.id);
}

static void drop_token(struct party *party)
{
	pact_close(party->pact);
	party->pact = NULL;
	close_fd(&party->token);
}

/* All of those that were lent have it already: if only some of them hear that they are to resume, all do. */
static int make_pact(size_t members)
{
	int pact = lent;

	if (lent < 0 || lent_members != members)
		return pact_create(members);
	lent = -1;
	return pact;
}

/* Of a resume of @count processes, or of a pause. 0 or a negative errno. */
static int make_token(struct party *party, bool resume, size_t count)
{
	int error = 0;

	party->token = resume ? make_pact(count) : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (party->token < 0)
		return resume ? party->token : -errno;
	if (resume)
		party->pact = pact_open(party->token);
	if (resume && !party->pact) {
		error = -errno;
		drop_token(party);
	}
	return error;
}

/* Make a party of @first and the other processes of its job, if there are any. */
static int found_party(struct job **jobs, size_t n, struct job *first, enum coordinate_what what)
{
	struct party *party;
	size_t count = 1;
	int error;

	for (size_t i = 0; i < n; i++)
		count += jobs[i] != first && same_job(jobs[i], first);
	if (count == 1)
		return 0;
	party = calloc(1, sizeof(*party));
	if (!party)
		return -ENOMEM;
	party->token = party->kept = -1;
	party->members = count;
	party->next = parties;
	parties = party;
	error = make_token(party, what == COORDINATE_RESUME, count);
	if (!error && what == COORDINATE_LEND)
		party->kept = pact_create(count);
	if (error || (what == COORDINATE_LEND && party->kept < 0))
		return error ? error : party->kept;
	if (rest_init(&party->rest, count, (uint32_t)getpid(), listened_ms()))
		return -ENOMEM;
	count = 0;
	for (size_t i = 0; i < n; i++)
		if (same_job(jobs[i], first)) {
			jobs[i]->party = party;
			jobs[i]->token = party->token;
			jobs[i]->pact = party->kept;
			jobs[i]->rank = count++;
		}
	return 0;
}

int coordinate_begin(struct job **jobs, size_t n, enum coordinate_what what)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		if (!jobs[i]->party)
			err = found_party(jobs, n, jobs[i], what);
	if (err) {
		coordinate_end(jobs, n);
		complain("not all of a job can be asked together: %s", error_text(-err));
	}
	return err;
}

void coordinate_end(struct job **jobs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		jobs[i]->party = NULL, jobs[i]->token = jobs[i]->pact = 0;
	while (parties) {
		struct party *party = parties;

		parties = party->next;
		if (party->kept >= 0 && party->committed && !party->culprit) {
			close_fd(&lent);
			lent = party->kept;
			lent_members = party->members;
			party->kept = -1;
		}
		close_fd(&party->kept);
		drop_token(party);
		rest_fini(&party->rest);
		free(party);
	}
}

int coordinate_take(struct job *job, const struct line *line)
{
	struct party *party = job->party;

	if (!party)
		return line->id == REPORT_HELD ? -EBADMSG : 0;
	if (party->committed || party->culprit)
		return 0;
	return rest_take(&party->rest, job->rank, line, listened_ms());
}

static bool ended_with(const struct job *job, enum end_code end)
{
	return job->fd < 0 && !job->error && job->end == end;
}

static bool ended_well(const struct job *job)
{
	return ended_with(job, END_OK);
}

static bool any_open(struct job **jobs, size_t n, const struct party *party)
{
	for (size_t i = 0; i < n; i++)
		if (jobs[i]->party == party && (jobs[i]->fd >= 0 || jobs[i]->queued))
			return true;
	return false;
}

/* A job of the party that ended before all were ready, rather the one that the others followed; or NULL. */
static const struct job *find_culprit(struct job **jobs, size_t n, struct party *party)
{
	const struct job *follower = NULL;

	for (size_t i = 0; i < n; i++) {
		if (jobs[i]->party != party || jobs[i]->fd >= 0 || jobs[i]->queued)
			continue;
		if (!jobs[i]->error && !jobs[i]->end)
			continue; /* this command does not wait for it */
		if (ended_with(jobs[i], END_BUSY)) {
			follower = jobs[i];
			continue;
		}
		if (!ended_well(jobs[i]) && !ended_with(jobs[i], END_TURN))
			return jobs[i];
		/* It was already paused, or running, or waits for its turn. */
		rest_leave(&party->rest, jobs[i]->rank);
	}
	return follower;
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
		if (jobs[i]->party != party || !rest_has_comms(&party->rest, jobs[i]->rank))
			continue;
		for (size_t k = 0; k < n; k++) {
			if (k == i || jobs[k]->party != party ||
			    !rest_has_comms(&party->rest, jobs[k]->rank) ||
			    !share_gpu(jobs[i], jobs[k]))
				continue;
			job_say(jobs[i], "beside %d", jobs[k]->pid);
			break;
		}
	}
}

static void give_orders(struct job **jobs, size_t n, const struct party *party)
{
	char text[REACH_TEXT];

	for (size_t i = 0; i < n; i++)
		if (jobs[i]->party == party && rest_order(&party->rest, jobs[i]->rank, text))
			job_say(jobs[i], "%s", text);
}

static void lead(struct job **jobs, size_t n, struct party *party)
{
	const struct job *culprit = find_culprit(jobs, n, party);

	if (culprit && party->pact && !pact_stop(party->pact)) {
		party->committed = true; /* it has ended since all went on */
		return;
	}
	if (culprit) {
		if (!party->aborted)
			say_to_all(jobs, n, party, "abort");
		party->aborted = true;
		/* Those that follow by their pact may end before the one that they follow. */
		if (!ended_with(culprit, END_BUSY) || !party->pact || !any_open(jobs, n, party))
			party->culprit = culprit;
		return;
	}
	switch (rest_next(&party->rest, listened_ms())) {
	case REST_READY:
		tell_of_sharing(jobs, n, party);
		party->committed = true;
		/* From here on all commit, even if this process is killed between two lines. */
		if (party->token >= 0 && !party->pact)
			eventfd_write(party->token, 1);
		say_to_all(jobs, n, party, "commit");
		break;
	case REST_GO:
		give_orders(jobs, n, party);
		break;
	case REST_WAIT:
		break;
	}
}

double coordinate_tick(struct job **jobs, size_t n, double idle_ms)
{
	double look_ms = idle_ms;

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
	return !job->party || job->party->pact || job->party->committed;
}

bool coordinate_has_agreed(const struct job *job)
{
	return job->party && job->party->committed;
}

/* Before this command asked it to pause; or its resume had failed, which leaves it paused, too. */
static bool was_paused(const struct job *job)
{
	return job->described && (job_is_in(job, STATE_PAUSED) || job_is_in(job, STATE_FAILED));
}

bool coordinate_gave_up(const struct job *job)
{
	return job->party && job->party->culprit && job->party->culprit != job && !job->error &&
	       (job->end == END_BUSY ||
		/* A pause is undone. Before the commit it had been paused, or resumed, by others. */
		(job->party->committed &&
		 (job->end == END_TURN || (job->end == END_OK && !was_paused(job)))));
}

int coordinate_awaited(const struct job *job)
{
	return job->party ? job->party->awaited : 0;
}

/*
 * False for an end that another request would not change. "unsupported" may be a consequence: others that share
 * memory with the process that has ended do not pause without it.
 */
static bool may_pass(enum end_code end)
{
	return end == END_AGAIN || end == END_BUSY || end == END_OK || end == END_TURN ||
	       end == END_UNSUPPORTED;
}

bool coordinate_asks_again(struct job **jobs, size_t n, const struct job *job)
{
	bool again = false;

	for (size_t i = 0; i < n; i++) {
		if (jobs[i] != job && (!job->party || jobs[i]->party != job->party))
			continue;
		if (jobs[i]->error || !may_pass(jobs[i]->end))
			return false;
		again |= jobs[i]->end == END_AGAIN;
	}
	return again;
}

static int hang_up(struct job *job, const struct line *line)
{
	(void)job, (void)line;
	return 1;
}

/* It cannot be asked to resume together with the others. */
static void leave_paused(struct job *job)
{
	if (job_is_silent(job))
		return;
	job->end = END_FAILED;
	snprintf(job->message, sizeof(job->message),
		 "it stays paused: not all of its job can be asked to resume together: %s",
		 error_text(-job->party->error));
}

/*
 * These resume together, those of a party each: with a pact of them alone. Returns how many do: without a pact none is
 * asked, and stays paused.
 */
static size_t make_pacts(struct job **jobs, size_t n)
{
	size_t left = 0;

	for (struct party *party = parties; party; party = party->next) {
		size_t count = 0;

		for (size_t i = 0; i < n; i++)
			count += jobs[i]->party == party;
		if (!count)
			continue;
		drop_token(party);
		party->error = make_token(party, true, count);
		for (size_t i = 0; i < n; i++)
			if (jobs[i]->party == party)
				jobs[i]->token = party->token;
	}
	for (size_t i = 0; i < n; i++)
		if (jobs[i]->party->error)
			leave_paused(jobs[i]);
		else
			jobs[left++] = jobs[i];
	return left;
}

/*
 * A job that has said nothing since the commit, as it is stopped, say, will pause later, and nobody
 * would resume it. It finds the request then, and the command does not wait for that.
 */
static void resume_later(struct job **jobs, size_t n)
{
	const struct job_request request = {.text = "resume", .limit_ms = LATER_MS};

	jobs_ask(jobs, n, &request);
	for (size_t i = 0; i < n; i++)
		if (!jobs[i]->error)
			jobs[i]->error = -ETIMEDOUT;
}

/*
 * The program has closed its connection, perhaps with all others, and with the socket that it listens on, which it makes
 * again. What it was asked to do goes on, unless it hears that it is to resume.
 */
static void resume_left(struct job *job)
{
	const struct job_request request = {.text = "resume", .limit_ms = LATER_MS};
	struct patience patience = {0};

	do {
		usleep(LATER_MS * 1000);
		jobs_ask(&job, 1, &request);
	} while (job_is_gone(job) && patience_ms(&patience) < MADE_MS);
	job->error = -JOB_LEFT;
}

/* Its resume was under way when this command asked it to pause, and so it said at once that it is. */
static bool was_resuming(const struct job *job)
{
	return job->described && (job_is_in(job, STATE_WAITING) || job_is_in(job, STATE_RESUMING));
}

/* Add those whose resume this pause has called off, and that have told so, or are silent. */
static size_t find_resuming(struct job **jobs, size_t n, bool silent, struct job **found)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		const struct party *party = jobs[i]->party;

		if (party && party->culprit && !party->committed && was_resuming(jobs[i]) &&
		    (silent ? job_is_silent(jobs[i]) : ended_well(jobs[i])))
			found[count++] = jobs[i];
	}
	return count;
}

/*
 * The others do not pause, and kernels of theirs may wait for these: they go on with their resume, all together.
 * One that is silent finds the request later. If it is silent for too long, all are paused again (pact.h).
 */
static void go_on_resuming(struct job **jobs, size_t n)
{
	const struct job_request request = {
		.text = "resume", .party_text = "regain", .limit_ms = LATER_MS, .line = hang_up};
	struct job **again = calloc(n + 1, sizeof(*again));
	size_t well = 0, count;

	if (!again)
		return;
	count = find_resuming(jobs, n, false, again);
	count += find_resuming(jobs, n, true, again + count);
	count = make_pacts(again, count);
	while (well < count && !job_is_silent(again[well]))
		well++;
	jobs_ask(again, count, &request);
	for (size_t i = 0; i < count; i++) {
		if (i >= well)
			again[i]->party->awaited = again[i]->pid, again[i]->error = -ETIMEDOUT;
		else if (!again[i]->error || again[i]->error == -ETIMEDOUT)
			again[i]->end = END_BUSY, again[i]->error = 0;
	}
	free(again);
}

static double mend_ms;         /* listened_ms(): from then on a mend waits for no memory */
static double mend_silence_ms; /* and so long for parties of which no process gets further */

static bool waits_for_memory(const struct job *job)
{
	return job->fd >= 0 && !strcmp(job->progress.phase, "waiting");
}

/* A process says ten times a second how far it is, also while it gets no further. */
static void mend_progress(struct job *job, const struct line *line)
{
	const struct job_progress before = job->progress;

	job_progress_take(job, line);
	if (strcmp(before.phase, job->progress.phase) || before.done != job->progress.done)
		job->party->further_ms = listened_ms();
}

static int mend_line(struct job *job, const struct line *line)
{
	struct party *party = job->party;

	if (line->id == REPORT_HELD)
		return rest_take(&party->rest, job->rank, line, listened_ms());
	if (line->id != REPORT_PROGRESS)
		return 0;
	mend_progress(job, line);
	if (waits_for_memory(job) && listened_ms() >= mend_ms) {
		strcpy(job->message,
		       "it was paused, waits for GPU memory, and runs when that is free");
	} else if (listened_ms() - party->further_ms >= mend_silence_ms || party->stuck) {
		party->stuck = true;
		snprintf(
			job->message, sizeof(job->message),
			"it was paused, waits for process %d, which has not resumed, and runs when "
			"that does",
			party->missing->pid);
	} else {
		return 0;
	}
	job->end = END_TIMEOUT;
	return 1;
}

/* Note who has ended since, and how. */
static void mend_look(struct job **jobs, size_t n, struct party *party)
{
	size_t open = 0;

	for (size_t i = 0; i < n; i++) {
		if (jobs[i]->party != party)
			continue;
		open += jobs[i]->queued || jobs[i]->fd >= 0;
		if (!party->stuck && !jobs[i]->queued && jobs[i]->fd < 0 && !ended_well(jobs[i]))
			party->missing = jobs[i];
	}
	if (open != party->open)
		party->further_ms = listened_ms();
	party->open = open;
}

/* When each one has its memory, or has ended, those that have it run on. */
static double mend_tick(struct job **jobs, size_t n)
{
	listened_ms();
	for (struct party *party = parties; party; party = party->next) {
		bool all = true;

		mend_look(jobs, n, party);
		for (size_t i = 0; i < n; i++)
			if (jobs[i]->party == party)
				all &= !jobs[i]->queued &&
				       (jobs[i]->fd < 0 ||
					rest_is_drained(&party->rest, jobs[i]->rank));
		for (size_t i = 0; i < n && all; i++)
			if (jobs[i]->party == party) {
				job_say(jobs[i], "commit");
				rest_leave(&party->rest, jobs[i]->rank);
			}
	}
	return LOOK_MS;
}

/* Resume those that the pause has paused, together: kernels of theirs may wait for each other. */
static void mend(struct job **jobs, size_t n, double silence_ms)
{
	const struct job_request request = {.text = "resume",
					    .party_text = n > 1 ? "regain" : NULL,
					    .limit_ms = silence_ms,
					    .silence = true,
					    .line = mend_line,
					    .tick = mend_tick};

	for (size_t i = 0; i < n; i++) {
		rest_ask(&jobs[i]->party->rest, jobs[i]->rank);
		jobs[i]->party->missing = jobs[i]->party->culprit;
		jobs[i]->party->further_ms = listened_ms();
	}
	mend_ms = listened_ms() + silence_ms;
	mend_silence_ms = silence_ms;
	n = make_pacts(jobs, n);
	jobs_ask(jobs, n, &request);
	/* Somebody else wants it paused: it was not spared. */
	for (size_t i = 0; i < n; i++)
		if (!jobs[i]->error && jobs[i]->end == END_BUSY)
			jobs[i]->end = END_FAILED;
}

void coordinate_mend(struct job **jobs, size_t n, double silence_ms)
{
	struct job **again = calloc(n + 1, sizeof(*again));
	size_t count = 0;

	go_on_resuming(jobs, n);
	for (size_t i = 0; i < n; i++) {
		if (!jobs[i]->party || !jobs[i]->party->committed || ended_well(jobs[i]))
			continue;
		jobs[i]->party->culprit = jobs[i];
		if (jobs[i]->error == -JOB_LEFT && !was_paused(jobs[i]))
			resume_left(jobs[i]);
		else if (again && job_is_silent(jobs[i]) && !was_paused(jobs[i]))
			again[count++] = jobs[i];
	}
	resume_later(again, count);
	count = 0;
	for (size_t i = 0; again && i < n; i++)
		if (jobs[i]->party && jobs[i]->party->committed && jobs[i]->party->culprit &&
		    ended_well(jobs[i]) && !was_paused(jobs[i]))
			again[count++] = jobs[i];
	mend(again, count, silence_ms);
	free(again);
}
