/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that handles SIGTERM, SIGINT and the signals that pause and resume, and starts a child
 * in one of the ways in which a child shares its memory: --way says which. Most children reset the
 * handlers, as a child is to before it becomes another program. The parent then has its handlers
 * still, and each signal that it gets runs them once. Only --way 11 and the child of
 * --way 13, a fork, use CUDA.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static volatile sig_atomic_t got[NSIG], got_other[NSIG];
static volatile bool wrong; /* written by children */

static void on_signal(int sig)
{
	got[sig]++;
}

static void on_other(int sig)
{
	got_other[sig]++;
}

static void must(bool right)
{
	wrong |= !right;
}

static void (*handler_of(int sig))(int)
{
	struct sigaction act;

	if (sigaction(sig, NULL, &act))
		return SIG_ERR;
	return act.sa_handler;
}

static bool kernel_has(int sig, const char *which)
{
	char line[128];
	unsigned long mask = 0;
	FILE *status = fopen("/proc/self/status", "re");

	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, which, strlen(which)))
			mask = strtoul(line + strlen(which), NULL, 16);
	if (status)
		fclose(status);
	return mask >> (sig - 1) & 1;
}

static void reset_all(void)
{
	for (size_t i = 0; i < NUMBERS; i++) {
		must(handler_of(numbers[i]) == on_signal);
		must(signal(numbers[i], SIG_DFL) == on_signal);
		must(handler_of(numbers[i]) == SIG_DFL);
		must(!kernel_has(numbers[i], "SigCgt:"));
	}
}

/* What vfork()'s child returns from must not be its caller. */
static int vfork_and(void (*what)(void))
{
	int status = -1;
	pid_t pid = vfork();

	if (!pid) {
		what();
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void reset_and_die(void)
{
	reset_all();
	raise(SIGTERM);
}

/* They run in the child alone. */
static void handle_otherwise(void)
{
	for (size_t i = 0; i < NUMBERS; i++) {
		must(signal(numbers[i], on_other) == on_signal);
		must(handler_of(numbers[i]) == on_other);
		raise(numbers[i]);
		must(got_other[numbers[i]] == 1 && !got[numbers[i]]);
		must(signal(numbers[i], SIG_IGN) == on_other);
		must(kernel_has(numbers[i], "SigIgn:"));
	}
}

/* The parent's handlers run in the child, as its memory has them. */
static void get_signals(void)
{
	for (size_t i = 0; i < NUMBERS; i++) {
		raise(numbers[i]);
		must(got[numbers[i]] == 1);
		got[numbers[i]] = 0;
	}
}

static int cloned_main(void *arg)
{
	((void (*)(void))arg)();
	return 0;
}

static int clone_and(void (*what)(void), int flags)
{
	static char stack[256 << 10] __attribute__((aligned(16)));
	int status = -1;
	pid_t pid =
		clone(cloned_main, stack + sizeof(stack), flags | CLONE_VM | SIGCHLD, (void *)what);

	waitpid(pid, &status, 0);
	return status;
}

static int spawn_true(void)
{
	char *argv[] = {"true", NULL}, *envp[] = {NULL};
	int status = -1;
	pid_t pid;

	if (!posix_spawn(&pid, "/bin/true", NULL, NULL, argv, envp))
		waitpid(pid, &status, 0);
	return status;
}

/* The parent ignores SIGINT while there is the child, which then gets its line. */
static void *look_at_sigint(void *arg)
{
	while (handler_of(SIGINT) != SIG_IGN)
		step_sleep_ms(1);
	must(kernel_has(SIGINT, "SigIgn:"));
	kill(getpid(), SIGINT);
	must(write(*(int *)arg, "\n", 1) == 1);
	return NULL;
}

static int run_by_system(void)
{
	char command[64];
	pthread_t thread;
	int fds[2], status;

	if (pipe(fds))
		return -1;
	snprintf(command, sizeof(command), "read line </proc/%d/fd/%d", getpid(), fds[0]);
	must(!pthread_create(&thread, NULL, look_at_sigint, &fds[1]));
	status = system(command);
	pthread_join(thread, NULL);
	close(fds[0]);
	close(fds[1]);
	return status;
}

static int run_by_popen(void)
{
	FILE *out = popen("kill -TERM $$; echo here", "r");
	char line[16] = "";

	if (!out)
		return -1;
	must(!fgets(line, sizeof(line), out));
	return pclose(out);
}

/* In the memory of the parent, which goes on. */
static void leave_by_exit(void)
{
	exit(0);
}

/* The parent uses CUDA before and after it. */
static int run_beside_cuda(void)
{
	struct kernels kernels;
	CUdeviceptr data;
	int status;

	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, 1 << 20));
	status = clone_and(leave_by_exit, 0);
	for (unsigned long k = 0; step_more(k); k++) {
		CALL(cuMemsetD8_v2(data, (unsigned char)k, 1 << 20));
		step_done(k);
	}
	return status;
}

