/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROGRESS_H
#define CUDAW_PROGRESS_H
/*
 * One line on stderr, rewritten ten times a second, while something takes longer than a second:
 * bytes, rate, time left. Only on a terminal; elsewhere nothing is ever written.
 */
#include "tools/job/jobs.h"

/* Begin to watch; @doing is the first word of the line ("pausing"). */
void progress_begin(const char *doing);

/* Take the value of a "progress" line of @job. Returns 0 or -EBADMSG. */
int progress_take(struct job *job, const char *value);

#define PROGRESS_MS 100

/* Write the line anew; a tick function for struct job_request. Returns PROGRESS_MS. */
int progress_tick(struct job **jobs, size_t n);

/* The same for work of our own on @what, for which nobody sends lines. */
void progress_bytes(const char *what, uint64_t done, uint64_t total);

/* The same where it is not known how much there is to do: the time it has taken. */
void progress_time(const char *what);

/* Wipe the line. */
void progress_end(void);

#endif
