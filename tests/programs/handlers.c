/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with handlers of its own for SIGUSR1 and SIGUSR2, in one of the ways that there are:
 * it must get the signals, and what sigaction() tells it must be what it installed.
 *
 *	--how 1		signal()
 *	--how 2		sigaction() with SA_SIGINFO and a mask
 *	--how 3		SIG_IGN
 *	--how 4		signal(), before any library of the process is initialised; comes first. SIGTERM
 *			is handled, by doing nothing, as well
 *	--how 5		sigaction() with SA_RESETHAND: it gets the first of each
 *
 * It handles SIGHUP, by doing nothing, and SIGTERM in one of these ways:
 *
 *	--term 1	one-shot: the handler raises the signal again, for the default to end the program
 *	--term 2	with more stack than there is on the alternate one, which it did not ask for
 *
 * --cancel 1: a thread gets SIGUSR2 while it is cancelled, and far from a cancellation point. It ends at its
 * own one, as a handler that is called in malloc(), say, must not end it.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#define BYTES (4 << 20)

enum how { BY_NOTHING, BY_SIGNAL, BY_SIGINFO, BY_IGNORING, BY_EARLY, BY_ONE_SHOT };
enum term { TERM_BY_NOTHING, TERM_ONE_SHOT, TERM_BIG };

static const int numbers[] = {SIGUSR1, SIGUSR2};
static unsigned long how, term, cancel;
static volatile sig_atomic_t got[2], odd;

static void on_signal(int sig)
{
	got[sig == SIGUSR2]++;
}

static void on_siginfo(int sig, siginfo_t *info, void *ucontext)
{
	sigset_t mask;

	got[sig == SIGUSR2]++;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	if (info->si_signo != sig || !info->si_pid || !ucontext || !sigismember(&mask, SIGWINCH))
		odd++;
}

static void on_other(int sig)
{
	(void)sig;
}

static void on_term_once(int sig)
{
	static volatile sig_atomic_t times;

	if (times++)
		_exit(1);
	raise(sig);
}

static void on_term_big(int sig)
{
	volatile char big[64 << 10];

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)sig;
	_exit(9);
}

/* What --how 4 does. Nothing is initialised yet, so the options are looked for by hand. */
static void early(int argc, char **argv, char **envp)
{
	(void)envp;
	if (argc < 3 || strcmp(argv[1], "--how") || strcmp(argv[2], "4"))
		return;
	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, on_signal);
	if (signal(SIGTERM, SIG_IGN) != SIG_IGN)
		signal(SIGTERM, on_other);
}

__attribute__((section(".preinit_array"), used)) static void (*const early_entry)(int, char **,
										  char **) = early;

static void install(void)
{
	struct sigaction act = {.sa_sigaction = on_siginfo, .sa_flags = SA_SIGINFO};
	struct sigaction once = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};

	sigemptyset(&act.sa_mask);
	sigaddset(&act.sa_mask, SIGWINCH);
	for (int i = 0; i < 2; i++) {
		if (how == BY_SIGNAL)
			signal(numbers[i], on_signal);
		else if (how == BY_SIGINFO)
			sigaction(numbers[i], &act, NULL);
		else if (how == BY_IGNORING)
			signal(numbers[i], SIG_IGN);
		else if (how == BY_ONE_SHOT)
			sigaction(numbers[i], &once, NULL);
	}
}

static void install_others(void)
{
	static char small[8 << 10];
	struct sigaction act = {.sa_handler = on_term_once, .sa_flags = SA_RESETHAND};
	stack_t stack = {.ss_sp = small, .ss_size = sizeof(small)};

	signal(SIGHUP, on_other);
	if (term == TERM_ONE_SHOT) {
		sigaction(SIGTERM, &act, NULL);
	} else if (term == TERM_BIG) {
		sigaltstack(&stack, NULL);
		signal(SIGTERM, on_term_big);
	}
}

static int is_as_installed(const struct sigaction *act, int i)
{
	switch (how) {
	case BY_SIGNAL:
	case BY_EARLY:
		return act->sa_handler == on_signal && !(act->sa_flags & SA_SIGINFO);
	case BY_SIGINFO:
		return act->sa_sigaction == on_siginfo && act->sa_flags & SA_SIGINFO &&
		       sigismember(&act->sa_mask, SIGWINCH);
	case BY_IGNORING:
		return act->sa_handler == SIG_IGN;
	case BY_ONE_SHOT:
		return act->sa_handler == (got[i] ? SIG_DFL : on_signal);
	default:
		return act->sa_handler == SIG_DFL;
	}
}

static bool signalled, reached;

static void *busy(void *arg)
{
	while (!__atomic_load_n(&signalled, __ATOMIC_ACQUIRE))
		;
	__atomic_store_n(&reached, true, __ATOMIC_RELEASE);
	pthread_testcancel();
	return arg;
}

static void signal_cancelled(void)
{
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, busy, NULL);
	pthread_cancel(thread);
	pthread_kill(thread, SIGUSR2);
	usleep(50000);
	__atomic_store_n(&signalled, true, __ATOMIC_RELEASE);
	pthread_join(thread, &result);
	if (result != PTHREAD_CANCELED || !reached)
		step_die("handlers: the thread has ended before its cancellation point");
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"how", &how}, {"term", &term}, {"cancel", &cancel}};
	static unsigned char host[BYTES];
	struct kernels kernels;
	struct sigaction act;
	CUdeviceptr data;

	step_parse(argc, argv, options, sizeof(options) / sizeof(options[0]));
	install();
	install_others();
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, BYTES));
	for (unsigned long k = 0; step_more(k); k++) {
		CALL(cuMemsetD8_v2(data, (unsigned char)k, BYTES));
		CALL(cuMemcpyDtoH_v2(host, data, BYTES));
		for (size_t i = 0; i < BYTES; i++)
			if (host[i] != (unsigned char)k)
				step_wrong("handlers: byte %zu is %u in step %lu", i, host[i], k);
		step_done(k);
	}
	if (cancel)
		signal_cancelled();
	for (int i = 0; i < 2; i++)
		if (sigaction(numbers[i], NULL, &act) || !is_as_installed(&act, i))
			step_die("handlers: sigaction() tells of another handler");
	if (odd)
		step_die("handlers: %d times without its information or mask", (int)odd);
	printf("handlers: got %d and %d\n", (int)got[0], (int)got[1]);
	return 0;
}
