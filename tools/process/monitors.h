/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MONITORS_H
#define CUDAW_MONITORS_H
/*
 * Processes of a job that have GPUs open to look at them by NVML, and do not use CUDA: CRIU could not take these files.
 * The driver's checkpoint takes them. Calls of NVML wait in such a process until it is restored, and everything else
 * there goes on. A process that has called nvmlInit() alone has files of GPUs open and none mapped, while one that has
 * called cuInit() maps some; once it is checkpointed, none is open, and only the driver tells it from one that does not
 * look at GPUs [H200, driver 580.159].
 */
#include "tools/process/criu/tree.h"
#include "tools/process/driver_child.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MONITORS_MAX 64

struct monitors {
	pid_t pids[MONITORS_MAX];
	size_t n;
	CUcheckpointGpuPair pairs[GPU_MAX]; /* of all GPUs, for the restore */
	unsigned int npairs;                /* 0: the GPUs are as they were */
	bool kept; /* checkpointed, until they are let go or this process ends, by a child of it */
	int until; /* a pipe to this child */
	struct driver_work work;
};

_Static_assert(MONITORS_MAX <= DRIVER_LISTED, "the child keeps as many");

/*
 * Find those of @tree, which runs, except the @nothers of @others. None that has a driver mapped, or that the driver
 * does not know. False with @why if the driver has one locked or checkpointed already, or if that cannot be known.
 */
bool monitors_find(struct monitors *m, const struct tree *tree, const pid_t *others, size_t nothers,
		   char *why, size_t size);

/* Leave out those that are not in @tree, which is stopped, or are about to end. */
void monitors_drop(struct monitors *m, const struct tree *tree);

/*
 * Have the driver checkpoint all that are found, except those that end meanwhile; if they are @already checkpointed, as
 * after a restore: begin only to keep them so. False with @why after a failure, or an interrupt that is held
 * (criu_is_interrupted()), once the one whose lock is under way then is locked or has not let itself be: they run on.
 */
bool monitors_keep(struct monitors *m, bool already, char *why, size_t size);

/*
 * Have the driver restore them, once each of them runs; with @wait, until that is done for all that nobody has stopped,
 * and false with @why if it fails. Nothing if they are not kept. A process that has ended does not matter.
 */
bool monitors_let_go(struct monitors *m, bool wait, char *why, size_t size);

/*
 * Have the driver restore those of @tree, except the @nothers of @others, that it has locked or checkpointed and that
 * run: the child of a command that should have done it was killed. Those that another command works on, or that
 * 'cudaw pause --driver' has paused (record_claim()), are left alone and named. False with @why if it fails, or if that
 * cannot be known of one, which is left alone, too.
 */
bool monitors_revive(const struct tree *tree, const pid_t *others, size_t nothers, char *why,
		     size_t size);

#endif
