/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TURN_IDLE_H
#define CUDAW_TURN_IDLE_H
/*
 * Whether the job makes no calls: the lines "idle" and "busy" of protocol.h. The gate notices
 * whether a call comes (gate_watch()). If none has come for long enough, and none is inside, the job
 * is brought to rest for a moment (EV_PROBE): only if the GPU has done all of its work, too, the job
 * is idle. A probe that fails is not repeated for 200 ms, so that calls lose at most a tenth of the time
 * by probes. Control thread.
 */
#include <stdbool.h>

struct client;

/* From now on a job is idle after @ms without calls. */
void turn_idle_set(double ms);
/* Milliseconds between two looks of a job for which somebody waits; 100 while it is out. */
double turn_idle_look_ms(void);

/* Look, and tell @c. @watched: somebody waits for the job's memory. */
void turn_idle_look(const struct client *c, bool watched);

/* The daemon counts the job as busy, by another line than "busy". */
void turn_idle_forget(void);

/* Nobody is to be told any more. */
void turn_idle_stop(void);

#endif
