/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/tools.h"

#include "common/text.h"
#include "tools/command/list/listed.h"
#include "tools/command/output.h"
#include "tools/command/list/ps_table.h"
#include "tools/job/select.h"
#include "tools/report/terminal.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char help_ps[] =
	"Usage: cudaw ps [OPTION]... [ID|NAME|PID]...\n"
	"\n"
	"List your processes that use CUDA under cudaw, or that the driver has paused ('cudaw pause\n"
	"--driver'); for root, those of all users. With arguments, list only these jobs. Jobs in\n"
	"containers, and jobs that have not used CUDA yet, are listed, too. If CUDAW_RUNTIME_DIR is\n"
	"set, only jobs with the same directory are.\n"
	"\n"
	"  -w, --wide           all columns, and nothing is cut\n"
	"  -o, --columns LIST   these columns alone, in this order, as 'name,pid,last-pause'\n"
	"  -q, --quiet          only IDs, one for each job, as for 'cudaw pause $(cudaw ps -q)'\n"
	"      --watch          again every 2 seconds, until interrupted or a job named has ended\n"
	"  -j, --json           exact figures (bytes, milliseconds), as a JSON array\n"
	"  -h, --help           this text\n"
	"\n"
	"Columns, of which those with a star need -w or -o:\n"
	"  ID         the job; the same for all its processes\n"
	"  NAME       from 'cudaw run --name'\n"
	"  PID, USER  the process\n"
	"  GPU        the numbers of the GPUs it uses, as the process counts them\n"
	"  STATE      starting (no CUDA call of it has succeeded yet), running, pausing, paused,\n"
	"             resuming, waiting (for memory of a resume or an allocation, or for a turn),\n"
	"             failed (a resume failed; the data is kept, resume it again), stopped (by a\n"
	"             signal or a terminal: 'cudaw resume' continues it), locked (by the driver, as\n"
	"             for a checkpoint: 'cudaw resume PID' unlocks it), or 'no answer'\n"
	"  AGE        since the process was started\n"
	"  CARRIED    GPU memory that cudaw moves: a pause gives it back, a resume rebuilds it\n"
	"  LEFT TO DRIVER*  GPU memory that only the driver's own checkpoint can move\n"
	"  LIMIT*     what all processes of the job have of its memory limit on each of the GPUs\n"
	"  PAUSED*    bytes of a paused job in host memory and in its spill file\n"
	"  LAST PAUSE*, LAST RESUME*  how long the last one took, and its rate\n"
	"  COMMAND    the command line, its first 200 bytes\n"
	"On a terminal, long names, users, states and commands are cut, and end in '+'.\n"
	"Lines below the table explain a job's state, a request that failed, a signal that has no\n"
	"effect on the job, a job that should take turns and does not, a driver that it uses past\n"
	"cudaw, and addresses that are translated without CUDAW_ADDRESSING.\n"
	"\n"
	"Exit codes: 0 done; 1 the runtime directory cannot be used; 2 wrong usage, or a PID that\n"
	"means several jobs; 3 no such job; 4 the process is another user's.\n";

#define WATCH_S   2  /* between two tables */
#define WORD_SIZE 16 /* of an ID or a PID */

/* Nobody knows how much memory a process has that does not run under cudaw. */
static json_t *amount(const struct job *job, uint64_t bytes)
{
	return job->by_driver ? json_null() : json_integer(bytes);
}

static json_t *gpu_object(const struct job_gpu *gpu)
{
	bool limited = gpu->limit > 0;

	return json_pack("{s:i, s:s, s:s, s:o, s:o}", "ordinal", gpu->ordinal, "uuid", gpu->uuid,
			 "name", gpu->name, "limit",
			 limited ? json_integer(gpu->limit) : json_null(), "limit_used",
			 limited ? json_integer(gpu->limit_used) : json_null());
}

