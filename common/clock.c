/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

#include <limits.h>

double clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

double clock_whole_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

int clock_poll(double ms)
{
	if (ms < 0 || ms > INT_MAX)
		return -1;
	return (int)ms + (ms > (int)ms);
}

struct timespec clock_timespec(double ms)
{
	time_t seconds = (time_t)(ms / 1e3);

	return (struct timespec){seconds, (long)((ms - seconds * 1e3) * 1e6)};
}

uint64_t clock_unix_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
