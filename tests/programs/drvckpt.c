/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's own process checkpoint does to a process, and how long each part takes: lock,
 * checkpoint, restore, unlock of the process --pid N, called from here; or of this process, which
 * has a context and nothing else (--self 1). The measure that a pause is held against.
 */
#include "tests/programs/kernels.h"

#include <unistd.h>

static unsigned long target_pid;
static unsigned long itself;

static void report(const char *name, double *since)
{
	const double now = step_seconds();

	printf("figure driver_%s %.4f s\n", name, now - *since);
	fflush(stdout);
	*since = step_seconds();
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"pid", &target_pid}, {"self", &itself}};
	struct kernels kernels;
	CUcheckpointLockArgs lock = {.timeoutMs = 10000};
	CUcheckpointCheckpointArgs checkpoint = {0};
	CUcheckpointRestoreArgs restore = {0};
	CUcheckpointUnlockArgs unlock = {0};
	double since;

	step_parse(argc, argv, options, 2);
	if (!target_pid == !itself)
		step_die("drvckpt: --pid N or --self 1 is needed");
	CALL(cuInit(0));
	if (itself) {
		kernels_init(&kernels);
		target_pid = (unsigned long)getpid();
	}
	since = step_seconds();
	CALL(cuCheckpointProcessLock((int)target_pid, &lock));
	report("lock", &since);
	CALL(cuCheckpointProcessCheckpoint((int)target_pid, &checkpoint));
	report("checkpoint", &since);
	CALL(cuCheckpointProcessRestore((int)target_pid, &restore));
	report("restore", &since);
	CALL(cuCheckpointProcessUnlock((int)target_pid, &unlock));
	report("unlock", &since);
	return 0;
}
