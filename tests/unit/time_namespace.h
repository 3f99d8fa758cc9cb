/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TIME_NAMESPACE_H
#define CUDAW_TIME_NAMESPACE_H
/* A process in a time namespace of its own, in which all processes seem to have started later. CRIU makes such ones. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIME_NAMESPACE_NONE 126

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static inline int status_of(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* No whole number of clock ticks, and nearly one more: two readers round it differently. */
static inline bool unshare_time(void)
{
	FILE *file = unshare(CLONE_NEWTIME) ? NULL : fopen("/proc/self/timens_offsets", "we");

	return file && fputs("boottime 1000 999000000\n", file) >= 0 && !fclose(file);
}

/* What @run returns there: 0 to 125; TIME_NAMESPACE_NONE after a line that says that none can be made. */
static inline int run_in_time_namespace(int (*run)(void))
{
	pid_t pid = fork(), inside;
	int status;

	if (!pid) {
		if (!unshare_time())
			_exit(TIME_NAMESPACE_NONE);
		inside = fork();
		_exit(inside ? status_of(inside) : run());
	}
	status = status_of(pid);
	if (status == TIME_NAMESPACE_NONE)
		printf("# no time namespace can be made here (it takes root)\n");
	return status;
}

#endif
