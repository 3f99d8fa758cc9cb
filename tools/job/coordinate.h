/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_COORDINATE_H
#define CUDAW_COORDINATE_H
/*
 * Pausing the processes of one job together: a party. Each is asked to hold; they come to rest by
 * steps (steps.h); when all are at rest, all are told to commit, and go on as ordinary pauses. If
 * one ends before that, the others run on. If one fails after it, the others are resumed.
 *
 * Resuming them together: each is asked to regain its memory; when all have, all are told to
 * commit, and run on. If one ends before that, the others go back.
 *
 * All or none pause, also where this command is killed between two of the commits: all of a party
 * have the same eventfd, which is written before the first of them (protocol.h). A job of an
 * earlier cudaw does not look there, and runs on; a resume, or another pause, mends that. So it
 * does where one fails after the commit and this command does not live to resume the others.
 */
#include "tools/job/jobs.h"

/*
 * Make parties of those of @jobs that share their id with another. Returns 0 or -ENOMEM. Undo with
 * coordinate_end(), after which a job's party is NULL.
 */
int coordinate_begin(struct job **jobs, size_t n);
void coordinate_end(struct job **jobs, size_t n);

/* Take the value of a "held" line. Returns 0 or -EBADMSG. */
int coordinate_take(struct job *job, const char *value);

/* Give orders. Returns in how many milliseconds to look again, @idle_ms where nobody is held. */
int coordinate_tick(struct job **jobs, size_t n, int idle_ms);

/*
 * True where nothing will stop the job's operation any more: it has no party, or was told to
 * commit.
 */
bool coordinate_is_over(const struct job *job);

/* True where the job ended only because of another one of its party. */
bool coordinate_gave_up(const struct job *job);

/*
 * When all have ended: resume those that paused while another one of their party failed. Those
 * are coordinate_gave_up() then, but for one that says nothing for @silence_ms.
 */
void coordinate_mend(struct job **jobs, size_t n, int silence_ms);

#endif
