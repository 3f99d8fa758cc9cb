/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WAITS_H
#define CUDAW_WAITS_H
/*
 * Why the program makes no progress: what the job waits for, for cudaw ps, and as notices on the program's
 * stderr (log.h). Only the control thread calls it.
 *
 * A pause is told, and its end. A job may take thousands of turns, so a wait is told when it has lasted for
 * WAITS_TOLD_MS, and for twice as long as the longest that was told before; then its end is told, too.
 */
#include "checkpoint/control/answers.h"

#define WAITS_TOLD_MS 1000

/* See whether the job waits, or is paused by its user. Tell clients who wait for it, and others if it is time. */
void waits_look(void);

/* How long until waits_look() has something to do; negative: not before something happens. */
double waits_patience_ms(void);

/* What the status says: job_facts(), and what the job waits for; valid until the next call. */
const struct answers_facts *waits_facts(void);

#endif
