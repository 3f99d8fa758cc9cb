/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WHOLE_H
#define CUDAW_WHOLE_H
/*
 * All processes of a job, also those that do not use CUDA: what "cudaw run" became, and all below. It gave them the
 * job's id (CUDAW_JOB). Users choose their environment, so only processes of the job's user count.
 */
#include "tools/job/jobs.h"
#include "tools/process/criu/tree.h"

/*
 * The topmost process above @job with its @id (targets_id()); the process of @job itself if there is none.
 *
 * *@unknown: a process for which a later look may not find this one, because it has overwritten its environment, as
 * a program does that sets its title: one above @root, which may belong to the job, or @job's if @root is another. 0:
 * none.
 */
void whole_root(const struct job *job, const char *id, struct process *root, pid_t *unknown);

/*
 * A process with the @id of @job that is not in @tree, other than this command, in *@stray; 0: none. 0 or a negative
 * errno: -ETIMEDOUT if the environment of a process cannot be read in time.
 */
int whole_stray(const struct job *job, const char *id, const struct tree *tree, pid_t *stray);

#endif
