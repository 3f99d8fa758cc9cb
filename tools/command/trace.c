/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/tools.h"

#include "tools/command/demangle.h"
#include "common/text.h"
#include "tools/command/output.h"
#include "tools/command/tracestat.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SIZE 4096

const char help_trace[] =
	"Usage: cudaw trace [OPTION]... FILE\n"
	"\n"
	"Summarise a trace of 'cudaw run --trace FILE', while the job runs or afterwards.\n"
	"\n"
	"  -j, --json  as a JSON object\n"
	"  -h, --help  this text\n"
	"\n"
	"The time of a call is the time that the program spends in it, with any wait for a resume.\n"
	"An asynchronous call, as a launch, returns before the GPU is done, so only synchronous\n"
	"copies have a rate. A kernel that is captured into a graph counts once, when it is\n"
	"captured; launches of graphs are under 'graph'. Memory is GPU memory of cuMemAlloc and the\n"
	"like; that of cuMemCreate counts until its handle is released.\n"
	"\n"
	"ui.perfetto.dev and chrome://tracing open FILE as well. Traces of other tools are\n"
	"refused.\n"
	"\n"
	"Exit codes: 0 done, 1 the file cannot be read whole, 2 wrong usage.\n";

/* The headings of the categories of trace.calls, in this order; others follow. */
static const struct section {
	const char *category, *title, *name;
} sections[] = {
	{"launch", "Launches", "kernel"},
	{"copy", "Copies", "kind"},
	{"set", "Sets", "call"},
	{"alloc", "Allocations", "call"},
	{"free", "Frees", "call"},
	{"sync", "Synchronisation", "call"},
	{"graph", "Graphs", "call"},
	{"module", "Modules", "call"},
	{"stream", "Streams", "call"},
	{"memory", "Other memory", "call"},
	{"host", "Host memory", "call"},
	{"context", "Contexts", "call"},
	{"cudaw", "Pause and resume", "operation"},
	{"phase", "Phases of pauses and resumes", "phase"},
};

#define NSECTIONS (sizeof(sections) / sizeof(sections[0]))

static size_t section_of(const char *category)
{
	size_t i = 0;

	while (i < NSECTIONS && strcmp(sections[i].category, category))
		i++;
	return i;
}

