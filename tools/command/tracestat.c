/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/tracestat.h"

#include "common/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TIME   1e15 /* us: thirty years */
#define MAX_BYTES  (1L << 56)
#define LINE_SIZE  (2 * TRACEFILE_PAGE)
#define OTHER_NAME "(others)"

struct trace_live {
	uint64_t ptr;
	uint64_t bytes;
	unsigned int call, class;
	double end;        /* of the allocating call */
	unsigned int owed; /* frees of the address before it, which come later in the file */
	UT_hash_handle hh;
};

/* The fields of an event that are used. */
struct event {
	const char *category, *name, *kind, *call;
	double ts, dur;
	uint64_t ptr, bytes;
	bool failed;
};

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* "0x6b8100200400 (#2+1024)" */
static uint64_t pointer_of(const json_t *object, const char *key)
{
	return strtoull(text_of(object, key), NULL, 16);
}

static bool read_event(const json_t *object, struct event *event)
{
	const json_t *args = json_object_get(object, "args");
	json_int_t bytes = json_integer_value(json_object_get(args, "bytes"));

	event->category = text_of(object, "cat");
	event->name = text_of(object, "name");
	event->kind = text_of(args, "kind");
	event->call = text_of(args, "call");
	event->ts = json_number_value(json_object_get(object, "ts"));
	event->dur = json_number_value(json_object_get(object, "dur"));
	event->ptr = pointer_of(args, "ptr");
	event->bytes = bytes;
	event->failed = json_object_get(args, "error");
	return *event->category && *event->name && event->ts >= 0 && event->ts <= MAX_TIME &&
	       event->dur >= 0 && event->dur <= MAX_TIME && bytes >= 0 && bytes <= MAX_BYTES;
}

static void row_free(struct trace_row *row)
{
	free(row->category);
	free(row->name);
	free(row->key);
	free(row);
}

static struct trace_row *row_get(struct trace_stat *stat, const char *category, const char *name,
				 bool async)
{
	struct trace_row *row;
	char *key;

	if (asprintf(&key, "%s\n%d\n%s", category, async, name) < 0)
		return NULL;
	HASH_FIND_STR(stat->rows, key, row);
	if (row) {
		free(key);
		return row;
	}
	if (HASH_COUNT(stat->rows) >= TRACE_MAX_ROWS && strcmp(name, OTHER_NAME)) {
		free(key);
		return row_get(stat, category, OTHER_NAME, async);
	}
	row = calloc(1, sizeof(*row));
	if (!row) {
		free(key);
		return NULL;
	}
	row->key = key;
	row->category = strdup(category);
	row->name = strdup(name);
	row->async = async;
	if (!row->category || !row->name) {
		row_free(row);
		return NULL;
	}
	HASH_ADD_KEYPTR(hh, stat->rows, row->key, strlen(row->key), row);
	return row;
}

static int count_row(struct trace_stat *stat, const struct event *event)
{
	bool copy = !strcmp(event->category, "copy");
	bool async = copy && strstr(event->name, "Async");
	const char *name = copy && *event->kind ? event->kind : event->name;
	struct trace_row *row = row_get(stat, event->category, name, async);

	if (!row)
		return -ENOMEM;
	row->calls++;
	row->failed += event->failed;
	row->total += event->dur;
	if (event->dur > row->max)
		row->max = event->dur;
	if (!event->failed)
		row->bytes = sum(row->bytes, event->bytes);
	return 0;
}

/* The index of an allocating call; the last index stands for all calls without one. */
static unsigned int call_index(struct trace_memory *memory, const char *call)
{
	unsigned int i;

	for (i = 0; i < TRACE_MAX_CALLS - 1 && memory->calls[i]; i++)
		if (!strcmp(memory->calls[i], call))
			return i;
	if (!memory->calls[i])
		memory->calls[i] = strdup(i < TRACE_MAX_CALLS - 1 ? call : OTHER_NAME);
	return i;
}

/* The classes at a peak are copied when the peak ends, not at every allocation before it. */
static void keep_peak(struct trace_memory *memory)
{
	if (memory->peak_is_now)
		memcpy(memory->peak, memory->classes, sizeof(memory->peak));
	memory->peak_is_now = false;
}

static void remove_live(struct trace_memory *memory, struct trace_live *live)
{
	struct trace_class *class = &memory->classes[live->call][live->class];

	keep_peak(memory);
	class->count--;
	class->bytes -= live->bytes;
	memory->bytes -= live->bytes;
	memory->nlive--;
	HASH_DELETE(hh, memory->live, live);
	free(live);
}

/*
 * The line of a call is written after the call. So the line of an allocation may come before the
 * line of the call that freed its address.
 */
static int alloc_add(struct trace_memory *memory, const struct event *event)
{
	struct trace_live *live;
	struct trace_class *class;
	unsigned int owed = 0;

	if (!event->ptr || !event->bytes)
		return 0;
	HASH_FIND(hh, memory->live, &event->ptr, sizeof(event->ptr), live);
	if (live) {
		owed = live->owed + 1;
		remove_live(memory, live);
	}
	if (memory->nlive >= TRACE_MAX_LIVE) {
		memory->unfollowed++;
		return 0;
	}
	live = calloc(1, sizeof(*live));
	if (!live)
		return -ENOMEM;
	live->ptr = event->ptr;
	live->bytes = event->bytes;
	live->end = event->ts + event->dur;
	live->owed = owed;
	live->call = call_index(memory, event->name);
	live->class = 63 - __builtin_clzll(event->bytes);
	HASH_ADD(hh, memory->live, ptr, sizeof(live->ptr), live);
	memory->nlive++;
	class = &memory->classes[live->call][live->class];
	class->count++;
	class->bytes += live->bytes;
	memory->bytes = sum(memory->bytes, live->bytes);
	if (memory->bytes > memory->peak_bytes) {
		memory->peak_bytes = memory->bytes;
		memory->peak_count = memory->nlive;
		memory->peak_at = event->ts;
		memory->peak_is_now = true;
	}
	return 0;
}

