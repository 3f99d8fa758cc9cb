/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw turns: who takes turns on which GPU, as the daemon says. */
#include "tools/command/tools.h"

#include "common/text.h"
#include "tools/command/output.h"
#include "tools/command/list/table.h"
#include "tools/command/turns/turns_list.h"
#include "tools/command/turns/turns_orders.h"
#include "tools/process/cudawd.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

const char help_turns[] =
	"Usage: cudaw turns [--json]\n"
	"       cudaw turns set KEY=VALUE...\n"
	"       cudaw turns drain|undrain GPU\n"
	"\n"
	"Show the jobs that take turns on GPUs ('cudaw run --turns'): who is on which GPU, who\n"
	"waits, and for whom. The processes of a job are out, or run, together.\n"
	"\n"
	"  set            change settings of cudawd until it ends: quantum, residence, idle,\n"
	"                 rest, silence, rescue, context-after, batch-after, linger (seconds),\n"
	"                 margin (bytes), jobs-per-user\n"
	"  drain          give no turns on the GPU (a number or UUID) any more. Jobs that run there\n"
	"                 go on until they end, or you call 'cudaw yield'\n"
	"  undrain        give turns there again\n"
	"\n"
	"Only the user of cudawd and root can use these three.\n"
	"\n"
	"  -j, --json  exact figures (bytes, milliseconds), as a JSON object\n"
	"  -h, --help  this text\n"
	"\n"
	"Columns:\n"
	"  ID, NAME, PID  the process, as 'cudaw ps' shows it\n"
	"  USER           the process's user\n"
	"  CLASS, WEIGHT  from 'cudaw run --class' and '--weight'\n"
	"  STATE          runs, idle (it makes no GPU calls), leaving (it gives memory away), out\n"
	"                 (a part of its memory is not on the GPU, and it does not need it), waits\n"
	"                 (it needs it), enters (it gets it back), paused (by its user), silent (it\n"
	"                 does not answer, perhaps since it is stopped, and is left alone)\n"
	"  ON GPU, NEEDS  its memory on the GPUs now, and when it runs\n"
	"  WAITS, FOR     how long it has waited for its turn, and for which process\n"
	"  TURN LEFT      how long its turn lasts at least, if others wait\n"
	"  TURNS          how many turns it got\n"
	"  COMMAND        the command line, its first 200 bytes\n"
	"\n"
	"Exit codes: 0 done; 1 no cudawd answers; 2 wrong usage; 4 not permitted; 5 no answer in\n"
	"time; 6 NVML does not know the GPU.\n";

static uint64_t sum_of(const struct turns_member *member, bool total)
{
	uint64_t sum = 0;

	for (int i = 0; i < member->nneeds; i++)
		sum += total ? member->needs[i].total : member->needs[i].mapped;
	return sum;
}

/* ---- for people */

enum {
	ID,
	NAME,
	PID,
	USER,
	CLASS,
	WEIGHT,
	STATE,
	ON_GPU,
	NEEDS,
	WAITS,
	FOR,
	LEFT,
	TURNS,
	COMMAND,
	COLUMNS
};

static void fill_row(char (*cell)[TABLE_CELL], const struct turns_list *list,
		     const struct turns_member *m)
{
	const struct turns_member *other = awaited_by(list, m);

	if (m->id[0])
		snprintf(cell[ID], TABLE_CELL, "%s", m->id);
	if (m->name[0])
		snprintf(cell[NAME], TABLE_CELL, "%.63s", m->name);
	if (m->pid)
		snprintf(cell[PID], TABLE_CELL, "%d", m->pid);
	table_user(m->uid, cell[USER]);
	snprintf(cell[CLASS], TABLE_CELL, "%s", m->class);
	snprintf(cell[WEIGHT], TABLE_CELL, "%d", m->weight);
	snprintf(cell[STATE], TABLE_CELL, "%s", m->state);
	format_bytes(cell[ON_GPU], sum_of(m, false));
	format_bytes(cell[NEEDS], sum_of(m, true));
	if (m->wait_ms > 0)
		format_duration(cell[WAITS], m->wait_ms);
	if (other)
		snprintf(cell[FOR], TABLE_CELL, "%d", other->pid);
	if (m->left_ms > 0)
		format_duration(cell[LEFT], m->left_ms);
	snprintf(cell[TURNS], TABLE_CELL, "%u", m->turns);
	if (m->command[0])
		format_copy(cell[COMMAND], TABLE_CELL, m->command);
}

static int print_members(const struct turns_list *list)
{
	static const char *const titles[] = {"ID",     "NAME",      "PID",    "USER",   "CLASS",
					     "WEIGHT", "STATE",     "ON GPU", "NEEDS",  "WAITS",
					     "FOR",    "TURN LEFT", "TURNS",  "COMMAND"};
	struct table table = {.titles = titles,
			      .columns = COLUMNS,
			      .may_cut = 1 << NAME | 1 << USER | 1 << COMMAND};
	char(*cell)[TABLE_CELL];

	for (int i = 0; i < list->nmembers && (cell = table_row(&table)); i++)
		fill_row(cell, list, &list->members[i]);
	return table_print(&table) ? EXIT_DONE : EXIT_FAILED;
}

