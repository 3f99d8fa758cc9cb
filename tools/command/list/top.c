/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw top: the jobs, again and again, each in one row. */
#include "tools/command/tools.h"

#include "common/clock.h"
#include "common/text.h"
#include "tools/command/list/listed.h"
#include "tools/command/list/ps_table.h"
#include "tools/command/turns/turns_list.h"
#include "tools/report/terminal.h"

#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char help_top[] =
	"Usage: cudaw top [OPTION]...\n"
	"\n"
	"Show your jobs that use CUDA under cudaw, or those of all users for root: a row for each\n"
	"job, every 2 seconds until interrupted. On a terminal each table replaces the last one,\n"
	"except if TERM is dumb. Scripts should use 'cudaw ps --json' and 'cudaw turns --json'.\n"
	"\n"
	"  -d, --delay SECONDS  the time from one table to the next (2)\n"
	"  -n, --times N        end after N tables\n"
	"  -h, --help           this text\n"
	"\n"
	"Columns:\n"
	"  JOB        its name, or else its ID, or else the PID of its process\n"
	"  USER       the job's user\n"
	"  STATE      as in 'cudaw ps'; 'mixed': its processes are in different states\n"
	"  CARRIED    GPU memory that cudaw moves, of all its processes\n"
	"  LEFT       GPU memory that is left to the driver\n"
	"  OUT        its memory that is in host memory and on disk\n"
	"  GB/S       the rates of the last pause and the last resume\n"
	"  TURN       if it takes turns: how long its turn lasts at least, if others wait\n"
	"  WAITS FOR  the job that has the memory, or another reason, and how long it has waited\n"
	"\n"
	"Exit codes: 0 done; 1 the runtime directory cannot be used; 2 wrong usage.\n";

enum { JOB, USER, STATE, CARRIED, LEFT, OUT, RATES, TURN, WAITS, COLUMNS };

#define DELAY_MS 2000
#define BESIDE   4 /* lines of a screen that have no job */

struct top {
	double delay_ms;
	unsigned long times; /* 0: without end */
};

/* A job, of which @first is the first process. */
struct row {
	const struct job *first;
	bool mixed;
	uint64_t carried, left, out;
	const struct turns_member *member, *awaited; /* NULL: none */
};

struct rows {
	struct row *rows;
	size_t n;
};

static bool same_job(const struct job *a, const struct job *b)
{
	return a->described && b->described && !a->by_driver && !b->by_driver && a->uid == b->uid &&
	       !strcmp(a->status.id, b->status.id);
}

static struct row *row_of(struct rows *rows, const struct job *job)
{
	for (size_t i = 0; i < rows->n; i++)
		if (same_job(rows->rows[i].first, job))
			return &rows->rows[i];
	rows->rows[rows->n].first = job;
	return &rows->rows[rows->n++];
}

static void add_turns(struct row *row, const struct job *job, const struct turns_list *turns)
{
	for (int i = 0; i < turns->nmembers && !row->awaited; i++) {
		const struct turns_member *m = &turns->members[i];

		if (m->pid != job->pid)
			continue;
		row->member = m;
		row->awaited = awaited_by(turns, m);
	}
}

static void add_process(struct rows *rows, const struct job *job, const struct turns_list *turns)
{
	struct row *row = row_of(rows, job);
	const struct job_status *st = &job->status;

	row->mixed |= strcmp(row->first->status.state, st->state) != 0;
	row->carried += st->carried;
	row->left += st->left_to_driver;
	row->out += st->paused + st->spilled;
	add_turns(row, job, turns);
}

static void fill_name(char *cell, const struct job *job)
{
	if (*job->status.name)
		format_copy(cell, TABLE_CELL, job->status.name);
	else if (*job->status.id)
		snprintf(cell, TABLE_CELL, "%s", job->status.id);
	else
		snprintf(cell, TABLE_CELL, "%d", job->pid);
}

static void fill_rates(char *cell, const struct job_status *st)
{
	if (st->pause.known)
		snprintf(cell, TABLE_CELL, "%.1f", rate_gbps(st->pause.bytes, st->pause.ms));
	if (st->resume.known)
		snprintf(cell + strlen(cell), TABLE_CELL - strlen(cell), "/%.1f",
			 rate_gbps(st->resume.bytes, st->resume.ms));
}

