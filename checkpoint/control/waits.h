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
#include <stdbool.h>
#include <stddef.h>

#define WAITS_TOLD_MS 1000
#define WAITS_TEXT    512

/* See what the job waits for, or whether its user has paused it, and tell it if it is time. */
void waits_look(void);

/* How long until waits_look() has something to do; negative: not before something happens. */
int waits_patience_ms(void);

/*
 * What it waits for, in the word of protocol.h; NULL: nothing. Then for how many bytes, for how long, and the
 * wait in words.
 */
const char *waits_what(size_t *bytes, double *ms, char text[WAITS_TEXT]);

#endif