static void print_gpu(const struct turns_gpu *gpu)
{
	char capacity[FORMAT_SIZE], total[FORMAT_SIZE], others[FORMAT_SIZE];

	if (!strcmp(gpu->state, "excluded"))
		printf("%s: excluded by cudaw.conf, so nobody takes turns there\n", gpu->uuid);
	else if (gpu->total)
		printf("%s: %s of %s for the jobs; others have %s%s\n", gpu->uuid,
		       format_bytes(capacity, gpu->capacity), format_bytes(total, gpu->total),
		       format_bytes(others, gpu->others),
		       strcmp(gpu->state, "drained") ? "" : "; drained: nobody gets a turn");
	else
		printf("%s: NVML does not know it, so nobody takes turns there\n", gpu->uuid);
}

static void print_unfit(const struct turns_member *m)
{
	char needs[FORMAT_SIZE], there[FORMAT_SIZE];

	printf("process %d gets no turn: its job needs %s on %s, and at most %s are there for it\n",
	       m->pid, format_bytes(needs, m->unfit.needs), m->unfit.uuid,
	       format_bytes(there, m->unfit.there));
}

static void print_context(const struct turns_member *m)
{
	printf("process %d runs beside nobody, as its context %s\n", m->pid,
	       strcmp(m->context, "out") ? "was out once" : "is out");
}

/* ---- for programs */

static json_t *ms_or_null(double ms)
{
	return ms > 0 ? output_ms(ms) : json_null();
}

static json_t *unfit_json(const struct turns_unfit *unfit)
{
	if (!unfit->needs)
		return json_null();
	return json_pack("{s:s, s:I, s:I}", "uuid", unfit->uuid, "needs", (json_int_t)unfit->needs,
			 "there", (json_int_t)unfit->there);
}

static json_t *member_json(const struct turns_list *list, const struct turns_member *m)
{
	const struct turns_member *other = awaited_by(list, m);
	json_t *needs = json_array();
	char user[TABLE_CELL];

	table_user(m->uid, user);
	for (int i = 0; i < m->nneeds; i++)
		json_array_append_new(needs, json_pack("{s:s, s:I, s:I}", "uuid", m->needs[i].uuid,
						       "mapped", (json_int_t)m->needs[i].mapped,
						       "total", (json_int_t)m->needs[i].total));
	return json_pack(
		"{s:i, s:I, s:s, s:o, s:o, s:o, s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:i}",
		"pid", m->pid, "uid", (json_int_t)m->uid, "user", user, "id",
		output_text_or_null(m->id), "name", output_text_or_null(m->name), "command",
		output_text_or_null(m->command), "class", m->class, "weight", m->weight, "state",
		m->state, "gpu", needs, "wait_ms", ms_or_null(m->wait_ms), "left_ms",
		ms_or_null(m->left_ms), "waits_for", other ? json_integer(other->pid) : json_null(),
		"unfit", unfit_json(&m->unfit), "context", m->context, "turns", (int)m->turns);
}

static int print_json(const struct turns_list *list)
{
	json_t *gpus = json_array(), *members = json_array(), *root;
	int ret;

	for (int i = 0; i < list->ngpus; i++) {
		const struct turns_gpu *gpu = &list->gpus[i];

		json_array_append_new(gpus,
				      json_pack("{s:s, s:I, s:I, s:I, s:I, s:s}", "uuid", gpu->uuid,
						"total", (json_int_t)gpu->total, "used",
						(json_int_t)gpu->used, "others",
						(json_int_t)gpu->others, "capacity",
						(json_int_t)gpu->capacity, "state", gpu->state));
	}
	for (int i = 0; i < list->nmembers; i++)
		json_array_append_new(members, member_json(list, &list->members[i]));
	root = json_pack("{s:i, s:s, s:o, s:o}", "pid", list->pid, "version", list->version, "gpus",
			 gpus, "members", members);
	ret = output_json(root);
	json_decref(root);
	return ret;
}

static int print_all(const struct turns_list *list, bool json)
{
	if (json)
		return print_json(list);
	for (int i = 0; i < list->ngpus; i++)
		print_gpu(&list->gpus[i]);
	for (int i = 0; i < list->nmembers; i++)
		if (list->members[i].unfit.needs)
			print_unfit(&list->members[i]);
	for (int i = 0; i < list->nmembers; i++)
		if (strcmp(list->members[i].context, "in") != 0)
			print_context(&list->members[i]);
	return print_members(list);
}

int cmd_turns(int argc, char **argv)
{
	struct turns_list list = {0};
	char where[PATH_MAX] = "";
	bool json = false;
	int code = json_option(argc, argv, "turns", help_turns, &json), err;

	if (code >= 0)
		return code;
	if (optind < argc)
		return cmd_turns_order(argc, argv, json);
	err = ask_for_turns(&list, where);
	code = err ? cudawd_explain(err, where) : print_all(&list, json);
	free_turns(&list);
	return code;
}
