/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MANY_H
#define CUDAW_MANY_H
/*
 * For programs of several processes: the first one uses no CUDA, and starts the ranks. They get its
 * options, and share memory with it.
 */
#include "tests/programs/step.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY_OPTIONS 16

/*
 * Start a rank with the values that @options have now. It is an own image: what a fork shares with its
 * parent is not CUDA's to use.
 */
static inline void many_start(const char *name, const struct step_option *options, int count)
{
	char names[MANY_OPTIONS][24], values[MANY_OPTIONS][24], exe[] = "/proc/self/exe";
	char *argv[2 * MANY_OPTIONS + 4] = {(char *)name, "--step-ms", values[0]};
	pid_t parent = getpid(), pid;

	snprintf(values[0], sizeof(values[0]), "%lu", step_ms);
	for (int i = 1; i <= count && i < MANY_OPTIONS; i++) {
		snprintf(names[i], sizeof(names[i]), "--%s", options[i - 1].name);
		snprintf(values[i], sizeof(values[i]), "%lu", *options[i - 1].value);
		argv[1 + 2 * i] = names[i];
		argv[2 + 2 * i] = values[i];
	}
	pid = fork();
	if (pid < 0)
		step_die("%s: fork: %s", name, strerror(errno));
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it has ended before that */
		_exit(1);
	execv(exe, argv);
	step_die("%s: exec: %s", name, strerror(errno));
}

/* Wait until all @count ranks have ended well; meanwhile *@stop says whether a signal has come. */
static inline void many_wait(const char *name, unsigned long count, uint32_t *stop)
{
	int status;

	while (count > 0) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0 && status)
			step_child_failed(name, (unsigned long)pid, status);
		count -= pid > 0;
		__atomic_store_n(stop, step_told, __ATOMIC_RELEASE);
		usleep(2000);
	}
}

#endif
