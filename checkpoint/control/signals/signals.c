/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/signals/signals.h"
#include "checkpoint/control/wake.h"
#include "checkpoint/gate/gate.h"
#include "common/system/forks.h"
#include "common/settings.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* SIGTSTP. */
static struct {
	pid_t thread; /* the control thread; 0: none */
	bool came;    /* signals_take_stop() */
	bool alone; /* no SIGSTOP follows the last one: it is the terminal's, or the program's own */
	int ended;  /* how many stops are over; a futex */
} stop;

/* It pends in the control thread until a SIGCONT comes: the kernel takes all stop signals back then. */
#define STOP_MARK SIGTTIN

static struct chained chain[NSIG];
static int last_wish;
static uint64_t last_sender; /* its PID above its UID */
static bool end, interrupt;  /* signals_take_end(), signals_take_interrupt() */
/* Spin lock of sigaction(), taken with all signals blocked: the signal that is set, or 0. */
static int writer;

static void handler(int sig, siginfo_t *info, void *ucontext);

static bool handles(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
}

/* True if the kernel has our handler while @act is the program's action. */
static bool wraps(int sig, const struct sigaction *act)
{
	switch (chain[sig].wish) {
	case WISH_NONE:
		return handles(act);
	case WISH_STOP:
		return act->sa_handler == SIG_DFL;
	default:
		return true;
	}
}

/* Give the kernel our handler, with the mask and flags of the program's @act. */
static int install(int sig, const struct sigaction *act)
{
	struct sigaction kernel = *act;

	if (!wraps(sig, act))
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
	return is_one_shot(act) || !wraps(sig, act);
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
	if (chain[sig].wish == WISH_STOP)
		return wraps(sig, act);
	return chain[sig].named || chain[sig].wish == WISH_NONE || !handles(act);
}

static void note(int sig, const siginfo_t *info)
{
	bool sent =
		info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL;
	uint64_t sender = sent ? (uint64_t)info->si_pid << 32 | info->si_uid : 0;

	if (chain[sig].wish != WISH_NONE) {
		__atomic_store_n(&last_sender, sender, __ATOMIC_RELAXED);
		__atomic_store_n(&last_wish, chain[sig].wish, __ATOMIC_RELEASE);
	} else {
		__atomic_store_n(&interrupt, true, __ATOMIC_RELEASE);
		if (sig == SIGTERM)
			__atomic_store_n(&end, true, __ATOMIC_RELEASE);
	}
	wake_up();
}

static void take_default_action(int sig)
{
	const struct sigaction act = {.sa_handler = SIG_DFL};

	__sigaction(sig, &act, NULL);
	raise(sig);
}

static bool is_of_this_process(const siginfo_t *info)
{
	return info->si_code <= 0 && info->si_pid == getpid();
}

void signals_want_stop(void)
{
	__atomic_store_n(&stop.alone, false, __ATOMIC_RELAXED);
	tgkill(getpid(), stop.thread, STOP_MARK);
}

/*
 * The control thread frees the GPU, and then takes the default action. A program that sends the signal to
 * itself, as a terminal's library does, is stopped when its call returns. A thread inside the gate, which has got a
 * signal that another one has sent, does not wait here: the GPU cannot be freed before it is out.
 */
static void take_stop(const siginfo_t *info)
{
	int ended = __atomic_load_n(&stop.ended, __ATOMIC_ACQUIRE);

	signals_want_stop();
	__atomic_store_n(&stop.alone, info->si_code == SI_KERNEL || is_of_this_process(info),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&stop.came, true, __ATOMIC_RELEASE);
	wake_up();
	while (is_of_this_process(info) && !gate_has_entered() &&
	       __atomic_load_n(&stop.ended, __ATOMIC_ACQUIRE) == ended)
		syscall(SYS_futex, &stop.ended, FUTEX_WAIT_PRIVATE, ended, NULL, NULL, 0);
}

