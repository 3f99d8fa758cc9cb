/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TOGETHER_H
#define CUDAW_TOGETHER_H
/* Pauses and resumes all processes of one job (coordinate.h) for a command that does more than that. */
#include "tools/job/jobs.h"

/*
 * Pause @jobs, which are described, with nothing left on the GPU; @timeout_ms as for 'cudaw pause', 0: none. All are
 * paused then, or none but those that were before. @hold blocks interrupts, or unblocks them: they are blocked once all
 * are at rest, and pause whatever becomes of this command. Returns an exit code, after a message that begins with @verb.
 */
int together_pause(struct job **jobs, size_t n, const char *verb, double timeout_ms,
		   void (*hold)(bool on));

/*
 * Resume them; those that wait for their turn then are waited for with @turns, and else done. The lines of their answers
 * go to @line, which calls outcome_line(). Returns an exit code likewise. Those that stay paused, as somebody else wants, have ended with END_BUSY.
 */
int together_resume(struct job **jobs, size_t n, const char *verb, const char *doing, bool turns,
		    int (*line)(struct job *job, const struct line *line));

#endif
