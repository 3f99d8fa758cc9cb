/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/signals/signals.h"
#include "checkpoint/control/wake.h"
#include "common/system/forks.h"
#include "common/settings.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>

#define LOG_PREFIX "signals: "
#include "common/log.h"

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
	int wish;   /* enum signal_wish; WISH_NONE: SIGTERM or SIGINT */
	bool named; /* by the user, in the variable for the wish */
	bool known; /* current says what the program asked for */
};

static struct chained chain[NSIG];
static int last_wish;
static bool end, interrupt; /* signals_take_end(), signals_take_interrupt() */
/* Spin lock of sigaction(), taken with all signals blocked: the signal that is set, or 0. */
static int writer;

static void handler(int sig, siginfo_t *info, void *ucontext);

static bool handles(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
}

/* Give the kernel our handler, with the mask and flags of the program's @act. */
static int install(int sig, const struct sigaction *act)
{
	struct sigaction kernel = *act;

	if (chain[sig].wish == WISH_NONE && !handles(act))
		return __sigaction(sig, act, NULL);
	kernel.sa_sigaction = handler;
	kernel.sa_flags |= SA_SIGINFO;
	/*
	 * If the program has no handler, its system calls and small stacks must not notice ours.
	 * The program's own handler runs on the stack that the program asked for, as an alternate
	 * stack may be too small.
	 */
	if (!handles(act))
		kernel.sa_flags |= SA_RESTART | SA_ONSTACK;
	/* The kernel would reset ours with a one-shot handler; handler() resets the program's. */
	kernel.sa_flags &= ~SA_RESETHAND;
	return __sigaction(sig, &kernel, NULL);
}

static void lock(int sig, sigset_t *mask)
{
	int none = 0;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, mask);
	while (!__atomic_compare_exchange_n(&writer, &none, sig, false, __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED)) {
		none = 0;
		sched_yield(); /* another thread holds it for some system calls */
	}
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
	c->known = true;
	return install(sig, act);
}

static struct sigaction asked_for(int sig)
{
	struct chained *c = &chain[sig];

	return c->slot[__atomic_load_n(&c->current, __ATOMIC_ACQUIRE)];
}

/*
 * The program's action. If the kernel does not have our handler, it knows the action: libc's own
 * system() ignores SIGINT for a while, and programs make system calls of their own.
 */
static int find(int sig, struct sigaction *act)
{
	int result = __sigaction(sig, NULL, act);

	if (!result && act->sa_sigaction == handler)
		*act = asked_for(sig);
	return result;
}

/*
 * In a child that shares our memory: its actions, unlike the table, are its own. It sets them in
 * the kernel, and takes no lock, as a thread of the parent may hold it.
 */
static int replace_in_kernel(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before;
	int result = find(sig, &before);

	if (act && !result)
		result = __sigaction(sig, act, NULL);
	if (old && !result)
		*old = before;
	return result;
}

static int replace(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before, again;
	sigset_t mask;
	int result;

	if (!forks_is_ours())
		return replace_in_kernel(sig, act, old);
	lock(sig, &mask);
	result = find(sig, &before);
	/*
	 * A program that asks the kernel by a system call of its own finds our handler, and may set
	 * it again. Our handler must not call itself.
	 */
	if (act && act->sa_sigaction == handler) {
		again = asked_for(sig);
		act = &again;
	}
	if (act && !result)
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

/* True if a signal changes the program's action @act, or if the kernel may have another. */
static bool is_to_be_settled(int sig, const struct sigaction *act)
{
	return is_one_shot(act) || (chain[sig].wish == WISH_NONE && !handles(act));
}

/*
 * The program's action for a signal that has come; the kernel's action is brought up to date. As in
 * the kernel, a one-shot handler is reset before it runs, and its flags stay. If another thread has
 * removed the handler meanwhile, the kernel gets the default, as the signal is then raised again.
 */
static struct sigaction settle(int sig)
{
	bool ours = forks_is_ours();
	struct sigaction act, left;
	sigset_t mask;

	if (ours)
		lock(sig, &mask);
	act = left = asked_for(sig);
	if (is_one_shot(&act))
		left.sa_handler = SIG_DFL;
	if (is_to_be_settled(sig, &act) && ours)
		set(sig, &left);
	else if (is_to_be_settled(sig, &act))
		__sigaction(sig, &left, NULL);
	if (ours)
		unlock(&mask);
	return act;
}

/* A signal that the program handles is the program's, unless the user has named it for us. */
static bool is_ours(int sig, const struct sigaction *act)
{
	return chain[sig].named || chain[sig].wish == WISH_NONE || !handles(act);
}

static void note(int sig)
{
	if (chain[sig].wish != WISH_NONE)
		__atomic_store_n(&last_wish, chain[sig].wish, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&interrupt, true, __ATOMIC_RELEASE);
	if (chain[sig].wish == WISH_NONE && sig == SIGTERM)
		__atomic_store_n(&end, true, __ATOMIC_RELEASE);
	wake_up();
}

static void handler(int sig, siginfo_t *info, void *ucontext)
{
	struct sigaction act = asked_for(sig);
	int saved_errno = errno;

	if (forks_is_ours() && is_ours(sig, &act))
		note(sig);
	if (is_to_be_settled(sig, &act))
		act = settle(sig);
	errno = saved_errno;

	if (!handles(&act)) {
		if (chain[sig].wish == WISH_NONE && act.sa_handler == SIG_DFL)
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

static void take(enum setting_id id, enum signal_wish wish)
{
	int sig = setting_signal(id);
	struct sigaction act;

	if (!sig)
		return;
	if (chain[sig].wish) {
		pr_err("%s: signal %d is CUDAW_SIGNAL_PAUSE already; no signal resumes",
		       settings[id].name, sig);
		return;
	}
	/* A handler installed before us, or an inherited SIG_IGN, is kept as the program's own. */
	if (replace(sig, NULL, &act))
		return;
	chain[sig].wish = wish;
	chain[sig].named = setting_is_given(id);
	replace(sig, &act, NULL);
}

/* Finish what another thread was about to set. The child has no wish of the parent's. */
static void begin_anew_in_child(void)
{
	int sig = writer;

	last_wish = WISH_NONE;
	end = interrupt = false;
	writer = 0;
	if (sig && chain[sig].known)
		install(sig, &chain[sig].slot[chain[sig].current]);
}
FORKS_CHILD(begin_anew_in_child);

void signals_init(void)
{
	take(SETTING_SIGNAL_PAUSE, WISH_PAUSE);
	take(SETTING_SIGNAL_RESUME, WISH_RESUME);
}

int signals_for(enum signal_wish wish)
{
	for (int sig = 1; sig < NSIG; sig++)
		if (chain[sig].wish == (int)wish)
			return sig;
	return 0;
}

bool signals_is_installed(int sig)
{
	struct sigaction act;

	return !__sigaction(sig, NULL, &act) && act.sa_sigaction == handler;
}

bool signals_is_the_programs(int sig)
{
	struct sigaction act = asked_for(sig);

	return !is_ours(sig, &act);
}

enum signal_wish signals_take_wish(void)
{
	return __atomic_exchange_n(&last_wish, WISH_NONE, __ATOMIC_ACQ_REL);
}

bool signals_take_end(void)
{
	return __atomic_exchange_n(&end, false, __ATOMIC_ACQ_REL);
}

bool signals_take_interrupt(void)
{
	return __atomic_exchange_n(&interrupt, false, __ATOMIC_ACQ_REL);
}
