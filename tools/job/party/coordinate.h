/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_COORDINATE_H
#define CUDAW_COORDINATE_H
/*
 * Pauses and resumes the processes of one job, a party, together.
 *
 * Pause: each process is asked to hold. They come to rest by targets (reach.h), or else by steps
 * (steps.h). When all are at rest, all are told to commit, and continue like ordinary pauses. If a process ends
 * before the commit, the others run on; if it fails afterwards, the others are resumed.
 *
 * Resume: each process is asked to regain its memory, and gets a pact (common/protocol/pact.h) by which they agree to
 * run, whatever becomes of this command. It only listens, and stops the pact if a process ends before. If no pact
 * can be made, none is asked.
 *
 * All pause or none, even if this command is killed between two commits: the processes of a party share an eventfd,
 * which is written before the first commit (protocol.h). If a process fails after the commit, and this command is
 * killed before it resumes the others, a resume or another pause repairs that.
 */
#include "tools/job/jobs.h"

enum coordinate_what {
	COORDINATE_PAUSE,
	COORDINATE_LEND, /* a pause until this process is done, or has ended: then they resume together (protocol.h) */
	COORDINATE_RESUME, /* all that were lent do so by the pact that they have for that */
};

/*
 * Make a party of all @jobs that have the same ID. Returns 0, or a negative errno after a message. Undo with
 * coordinate_end(), which sets the party of the jobs to NULL.
 */
int coordinate_begin(struct job **jobs, size_t n, enum coordinate_what what);
void coordinate_end(struct job **jobs, size_t n);

/* Take a "held" or a "comms" line. Returns 0 or -EBADMSG. */
int coordinate_take(struct job *job, const struct line *line);

/* Send orders. Returns the milliseconds until the next call, @idle_ms if no job is held. */
double coordinate_tick(struct job **jobs, size_t n, double idle_ms);

/*
 * True if the job's operation needs this command no more: it has no party, or a pact, or was told to commit.
 */
bool coordinate_is_over(const struct job *job);

/* True if it has a party that has agreed: it pauses or resumes by itself. */
bool coordinate_has_agreed(const struct job *job);

/* True if the job ended only because another job of its party failed. */
bool coordinate_gave_up(const struct job *job);

/*
 * Of one that goes on with its resume, as others of its party could not be paused: a process that is silent, and has to
 * answer first (within PACT_SILENCE_MS); 0: none.
 */
int coordinate_awaited(const struct job *job);

/* True if the job, or another one of its party, has ended with END_AGAIN, and none has failed for good. */
bool coordinate_asks_again(struct job **jobs, size_t n, const struct job *job);

/*
 * When all have ended: resume the jobs that this pause has paused, or of which it has ended the
 * resume, while another job of their party failed. Those of a party run on together.
 * coordinate_gave_up() is true for them then, unless they failed to resume, were silent for @silence_ms,
 * wait for GPU memory after that time, or for others while none of the party gets further for so long: these
 * run when they can. Those that cannot be asked together stay paused, and have failed. Jobs that were paused before stay so. A job that is silent is asked to resume, too, but
 * has failed all the same.
 */
void coordinate_mend(struct job **jobs, size_t n, double silence_ms);

#endif
