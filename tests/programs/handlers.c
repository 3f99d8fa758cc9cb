/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with handlers of its own for SIGUSR1 and SIGUSR2, in one of the ways that there are:
 * it must get the signals, and what sigaction() tells it must be what it installed.
 *
 *	--how 1		signal()
 *	--how 2		sigaction() with SA_SIGINFO and a mask
 *	--how 3		SIG_IGN
 *	--how 4		signal(), before any library of the process is initialised; comes first
 */
#include "tests/programs/kernels.h"

#include <unistd.h>

#define BYTES (4 << 20)

enum how { BY_NOTHING, BY_SIGNAL, BY_SIGINFO, BY_IGNORING, BY_EARLY };

static const int numbers[] = {SIGUSR1, SIGUSR2};
static unsigned long how;
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

/* What --how 4 does. Nothing is initialised yet, so the options are looked for by hand. */
static void early(int argc, char **argv, char **envp)
{
	(void)envp;
	if (argc < 3 || strcmp(argv[1], "--how") || strcmp(argv[2], "4"))
		return;
	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, on_signal);
}

__attribute__((section(".preinit_array"), used)) static void (*const early_entry)(int, char **,
										  char **) = early;

static void install(void)
{
	struct sigaction act = {.sa_sigaction = on_siginfo, .sa_flags = SA_SIGINFO};

	sigemptyset(&act.sa_mask);
	sigaddset(&act.sa_mask, SIGWINCH);
	for (int i = 0; i < 2; i++) {
		if (how == BY_SIGNAL)
			signal(numbers[i], on_signal);
		else if (how == BY_SIGINFO)
			sigaction(numbers[i], &act, NULL);
		else if (how == BY_IGNORING)
			signal(numbers[i], SIG_IGN);
	}
}

static int is_as_installed(const struct sigaction *act)
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
	default:
		return act->sa_handler == SIG_DFL;
	}
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"how", &how}};
	static unsigned char host[BYTES];
	struct kernels kernels;
	struct sigaction act;
	CUdeviceptr data;

	step_parse(argc, argv, options, 1);
	install();
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, BYTES));
	for (unsigned long k = 0; step_more(k); k++) {
		CALL(cuMemsetD8_v2(data, (unsigned char)k, BYTES));
		CALL(cuMemcpyDtoH_v2(host, data, BYTES));
		for (size_t i = 0; i < BYTES; i++)
			if (host[i] != (unsigned char)k)
				step_die("handlers: byte %zu is %u in step %lu", i, host[i], k);
		step_done(k);
	}
	for (int i = 0; i < 2; i++)
		if (sigaction(numbers[i], NULL, &act) || !is_as_installed(&act))
			step_die("handlers: sigaction() tells of another handler");
	if (odd)
		step_die("handlers: %d times without its information or mask", (int)odd);
	printf("handlers: got %d and %d\n", (int)got[0], (int)got[1]);
	return 0;
}
