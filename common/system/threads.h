/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_THREADS_H
#define CUDAW_THREADS_H
/*
 * Threads of ours and what they do not take over from the program's, and threads of this process that may
 * have ended. No function runs as a thread of the program ends: the last calls of a thread may come from its
 * last destructors.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * For a thread of ours that begins: floating-point numbers as in a new process. It has inherited the
 * rounding of the thread that has made it, and its traps, which would be signals.
 */
static inline void threads_own_floats(void)
{
#if defined(__x86_64__)
	__builtin_ia32_ldmxcsr(0x1f80);
#elif defined(__aarch64__)
	__builtin_aarch64_set_fpcr(0);
#endif
}

/* Remember on which processors the process may run. When the library is loaded. */
void threads_see_processors(void);

/*
 * pthread_create(3) for a thread of ours: with the program's default size of stack, but room enough; without
 * the real-time policy of the calling thread, and not bound to its processors. Every thread of ours begins here.
 */
int threads_create(pthread_t *thread, void *(*run)(void *arg), void *arg);

/*
 * Start a thread of ours that nobody waits for, with all signals blocked: the program's handlers run in the
 * program's threads. Returns 0 or a negative errno.
 */
int threads_start(const char *name, void *(*run)(void *));

/* The thread @tid has ended, and no later one has its number. */
static inline bool threads_ended(pid_t tid)
{
	int saved = errno;
	bool ended = tgkill(getpid(), tid, 0) && errno == ESRCH;

	errno = saved;
	return ended;
}

#endif
