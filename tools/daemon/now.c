/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/now.h"
#include "common/patience.h"

#define STOPPED_MS 1000 /* a look comes that late only if the daemon was stopped */

/* Moments that have not come are 0. */
static struct patience patience = {.waited_ms = 1000000};
static bool stood;

double now_ms(void)
{
	double looked_ms = patience.looked_ms, now = patience_ms(&patience);

	stood |= looked_ms && patience.looked_ms - looked_ms >= PATIENCE_SLICE_MS + STOPPED_MS;
	return now;
}

void now_waited(void)
{
	patience_count(&patience);
}

bool now_has_stood(void)
{
	bool was = stood;

	stood = false;
	return was;
}