static void alloc_remove(struct trace_memory *memory, const struct event *event)
{
	struct trace_live *live;

	HASH_FIND(hh, memory->live, &event->ptr, sizeof(event->ptr), live);
	if (live && live->owed && event->ts < live->end)
		live->owed--;
	else if (live)
		remove_live(memory, live);
}

static int count_event(struct trace_stat *stat, const struct event *event)
{
	int ret = 0;

	stat->events++;
	if (event->ts < stat->begin)
		stat->begin = event->ts;
	if (event->ts + event->dur > stat->end)
		stat->end = event->ts + event->dur;
	if (!event->failed && !strcmp(event->category, "alloc"))
		ret = alloc_add(&stat->memory, event);
	else if (!event->failed && !strcmp(event->category, "free"))
		alloc_remove(&stat->memory, event);
	else if (!strcmp(event->category, "launch")) {
		if (!stat->first_launch || event->ts < stat->first_launch)
			stat->first_launch = event->ts;
		if (event->ts > stat->last_launch)
			stat->last_launch = event->ts;
	}
	return ret ? ret : count_row(stat, event);
}

static int keep_text(char **to, const json_t *object, const char *key)
{
	free(*to);
	*to = strdup(text_of(object, key));
	return *to ? 0 : -ENOMEM;
}

static int take_metadata(struct trace_stat *stat, const json_t *object, const char *name)
{
	const json_t *args = json_object_get(object, "args");

	if (!strcmp(name, "process_name"))
		return keep_text(&stat->command, args, "name");
	if (strcmp(name, "cudaw_trace"))
		return 0;
	if (json_integer_value(json_object_get(args, "format")) != TRACE_FORMAT)
		return -ENOTSUP;
	stat->pid = json_integer_value(json_object_get(object, "pid"));
	stat->unix_ns = json_integer_value(json_object_get(args, "unix_ns"));
	stat->begin = stat->end = json_number_value(json_object_get(object, "ts"));
	return keep_text(&stat->version, args, "version");
}

static void bad_line(struct trace_stat *stat, uint64_t number)
{
	if (!stat->bad_lines++)
		stat->first_bad = number;
}

static int take_object(struct trace_stat *stat, const json_t *object, uint64_t number)
{
	const char *name = text_of(object, "name");
	struct event event;

	/* The first event identifies the file as cudaw's. */
	if (!stat->version && strcmp(name, "cudaw_trace"))
		return -EBADMSG;
	if (!strcmp(text_of(object, "ph"), "M"))
		return take_metadata(stat, object, name);
	if (!read_event(object, &event)) {
		bad_line(stat, number);
		return 0;
	}
	return count_event(stat, &event);
}

/* The object of a line without the spaces and the comma behind it. */
static char *trim(char *line)
{
	size_t len = strlen(line);

	while (len && strchr(" ,", line[len - 1]))
		len--;
	line[len] = '\0';
	return line;
}

static int take_line(struct trace_stat *stat, char *line, uint64_t number)
{
	const char *text = trim(line);
	json_t *object;
	int ret = 0;

	if (number == 1)
		return strcmp(text, "[") ? -EBADMSG : 0;
	if (!*text || !strcmp(text, "]"))
		return 0;
	object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (object)
		ret = take_object(stat, object, number);
	else if (stat->version)
		bad_line(stat, number);
	else
		ret = -EBADMSG;
	json_decref(object);
	return ret;
}

/*
 * Read a line without its newline; *@whole if it had a newline. A line that is longer than any of
 * ours, or has a zero byte, is returned as "?", which is not JSON. False at the end of the file.
 */
static bool read_line(FILE *file, char *line, bool *whole)
{
	size_t len = 0;
	bool odd = false;
	int c;

	while ((c = getc_unlocked(file)) != EOF && c != '\n') {
		odd |= !c || len == LINE_SIZE - 1;
		if (!odd)
			line[len++] = c;
	}
	line[len] = '\0';
	if (odd)
		strcpy(line, "?");
	*whole = c == '\n';
	return c == '\n' || len || odd;
}

int trace_stat_read(FILE *file, struct trace_stat *stat)
{
	char line[LINE_SIZE];
	uint64_t number = 0;
	bool whole;
	int ret = 0;

	memset(stat, 0, sizeof(*stat));
	while (!ret && read_line(file, line, &whole)) {
		ret = take_line(stat, line, ++number);
		stat->cut = !whole && stat->bad_lines && stat->first_bad == number;
	}
	if (!ret && ferror(file))
		ret = -errno;
	if (!ret && !stat->version)
		ret = -EBADMSG;
	keep_peak(&stat->memory);
	return ret;
}

void trace_stat_free(struct trace_stat *stat)
{
	struct trace_row *row, *next_row;
	struct trace_live *live, *next_live;

	HASH_ITER(hh, stat->rows, row, next_row)
	{
		HASH_DELETE(hh, stat->rows, row);
		row_free(row);
	}
	HASH_ITER(hh, stat->memory.live, live, next_live)
	{
		HASH_DELETE(hh, stat->memory.live, live);
		free(live);
	}
	for (size_t i = 0; i < TRACE_MAX_CALLS; i++)
		free(stat->memory.calls[i]);
	free(stat->command);
	free(stat->version);
}
