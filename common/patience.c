/* SPDX-License-Identifier: Apache-2.0 */
#include "common/patience.h"
#include "common/clock.h"

#include <math.h>

double patience_slice_ms(struct patience *patience, double slice_ms)
{
	double now = clock_ms(), passed = now - patience->looked_ms;

	if (patience->looked_ms)
		patience->waited_ms += passed < slice_ms ? passed : slice_ms;
	patience->looked_ms = now;
	return patience->waited_ms;
}

double patience_ms(struct patience *patience)
{
	return patience_slice_ms(patience, PATIENCE_SLICE_MS);
}

void patience_count(struct patience *patience)
{
	patience_slice_ms(patience, INFINITY);
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
