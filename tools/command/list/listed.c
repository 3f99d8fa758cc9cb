/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/list/listed.h"

#include "tools/process/driver_child.h"
#include "tools/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_MS 3000 /* for the driver's answers about other processes */

/* A row for a process that does not run under cudaw, and that the driver has paused. */
static void describe_paused(struct job *job, const struct driver_listed *found)
{
	static const struct {
		const char *state, *reason;
	} texts[] = {
		[DRIVER_LOCKED] = {"locked", "locked by the driver, as for a checkpoint; 'cudaw "
					     "resume PID' unlocks it"},
		[DRIVER_CHECKPOINTED] = {"paused", "paused by the driver's own checkpoint; 'cudaw "
						   "resume PID' restores it"},
		[DRIVER_FAILED] = {"failed", "the driver cannot bring it back"},
	};

	*job = (struct job){.pid = found->process.pid,
			    .own_pid = found->process.own_pid,
			    .seen = true,
			    .uid = found->process.uid,
			    .process = found->process,
			    .described = true,
			    .by_driver = true};
	snprintf(job->status.state, sizeof(job->status.state), "%s", texts[found->state].state);
	snprintf(job->status.reason, sizeof(job->status.reason), "%s", texts[found->state].reason);
	strcpy(job->status.command, found->command);
}

static void ask_driver(struct driver_answer *answer)
{
	if (!driver_child_list(DRIVER_MS, answer))
		complain("the driver does not answer: processes that it has paused may be missing");
	if (answer->slow)
		complain("processes that the driver has paused may be missing: looking into "
			 "process %d takes too long",
			 answer->slow);
}

int listed_find(struct listed *listed)
{
	struct job_list *list = &listed->list;
	struct driver_answer answer;
	int code;

	*listed = (struct listed){0};
	code = jobs_find(list);

	if (code)
		return code;
	ask_driver(&answer);
	listed->jobs =
		calloc(list->n + list->nstarting + answer.nlisted + 1, sizeof(*listed->jobs));
	listed->others = calloc(answer.nlisted + 1, sizeof(*listed->others));
	if (!listed->jobs || !listed->others) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < list->n; i++)
		listed->jobs[i] = &list->jobs[i];
	jobs_describe(listed->jobs, list->n);
	for (size_t i = 0; i < list->n; i++)
		if (!job_is_gone(&list->jobs[i]))
			listed->jobs[listed->n++] = &list->jobs[i];
	for (size_t i = 0; i < list->nstarting; i++)
		listed->jobs[listed->n++] = &list->starting[i];
	for (int i = 0; i < answer.nlisted; i++) {
		describe_paused(&listed->others[i], &answer.listed[i]);
		listed->jobs[listed->n++] = &listed->others[i];
	}
	return EXIT_DONE;
}

void listed_free(struct listed *listed)
{
	free(listed->jobs);
	free(listed->others);
	jobs_free(&listed->list);
}
