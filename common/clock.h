/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CLOCK_H
#define CUDAW_CLOCK_H
/* The clock of all waits and durations. */
#include <time.h>

/* Milliseconds of CLOCK_MONOTONIC. Async-signal-safe. */
double clock_ms(void);

/* A moment of clock_ms(), for calls that wait until a moment of CLOCK_MONOTONIC. */
struct timespec clock_timespec(double ms);

#endif
