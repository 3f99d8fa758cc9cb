/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/turns/idleness.h"

#include <stdbool.h>

#define MIN_MS       200.0
#define MAX_MS       5000.0
#define LEARNED_MS   25.0 /* at least, of one whose gaps are known: it looks no oftener */
#define LEARNED_PART 8
#define FIRST_GAPS   4U /* make a gap known to be long */
#define MOST_DOUBLED 4

static double at_least(double ms, double least)
{
	return ms < least ? least : ms;
}

static double within(double ms, double least)
{
	return ms > MAX_MS ? MAX_MS : at_least(ms, least);
}

static bool is_learned(const struct idleness *idle)
{
	return idle->long_gaps >= FIRST_GAPS << idle->mistakes;
}

double idleness_limit(const struct idleness *idle, double price)
{
	return is_learned(idle) ? within(price / LEARNED_PART, LEARNED_MS) : within(price, MIN_MS);
}

void idleness_begin(struct idleness *idle, double now)
{
	if (!idle->since)
		idle->since = now > idle->told ? now - idle->told : now;
}

void idleness_end(struct idleness *idle, double price, double now)
{
	if (!idle->since)
		return;
	if (now - idle->since > 2 * at_least(price, MIN_MS)) {
		idle->long_gaps++;
	} else {
		idle->mistakes += is_learned(idle) && idle->mistakes < MOST_DOUBLED;
		idle->long_gaps = 0;
	}
	idleness_forget(idle);
}

void idleness_forget(struct idleness *idle)
{
	idle->since = 0;
}
