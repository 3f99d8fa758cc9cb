/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PAUSED_BY_DRIVER_H
#define CUDAW_PAUSED_BY_DRIVER_H
/*
 * Pause and resume of processes that do not run under cudaw, by the driver's own checkpoint
 * (tools/process/driver_child.h). A process is known by its PID alone, and its state by the driver's own
 * answer, so it does not matter who has paused it.
 *
 * After each failure the process runs on, or is in a state that paused_by_driver_resume() ends:
 * locked by a command that was killed, or checkpointed. The message says which.
 */
#include "tools/job/targets.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define BY_DRIVER_GUESS SIZE_MAX

/* What a command line asks for, beside the processes. */
struct by_driver {
	double timeout_ms; /* for running kernels, or for GPU memory to come free; 0: the default */
	bool no_wait;
	size_t need; /* a resume waits for so many bytes on each GPU; BY_DRIVER_GUESS: those that it held */
	json_t *rows; /* gets an object for each process; NULL: a line on stdout instead */
};

/*
 * Pause the processes that the words of @targets name. Returns an exit code. The default time for
 * running kernels is 30 s.
 */
int paused_by_driver_pause(struct targets *targets, const struct by_driver *how);

/*
 * Resume those words of @targets that name processes which the driver has locked or checkpointed,
 * and take them out of the list. Failures are in targets->code. False if no word is left for the
 * jobs. By default there is no limit of time.
 */
bool paused_by_driver_resume(struct targets *targets, const struct by_driver *how);

/* Complain, as @verb refuses it, if @word is the PID of a process that uses CUDA without cudaw. */
bool paused_by_driver_refuse(const char *verb, const char *word);

#endif
