/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SELDOM_H
#define CUDAW_SELDOM_H
/* How often the daemon says what users can cause again and again: its log has no other bound while it runs. */
#include <stdbool.h>

#define SELDOM_FIRST_MS 1000
#define SELDOM_MOST_MS  64000

/* All is zero at first. */
struct seldom {
	double said_ms, wait_ms; /* the last message, and the time until the next one */
	unsigned int unsaid;     /* messages since then; the caller sets it back */
};

/*
 * Whether to say something at @now_ms. The time between two messages doubles as long as there is more to say, up to
 * SELDOM_MOST_MS. After a longer silence it is SELDOM_FIRST_MS again.
 */
bool seldom_may(struct seldom *seldom, double now_ms);

#endif
