/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PATIENCE_H
#define CUDAW_PATIENCE_H
/*
 * The limits that cudaw itself sets to a wait: for a peer, a socket, a daemon. (A limit that a user gives, as
 * --timeout, is a moment of clock_ms().) Who waits looks at least every PATIENCE_SLICE_MS whether the limit has
 * passed, and no time between two looks counts as more than that: a process that was stopped, or whose cgroup or
 * machine was, has not waited meanwhile, and the peers may have been stopped with it.
 *
 * A struct patience belongs to one thread. All functions are async-signal-safe, and leave the floating-point
 * flags alone, as the clock does.
 */
#include <poll.h>

#define PATIENCE_SLICE_MS 100

/* Of zeroes: no look yet. */
struct patience {
	double waited_ms; /* what counts */
	double looked_ms; /* clock_ms() of the last look; 0: the next one begins */
};

/* The milliseconds that count since the first look. */
double patience_ms(struct patience *patience);

/* The same for a caller who looks every @slice_ms only: the time between two looks counts up to that. */
double patience_slice_ms(struct patience *patience, double slice_ms);

/* What has passed since the last look counts in full: nothing had a limit meanwhile. */
void patience_count(struct patience *patience);

/* It counts nothing. */
static inline void patience_skip(struct patience *patience)
{
	patience->looked_ms = 0;
}

/* poll(2) until @ms more count; the caller's limits may go by the same patience. */
int patience_poll(struct patience *patience, struct pollfd *fds, nfds_t n, double ms);

#endif
