/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_QUIET_H
#define CUDAW_QUIET_H
/*
 * Bringing this process to a standstill: no stream capture open, the gate closed, no call inside
 * it, the GPU idle. Alone, or held (hold.h) until its peers have come to a standstill too.
 *
 * Held, the gate admits calls by steps. A step is a number of calls, of which each is let in when
 * the GPU is done with the one before; it ends early where that takes long, or where the program
 * makes no call. What has not come by its end is not let in any more, so that a process that says
 * that it is drained stays so until its next step.
 */
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/hold.h"

#define QUIET_TEXT 80

struct quiet {
	const struct cuda_driver *drv;
	double deadline_ms; /* clock_ms() */
	const bool *cancel;
	struct hold *hold; /* NULL: alone */

	/* What quiet_enter() leaves. */
	struct context_list *contexts; /* the caller's */
	const char *what;              /* "kernels did not end": what could not be waited for */
	char text[QUIET_TEXT];         /* where @what may be */
	CUresult error;                /* the driver's, for -EIO */
};

/*
 * Returns 0 with the gate closed and no thread inside the driver; or, with the gate open: -ETIME;
 * -ECANCELED when *@cancel became true; -EIO where a context is broken; another negative errno.
 */
int quiet_enter(struct quiet *q);

/*
 * After a wait for calls inside as @kind that was given up: "a driver call did not return", with
 * the thread if one is inside still. Returns @text.
 */
const char *quiet_name_call(enum gate_kind kind, char text[static QUIET_TEXT]);

#endif
