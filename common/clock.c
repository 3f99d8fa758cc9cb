/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

double clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int64_t clock_whole_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
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
