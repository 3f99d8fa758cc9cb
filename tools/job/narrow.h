/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_NARROW_H
#define CUDAW_NARROW_H
/* What narrows "all jobs" on a command line: to those of a user, to those that use a GPU. */
#include "tools/job/jobs.h"

struct narrow {
	bool by_user;
	uid_t user;
	char gpu[64]; /* its UUID, or the beginning of it; empty: any */
};

/*
 * Take the value of --user, a name or number. Returns 0, or an exit code after a message: also for another user's, whose
 * jobs only root sees.
 */
int narrow_to_user(struct narrow *narrow, const char *text);

/*
 * Take the value of --gpu: the beginning of a UUID, or a number as NVML counts the GPUs of this
 * machine. Returns 0, or an exit code after a message.
 */
int narrow_to_gpu(struct narrow *narrow, const char *text);

/* Whether this machine has a GPU whose UUID begins with @uuid: 1 or 0; -ENOSYS: NVML does not say. */
int narrow_gpu_exists(const char *uuid);

/*
 * Say that no job is meant. Returns an exit code: a GPU that is not there, or of which nobody knows, is no success, since
 * its name may be misspelt.
 */
int narrow_say_none(const struct narrow *narrow);

bool narrow_has_user(const struct narrow *narrow, const struct job *job);

/*
 * Whether @job, or another process of its job in @list, uses the GPU: a job is not paused in part.
 * Only jobs that have been described are known to.
 */
bool narrow_has_gpu(const struct narrow *narrow, const struct job_list *list,
		    const struct job *job);

#endif
