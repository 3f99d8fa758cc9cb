/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/hooks/seldom.h"

bool seldom_may(struct seldom *seldom, double now_ms)
{
	double since_ms = now_ms - seldom->said_ms, wait_ms = seldom->wait_ms;

	if (wait_ms && since_ms < wait_ms) {
		seldom->unsaid++;
		return false;
	}
	if (!wait_ms || since_ms >= 4 * wait_ms)
		seldom->wait_ms = SELDOM_FIRST_MS;
	else if (wait_ms < SELDOM_MOST_MS)
		seldom->wait_ms = 2 * wait_ms;
	seldom->said_ms = now_ms;
	return true;
}
