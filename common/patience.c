/* SPDX-License-Identifier: Apache-2.0 */
#include "common/patience.h"
#include "common/clock.h"

static int64_t look(struct patience *patience, int64_t most_ms)
{
	int64_t now = clock_whole_ms(), passed = now - patience->looked_ms;

	if (patience->looked_ms)
		patience->waited_ms += passed < most_ms ? passed : most_ms;
	patience->looked_ms = now;
	return patience->waited_ms;
}

int64_t patience_ms(struct patience *patience)
{
	return look(patience, PATIENCE_SLICE_MS);
}

void patience_count(struct patience *patience)
{
	look(patience, INT64_MAX);
}

int patience_poll(struct patience *patience, struct pollfd *fds, nfds_t n, int64_t ms)
{
	int64_t end = patience_ms(patience) + ms;

	for (;;) {
		int64_t left = end - patience_ms(patience);
		int slice = left > PATIENCE_SLICE_MS ? PATIENCE_SLICE_MS : left > 0 ? (int)left : 0;
		int ready = poll(fds, n, slice);

		if (ready || !slice)
			return ready;
	}
}
