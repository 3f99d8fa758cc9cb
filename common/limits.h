/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_LIMITS_H
#define CUDAW_LIMITS_H
/*
 * The clock of the limits of an operation. If a user has given the limit, it is clock_ms(). If cudaw has set it, it
 * counts as common/patience.h does: time in which the process was stopped does not pass.
 *
 * Operations come one after the other, and each waits in one thread: only that thread may call these functions, and
 * whoever starts it the first one.
 */
#include <stdbool.h>

/* An operation begins. @ours: cudaw has set its limit. */
void limits_begin(bool ours);

/* Milliseconds. Who waits by it looks at least every PATIENCE_SLICE_MS. */
double limits_ms(void);

/* Sleep for @ms of it. */
void limits_sleep(double ms);

#endif
