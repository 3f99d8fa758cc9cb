/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WITHOUT_MAIN_H
#define CUDAW_WITHOUT_MAIN_H
/*
 * A process whose main thread has ended by pthread_exit(), as that of a server may. To the kernel it is a zombie,
 * and its directory /proc/self has neither files nor mappings.
 */
#include "common/protocol/rundir.h"

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static void *without_main_thread(void *run)
{
	struct rundir_process process;

	while (rundir_process(getpid(), &process) && process.state != 'Z')
		sched_yield();
	_exit(((int (*)(void))run)());
}

/* What @run returns in a child that has only another thread left: 0 to 127. */
static inline int run_without_main(int (*run)(void))
{
	pid_t pid = fork();
	pthread_t thread;
	int status;

	if (!pid) {
		if (!pthread_create(&thread, NULL, without_main_thread, (void *)run))
			pthread_exit(NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#endif
