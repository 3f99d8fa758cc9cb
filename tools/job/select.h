/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SELECT_H
#define CUDAW_SELECT_H
/*
 * Which jobs of a list a word of the command line means. A number is a PID first, and then a name
 * as any other word. Jobs whose ID or name is looked up have been described (jobs_describe()).
 */
#include "tools/job/jobs.h"

/* The PID that @target is, or -1 where it is none. */
pid_t select_pid_of(const char *target);

/*
 * The job that @pid means: the process that has it here, or else, where none has, a job in another
 * PID namespace that has it there. NULL: none, or several.
 */
struct job *select_find_pid(const struct job_list *list, pid_t pid);

/* Select it. False where there is none. */
bool select_pid(const struct job_list *list, pid_t pid);

/*
 * Select the processes of the job whose ID, or else whose name, is @target. False where there is
 * none, or several jobs have the name.
 */
bool select_job(struct job_list *list, const char *target);

/* Say why @target, or a process @pid, means no job. Returns the exit code. */
int select_explain(const struct job_list *list, const char *target);
int select_explain_pid(const struct job_list *list, pid_t pid);

#endif
