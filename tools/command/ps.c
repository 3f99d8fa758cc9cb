/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/tools.h"

#include "common/text.h"
#include "tools/job/jobs.h"
#include "tools/process/driver_child.h"
#include "tools/command/output.h"
#include "tools/command/table.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char help_ps[] =
	"Usage: cudaw ps [--json]\n"
	"\n"
	"List the processes that use CUDA under cudaw, and those that the driver has paused\n"
	"('cudaw pause --driver'): yours, or all users' for root. Those in containers are found\n"
	"too, and jobs that have not begun to use CUDA. If CUDAW_RUNTIME_DIR is set, only jobs with\n"
	"the same directory are listed.\n"
	"\n"
	"  -j, --json  exact figures (bytes, milliseconds), as a JSON array\n"
	"  -h, --help  this text\n"
	"\n"
	"Columns:\n"
	"  ID         the job; the same for all its processes\n"
	"  NAME       from 'cudaw run --name'\n"
	"  PID, USER  the process\n"
	"  GPU        ordinals of the devices it uses, as the process counts them\n"
	"  STATE      starting (no CUDA call of it has succeeded yet), running, pausing, paused,\n"
	"             resuming, waiting (for memory of a resume or an allocation, or for a turn),\n"
	"             failed (a resume failed; the data is kept, resume it again), stopped (by a\n"
	"             signal or a terminal: 'cudaw resume' continues it), locked (by the driver, as\n"
	"             for a checkpoint: 'cudaw resume PID' unlocks it), or 'no answer'\n"
	"  AGE        since the process was started\n"
	"  CARRIED    GPU memory that cudaw moves: a pause gives it back, a resume rebuilds it\n"
	"  LEFT TO DRIVER  GPU memory that only the driver's own checkpoint can move\n"
	"  PAUSED     bytes of a paused job in host memory and in its spill file\n"
	"  LAST PAUSE, LAST RESUME  how long the last one took, and its rate\n"
	"  COMMAND    the command line, cut\n"
	"Below the table: why a job is in its state, or why the last request failed; which\n"
	"signal does not pause or resume it; why it takes no turns though it is to; the driver that\n"
	"it uses past cudaw; and why its addresses are translated if CUDAW_ADDRESSING does not say\n"
	"so.\n"
	"\n"
	"Exit codes: 0 done, 1 the runtime directory cannot be used, 2 wrong usage.\n";

enum {
	ID,
	NAME,
	PID,
	USER,
	GPU,
	STATE,
	AGE,
	CARRIED,
	LEFT,
	PAUSED,
	PAUSE,
	RESUME,
	COMMAND,
	COLUMNS
};

#define DRIVER_MS 3000 /* for the driver's answers about other processes */

static void fill_transfer(char *cell, const struct job_transfer *transfer)
{
	char duration[FORMAT_SIZE], rate[FORMAT_SIZE];

	if (!transfer->known)
		return;
	snprintf(cell, TABLE_CELL, "%s, %s", format_duration(duration, transfer->ms),
		 format_rate(rate, transfer->bytes, transfer->ms));
}

/* A job that takes turns has its lease, and runs, while an allocation of it waits. */
static const char *state_of(const struct job_status *st)
{
	return st->waits.what[0] && !strcmp(st->state, "running") ? "waiting" : st->state;
}

