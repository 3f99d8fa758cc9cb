/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SELECT_H
#define CUDAW_SELECT_H
/*
 * Finds the jobs of a list that a word of the command line means. A number is a PID first, and then
 * a name like any other word. IDs and names are only known of jobs that have been asked
 * (jobs_describe()), also without an answer. A number that is none of these may be the PID of another
 * process of a job.
 */
#include "tools/job/jobs.h"

/* @target as a PID; -1: it is not a number. */
pid_t select_pid_of(const char *target);

/*
 * The job that @pid means: the process that has this PID in our PID namespace, or, if none has, the
 * job of another PID namespace that has it there. NULL: none, or several.
 */
struct job *select_find_pid(const struct job_list *list, pid_t pid);

/* Select it. False: there is none. */
bool select_pid(const struct job_list *list, pid_t pid);

/*
 * Select the processes of the job whose ID, or else whose name, is @target, and that answer or are
 * stopped. False if there is none, or if several jobs have the name, also without an answer.
 */
bool select_job(struct job_list *list, const char *target);

/*
 * The processes that have the number @pid: the process that has this PID here, or, if it is free
 * here, those that have it in their own PID namespace. At most @max, in @processes. Returns their
 * number.
 */
size_t select_processes(pid_t pid, struct process *processes, size_t max);

#define SELECT_PROCESSES 64

/*
 * Whether one of @processes belongs to @job without being its process: it is an ancestor (a wrapper
 * script, a launcher) or a descendant of that, or was started with the ID of the job. Process 1 is
 * an ancestor of all.
 */
bool select_relates(const struct job *job, const struct process *processes, size_t n);

/*
 * Select all processes of the job that the process @pid belongs to. False if it belongs to no job,
 * or to several.
 */
bool select_related(struct job_list *list, pid_t pid);

/* Print why @target, or a process @pid, means no job. Returns the exit code. */
int select_explain(const struct job_list *list, const char *target);
int select_explain_pid(const struct job_list *list, pid_t pid);

#endif
