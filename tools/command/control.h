/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTROL_TOOL_H
#define CUDAW_CONTROL_TOOL_H
/* Requests to one process, for commands that make several of them. */
#include "tools/job/jobs.h"

/*
 * The one process that @target, an id, name or PID, means, described where it is running. @list is
 * to be freed in any case. NULL with an exit code in *@code after saying why.
 */
struct job *control_find(struct job_list *list, const char *target, int *code);

/* The id of the job that it is of: as it says, or, where it gives no answer, as it was started. */
void control_id(const struct job *job, char id[RUNDIR_ID_SIZE]);

/*
 * Send @request and wait for its end, showing the progress as @doing. An exit code; a failure has
 * been said, after @verb.
 */
int control_ask(struct job *job, const char *verb, const char *doing, const char *request);

/* Take the value of --timeout. False after saying what is wrong with it. */
bool control_seconds(const char *text, long *ms);

#endif
