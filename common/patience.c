/* SPDX-License-Identifier: Apache-2.0 */
#include "common/patience.h"
#include "common/clock.h"

#include <math.h>

static double look(struct patience *patience, double most_ms)
{
	double now = clock_ms(), passed = now - patience->looked_ms;

	if (patience->looked_ms)
		patience->waited_ms += passed < most_ms ? passed : most_ms;
	patience->looked_ms = now;
	return patience->waited_ms;
}

double patience_ms(struct patience *patience)
{
	return look(patience, PATIENCE_SLICE_MS);
}

void patience_count(struct patience *patience)
{
	look(patience, INFINITY);
}

int patience_poll(struct patience *patience, struct pollfd *fds, nfds_t n, double ms)
{
	double end = patience_ms(patience) + ms;

	for (;;) {
		double left = end - patience_ms(patience);
		double slice = left > PATIENCE_SLICE_MS ? PATIENCE_SLICE_MS : left > 0 ? left : 0;
		int ready = poll(fds, n, clock_poll(slice));

		if (ready || left <= 0)
			return ready;
	}
}
