/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_ENTERING_H
#define CUDAW_HOOKS_ENTERING_H
/*
 * Calls of the driver that are made only if no capture is open, and beside which none may begin: the driver
 * looks for captures at the begin of such a call, and then the call fails and breaks the capture, or becomes a
 * part of it. A call that is inside the driver already does no harm, and may wait there for work of the GPU
 * that waits for the thread that begins the capture.
 *
 * A thread that makes such a call, in its own stack:
 *	entering_begin(&self);
 *	if (no capture is open) the call
 *	entering_end(&self);
 *
 * A thread that begins a capture: the capture counts as open; entering_wait(); the driver's call.
 *
 * So either the first thread sees the capture, or the second one sees the first. All functions are for any
 * thread, with any of our locks held, except that entering_wait() waits for threads between the other two.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct entering {
	pid_t tid;
	bool seen;         /* a thread that waits has seen it, when it had used so much */
	uint64_t begun_ns; /* of processor time */
	struct entering *prev, *next;
};

void entering_begin(struct entering *self);
void entering_end(struct entering *self);

/*
 * Wait until each thread that is between the two is inside the driver. It is there if it sleeps, since it
 * does so nowhere else, or once it has run for longer than the way there takes: by its own processor time, in
 * which a thread that waits for a processor, or a machine that is frozen, does not advance.
 */
void entering_wait(void);

#endif
