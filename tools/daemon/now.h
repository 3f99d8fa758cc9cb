/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_NOW_H
#define CUDAW_NOW_H
/*
 * The clock of the daemon: of all moments that its parts are told as "now", and of its limits. It goes as a struct
 * patience does: while the daemon is stopped, perhaps with its members, it stands.
 */
#include <stdbool.h>

/* Milliseconds, from a positive moment on. Look every PATIENCE_SLICE_MS. */
double now_ms(void);

/* After a wait in which nothing had a limit: it counts in full, as the time of members that run. */
void now_waited(void);

/* Once after each gap of a second or more for which the clock stood: what was seen before it may be old. */
bool now_has_stood(void);

#endif
