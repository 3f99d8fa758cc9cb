/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

#include <limits.h>

#define TICKS_MS 1024

double clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)((int64_t)now.tv_sec * 1000 * TICKS_MS + now.tv_nsec * TICKS_MS / 1000000) /
	       TICKS_MS;
}

/* Converted to an integer, a part of a millisecond would set the flag of inexact results. */
static int64_t ticks_of(double ms)
{
	return (int64_t)(ms * TICKS_MS);
}

uint64_t clock_us_of(double ms)
{
	return ms > 0 ? (uint64_t)ticks_of(ms) * 1000 / TICKS_MS : 0;
}

int clock_poll(double ms)
{
	if (ms < 0 || ms > INT_MAX)
		return -1;
	return (int)((ticks_of(ms) + TICKS_MS - 1) / TICKS_MS);
}

struct timespec clock_timespec(double ms)
{
	int64_t ticks = ticks_of(ms), second = 1000 * TICKS_MS;

	return (struct timespec){ticks / second, ticks % second * 1000000 / TICKS_MS};
}

uint64_t clock_unix_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
