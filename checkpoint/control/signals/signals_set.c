/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libc's other functions that set a signal's action, with glibc's flags, but by our sigaction():
 * libc's own go past it.
 */
#include "checkpoint/control/signals/signals.h"
#include "common/system/forks.h"

#include <errno.h>
#include <signal.h>

#define EXPORT __attribute__((visibility("default")))

extern __sighandler_t bsd_signal(int sig, __sighandler_t fn);

static sigset_t interrupting; /* signals that interrupt system calls, by siginterrupt() */

/* Set a handler; returns the previous one. */
static __sighandler_t set(int sig, struct sigaction *act)
{
	struct sigaction old;

	if (act->sa_handler == SIG_ERR || sig < 1 || sig >= NSIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return sigaction(sig, act, &old) ? SIG_ERR : old.sa_handler;
}

/* BSD's: the handler stays, its signal is blocked while it runs, system calls are restarted. */
EXPORT __sighandler_t signal(int sig, __sighandler_t fn)
{
	struct sigaction act = {.sa_handler = fn};

	sigaddset(&act.sa_mask, sig);
	if (sigismember(&interrupting, sig) != 1)
		act.sa_flags = SA_RESTART;
	return set(sig, &act);
}

EXPORT __sighandler_t bsd_signal(int sig, __sighandler_t fn)
{
	return signal(sig, fn);
}

EXPORT __sighandler_t ssignal(int sig, __sighandler_t fn)
{
	return signal(sig, fn);
}

/* System V's: one-shot, and nothing is blocked. Programs that ask for X/Open alone call it. */
EXPORT __sighandler_t __sysv_signal(int sig, __sighandler_t fn)
{
	struct sigaction act = {.sa_handler = fn, .sa_flags = SA_RESETHAND | SA_NODEFER};

	return set(sig, &act);
}

EXPORT __sighandler_t sysv_signal(int sig, __sighandler_t fn)
{
	return __sysv_signal(sig, fn);
}

EXPORT __sighandler_t sigset(int sig, __sighandler_t fn)
{
	struct sigaction act = {.sa_handler = fn};
	__sighandler_t before;
	sigset_t this, mask;

	sigemptyset(&this);
	if (sigaddset(&this, sig))
		return SIG_ERR;
	if (fn != SIG_HOLD) {
		before = set(sig, &act);
		if (before == SIG_ERR)
			return SIG_ERR;
		sigprocmask(SIG_UNBLOCK, &this, &mask);
	} else {
		sigprocmask(SIG_BLOCK, &this, &mask);
		if (sigaction(sig, NULL, &act))
			return SIG_ERR;
		before = act.sa_handler;
	}
	return sigismember(&mask, sig) ? SIG_HOLD : before;
}

EXPORT int sigignore(int sig)
{
	struct sigaction act = {.sa_handler = SIG_IGN};

	return sigaction(sig, &act, NULL);
}

EXPORT int siginterrupt(int sig, int interrupt)
{
	struct sigaction act;

	if (sigaction(sig, NULL, &act))
		return -1;
	if (interrupt)
		act.sa_flags &= ~SA_RESTART;
	else
		act.sa_flags |= SA_RESTART;
	if (forks_is_ours() && interrupt)
		sigaddset(&interrupting, sig);
	else if (forks_is_ours())
		sigdelset(&interrupting, sig);
	return sigaction(sig, &act, NULL);
}
