/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRACE_H
#define CUDAW_TRACE_H
/*
 * trace: events of this process in the file that CUDAW_TRACE names (see tracefile.h), as objects of
 * the Trace Event Format that Perfetto and chrome://tracing open:
 *
 *	{"ph":"X","cat":"copy","args":{"kind":"HtoD","bytes":8,...},
 *	 "pid":7,"tid":7,"ts":81.002,"dur":3.100,"name":"cuMemcpyHtoD_v2"}
 *
 * (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: "X" is a complete
 * event; "ts" and "dur" are microseconds, with fractions; events need not be sorted by time.)
 * Times are CLOCK_MONOTONIC, so that files of several processes of one machine fit together. The
 * first event, "cudaw_trace", says the version and the time of day.
 *
 * An event is put together on its thread's stack and written when it is over: it is at most a page
 * with a name of at most TRACE_NAME bytes. What has no room is left out, and "cut" says so.
 */
#include "common/tracefile.h"

#include <stdint.h>

#define TRACE_FORMAT 1 /* of the file; counted up when `cudaw trace` must read it in another way */
#define TRACE_NAME   2048

struct trace_event {
	uint64_t start, stop; /* ns */
	size_t len;
	size_t mark; /* where the argument begins that is being written */
	size_t name_len;
	bool full; /* the argument has no room */
	bool cut;  /* one had none */
	char name[TRACE_NAME];
	char text[TRACEFILE_PAGE];
};

/* True where CUDAW_TRACE asks for a trace. */
bool trace_is_wanted(void);

/* Begin the trace, once in a process that uses CUDA; later calls do nothing. */
void trace_start(void);

/* Begin an event. False where there is no trace: nothing more is to be done then. */
bool trace_begin(struct trace_event *event, const char *category);

/* What the event is the time of. */
void trace_go(struct trace_event *event);
void trace_stop(struct trace_event *event);

/*
 * Write the event of the call @call, which returned @result: an argument "error" if not 0. Where it
 * was given a name, the call is an argument too.
 */
void trace_end(struct trace_event *event, const char *call, int result);

void trace_set_name(struct trace_event *event, const char *name);

/* Arguments of the event. */
void trace_text(struct trace_event *event, const char *key, const char *text);
void trace_number(struct trace_event *event, const char *key, uint64_t value);

/*
 * An argument of another shape: its JSON is put between the first and the last of these. What is
 * put is written as it is, but for the text of trace_put_text(), which is quoted and escaped; NULL
 * is "(null)".
 */
void trace_arg_begin(struct trace_event *event, const char *key);
void trace_put(struct trace_event *event, const char *json);
void trace_put_text(struct trace_event *event, const char *text);
void trace_put_number(struct trace_event *event, uint64_t value);
void trace_put_hex(struct trace_event *event, uint64_t value); /* 0x2a */
void trace_arg_end(struct trace_event *event);

/* Bytes of arguments that still have room. */
size_t trace_room(const struct trace_event *event);

/* A pause or resume begins phase @name (a string that stays), or is over (NULL); one thread. */
void trace_phase(const char *name);

/* Name the calling thread. */
void trace_thread_name(const char *name);

#endif
