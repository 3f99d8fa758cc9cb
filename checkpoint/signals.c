/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/signals.h"
#include "checkpoint/signal_name.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "signals: "
#include "vmem/log.h"

/* glibc's own name of sigaction(2)'s wrapper, exported since 2.2.5: reaches past our interposer. */
extern int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);

#define EXPORT __attribute__((visibility("default")))

/*
 * What the program asked for, for each signal that we handle. Two slots, so that a handler that
 * runs while another thread calls sigaction() reads a whole one.
 */
struct chained {
	struct sigaction slot[2];
	int current;
	int wish;  /* enum signal_wish; WISH_NONE: one of the ending signals */
	bool ours; /* handled by us now */
};

static struct chained chain[NSIG];
static int notify_fd = -1;
static int last_wish;
static int ends;
static int writer; /* spin lock of sigaction(), taken with all signals blocked */

static void notify(void)
{
	int fd = __atomic_load_n(&notify_fd, __ATOMIC_ACQUIRE);
	char byte = 0;

	/* A full pipe means that the control thread has not yet read earlier bytes: enough. */
	if (fd >= 0 && write(fd, &byte, 1) < 0)
		return;
}

static void handler(int sig, siginfo_t *info, void *ucontext);

static bool handles(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
}

/* What the kernel gets for the program's @act: our handler in the program's manner. */
static int install(int sig, const struct sigaction *act)
{
	struct sigaction kernel = *act;
	struct chained *c = &chain[sig];

	c->ours = c->wish != WISH_NONE || handles(act);
	if (!c->ours)
		return __sigaction(sig, act, NULL);
	kernel.sa_sigaction = handler;
	kernel.sa_flags |= SA_SIGINFO;
	/*
	 * Where the program has no handler, its system calls and small stacks must not notice ours.
	 * Its own handler runs on the stack that it asked for, as an alternate one may be too
	 * small.
	 */
	if (!handles(act))
		kernel.sa_flags |= SA_RESTART | SA_ONSTACK;
	/*
	 * The kernel would take ours away with a one-shot handler; handler() resets the program's.
	 */
	kernel.sa_flags &= ~SA_RESETHAND;
	return __sigaction(sig, &kernel, NULL);
}

static void lock(sigset_t *mask)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, mask);
	while (__atomic_exchange_n(&writer, 1, __ATOMIC_ACQUIRE))
		;
}

static void unlock(const sigset_t *mask)
{
	__atomic_store_n(&writer, 0, __ATOMIC_RELEASE);
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

static int set(int sig, const struct sigaction *act)
{
	struct chained *c = &chain[sig];

	c->slot[!c->current] = *act;
	__atomic_store_n(&c->current, !c->current, __ATOMIC_RELEASE);
	return install(sig, act);
}

static int replace(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct chained *c = &chain[sig];
	struct sigaction before;
	sigset_t mask;
	int result = 0;

	lock(&mask);
	if (c->ours)
		before = c->slot[c->current];
	else
		result = __sigaction(sig, NULL, &before);
	/* Ours, found in the kernel by a system call of the program's own, would call itself. */
	if (act && act->sa_sigaction != handler && !result)
		result = set(sig, act);
	if (old && !result)
		*old = before;
	unlock(&mask);
	return result;
}

static bool is_one_shot(const struct sigaction *act)
{
	return handles(act) && (act->sa_flags & SA_RESETHAND);
}

/*
 * The program's action, which was a one-shot handler a moment ago. As the kernel does it, such a
 * handler is gone before it runs, and its flags stay.
 */
static struct sigaction take_one_shot(int sig)
{
	struct chained *c = &chain[sig];
	struct sigaction act, reset;
	sigset_t mask;

	lock(&mask);
	act = c->slot[c->current];
	if (is_one_shot(&act)) {
		reset = act;
		reset.sa_handler = SIG_DFL;
		set(sig, &reset);
	}
	unlock(&mask);
	return act;
}

static void handler(int sig, siginfo_t *info, void *ucontext)
{
	struct chained *c = &chain[sig];
	struct sigaction act = c->slot[__atomic_load_n(&c->current, __ATOMIC_ACQUIRE)];
	int saved_errno = errno;

	if (c->wish != WISH_NONE)
		__atomic_store_n(&last_wish, c->wish, __ATOMIC_RELEASE);
	else
		__atomic_fetch_add(&ends, 1, __ATOMIC_RELEASE);
	notify();
	if (is_one_shot(&act))
		act = take_one_shot(sig);
	errno = saved_errno;

	if (!handles(&act)) {
		/*
		 * Another thread took the one-shot handler meanwhile: what is left is the default.
		 */
		if (c->wish == WISH_NONE && act.sa_handler == SIG_DFL)
			raise(sig);
	} else if (act.sa_flags & SA_SIGINFO) {
		act.sa_sigaction(sig, info, ucontext);
	} else {
		act.sa_handler(sig);
	}
}

static bool is_chained(int sig)
{
	return sig > 0 && sig < NSIG && (chain[sig].wish || sig == SIGTERM || sig == SIGINT);
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return is_chained(sig) ? replace(sig, act, old) : __sigaction(sig, act, old);
}

/* glibc's signal() has BSD semantics: the handler stays, system calls are restarted. */
EXPORT __sighandler_t signal(int sig, __sighandler_t fn)
{
	struct sigaction act = {.sa_handler = fn, .sa_flags = SA_RESTART}, old;

	if (fn == SIG_ERR || sig < 1 || sig >= NSIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&act.sa_mask);
	sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

static void take(const char *variable, int fallback, enum signal_wish wish)
{
	const char *text = secure_getenv(variable);
	int sig = text ? signal_parse(text) : fallback;
	struct sigaction act;

	if (sig < 0) {
		pr_err("%s=%s: expected a signal's name, a number or none; using %s", variable,
		       text, sigabbrev_np(fallback));
		sig = fallback;
	}
	if (!sig)
		return;
	if (chain[sig].wish) {
		pr_err("%s: signal %d is CUDAW_SIGNAL_PAUSE already; no signal resumes", variable,
		       sig);
		return;
	}
	/* A handler installed before us, or an inherited SIG_IGN, is kept as the program's own. */
	if (replace(sig, NULL, &act))
		return;
	chain[sig].wish = wish;
	replace(sig, &act, NULL);
}

void signals_init(void)
{
	take("CUDAW_SIGNAL_PAUSE", SIGUSR1, WISH_PAUSE);
	take("CUDAW_SIGNAL_RESUME", SIGUSR2, WISH_RESUME);
}

void signals_notify(int fd)
{
	__atomic_store_n(&notify_fd, fd, __ATOMIC_RELEASE);
	/* A wish may have been noted before there was anyone to tell. */
	if (fd >= 0 && __atomic_load_n(&last_wish, __ATOMIC_ACQUIRE))
		notify();
}

enum signal_wish signals_take_wish(void)
{
	return __atomic_exchange_n(&last_wish, WISH_NONE, __ATOMIC_ACQ_REL);
}

int signals_take_end(void)
{
	int n = __atomic_load_n(&ends, __ATOMIC_ACQUIRE);

	return n ? __atomic_exchange_n(&ends, 0, __ATOMIC_ACQ_REL) > 0 : 0;
}