/* By section, then by total time, longest first. */
static int compare_rows(struct trace_row *a, struct trace_row *b)
{
	size_t x = section_of(a->category), y = section_of(b->category);

	if (x != y)
		return x < y ? -1 : 1;
	if (a->total != b->total)
		return a->total > b->total ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* The name of a row for people: cleaned, and demangled if it is a kernel. */
static void row_name(const struct trace_row *row, char *buf, size_t size)
{
	char *plain = !strcmp(row->category, "launch") ? demangle(row->name) : NULL;

	format_copy(buf, size, plain ? plain : row->name);
	free(plain);
}

static double launch_rate(const struct trace_stat *stat, uint64_t launches)
{
	double us = stat->last_launch - stat->first_launch;

	return us > 0 ? (launches - 1) * 1e6 / us : 0;
}

static void print_section(const struct trace_stat *stat, const struct trace_row *first)
{
	const struct section *section = &sections[section_of(first->category)];
	bool known = section < sections + NSECTIONS;
	uint64_t calls = 0, failed = 0, bytes = 0;
	char time[FORMAT_SIZE], name[64];
	double total = 0;

	for (const struct trace_row *r = first; r && !strcmp(r->category, first->category);
	     r = r->hh.next) {
		calls += r->calls;
		failed += r->failed;
		bytes += r->bytes;
		total += r->total;
	}
	format_copy(name, sizeof(name), first->category);
	printf("\n%s: %" PRIu64 " in %s", known ? section->title : name, calls,
	       format_us(time, total));
	if (failed)
		printf(", %" PRIu64 " failed", failed);
	if (!strcmp(first->category, "launch") && launch_rate(stat, calls) > 0)
		printf(", %.0f a second", launch_rate(stat, calls));
	printf("\n  %10s %10s %10s %10s %10s %10s  %s\n", "calls", "total", "mean", "max",
	       bytes ? "bytes" : "", !strcmp(first->category, "copy") ? "rate" : "",
	       known ? section->name : "call");
}

static void print_row(const struct trace_row *row)
{
	char total[FORMAT_SIZE], mean[FORMAT_SIZE], max[FORMAT_SIZE];
	char bytes[FORMAT_SIZE] = "", rate[FORMAT_SIZE] = "", name[NAME_SIZE];

	if (row->bytes)
		format_bytes(bytes, row->bytes);
	if (row->bytes && !strcmp(row->category, "copy") && !row->async)
		format_rate(rate, row->bytes, row->total / 1e3);
	row_name(row, name, sizeof(name));
	printf("  %10" PRIu64 " %10s %10s %10s %10s %10s  %s%s\n", row->calls,
	       format_us(total, row->total), format_us(mean, row->total / row->calls),
	       format_us(max, row->max), bytes, rate, name, row->async ? " async" : "");
}

static void print_memory(const struct trace_stat *stat)
{
	const struct trace_memory *m = &stat->memory;
	char bytes[FORMAT_SIZE], from[FORMAT_SIZE], at[FORMAT_SIZE], name[64];

	if (!m->peak_bytes)
		return;
	printf("\nMemory: at most %s in %" PRIu64 " allocations, after %s",
	       format_bytes(bytes, m->peak_bytes), m->peak_count,
	       format_us(at, m->peak_at - stat->begin));
	printf("; %s in %zu at the end\n", format_bytes(bytes, m->bytes), m->nlive);
	if (m->unfollowed)
		printf("  (%" PRIu64
		       " more allocations are not counted, as there were too many at a time)\n",
		       m->unfollowed);
	printf("  %10s %10s %10s  %s\n", "count", "bytes", "each from",
	       "at most, by call and size");
	for (unsigned int c = 0; c < TRACE_MAX_CALLS; c++)
		for (int k = TRACE_CLASSES - 1; k >= 0; k--) {
			if (!m->peak[c][k].count)
				continue;
			format_copy(name, sizeof(name), m->calls[c]);
			printf("  %10" PRIu64 " %10s %10s  %s\n", m->peak[c][k].count,
			       format_bytes(bytes, m->peak[c][k].bytes),
			       format_bytes(from, 1UL << k), name);
		}
}

static void print_text(const struct trace_stat *stat)
{
	char command[512], version[32], time[FORMAT_SIZE];

	format_copy(command, sizeof(command), stat->command ? stat->command : "?");
	format_copy(version, sizeof(version), stat->version);
	printf("%s\nprocess %" PRId64 ", cudaw %s: %" PRIu64 " events in %s\n", command, stat->pid,
	       version, stat->events, format_us(time, stat->end - stat->begin));
	for (const struct trace_row *r = stat->rows; r; r = r->hh.next) {
		const struct trace_row *before = r->hh.prev;

		if (!before || strcmp(before->category, r->category))
			print_section(stat, r);
		print_row(r);
	}
	print_memory(stat);
}

static json_t *row_json(const struct trace_row *row)
{
	char name[NAME_SIZE], plain[NAME_SIZE];
	json_t *object;

	format_copy(name, sizeof(name), row->name);
	row_name(row, plain, sizeof(plain));
	object = json_pack("{s:s, s:I, s:I, s:f, s:f}", "name", name, "calls",
			   (json_int_t)row->calls, "failed", (json_int_t)row->failed, "total_us",
			   row->total, "max_us", row->max);
	if (!strcmp(row->category, "launch"))
		json_object_set_new(object, "demangled", json_string(plain));
	if (!strcmp(row->category, "copy"))
		json_object_set_new(object, "async", json_boolean(row->async));
	if (row->bytes)
		json_object_set_new(object, "bytes", json_integer(row->bytes));
	return object;
}

static json_t *memory_json(const struct trace_stat *stat)
{
	const struct trace_memory *m = &stat->memory;
	json_t *peak = json_array();
	char name[64];

	for (unsigned int c = 0; c < TRACE_MAX_CALLS; c++)
		for (unsigned int k = 0; k < TRACE_CLASSES; k++) {
			if (!m->peak[c][k].count)
				continue;
			format_copy(name, sizeof(name), m->calls[c]);
			json_array_append_new(peak,
					      json_pack("{s:s, s:I, s:I, s:I}", "call", name,
							"each_from", (json_int_t)(1UL << k),
							"count", (json_int_t)m->peak[c][k].count,
							"bytes", (json_int_t)m->peak[c][k].bytes));
		}
	return json_pack("{s:I, s:I, s:f, s:o, s:I, s:I, s:I}", "peak_bytes",
			 (json_int_t)m->peak_bytes, "peak_count", (json_int_t)m->peak_count,
			 "peak_us", m->peak_bytes ? m->peak_at - stat->begin : 0.0, "peak", peak,
			 "end_bytes", (json_int_t)m->bytes, "end_count", (json_int_t)m->nlive,
			 "unfollowed", (json_int_t)m->unfollowed);
}

static void print_json(const struct trace_stat *stat)
{
	char command[512], version[32], category[64];
	json_t *calls = json_object(), *object;
	uint64_t launches = 0;

	for (const struct trace_row *r = stat->rows; r; r = r->hh.next) {
		format_copy(category, sizeof(category), r->category);
		if (!json_object_get(calls, category))
			json_object_set_new(calls, category, json_array());
		json_array_append_new(json_object_get(calls, category), row_json(r));
		launches += strcmp(r->category, "launch") ? 0 : r->calls;
	}
	format_copy(command, sizeof(command), stat->command ? stat->command : "");
	format_copy(version, sizeof(version), stat->version);
	object = json_pack(
		"{s:s, s:I, s:s, s:I, s:f, s:I, s:I, s:f, s:o, s:o}", "command", command, "pid",
		(json_int_t)stat->pid, "version", version, "unix_ns", (json_int_t)stat->unix_ns,
		"duration_us", stat->end - stat->begin, "events", (json_int_t)stat->events,
		"bad_lines", (json_int_t)stat->bad_lines, "launches_per_second",
		launch_rate(stat, launches), "calls", calls, "memory", memory_json(stat));
	output_json(object);
	json_decref(object);
}

/* Print why a file cannot be summarised, or only in part. Returns the exit code. */
static int judge(const char *path, const struct trace_stat *stat, int error)
{
	if (error == -EBADMSG)
		complain("%s is not a trace of cudaw", path);
	else if (error == -ENOTSUP)
		complain("%s is a trace of a newer cudaw", path);
	else if (error)
		complain("%s: %s", path, strerror(-error));
	else if (stat->cut && stat->bad_lines == 1)
		complain("%s ends within line %" PRIu64, path, stat->first_bad);
	else if (stat->bad_lines)
		complain("%s: %" PRIu64 " lines cannot be read, line %" PRIu64 " first", path,
			 stat->bad_lines, stat->first_bad);
	else
		return EXIT_DONE;
	return EXIT_FAILED;
}

static int sum_up(const char *path, bool json)
{
	FILE *file = fopen(path, "re");
	struct trace_stat stat;
	int error, code;

	if (!file) {
		complain("%s: %s", path, strerror(errno));
		return EXIT_FAILED;
	}
	error = trace_stat_read(file, &stat);
	fclose(file);
	code = judge(path, &stat, error);
	HASH_SORT(stat.rows, compare_rows);
	if (!error && json)
		print_json(&stat);
	else if (!error)
		print_text(&stat);
	trace_stat_free(&stat);
	return code;
}

int cmd_trace(int argc, char **argv)
{
	bool json = false;
	int code;

	code = json_option(argc, argv, "trace", help_trace, &json);
	if (code >= 0)
		return code;
	if (!names_given(argc, argv, "file", true))
		return usage_error("trace");
	return sum_up(argv[optind], json);
}
