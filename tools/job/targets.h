/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TARGETS_H
#define CUDAW_TARGETS_H
/*
 * The processes that the IDs, names and PIDs of a command line mean. select.h compares one word
 * with a list of jobs; here the list is found, the jobs are asked, and stopped processes and
 * processes without an answer are dealt with.
 */
#include "tools/job/jobs.h"
#include "tools/job/narrow.h"

struct targets {
	const char *verb; /* the subcommand, for messages */
	char **words;
	int nwords;
	bool all;           /* all jobs, instead of @words */
	struct narrow only; /* of all */
	bool continues;     /* send SIGCONT to stopped processes, as a resume does */
	bool bears_stopped; /* select them though they do not answer; their error is -JOB_STOPPED */
	bool dry_run;       /* but not now: only find them */

	struct job_list list; /* selected is set in those that are meant; free with jobs_free() */
	int code;             /* exit code of the first failure; 0: none */
};

/* Keep @code as the exit code, unless there is one. */
void targets_fail(struct targets *targets, int code);

/*
 * Find all jobs and select those that are meant. Words that mean no job are named on stderr, and
 * the code is set. If a word means several jobs, the code is EXIT_USAGE (unless another came first),
 * and nothing is selected or continued. Returns 0, or an exit code if the runtime directory cannot be used.
 */
int targets_find(struct targets *targets);

/* The selected jobs: an array of *@n, to be freed. NULL: out of memory. */
struct job **targets_selected(struct targets *targets, size_t *n);

/*
 * The process that @word, an ID, name or PID, means, with its status if it answers. If it means several of one job: the
 * first one, or with @one none. The caller frees @list in any case. NULL after a message, with an exit code in
 * *@code.
 */
struct job *targets_find_one(const char *verb, const char *word, bool one, struct job_list *list,
			     int *code);

/* The ID of the job of @job: from its status, or, without an answer, from its environment. */
void targets_id(const struct job *job, char id[RUNDIR_ID_SIZE]);

#endif