static void fill_row(char (*cell)[TABLE_CELL], const struct job *job)
{
	const struct job_status *st = &job->status;
	size_t len = 0;

	snprintf(cell[PID], TABLE_CELL, "%d", job->pid);
	table_user(job->uid, cell[USER]);
	if (job->seen)
		format_duration(cell[AGE], process_age_ms(&job->process));
	if (!job->described) {
		snprintf(cell[STATE], TABLE_CELL, "%s", job_error_text(job->error));
		return;
	}
	snprintf(cell[STATE], TABLE_CELL, "%s", state_of(st));
	if (st->command[0])
		format_copy(cell[COMMAND], TABLE_CELL, st->command);
	if (job->by_driver)
		return;
	snprintf(cell[ID], TABLE_CELL, "%s", st->id);
	if (st->name[0])
		format_copy(cell[NAME], TABLE_CELL, st->name);
	for (int i = 0; i < st->ngpus && len < TABLE_CELL; i++)
		len += snprintf(cell[GPU] + len, TABLE_CELL - len, "%s%d", i ? "," : "",
				st->gpus[i].ordinal);
	format_bytes(cell[CARRIED], st->carried);
	format_bytes(cell[LEFT], st->left_to_driver);
	format_bytes(cell[PAUSED], st->paused + st->spilled);
	fill_transfer(cell[PAUSE], &st->pause);
	fill_transfer(cell[RESUME], &st->resume);
}

static void print_reason(const struct job *job)
{
	const struct job_status *st = &job->status;
	char lasted[FORMAT_SIZE];

	printf("%d: %s", job->pid, st->reason);
	if (st->waits.what[0])
		printf("; for %s", format_duration(lasted, (uint64_t)st->waits.ms));
	puts("");
}

static int print_table(struct job **jobs, size_t n)
{
	static const char *const titles[] = {
		"ID",      "NAME",           "PID",    "USER",       "GPU",         "STATE",  "AGE",
		"CARRIED", "LEFT TO DRIVER", "PAUSED", "LAST PAUSE", "LAST RESUME", "COMMAND"};
	struct table table = {.titles = titles, .columns = COLUMNS};
	char(*cell)[TABLE_CELL];

	for (size_t i = 0; i < n && (cell = table_row(&table)); i++)
		fill_row(cell, jobs[i]);
	if (!table_print(&table))
		return EXIT_FAILED;
	for (size_t i = 0; i < n; i++) {
		const struct job_status *st = &jobs[i]->status;
		char path[PATH_MAX], text[SCAN_PAST_TEXT];

		if (jobs[i]->past[0])
			printf("%d: %s\n", jobs[i]->pid, job_past_text(jobs[i], text));
		if (st->reason[0])
			print_reason(jobs[i]);
		if (st->signals[0])
			printf("%d: %s\n", jobs[i]->pid, st->signals);
		if (st->no_turns[0])
			printf("%d: takes no turns: %s\n", jobs[i]->pid, st->no_turns);
		if (st->addressing_why[0])
			printf("%d: %s addresses: %s\n", jobs[i]->pid, st->addressing,
			       st->addressing_why);
		format_copy(path, sizeof(path), st->snapshot);
		if (path[0])
			printf("%d: only %s has its memory\n", jobs[i]->pid, path);
	}
	return EXIT_DONE;
}

/* Nobody knows how much memory a process has that does not run under cudaw. */
static json_t *amount(const struct job *job, uint64_t bytes)
{
	return job->by_driver ? json_null() : json_integer(bytes);
}

