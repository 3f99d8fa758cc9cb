/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/now.h"
#include "common/patience.h"

/* Moments that have not come are 0. */
static struct patience patience = {.waited_ms = 1000000};

double now_ms(void)
{
	return patience_ms(&patience);
}

void now_waited(void)
{
	patience_count(&patience);
}
