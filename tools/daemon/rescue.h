/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RESCUE_H
#define CUDAW_RESCUE_H
/*
 * A scheduler suspends a job by SIGTSTP, and some seconds later by SIGSTOP. If the job then has not yet given
 * its memory, the one for which it is suspended would wait for ever. So such a process is continued, gives its
 * memory, and stops itself again, unless a SIGCONT of the scheduler's has come since (TURN_RESCUE in protocol.h).
 *
 * That is done for processes below slurmstepd alone: whoever else sends SIGSTOP may want a process that stands
 * still, whatever it holds. Nor is it done for those that are frozen (docs/internals/frozen.md).
 */
#include "tools/daemon/connections.h"

#include <stdbool.h>

/* True if Slurm has stopped the process of @connection. */
bool rescue_is_stopped(const struct connection *connection);

/* NULL if it can be continued; else why not, for a line of the log, valid until the thread's next error_text(). */
const char *rescue_obstacle(const struct connection *connection);

/* Continue it, after rescue_obstacle() has found none. False: it was not. */
bool rescue_continue(const struct connection *connection);

#endif
