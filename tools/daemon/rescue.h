/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RESCUE_H
#define CUDAW_RESCUE_H
/*
 * A scheduler suspends a job by SIGTSTP, and some seconds later by SIGSTOP. If the job then has not yet given
 * its memory, the one for which it is suspended would wait for ever. So such a process is continued, gives its
 * memory, and stops itself again, unless a SIGCONT of the scheduler's has come since (TURN_RESCUE in protocol.h).
 *
 * That is done for processes below slurmstepd alone: whoever else sends SIGSTOP may want a process that stands
 * still, whatever it holds.
 */
#include "tools/daemon/connections.h"

#include <stdbool.h>

/* True if Slurm has stopped the process of @connection. */
bool rescue_is_stopped(const struct connection *connection);

/* Continue it. False, after a line in the log, if that is not possible. */
bool rescue_continue(const struct connection *connection);

#endif