static int await_fork_of(int (*what)(void))
{
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(what());
	waitpid(pid, &status, 0);
	return status;
}

/* Long enough to be paused, if that were to come. */
static int use_cuda_for_a_while(void)
{
	double end = step_seconds() + 1;
	struct kernels kernels;
	CUdeviceptr data;

	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, 1 << 20));
	while (step_seconds() < end)
		CALL(cuMemsetD8_v2(data, 1, 1 << 20));
	return 0;
}

/* A signal that pauses, before any CUDA call, is for who got it. */
static int fork_after_a_signal(void)
{
	raise(SIGUSR1);
	got[SIGUSR1] = 0;
	return await_fork_of(use_cuda_for_a_while);
}

static int run(unsigned long way)
{
	switch (way) {
	case 1:
		return vfork_and(reset_all);
	case 2:
		return vfork_and(reset_and_die) == SIGTERM ? 0 : -1;
	case 3:
		return vfork_and(handle_otherwise);
	case 4:
		return vfork_and(get_signals);
	case 5:
		return clone_and(reset_all, 0);
	case 6:
		return clone_and(reset_and_die, 0) == SIGTERM ? 0 : -1;
	case 7:
		return clone_and(handle_otherwise, 0);
	case 8:
		return spawn_true();
	case 9:
		return run_by_system();
	case 10:
		return run_by_popen() == SIGTERM ? 0 : -1;
	case 11:
		return run_beside_cuda();
	default:
		return fork_after_a_signal();
	}
}

/* clone(CLONE_SIGHAND): what the child sets is the parent's, too. */
static void shared_actions(void)
{
	if (clone_and(handle_otherwise, CLONE_SIGHAND) || wrong)
		step_die("children: a child with the parent's actions fared otherwise");
	for (size_t i = 0; i < NUMBERS; i++) {
		if (handler_of(numbers[i]) != SIG_IGN)
			step_die("children: signal %d is not as the child set it", numbers[i]);
		raise(numbers[i]);
		signal(numbers[i], on_signal);
	}
}

int main(int argc, char **argv)
{
	unsigned long way = 1;
	const struct step_option options[] = {{"way", &way}};
	int status;

	step_parse(argc, argv, options, 1);
	alarm(step_hang_s());
	for (size_t i = 0; i < NUMBERS; i++)
		signal(numbers[i], on_signal);
	if (way == 12) {
		shared_actions();
	} else {
		status = run(way);
		if (status || wrong)
			step_die("children: way %lu: the child ended with %#x, and found %s", way,
				 status, wrong ? "a wrong action" : "all right");
	}
	for (size_t i = 0; i < NUMBERS; i++) {
		if (handler_of(numbers[i]) != on_signal)
			step_die("children: way %lu: the handler of %d is lost", way, numbers[i]);
		kill(getpid(), numbers[i]);
		if (got[numbers[i]] != 1)
			step_die("children: way %lu: signal %d ran its handler %d times", way,
				 numbers[i], (int)got[numbers[i]]);
	}
	printf("children: way %lu: all handlers there\n", way);
	return 0;
}
