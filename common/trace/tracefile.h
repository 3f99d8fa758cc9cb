/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRACEFILE_H
#define CUDAW_TRACEFILE_H
/*
 * tracefile: the file of a trace, a JSON array with one object per line. The file is complete at
 * any moment, however the process ends.
 *
 * There is no buffer and no thread: each thread writes its event when the event ends, so that the
 * event is in the file even if the process is killed right after. The file always ends in "\n]". An
 * event overwrites that end, and brings a new end:
 *
 *	[
 *	{event},
 *	{event}      ,
 *	{event}
 *	]
 *
 * A write lies in one page of the file (spaces fill the rest of the page before), since SIGKILL may
 * cut a longer write between two pages: the kernel checks for it before each page (Linux,
 * mm/filemap.c, generic_perform_write). So only the end can be missing, between the write of the
 * spaces and that of the event. Chrome's viewer accepts such an array (catapult,
 * trace_event_importer.html, adds the bracket), and so does a recent Perfetto, but older ones call
 * it incomplete (json_trace_tokenizer.cc, NotifyEndOfFile).
 *
 * Locking: one mutex around a write, taken with all signals blocked, so that a signal handler that
 * makes CUDA calls or exits cannot wait for its own thread's lock. A slow disk makes the callers
 * wait. If a write fails, the trace ends after complete events, and one error reports it.
 */
#include <stdbool.h>
#include <stddef.h>

#define TRACEFILE_PAGE 4096

/*
 * Create @path or, if that exists, @path.PID or @path.PID.N. An existing file is never changed.
 * @line is the first event, as below. Returns 0 or a negative errno.
 */
int tracefile_open(const char *path, char *line, size_t len);

bool tracefile_is_open(void);

/*
 * Append @line of @len bytes: ",\n" and an object, with two bytes of room behind it for the end of
 * the array. Together they are at most TRACEFILE_PAGE bytes. Any thread; errno is kept.
 */
void tracefile_append(char *line, size_t len);

#endif
