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
 * event; "ts" and "dur" are microseconds, with fractions; events need not be sorted by time.) Times
 * are CLOCK_MONOTONIC, so that files of several processes of one machine fit together. The first
 * event, "cudaw_trace", has the version and the time of day.
 *
 * An event is composed on its thread's stack and written when it ends. It is at most a page, with a
 * name of at most TRACE_NAME bytes. Arguments that do not fit are left out, and "cut" says so.
 */
#include "common/trace/tracefile.h"

#include <stdint.h>

#define TRACE_FORMAT 1 /* of the file; increased when a reader must read it differently */
#define TRACE_NAME   2048

struct trace_event {
	uint64_t start, stop; /* ns */
	size_t len;
	size_t mark; /* where the argument being written begins */
	size_t name_len;
	bool full; /* the argument does not fit */
	bool cut;  /* an argument did not fit */
	char name[TRACE_NAME];
	char text[TRACEFILE_PAGE];
};

/* True if CUDAW_TRACE asks for a trace. */
bool trace_is_wanted(void);

/* Begin the trace, once in a process that uses CUDA; later calls do nothing. */
void trace_start(void);

/* Begin an event. False if there is no trace: the caller then does nothing more. */
bool trace_begin(struct trace_event *event, const char *category);

/* The begin and end of the time that the event reports. */
void trace_go(struct trace_event *event);
void trace_stop(struct trace_event *event);

/*
 * Write the event of the call @call. A @result other than 0 becomes the argument "error". If the
 * event has a name of its own, the call becomes an argument too.
 */
void trace_end(struct trace_event *event, const char *call, int result);

void trace_set_name(struct trace_event *event, const char *name);

/* Arguments of the event. */
void trace_text(struct trace_event *event, const char *key, const char *text);
void trace_number(struct trace_event *event, const char *key, uint64_t value);

/*
 * An argument of another shape: its JSON is put between the first and the last of these calls, and
 * written unchanged. Only trace_put_text() quotes and escapes its text; NULL becomes "(null)".
 */
void trace_arg_begin(struct trace_event *event, const char *key);
void trace_put(struct trace_event *event, const char *json);
void trace_put_text(struct trace_event *event, const char *text);
void trace_put_number(struct trace_event *event, uint64_t value);
void trace_put_hex(struct trace_event *event, uint64_t value); /* 0x2a */
void trace_arg_end(struct trace_event *event);

/* The bytes of arguments that still fit. */
size_t trace_room(const struct trace_event *event);

/* A pause or resume begins phase @name (a string that stays valid), or ends (NULL). One thread. */
void trace_phase(const char *name);

/* Name the calling thread. */
void trace_thread_name(const char *name);

#endif
