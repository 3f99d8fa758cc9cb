/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that looks at its action for SIGTSTP in each step: it must be the one that it has set.
 *
 *	--how 1		a handler, which counts
 *	--how 2		SIG_IGN
 *	--how 3		a handler for SIGWINCH raises SIGTSTP, as a library of terminals does, and says "raises"
 *			before it and "continued" after it
 *	--how 4		starts a child by fork(), and one by vfork() and execve(), says their PIDs as "child PID",
 *			and waits for them at the end
 *	--how 5		after SIGWINCH another thread sends SIGTSTP to the process, and says "sent"
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

enum how { BY_NOTHING, BY_HANDLER, BY_IGNORING, BY_RAISING, BY_CHILDREN, BY_THREAD };

static unsigned long how;
static volatile sig_atomic_t got, wanted;

static void on_stop(int sig)
{
	(void)sig;
	got++;
}

static void on_winch(int sig)
{
	(void)sig;
	wanted = 1;
}

static void install(void)
{
	if (how == BY_HANDLER)
		signal(SIGTSTP, on_stop);
	else if (how == BY_IGNORING)
		signal(SIGTSTP, SIG_IGN);
	signal(SIGWINCH, on_winch);
}

static void check_action(void)
{
	struct sigaction act;

	if (sigaction(SIGTSTP, NULL, &act) || act.sa_handler != (how == BY_HANDLER    ? on_stop
								 : how == BY_IGNORING ? SIG_IGN
										      : SIG_DFL))
		step_die("tstp: sigaction() tells of another action");
}

static void raise_if_wanted(void)
{
	if (!wanted || how != BY_RAISING)
		return;
	wanted = 0;
	printf("raises\n");
	fflush(stdout);
	raise(SIGTSTP);
	printf("continued\n");
	fflush(stdout);
}

/* The kernel prefers the main thread for signals to the process. */
static void *send_main(void *arg)
{
	while (!__atomic_load_n(&wanted, __ATOMIC_ACQUIRE))
		step_sleep_ms(1);
	kill(getpid(), SIGTSTP);
	printf("sent\n");
	fflush(stdout);
	return arg;
}

static void start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	CALL(pthread_create(&thread, NULL, send_main, NULL));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static pid_t children[2];

static void start_children(void)
{
	children[0] = fork();
	if (!children[0])
		for (;;)
			pause();
	children[1] = vfork();
	if (!children[1]) {
		execl("/bin/sleep", "sleep", "1000", NULL);
		_exit(1);
	}
	printf("child %d\nchild %d\n", (int)children[0], (int)children[1]);
	fflush(stdout);
}

static void end_children(void)
{
	for (int i = 0; i < 2; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"how", &how}};
	struct kernels kernels;
	CUdeviceptr data;

	step_parse(argc, argv, options, 1);
	install();
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, 16 << 20));
	if (how == BY_CHILDREN)
		start_children();
	if (how == BY_THREAD)
		start_thread();
	for (unsigned long k = 0; step_more(k); k++) {
		CALL(cuMemsetD8_v2(data, (unsigned char)k, 1 << 20));
		CALL(cuCtxSynchronize());
		check_action();
		raise_if_wanted();
		step_done(k);
	}
	if (how == BY_CHILDREN)
		end_children();
	printf("tstp: got %d\n", (int)got);
	return 0;
}
