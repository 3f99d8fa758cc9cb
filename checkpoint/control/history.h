/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HISTORY_H
#define CUDAW_HISTORY_H
/*
 * What the journal of the runtime directory is told of this process (common/protocol/journal.h): who asked for a pause, a
 * resume or a snapshot, and what came of it. The turns of a job are cudawd's to tell. Only the control thread calls it.
 */
#include "common/protocol/journal.h"
#include "checkpoint/control/state/state.h"

/* Once a process, before the others: where the journal is. */
void history_init(void);

/*
 * A request came from the other end of the socket @fd, or, with @fd -1, by a signal that @by sent. @text says more,
 * or is NULL. What the same process repeats before there is an outcome is told once.
 */
void history_asked(enum journal_kind request, int fd, const struct journal_by *by,
		   const char *text);

/*
 * The job is in a state: @wanted: its user wants it paused. Called before whoever waits for it is answered. Tells
 * what is new in it.
 */
void history_state(bool wanted);

/* A snapshot without a process image is complete in @path. */
void history_saved(const char *path);

/* An operation failed. A request that came meanwhile may have called it off: that is not told. */
void history_failed(const char *operation, enum end_code code, const char *why);

#endif
