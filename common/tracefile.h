/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRACEFILE_H
#define CUDAW_TRACEFILE_H
/*
 * tracefile: the file of a trace, a JSON array of objects with one object a line, which is whole
 * at any moment, however the process ends.
 *
 * There is no buffer and no thread: each event is written when it is over, by the thread that it is
 * of, so that what has happened is in the file even if the process is killed the moment after. The
 * file always ends in "\n]"; an event is written over that, with a new end behind it:
 *
 *	[
 *	{event},
 *	{event}      ,
 *	{event}
 *	]
 *
 * A write lies in one page of the file (the rest of the page before is filled with spaces), since
 * SIGKILL may cut a longer one between two pages: the kernel looks for it before each (Linux,
 * mm/filemap.c, generic_perform_write). So all that can be missing is the end, between the write
 * of the spaces and that of the event. Chrome's viewer takes such an array (catapult,
 * trace_event_importer.html, adds the bracket), as does Perfetto of late, but older ones call it
 * incomplete (json_trace_tokenizer.cc, NotifyEndOfFile).
 *
 * Locking: one mutex around a write, taken with all signals blocked, so that a handler of the
 * program that makes CUDA calls or exits does not meet its own thread's lock. A slow disk makes
 * the callers wait. Where a write fails the trace ends, with whole events, and that is said once.
 */
#include <stdbool.h>
#include <stddef.h>

#define TRACEFILE_PAGE 4096

/*
 * Create @path or, where that exists, @path.PID or @path.PID.N: never a file that is there. @line
 * is its first event, as below. Returns 0 or a negative errno.
 */
int tracefile_open(const char *path, char *line, size_t len);

bool tracefile_is_open(void);

/*
 * Append @line of @len bytes: ",\n" and an object, and two bytes of room behind it for the end of
 * the array. All together are at most TRACEFILE_PAGE bytes. Any thread; errno is kept.
 */
void tracefile_append(char *line, size_t len);

#endif
