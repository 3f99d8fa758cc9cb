/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_QUIET_H
#define CUDAW_QUIET_H
/*
 * Bringing this process to rest: no stream capture open, the gate closed, no call inside it, the
 * GPU idle. The process does so alone, or is held (hold.h) until the other ranks are at rest too.
 *
 * Alone: work of the GPU may wait for a thread of the program that waits at the gate
 * (checkpoint/ledger/host_work.h). While a host function runs, single calls are let in, each when the GPU has
 * had a moment to get on. Where it is only known that the program has made such work, this begins later, and
 * at longer and longer intervals: what it waits for may be kernels, which calls would add to. So it is, too, if
 * the calls launch host functions nearly as fast as others end, as there would always be one that runs; unless one
 * runs for 100 ms, which may wait for the program.
 *
 * A held gate admits calls by steps. A step is a number of calls, each of which is let in when the
 * GPU is done with the call before. It ends early if that takes long, or if the program makes no
 * call. No call is let in after its end, so that a process that reports itself as drained stays so
 * until its next step.
 */
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/hold.h"

#define QUIET_TEXT 96

struct quiet {
	const struct cuda_driver *drv;
	double deadline_ms; /* limits_ms() */
	const bool *cancel;
	struct hold *hold; /* NULL: alone */

	/* Results. */
	struct context_list *contexts; /* the caller's */
	const char *what;              /* the reason of a failure, e.g. "kernels did not end" */
	char text[QUIET_TEXT];         /* memory for @what */
	CUresult error;                /* the driver's, for -EIO */
};

/*
 * Returns 0 with the gate closed and no thread inside the driver. On failure the gate is open:
 * -ETIME; -ECANCELED if *@cancel became true; -EIO if a context is broken; another negative errno.
 */
int quiet_enter(struct quiet *q);

/*
 * The same while the GPU works on, and captures stay open: only no call is inside as GATE_HOLD. q->contexts and
 * q->hold are not used.
 */
int quiet_close(struct quiet *q);

/*
 * After an abandoned wait for calls inside as @kind: write "a driver call did not return", with the
 * thread if one is still inside. Returns @text.
 */
const char *quiet_name_call(enum gate_kind kind, char text[static QUIET_TEXT]);

#endif
