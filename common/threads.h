/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_THREADS_H
#define CUDAW_THREADS_H
/*
 * Threads of this process that may have ended. No function runs as a thread of the program ends: the
 * last calls of a thread may come from its last destructors.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

/* The thread @tid has ended, and no later one has its number. */
static inline bool threads_ended(pid_t tid)
{
	int saved = errno;
	bool ended = tgkill(getpid(), tid, 0) && errno == ESRCH;

	errno = saved;
	return ended;
}

#endif