static void fill_waits(char *cell, const struct row *row)
{
	const struct job_status *st = &row->first->status;
	double ms = st->waits.what[0] ? st->waits.ms : row->awaited ? row->member->wait_ms : 0;
	char lasted[FORMAT_SIZE], what[128];

	if (row->awaited && *row->awaited->name)
		format_copy(what, sizeof(what), row->awaited->name);
	else if (row->awaited)
		snprintf(what, sizeof(what), "%d", row->awaited->pid);
	else
		format_copy(what, sizeof(what), st->waits.what);
	if (*what)
		snprintf(cell, TABLE_CELL, "%s, %s", what, format_duration(lasted, ms));
}

static void fill_row(char (*cell)[TABLE_CELL], const struct row *row)
{
	const struct job *job = row->first;

	fill_name(cell[JOB], job);
	table_user(job->uid, cell[USER]);
	snprintf(cell[STATE], TABLE_CELL, "%s",
		 !job->described ? job_error_text(job->error)
		 : row->mixed    ? "mixed"
				 : ps_state(job));
	if (!job->described || job->by_driver)
		return;
	format_bytes(cell[CARRIED], row->carried);
	format_bytes(cell[LEFT], row->left);
	format_bytes(cell[OUT], row->out);
	fill_rates(cell[RATES], &job->status);
	if (row->member && row->member->left_ms > 0)
		format_duration(cell[TURN], row->member->left_ms);
	fill_waits(cell[WAITS], row);
}

static void print_head(const struct rows *rows)
{
	char when[16];
	const time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(when, sizeof(when), "%T", &tm);
	printf("cudaw top, %s: %zu job%s\n", when, rows->n, rows->n == 1 ? "" : "s");
}

/* As many as the screen has lines for. */
static int print_rows(const struct rows *rows)
{
	static const char *const titles[] = {"JOB", "USER", "STATE", "CARRIED",  "LEFT",
					     "OUT", "GB/S", "TURN",  "WAITS FOR"};
	struct table table = {.titles = titles,
			      .columns = COLUMNS,
			      .may_cut = 1 << JOB | 1 << USER | 1 << STATE | 1 << WAITS};
	char(*cell)[TABLE_CELL];
	size_t height = terminal_can_rewrite(STDOUT_FILENO) ? terminal_height(STDOUT_FILENO) : 0;
	size_t n = height > BESIDE && rows->n > height - BESIDE ? height - BESIDE : rows->n;

	terminal_page();
	print_head(rows);
	for (size_t i = 0; i < n && (cell = table_row(&table)); i++)
		fill_row(cell, &rows->rows[i]);
	if (!table_print(&table))
		return EXIT_FAILED;
	if (n < rows->n)
		printf("and %zu more\n", rows->n - n);
	return EXIT_DONE;
}

static int show(const struct listed *listed, const struct turns_list *turns)
{
	struct rows rows = {.rows = calloc(listed->n + 1, sizeof(*rows.rows))};
	int code;

	if (!rows.rows) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < listed->n; i++)
		add_process(&rows, listed->jobs[i], turns);
	code = print_rows(&rows);
	free(rows.rows);
	return code;
}

/* Without a daemon nobody takes turns. */
static int show_once(void)
{
	struct listed listed;
	struct turns_list turns;
	char where[PATH_MAX];
	int code = listed_find(&listed);

	if (!code) {
		ask_for_turns(&turns, where);
		code = show(&listed, &turns);
		free_turns(&turns);
	}
	listed_free(&listed);
	return code;
}

static bool take_times(const char *text, unsigned long *times)
{
	char *end;

	*times = strtoul(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && *times > 0)
		return true;
	complain("--times %s: expected a number of tables", text);
	return false;
}

/* Until it is interrupted, or nobody reads any more. */
static int show_all(const struct top *top)
{
	int code = show_once();

	for (unsigned long k = 1; k != top->times && !code && !fflush(stdout); k++) {
		poll(NULL, 0, clock_poll(top->delay_ms));
		code = show_once();
	}
	return code;
}

int cmd_top(int argc, char **argv)
{
	static const struct option options[] = {
		{"delay", required_argument, NULL, 'd'},
		{"times", required_argument, NULL, 'n'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct top top = {.delay_ms = DELAY_MS};
	int opt;

	while ((opt = getopt_long(argc, argv, "d:n:h", options, NULL)) != -1) {
		switch (opt) {
		case 'd':
			if (!seconds_given("--delay", optarg, &top.delay_ms))
				return usage_error("top");
			break;
		case 'n':
			if (!take_times(optarg, &top.times))
				return usage_error("top");
			break;
		case 'h':
			fputs(help_top, stdout);
			return EXIT_DONE;
		default:
			return usage_error("top");
		}
	}
	if (optind < argc) {
		complain("top takes no argument: '%s'", argv[optind]);
		return usage_error("top");
	}
	return show_all(&top);
}
