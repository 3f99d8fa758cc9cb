/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of each kind, whose signals interrupt what the program and CUDA do: each must come as
 * often as it was set, and nothing fails for it.
 */
#include "tests/guests/programs/guest.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define TIMES 5

static volatile sig_atomic_t fired;

static void on_signal(int sig)
{
	(void)sig;
	__atomic_fetch_add(&fired, 1, __ATOMIC_SEQ_CST);
}

static void on_thread(union sigval value)
{
	(void)value;
	on_signal(0);
}

/* Busy, so that the timers of CPU time go on as well. */
static void await(const char *what)
{
	while (fired < TIMES)
		;
	printf("%s has fired\n", what);
	fired = 0;
}

static void by_timer(const char *what, struct sigevent event, clockid_t clock)
{
	const struct itimerspec often = {{0, 2000000}, {0, 2000000}};
	timer_t timer;

	MUST(timer_create(clock, &event, &timer));
	MUST(timer_settime(timer, 0, &often, NULL));
	await(what);
	MUST(timer_delete(timer));
	fired = 0;
}

static void posix_timers(void)
{
	static const int signals[] = {SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, 34};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signals[i]};

		signal(signals[i], on_signal);
		printf("signal %d: ", signals[i]);
		by_timer("a timer", event, CLOCK_MONOTONIC);
		event.sigev_notify = SIGEV_THREAD_ID;
		event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
		by_timer("a timer of a thread", event, CLOCK_REALTIME);
		by_timer("a timer of CPU time", event, CLOCK_PROCESS_CPUTIME_ID);
	}
	by_timer(
		"a timer that starts threads",
		(struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_thread},
		CLOCK_MONOTONIC);
}

static void interval_timers(void)
{
	static const struct itimerval often = {{0, 2000}, {0, 2000}}, never;
	static const struct {
		const char *name;
		int which, sig;
	} timers[] = {{"ITIMER_REAL", ITIMER_REAL, SIGALRM},
		      {"ITIMER_VIRTUAL", ITIMER_VIRTUAL, SIGVTALRM},
		      {"ITIMER_PROF", ITIMER_PROF, SIGPROF}};

	for (size_t i = 0; i < 3; i++) {
		signal(timers[i].sig, on_signal);
		MUST(setitimer(timers[i].which, &often, NULL));
		await(timers[i].name);
		MUST(setitimer(timers[i].which, &never, NULL));
		fired = 0;
	}
}

static void by_alarm(void)
{
	sigset_t set, none;

	/* It comes while the program waits, however late that is. */
	sigemptyset(&none);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL));
	signal(SIGALRM, on_signal);
	alarm(1);
	sigsuspend(&none);
	MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
	printf("the alarm has fired %d times\n", (int)fired);
	signal(SIGALRM, SIG_DFL);
	alarm(1);
	for (;;)
		pause();
}

/* A profiler beside CUDA: its signal hits every thread, ours included, in whatever it does. */
static void profiler(void)
{
	const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	struct sigaction act = {.sa_handler = on_signal}; /* no SA_RESTART */
	struct guest_memory memory;

	MUST(sigaction(SIGPROF, &act, NULL));
	MUST(sigaction(SIGALRM, &act, NULL));
	MUST(setitimer(ITIMER_PROF, &often, NULL));
	MUST(setitimer(ITIMER_REAL, &often, NULL));
	guest_memory_init(&memory);
	puts("point");
	for (int i = 0; i < 100 || !guest_told(); i++)
		guest_memory_step(&memory);
	guest_memory_check(&memory);
	MUST(setitimer(ITIMER_PROF, &never, NULL));
	MUST(setitimer(ITIMER_REAL, &never, NULL));
	puts(fired ? "profiled" : "not profiled");
}

int main(int argc, char **argv)
{
	static const struct guest_way ways[] = {
		{"timer_create", posix_timers},
		{"setitimer", interval_timers},
		{"alarm", by_alarm},
		{"profiler", profiler},
	};

	GUEST_RUN(ways, argc, argv);
	return 0;
}
