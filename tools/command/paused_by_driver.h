/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PAUSED_BY_DRIVER_H
#define CUDAW_PAUSED_BY_DRIVER_H
/*
 * Pause and resume of processes that do not run under cudaw, by the driver's own checkpoint
 * (tools/process/driver.h). A process is known by its PID alone, and its state by the driver's own
 * answer, so it does not matter who has paused it.
 *
 * After each failure the process runs on, or is in a state that paused_by_driver_resume() ends:
 * locked by a command that was killed, or checkpointed. The message says which.
 */
#include "tools/job/targets.h"

#include <stdbool.h>

/*
 * Pause the processes that the words of @targets name. Returns an exit code, after a line for each
 * of them. @timeout_ms for running kernels; 0: the default.
 */
int paused_by_driver_pause(struct targets *targets, long timeout_ms, bool no_wait);

/*
 * Resume those words of @targets that name processes which the driver has locked or checkpointed,
 * and take them out of the list. Failures are in targets->code. False if no word is left for the
 * jobs. @timeout_ms for GPU memory to come free; 0: no limit.
 */
bool paused_by_driver_resume(struct targets *targets, long timeout_ms, bool no_wait);

/* Complain, as @verb refuses it, if @word is the PID of a process that uses CUDA without cudaw. */
bool paused_by_driver_refuse(const char *verb, const char *word);

#endif
