/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that a program blocks and takes when it likes: by signalfd(), sigwait(), sigwaitinfo(),
 * sigtimedwait(), sigsuspend(), pause() and in a thread of its own, beside CUDA as well.
 */
#include "tests/guests/programs/guest.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/signalfd.h>

static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD};
#define NSIGNALS (sizeof(signals) / sizeof(signals[0]))

static volatile sig_atomic_t got;
static sem_t taken;

static void on_signal(int sig)
{
	got = sig;
}

static void block(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < NSIGNALS; i++)
		sigaddset(set, signals[i]);
	sigaddset(set, SIGRTMIN);
	MUST(sigprocmask(SIG_BLOCK, set, NULL));
}

static void queue(int sig, int value)
{
	MUST(sigqueue(getpid(), sig, (union sigval){.sival_int = value}));
}

static void by_signalfd(void)
{
	struct signalfd_siginfo info;
	sigset_t set;
	int fd;

	block(&set);
	MUST(fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
	for (size_t i = 0; i < NSIGNALS; i++) {
		queue(signals[i], (int)i);
		if (read(fd, &info, sizeof(info)) != sizeof(info))
			step_die("waits: signalfd: %s", strerror(errno));
		printf("signal %u with %d\n", info.ssi_signo, info.ssi_int);
	}
	printf("then %zd\n", read(fd, &info, sizeof(info)));
}

static void by_sigwait(void)
{
	sigset_t set;
	int sig;

	block(&set);
	for (size_t i = 0; i < NSIGNALS; i++) {
		kill(getpid(), signals[i]);
		CALL(sigwait(&set, &sig));
		printf("signal %d\n", sig);
	}
}

static void by_sigwaitinfo(void)
{
	const struct timespec none = {0};
	siginfo_t info;
	sigset_t set;

	block(&set);
	for (size_t i = 0; i < NSIGNALS; i++) {
		queue(signals[i], (int)i);
		MUST(sigwaitinfo(&set, &info));
		printf("signal %d with %d\n", info.si_signo, info.si_value.sival_int);
	}
	/* Of a real-time signal each one counts. */
	for (int i = 0; i < 3; i++)
		queue(SIGRTMIN, i);
	while (sigtimedwait(&set, &info, &none) > 0)
		printf("real-time signal with %d\n", info.si_value.sival_int);
}

static void by_sigsuspend(void)
{
	sigset_t set, none;

	block(&set);
	sigemptyset(&none);
	for (size_t i = 0; i < NSIGNALS; i++) {
		signal(signals[i], on_signal);
		kill(getpid(), signals[i]);
		printf("signal %d before\n", (int)got);
		sigsuspend(&none);
		printf("signal %d after\n", (int)got);
	}
}

static void *take_main(void *arg)
{
	sigset_t *set = arg;
	int sig;

	do {
		CALL(sigwait(set, &sig));
		printf("the thread took signal %d\n", sig);
		MUST(sem_post(&taken));
	} while (sig != SIGTERM);
	return NULL;
}

/* As servers do it: blocked everywhere, and a thread that takes them one by one. */
static void by_a_thread(void)
{
	struct guest_memory memory;
	pthread_t thread;
	sigset_t set;

	block(&set);
	guest_memory_init(&memory);
	MUST(sem_init(&taken, 0, 0));
	CALL(pthread_create(&thread, NULL, take_main, &set));
	kill(getpid(), SIGHUP);
	/* The two threads' lines come in the same order in each run. */
	MUST(sem_wait(&taken));
	guest_point();
	guest_memory_step(&memory);
	kill(getpid(), SIGTERM);
	pthread_join(thread, NULL);
	guest_memory_check(&memory);
}

int main(int argc, char **argv)
{
	static const struct guest_way ways[] = {
		{"signalfd", by_signalfd},       {"sigwait", by_sigwait},
		{"sigwaitinfo", by_sigwaitinfo}, {"sigsuspend", by_sigsuspend},
		{"thread", by_a_thread},
	};

	GUEST_RUN(ways, argc, argv);
	return 0;
}
