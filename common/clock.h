/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CLOCK_H
#define CUDAW_CLOCK_H
/*
 * The clock of all waits and durations, and that of dates.
 *
 * Its moments are multiples of 1/1024 ms: sums and differences of them are exact. All functions here leave the
 * floating-point flags alone, which are the program's in its threads, if they get such times or whole milliseconds.
 */
#include <stdint.h>
#include <time.h>

/* Milliseconds of CLOCK_MONOTONIC. Async-signal-safe. */
double clock_ms(void);

/* Milliseconds since 1970, for people: the clock may be set meanwhile. */
uint64_t clock_unix_ms(void);

/* Whole microseconds of a duration; 0 if it is negative. */
uint64_t clock_us_of(double ms);

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
