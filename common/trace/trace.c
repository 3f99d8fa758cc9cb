/* SPDX-License-Identifier: Apache-2.0 */
#include "common/trace/trace.h"
#include "common/settings.h"
#include "common/processes/proc.h"
#include "common/text.h"
#include "common/version.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOG_PREFIX "trace: "
#include "common/log.h"

/* Kept free for the part after the arguments: the name, four numbers, and the keys. */
#define TAIL (TRACE_NAME + 192)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t pid;
static __thread uint64_t tid __attribute__((tls_model("initial-exec")));

bool trace_is_wanted(void)
{
	return setting_text(SETTING_TRACE) != NULL;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000UL + ts.tv_nsec;
}

size_t trace_room(const struct trace_event *event)
{
	return sizeof(event->text) - TAIL - event->len;
}

static void put_bytes(struct trace_event *event, const char *bytes, size_t len)
{
	if (len > trace_room(event)) {
		event->full = true;
		return;
	}
	memcpy(event->text + event->len, bytes, len);
	event->len += len;
}

void trace_put(struct trace_event *event, const char *json)
{
	put_bytes(event, json, strlen(json));
}

static void put_digits(struct trace_event *event, uint64_t value, unsigned int base)
{
	char digits[24], *end = digits + sizeof(digits), *p = end;

	do {
		*--p = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	put_bytes(event, p, end - p);
}

void trace_put_number(struct trace_event *event, uint64_t value)
{
	put_digits(event, value, 10);
}

void trace_put_hex(struct trace_event *event, uint64_t value)
{
	put_bytes(event, "0x", 2);
	put_digits(event, value, 16);
}

/*
 * Copy as much of @text as fits as the inside of a JSON string, and return where in @text that
 * ends. A byte that is not ASCII becomes '?': it may not be UTF-8, which would spoil the file.
 */
static const char *escape(char *to, size_t room, size_t *len, const char *text)
{
	size_t n = 0;

	for (; *text && n + 2 <= room; text++) {
		if (*text == '"' || *text == '\\')
			to[n++] = '\\';
		to[n++] = *text >= ' ' && *text <= '~' ? *text : '?';
	}
	*len = n;
	return text;
}

void trace_put_text(struct trace_event *event, const char *text)
{
	size_t len;

	if (!text)
		text = "(null)";
	put_bytes(event, "\"", 1);
	if (*escape(event->text + event->len, trace_room(event), &len, text))
		event->full = true;
	event->len += len;
	put_bytes(event, "\"", 1);
}

void trace_arg_begin(struct trace_event *event, const char *key)
{
	event->mark = event->len;
	if (event->text[event->len - 1] != '{')
		put_bytes(event, ",", 1);
	put_bytes(event, "\"", 1);
	trace_put(event, key);
	put_bytes(event, "\":", 2);
}

void trace_arg_end(struct trace_event *event)
{
	if (!event->full)
		return;
	event->len = event->mark;
	event->full = false;
	event->cut = true;
}

void trace_text(struct trace_event *event, const char *key, const char *text)
{
	trace_arg_begin(event, key);
	trace_put_text(event, text);
	trace_arg_end(event);
}

void trace_number(struct trace_event *event, const char *key, uint64_t value)
{
	trace_arg_begin(event, key);
	trace_put_number(event, value);
	trace_arg_end(event);
}

/* A name that is too long is cut, and gets a hash of all of it (FNV-1a), which makes it unique. */
void trace_set_name(struct trace_event *event, const char *name)
{
	const size_t digits = 16, room = TRACE_NAME - 1 - digits;
	uint64_t hash = 0xcbf29ce484222325UL;

	if (!*escape(event->name, room, &event->name_len, name))
		return;
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3UL;
	event->name[event->name_len++] = '~';
	for (size_t i = 0; i < digits; i++, hash <<= 4)
		event->name[event->name_len++] = "0123456789abcdef"[hash >> 60];
}

static void begin(struct trace_event *event, const char *phase, const char *category)
{
	event->start = event->stop = event->len = event->name_len = 0;
	event->full = event->cut = false;
	trace_put(event, ",\n{\"ph\":\"");
	trace_put(event, phase);
	trace_put(event, "\",\"cat\":\"");
	trace_put(event, category);
	trace_put(event, "\",\"args\":{");
}

bool trace_begin(struct trace_event *event, const char *category)
{
	if (!tracefile_is_open())
		return false;
	begin(event, "X", category);
	return true;
}

void trace_go(struct trace_event *event)
{
	event->start = now_ns(CLOCK_MONOTONIC);
}

void trace_stop(struct trace_event *event)
{
	event->stop = now_ns(CLOCK_MONOTONIC);
}

/* The functions below write into the tail, which always has room for them. */
static void add(struct trace_event *event, const char *text, size_t len)
{
	memcpy(event->text + event->len, text, len);
	event->len += len;
}

static void add_number(struct trace_event *event, const char *key, uint64_t value, bool is_ns)
{
	char digits[24], *end = digits + sizeof(digits), *p = end;

	for (int i = 0; value || i < (is_ns ? 4 : 1); i++) {
		*--p = '0' + value % 10;
		value /= 10;
		if (is_ns && i == 2)
			*--p = '.';
	}
	add(event, key, strlen(key));
	add(event, p, end - p);
}

static void compose(struct trace_event *event, const char *name)
{
	if (!tid)
		tid = syscall(SYS_gettid);
	if (!event->name_len)
		trace_set_name(event, name);
	add(event, "}", 1);
	if (event->cut)
		add(event, ",\"cut\":true", strlen(",\"cut\":true"));
	add_number(event, ",\"pid\":", pid, false);
	add_number(event, ",\"tid\":", tid, false);
	add_number(event, ",\"ts\":", event->start, true);
	if (event->stop)
		add_number(event, ",\"dur\":", event->stop - event->start, true);
	add(event, ",\"name\":\"", strlen(",\"name\":\""));
	add(event, event->name, event->name_len);
	add(event, "\"}", 2);
}

static void finish(struct trace_event *event, const char *name)
{
	compose(event, name);
	tracefile_append(event->text, event->len);
}

void trace_end(struct trace_event *event, const char *call, int result)
{
	if (event->name_len)
		trace_text(event, "call", call);
	if (result)
		trace_number(event, "error", result);
	finish(event, call);
}

void trace_thread_name(const char *name)
{
	struct trace_event event;

	if (!tracefile_is_open())
		return;
	begin(&event, "M", "__metadata");
	trace_text(&event, "name", name);
	trace_go(&event);
	finish(&event, "thread_name");
}

void trace_phase(const char *name)
{
	static const char *current;
	static uint64_t since;
	struct trace_event event;

	if (name && current && !strcmp(name, current))
		return;
	if (current && trace_begin(&event, "phase")) {
		event.start = since;
		trace_stop(&event);
		trace_end(&event, current, 0);
	}
	current = name;
	since = now_ns(CLOCK_MONOTONIC);
}

static void start(void)
{
	const char *path = setting_text(SETTING_TRACE);
	struct trace_event event;
	char command[512];
	int error;

	if (!path)
		return;
	pid = getpid();
	begin(&event, "M", "__metadata");
	trace_number(&event, "format", TRACE_FORMAT);
	trace_text(&event, "version", cudaw_version);
	trace_number(&event, "unix_ns", now_ns(CLOCK_REALTIME));
	trace_go(&event);
	compose(&event, "cudaw_trace");
	error = tracefile_open(path, event.text, event.len);
	if (error) {
		pr_err("%s: %s; the program runs without a trace", path, error_text(-error));
		return;
	}
	host_command(0, command, sizeof(command));
	begin(&event, "M", "__metadata");
	trace_text(&event, "name", command);
	trace_go(&event);
	finish(&event, "process_name");
}

void trace_start(void)
{
	pthread_once(&once, start);
}