static void handler(int sig, siginfo_t *info, void *ucontext)
{
	struct sigaction act = asked_for(sig);
	int saved_errno = errno;

	if (chain[sig].wish == WISH_STOP && wraps(sig, &act)) {
		if (forks_is_ours())
			take_stop(info);
		else
			take_default_action(sig); /* in a child that shares our memory */
		errno = saved_errno;
		return;
	}
	if (forks_is_ours() && is_ours(sig, &act))
		note(sig, info);
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
	stop.thread = 0;
	stop.came = false;
	if (chain[SIGTSTP].wish == WISH_STOP) {
		chain[SIGTSTP].wish = WISH_NONE;
		if (signals_is_installed(SIGTSTP))
			install(SIGTSTP, &chain[SIGTSTP].slot[chain[SIGTSTP].current]);
	}
	if (sig && chain[sig].known)
		install(sig, &chain[sig].slot[chain[sig].current]);
}
FORKS_CHILD(begin_anew_in_child);

/* True if the program's sigaction() is libc's, as it has loaded this library itself, and tells of our handler. */
static bool program_sees(int sig)
{
	int (*ask)(int, const struct sigaction *, struct sigaction *) =
		(__typeof__(ask))dlsym(RTLD_DEFAULT, "sigaction");
	struct sigaction act;

	return !ask || ask(sig, NULL, &act) || act.sa_sigaction == handler;
}

/* @wish is what SIGTSTP means from now on; the program's action stays. */
static void set_stop(enum signal_wish wish)
{
	struct sigaction act;
	sigset_t mask;

	lock(SIGTSTP, &mask);
	if (!find(SIGTSTP, &act)) {
		chain[SIGTSTP].wish = wish;
		set(SIGTSTP, &act);
	}
	unlock(&mask);
}

void signals_await_stop(void)
{
	stop.thread = gettid();
	if (chain[SIGTSTP].wish != WISH_NONE || !setting_enabled(SETTING_TSTP))
		return;
	set_stop(WISH_STOP);
	if (program_sees(SIGTSTP))
		set_stop(WISH_NONE);
}

bool signals_take_stop(void)
{
	return __atomic_exchange_n(&stop.came, false, __ATOMIC_ACQ_REL);
}

bool signals_stop_is_wanted(void)
{
	sigset_t pending;

	return !sigpending(&pending) && sigismember(&pending, STOP_MARK) == 1;
}

/* SIGTSTP and STOP_MARK are blocked in this thread, and one is taken back if it pends. */
static void take_back(int sig)
{
	const struct timespec at_once = {0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	sigtimedwait(&set, NULL, &at_once);
}

/* The default action stops the process here, if it does. */
static void let_it_stop(void)
{
	const struct sigaction act = {.sa_handler = SIG_DFL};
	struct sigaction kernel;
	sigset_t mask, set;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	lock(SIGTSTP, &mask);
	if (!__sigaction(SIGTSTP, &act, &kernel)) {
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		__sigaction(SIGTSTP, &kernel, NULL);
	}
	unlock(&mask);
}

enum signal_stop signals_stop(bool surely)
{
	/* A SIGCONT that comes from now on takes this one back, too. */
	raise(SIGTSTP);
	if (signals_stop_is_wanted() && surely)
		raise(SIGSTOP); /* of this thread, which does not go on before it has stopped */
	else if (signals_stop_is_wanted())
		let_it_stop();
	if (!signals_stop_is_wanted())
		return STOP_CONTINUED;
	return __atomic_load_n(&stop.alone, __ATOMIC_RELAXED) ? STOP_IGNORED_FOR_GOOD
							      : STOP_IGNORED;
}

void signals_end_stop(void)
{
	take_back(SIGTSTP);
	take_back(STOP_MARK);
	__atomic_fetch_add(&stop.ended, 1, __ATOMIC_ACQ_REL);
	syscall(SYS_futex, &stop.ended, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

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

enum signal_wish signals_take_wish(struct signal_sender *sender)
{
	enum signal_wish wish = __atomic_exchange_n(&last_wish, WISH_NONE, __ATOMIC_ACQ_REL);
	uint64_t from = __atomic_load_n(&last_sender, __ATOMIC_RELAXED);

	*sender = (struct signal_sender){(pid_t)(from >> 32), (uid_t)from};
	return wish;
}

bool signals_take_end(void)
{
	return __atomic_exchange_n(&end, false, __ATOMIC_ACQ_REL);
}

bool signals_take_interrupt(void)
{
	return __atomic_exchange_n(&interrupt, false, __ATOMIC_ACQ_REL);
}
