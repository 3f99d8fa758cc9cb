/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CLOCK_H
#define CUDAW_CLOCK_H
/* The clock of all waits and durations, and that of dates. */
#include <stdint.h>
#include <time.h>

/* Milliseconds of CLOCK_MONOTONIC. Async-signal-safe. */
double clock_ms(void);

/* In whole ones: sums of such numbers are exact, and leave the floating-point flags alone. Async-signal-safe. */
double clock_whole_ms(void);

/* Milliseconds since 1970, for people: the clock may be set meanwhile. */
uint64_t clock_unix_ms(void);

/* Whole microseconds of a duration; 0 if it is negative. */
static inline uint64_t clock_us_of(double ms)
{
	return ms > 0 ? (uint64_t)(ms * 1e3) : 0;
}

/* The shorter of two waits, of which a negative one has no end. */
static inline double clock_shorter(double a, double b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* A wait, as poll() takes it: rounded up, and endless if it is negative or infinite. */
int clock_poll(double ms);

/* A moment of clock_ms(), for calls that wait until a moment of CLOCK_MONOTONIC. */
struct timespec clock_timespec(double ms);

#endif
