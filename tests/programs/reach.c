/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with an action of its own for SIGUSR1, set or kept from running in one of the ways that
 * there are beside sigaction() and signal(). It says "got N" at the end, and whether libc tells it
 * of its own handler.
 *
 *	--how 1 to 5	bsd_signal(), ssignal(), sysv_signal(), sigset(), sigignore()
 *	--how 6		signal() after siginterrupt(), and a read that a signal interrupts
 *	--how 7		the system call itself
 *	--how 8 to 10	blocked in all threads: for ever, by a thread in sigwait(), for a signalfd
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* they are, and are used */

enum how { BSD = 1, SSIGNAL, SYSV, SIGSET, IGNORED, INTERRUPTING, RAW, BLOCKED, WAITING, BY_FD };

extern __sighandler_t bsd_signal(int sig, __sighandler_t fn);

static volatile sig_atomic_t got;
static volatile bool interrupted;
static int pipe_ends[2];

static void on_signal(int sig)
{
	(void)sig;
	got++;
}

/* As the kernel has it; the restorer is libc's, which sigaction() tells. */
static void set_raw(void)
{
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} act = {.mask = 0};

	CALL(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &act, 8));
	act.handler = on_signal;
	CALL(syscall(SYS_rt_sigaction, SIGUSR1, &act, NULL, 8));
}

static void *wait_for_it(void *set)
{
	int sig;

	while (!sigwait(set, &sig))
		got++;
	return NULL;
}

static void *read_until_interrupted(void *unused)
{
	char byte;

	while (read(pipe_ends[0], &byte, 1) < 0 && errno == EINTR)
		interrupted = true;
	return unused;
}

/* In a thread of its own, which alone does not block SIGUSR1. */
static void start_reading(const sigset_t *set)
{
	pthread_t thread;

	CALL(siginterrupt(SIGUSR1, 1));
	signal(SIGUSR1, on_signal);
	CALL(pipe(pipe_ends));
	CALL(pthread_create(&thread, NULL, read_until_interrupted, NULL));
	CALL(pthread_sigmask(SIG_BLOCK, set, NULL));
}

static void set_up(unsigned long how)
{
	static sigset_t set;
	pthread_t thread;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	if (how >= BLOCKED)
		CALL(pthread_sigmask(SIG_BLOCK, &set, NULL));
	if (how == BSD)
		bsd_signal(SIGUSR1, on_signal);
	else if (how == SSIGNAL)
		ssignal(SIGUSR1, on_signal);
	else if (how == SYSV)
		sysv_signal(SIGUSR1, on_signal);
	else if (how == SIGSET)
		sigset(SIGUSR1, on_signal);
	else if (how == IGNORED)
		sigignore(SIGUSR1);
	else if (how == INTERRUPTING)
		start_reading(&set);
	else if (how == RAW)
		set_raw();
	else if (how == WAITING)
		CALL(pthread_create(&thread, NULL, wait_for_it, &set));
	else if (how == BY_FD && signalfd(-1, &set, SFD_CLOEXEC) < 0)
		step_die("reach: signalfd failed");
}

static const char *own_action(void)
{
	struct sigaction act;

	CALL(sigaction(SIGUSR1, NULL, &act));
	return act.sa_handler == on_signal ? "its handler"
	       : act.sa_handler == SIG_DFL ? "the default"
	       : act.sa_handler == SIG_IGN ? "nothing"
					   : "a stranger's";
}

int main(int argc, char **argv)
{
	unsigned long how = 0;
	const struct step_option options[] = {{"how", &how}};
	struct kernels kernels;
	CUdeviceptr data;

	step_parse(argc, argv, options, 1);
	set_up(how);
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, 1 << 20));
	for (unsigned long k = 0; step_more(k); k++) {
		CALL(cuMemsetD8_v2(data, (unsigned char)k, 1 << 20));
		step_done(k);
	}
	printf("reach: got %d, has %s%s\n", (int)got, own_action(),
	       interrupted ? ", was interrupted" : "");
	return 0;
}