/* Every key is always there; unknown values are null. */
static json_t *job_object(const struct job *job)
{
	const struct job_status *st = &job->status;
	char user[TABLE_CELL];
	json_t *gpus = json_array();
	json_t *object =
		json_pack("{s:i, s:i, s:s, s:o}", "pid", job->pid, "uid", job->uid, "user",
			  table_user(job->uid, user), "error",
			  job->described ? json_null() : json_string(job_error_text(job->error)));

	for (int i = 0; i < st->ngpus; i++)
		json_array_append_new(gpus, json_pack("{s:i, s:s, s:s}", "ordinal",
						      st->gpus[i].ordinal, "uuid", st->gpus[i].uuid,
						      "name", st->gpus[i].name));
	json_object_set_new(object, "own_pid", json_integer(job->own_pid));
	json_object_set_new(object, "age_ms",
			    job->seen ? json_integer(process_age_ms(&job->process)) : json_null());
	json_object_set_new(object, "gpu", gpus);
	json_object_set_new(object, "by_driver", json_boolean(job->by_driver));
	json_object_set_new(object, "id", output_text_or_null(st->id));
	json_object_set_new(object, "name", output_text_or_null(st->name));
	json_object_set_new(object, "command", output_text_or_null(st->command));
	json_object_set_new(object, "state", output_text_or_null(state_of(st)));
	json_object_set_new(object, "reason", output_text_or_null(st->reason));
	json_object_set_new(object, "waits",
			    st->waits.what[0] ? json_pack("{s:s, s:I, s:I}", "for", st->waits.what,
							  "bytes", (json_int_t)st->waits.bytes,
							  "ms", (json_int_t)st->waits.ms)
					      : json_null());
	json_object_set_new(object, "signals", output_text_or_null(st->signals));
	json_object_set_new(object, "no_turns", output_text_or_null(st->no_turns));
	json_object_set_new(object, "past_cudaw", output_text_or_null(job->past));
	json_object_set_new(object, "addressing", output_text_or_null(st->addressing));
	json_object_set_new(object, "snapshot",
			    st->snapshot[0] ? output_text(st->snapshot) : json_null());
	json_object_set_new(object, "carried", amount(job, st->carried));
	json_object_set_new(object, "left_to_driver", amount(job, st->left_to_driver));
	json_object_set_new(object, "paused", amount(job, st->paused));
	json_object_set_new(object, "spilled", amount(job, st->spilled));
	json_object_set_new(object, "pool", amount(job, st->pool));
	output_transfer(object, "pause_", &st->pause);
	output_transfer(object, "resume_", &st->resume);
	return object;
}

static int print_json(struct job **jobs, size_t n)
{
	json_t *array = json_array();
	int ret;

	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, job_object(jobs[i]));
	ret = output_json(array);
	json_decref(array);
	return ret;
}

/* A row for a process that does not run under cudaw, and that the driver has paused. */
static void describe_listed(struct job *job, const struct driver_listed *found)
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

static int list_jobs(struct job_list *list, bool json)
{
	struct driver_answer answer;
	struct job **jobs, *others;
	size_t n = 0;
	int ret;

	if (!driver_child_list(DRIVER_MS, &answer))
		complain("the driver does not answer: processes that it has paused may be missing");
	if (answer.slow)
		complain("processes that the driver has paused may be missing: looking into "
			 "process %d takes too long",
			 answer.slow);
	jobs = calloc(list->n + list->nstarting + answer.nlisted + 1, sizeof(*jobs));
	others = calloc(answer.nlisted + 1, sizeof(*others));
	if (!jobs || !others) {
		free(jobs);
		free(others);
		complain("out of memory");
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < list->n; i++)
		jobs[i] = &list->jobs[i];
	jobs_describe(jobs, list->n);
	for (size_t i = 0; i < list->n; i++)
		if (!job_is_gone(&list->jobs[i]))
			jobs[n++] = &list->jobs[i];
	for (size_t i = 0; i < list->nstarting; i++)
		jobs[n++] = &list->starting[i];
	for (int i = 0; i < answer.nlisted; i++) {
		describe_listed(&others[i], &answer.listed[i]);
		jobs[n++] = &others[i];
	}
	ret = json ? print_json(jobs, n) : print_table(jobs, n);
	free(jobs);
	free(others);
	return ret;
}

int cmd_ps(int argc, char **argv)
{
	struct job_list list;
	bool json = false;
	int code, ret;

	code = json_option(argc, argv, "ps", help_ps, &json);
	if (code >= 0)
		return code;
	if (optind < argc) {
		complain("ps takes no argument: '%s'", argv[optind]);
		return usage_error("ps");
	}
	ret = jobs_find(&list);
	if (ret)
		return ret;
	ret = list_jobs(&list, json);
	jobs_free(&list);
	return ret;
}
