/* SPDX-License-Identifier: Apache-2.0 */
#include "common/limits.h"
#include "common/clock.h"
#include "common/patience.h"

#include <unistd.h>

static struct patience patience;
static bool counts; /* by the patience */

void limits_begin(bool ours)
{
	counts = ours;
	patience = (struct patience){.waited_ms = 1}; /* a limit of 0 is none */
}

double limits_ms(void)
{
	return counts ? patience_ms(&patience) : clock_ms();
}

void limits_sleep(double ms)
{
	if (counts)
		patience_poll(&patience, NULL, 0, ms);
	else
		usleep((useconds_t)(ms * 1000));
}
