/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROGRESS_H
#define CUDAW_PROGRESS_H
/*
 * A line on stderr, rewritten ten times a second, for operations of more than a second: bytes,
 * rate, time left. Only on a terminal; otherwise nothing is written.
 */
#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_MS 100

/* Begin to watch; @doing is the first word of the line ("pausing"). */
void progress_begin(const char *doing);

/*
 * What an interrupt (SIGINT) says, each on a line, before it ends this command: what becomes of the work. NULL: nothing.
 * The texts are the caller's, and valid until progress_end().
 */
void progress_on_interrupt(const char *first, const char *second);

/* @done of @total bytes of the work on @what, at the mean rate since progress_begin(). */
void progress_bytes(const char *what, uint64_t done, uint64_t total);

/* The same if the amount of work is unknown: the elapsed time. */
void progress_time(const char *what);

/*
 * Whether the line is to be rewritten now. If so, the caller calls progress_phase(): @rate is in
 * bytes per millisecond, 0 if unknown; with a @total of 0 the line shows the time.
 */
bool progress_is_due(void);
void progress_phase(const char *who, const char *phase, uint64_t done, uint64_t total, double rate);

/* In its place: some words. */
void progress_text(const char *who, const char *text);

/* Wipe the line, and let an interrupt say nothing. */
void progress_end(void);

#endif
