/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's own process checkpoint does to a process, and how long each part takes: lock,
 * checkpoint, restore, unlock of the process --pid N, called from here; or of this process, which
 * has a context and nothing else (--self 1). The measure that a pause is held against. With
 * --until K only the first K of the four.
 */
#include "tests/programs/kernels.h"

#include <unistd.h>

static unsigned long target_pid;
static unsigned long itself;
static unsigned long until = 4;

static void report(const char *name, double *since)
{
	const double now = step_seconds();

	printf("figure driver_%s %.4f s\n", name, now - *since);
	fflush(stdout);
	*since = step_seconds();
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"pid", &target_pid}, {"self", &itself}, {"until", &until}};
	struct kernels kernels;
	CUcheckpointLockArgs lock = {.timeoutMs = 10000};
	CUcheckpointCheckpointArgs checkpoint = {0};
	CUcheckpointRestoreArgs restore = {0};
	CUcheckpointUnlockArgs unlock = {0};
	static const char *const names[] = {"lock", "checkpoint", "restore", "unlock"};
	double since;

	step_parse(argc, argv, options, 3);
	if (!target_pid == !itself)
		step_die("drvckpt: --pid N or --self 1 is needed");
	if (until > 4)
		step_die("drvckpt: there are four steps");
	CALL(cuInit(0));
	if (itself) {
		kernels_init(&kernels);
		target_pid = (unsigned long)getpid();
	}
	since = step_seconds();
	for (unsigned long k = 0; k < until; k++) {
		const int pid = (int)target_pid;

		switch (k) {
		case 0:
			CALL(cuCheckpointProcessLock(pid, &lock));
			break;
		case 1:
			CALL(cuCheckpointProcessCheckpoint(pid, &checkpoint));
			break;
		case 2:
			CALL(cuCheckpointProcessRestore(pid, &restore));
			break;
		default:
			CALL(cuCheckpointProcessUnlock(pid, &unlock));
		}
		report(names[k], &since);
	}
	return 0;
}
