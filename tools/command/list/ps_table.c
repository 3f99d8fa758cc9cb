/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/list/ps_table.h"

#include "common/text.h"
#include "tools/report/report.h"

#include <stdio.h>

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
	LIMIT,
	PAUSED,
	PAUSE,
	RESUME,
	COMMAND,
	COLUMNS
};

static const char *const titles[] = {
	"ID",      "NAME",           "PID",   "USER",   "GPU",        "STATE",       "AGE",
	"CARRIED", "LEFT TO DRIVER", "LIMIT", "PAUSED", "LAST PAUSE", "LAST RESUME", "COMMAND"};

/* These fit on a terminal of 80 columns. */
static const struct table_shown usual = {{ID, NAME, PID, USER, GPU, STATE, AGE, CARRIED, COMMAND},
					 9};

const char *ps_state(const struct job *job)
{
	bool waits = job->status.waits.what[0] && job_is_in(job, STATE_RUNNING);

	return waits ? state_names[STATE_WAITING] : job->status.state;
}

static void fill_transfer(char *cell, const struct job_transfer *transfer)
{
	char duration[FORMAT_SIZE], rate[FORMAT_SIZE];

	if (!transfer->known)
		return;
	snprintf(cell, TABLE_CELL, "%s, %s", format_duration(duration, transfer->ms),
		 format_rate(rate, transfer->bytes, transfer->ms));
}

static void fill_limits(char *cell, const struct job_status *st)
{
	char has[FORMAT_SIZE], limit[FORMAT_SIZE];
	size_t len = 0;

	for (int i = 0; i < st->ngpus && len < TABLE_CELL; i++)
		if (st->gpus[i].limit)
			len += snprintf(cell + len, TABLE_CELL - len, "%s%s of %s", len ? ", " : "",
					format_bytes(has, st->gpus[i].limit_used),
					format_bytes(limit, st->gpus[i].limit));
}

static void fill_row(char (*cell)[TABLE_CELL], const struct job *job)
{
	const struct job_status *st = &job->status;
	size_t len = 0;

	snprintf(cell[PID], TABLE_CELL, "%d", job->pid);
	table_user(job->uid, cell[USER]);
	if (job->seen)
		format_duration(cell[AGE], process_age_ms(&job->process));
	if (!job->by_driver)
		snprintf(cell[ID], TABLE_CELL, "%s", st->id);
	if (st->name[0])
		format_copy(cell[NAME], TABLE_CELL, st->name);
	if (!job->described) {
		snprintf(cell[STATE], TABLE_CELL, "%s", job_error_text(job->error));
		return;
	}
	snprintf(cell[STATE], TABLE_CELL, "%s", ps_state(job));
	if (st->command[0])
		format_copy(cell[COMMAND], TABLE_CELL, st->command);
	if (job->by_driver)
		return;
	for (int i = 0; i < st->ngpus && len < TABLE_CELL; i++)
		len += snprintf(cell[GPU] + len, TABLE_CELL - len, "%s%d", i ? "," : "",
				st->gpus[i].ordinal);
	format_bytes(cell[CARRIED], st->carried);
	format_bytes(cell[LEFT], st->left_to_driver);
	fill_limits(cell[LIMIT], st);
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
		printf("; for %s", format_duration(lasted, st->waits.ms));
	else if (st->failed)
		printf("; %s ago", format_duration(lasted, st->failed_ms));
	puts("");
}

/* What the user should know of @job beside its row. */
static void print_below(const struct job *job)
{
	const struct job_status *st = &job->status;
	char path[PATH_MAX], text[SCAN_PAST_TEXT];

	if (job->past[0])
		printf("%d: %s\n", job->pid, job_past_text(job, text));
	if (st->reason[0])
		print_reason(job);
	if (st->signals[0])
		printf("%d: %s\n", job->pid, st->signals);
	if (st->no_turns[0])
		printf("%d: takes no turns: %s\n", job->pid, st->no_turns);
	if (st->addressing_why[0])
		printf("%d: %s addresses: %s\n", job->pid, st->addressing, st->addressing_why);
	format_copy(path, sizeof(path), st->snapshot);
	if (path[0])
		printf("%d: only %s has its memory\n", job->pid, path);
}

bool ps_table_choose(struct ps_table *how, const char *columns)
{
	return table_choose(titles, COLUMNS, columns, &how->chosen);
}

int ps_table_print(const struct ps_table *how, struct job **jobs, size_t n)
{
	struct table table = {.titles = titles,
			      .columns = COLUMNS,
			      .shown = how->chosen.n ? &how->chosen
				       : how->wide   ? NULL
						     : &usual,
			      .may_cut =
				      1 << NAME | 1 << USER | 1 << GPU | 1 << STATE | 1 << COMMAND,
			      .uncut = how->wide};
	char(*cell)[TABLE_CELL];

	for (size_t i = 0; i < n && (cell = table_row(&table)); i++)
		fill_row(cell, jobs[i]);
	if (!table_print(&table))
		return EXIT_FAILED;
	for (size_t i = 0; i < n && !how->chosen.n; i++)
		print_below(jobs[i]);
	return EXIT_DONE;
}
