/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children are made in each way, while two threads change signal handlers without end. Each child
 * changes one itself; one that is still there after step_hang_s() seconds hangs.
 */
#include "tests/guests/programs/guest.h"

#include <pthread.h>
#include <spawn.h>
#include <sys/syscall.h>

#define CHILDREN 300

extern char **environ;

static volatile int stop;

static void on_signal(int sig)
{
	(void)sig;
}

static void *storm_main(void *arg)
{
	struct sigaction act = {.sa_handler = on_signal}, old;
	int sig = *(int *)arg;

	while (!stop) {
		act.sa_handler = act.sa_handler == SIG_IGN ? on_signal : SIG_IGN;
		sigaction(sig, &act, NULL);
		sigaction(sig, NULL, &old);
		signal(sig, SIG_IGN);
	}
	return NULL;
}

static void change_and_exit(void)
{
	struct sigaction act = {.sa_handler = SIG_DFL};

	sigaction(SIGTERM, &act, NULL);
	signal(SIGUSR1, SIG_DFL);
	_exit(0);
}

static pid_t by_fork(void)
{
	return fork();
}

static pid_t by_vfork(void)
{
	pid_t pid = vfork();

	if (!pid)
		change_and_exit();
	return pid;
}

/* Handlers of pthread_atfork() do not run. */
static pid_t by_under_fork(void)
{
	return _Fork();
}

static pid_t by_system_call(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t by_posix_spawn(void)
{
	char *const args[] = {"true", NULL};
	pid_t pid;

	CALL(posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ));
	return pid;
}

static const struct {
	const char *name;
	pid_t (*start)(void);
	int count;
} ways[] = {
	{"fork", by_fork, CHILDREN},
	{"vfork", by_vfork, CHILDREN},
	{"_Fork", by_under_fork, CHILDREN},
	{"clone", by_system_call, CHILDREN},
	{"posix_spawn", by_posix_spawn, CHILDREN / 10},
};

int main(int argc, char **argv)
{
	int signals[] = {SIGTERM, SIGUSR1};
	pthread_t threads[2];
	size_t way = 0;

	while (way < sizeof(ways) / sizeof(ways[0]) &&
	       (argc < 2 || strcmp(ways[way].name, argv[1])))
		way++;
	if (way == sizeof(ways) / sizeof(ways[0]))
		step_die("storm: expected a way to make children");
	for (int i = 0; i < 2; i++)
		CALL(pthread_create(&threads[i], NULL, storm_main, &signals[i]));
	for (int i = 0; i < ways[way].count; i++) {
		pid_t pid = ways[way].start();

		if (!pid)
			change_and_exit();
		MUST(pid);
		step_await_child(pid, (unsigned long)i);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%d children by %s\n", ways[way].count, ways[way].name);
	return 0;
}