/* Every key is always there; unknown values are null. */
static json_t *job_object(const struct job *job)
{
	const struct job_status *st = &job->status;
	char user[TABLE_CELL];
	json_t *gpus = json_array();
	json_t *object =
		json_pack("{s:i, s:I, s:s, s:o}", "pid", job->pid, "uid", (json_int_t)job->uid,
			  "user", table_user(job->uid, user), "error",
			  job->described ? json_null() : json_string(job_error_text(job->error)));

	for (int i = 0; i < st->ngpus; i++)
		json_array_append_new(gpus, gpu_object(&st->gpus[i]));
	json_object_set_new(object, "own_pid", json_integer(job->own_pid));
	json_object_set_new(object, "age_ms",
			    job->seen ? json_integer((json_int_t)process_age_ms(&job->process))
				      : json_null());
	json_object_set_new(object, "gpu", gpus);
	json_object_set_new(object, "by_driver", json_boolean(job->by_driver));
	json_object_set_new(object, "id", output_text_or_null(st->id));
	json_object_set_new(object, "name", output_text_or_null(st->name));
	json_object_set_new(object, "command", output_text_or_null(st->command));
	json_object_set_new(object, "state", output_text_or_null(ps_state(job)));
	json_object_set_new(object, "reason", output_text_or_null(st->reason));
	json_object_set_new(object, "failed_ms",
			    st->failed ? output_ms(st->failed_ms) : json_null());
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
	json_object_set_new(object, "freed",
			    job->described ? json_boolean(st->released) : json_null());
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

static bool is_called(const struct job *job, const char *word)
{
	const struct job_status *st = &job->status;

	return job->pid == select_pid_of(word) ||
	       (*word && (!strcmp(st->id, word) || !strcmp(st->name, word)));
}

/* Keep the rows that @words mean. Several jobs of one name are all listed. Returns an exit code. */
static int narrow(struct listed *listed, char **words, int nwords)
{
	size_t kept = 0;
	int code = EXIT_DONE, why;

	for (int w = 0; w < nwords; w++) {
		bool found = false;

		for (size_t i = 0; i < listed->n; i++)
			if (is_called(listed->jobs[i], words[w]))
				listed->jobs[i]->selected = found = true;
		if (found || select_related(&listed->list, select_pid_of(words[w])))
			continue;
		why = select_explain(&listed->list, words[w]);
		code = code ? code : why;
	}
	for (size_t i = 0; i < listed->n && nwords; i++)
		if (listed->jobs[i]->selected)
			listed->jobs[kept++] = listed->jobs[i];
	listed->n = nwords ? kept : listed->n;
	return code;
}

/* The word that means all of a job: its ID, or a PID if it has none that we know. */
static void word_of(const struct job *job, char word[WORD_SIZE])
{
	if (*job->status.id)
		snprintf(word, WORD_SIZE, "%s", job->status.id);
	else
		snprintf(word, WORD_SIZE, "%d", job->pid);
}

static int print_ids(const struct listed *listed)
{
	char word[WORD_SIZE], other[WORD_SIZE];

	for (size_t i = 0; i < listed->n; i++) {
		bool again = false;

		word_of(listed->jobs[i], word);
		for (size_t k = 0; k < i && !again; k++) {
			word_of(listed->jobs[k], other);
			again = !strcmp(word, other);
		}
		if (!again)
			puts(word);
	}
	return EXIT_DONE;
}

struct ps {
	bool json, quiet;
	double watch_ms; /* 0: once */
	struct ps_table table;
	char **words;
	int nwords;
};

static int list_once(const struct ps *ps)
{
	struct listed listed;
	int code = listed_find(&listed), missing, ret;

	if (code) {
		listed_free(&listed);
		return code;
	}
	missing = narrow(&listed, ps->words, ps->nwords);
	if (ps->watch_ms)
		terminal_page();
	if (ps->json)
		ret = print_json(listed.jobs, listed.n);
	else if (ps->quiet)
		ret = print_ids(&listed);
	else
		ret = ps_table_print(&ps->table, listed.jobs, listed.n);
	listed_free(&listed);
	return missing ? missing : ret;
}

/* Until it is interrupted, nobody reads any more, or a job that is named has ended. */
static int list(const struct ps *ps)
{
	int code = list_once(ps);

	while (ps->watch_ms && !code && !fflush(stdout)) {
		usleep((useconds_t)(ps->watch_ms * 1000));
		code = list_once(ps);
	}
	return code;
}

static bool fit_together(const struct ps *ps)
{
	if (ps->json + ps->quiet + (ps->table.chosen.n > 0) + ps->table.wide > 1) {
		complain("expected one of --json, --quiet, --columns and --wide");
		return false;
	}
	return true;
}

int cmd_ps(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"quiet", no_argument, NULL, 'q'},
		{"wide", no_argument, NULL, 'w'},
		{"columns", required_argument, NULL, 'o'},
		{"watch", no_argument, NULL, 'W'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct ps ps = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, "jqwo:h", options, NULL)) != -1) {
		switch (opt) {
		case 'j':
			ps.json = true;
			break;
		case 'q':
			ps.quiet = true;
			break;
		case 'w':
			ps.table.wide = true;
			break;
		case 'o':
			if (!ps_table_choose(&ps.table, optarg))
				return usage_error("ps");
			break;
		case 'W':
			ps.watch_ms = WATCH_S * 1000;
			break;
		case 'h':
			fputs(help_ps, stdout);
			return EXIT_DONE;
		default:
			return usage_error("ps");
		}
	}
	if (!fit_together(&ps))
		return usage_error("ps");
	ps.words = argv + optind;
	ps.nwords = argc - optind;
	return list(&ps);
}
