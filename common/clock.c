/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

#include <time.h>

double clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}
