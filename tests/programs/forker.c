/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of several processes: after its first CUDA call it forks a child that never uses CUDA, and
 * one that becomes another CUDA program (counter, beside this one). The plain child gets the
 * signals of a pause as well and must neither die nor turn into a job. --children 0 forks none.
 * --ask 1: at each line on stdin another one is forked, which says "child PID" and stays as long as
 * the job, whatever a pause does to that meanwhile.
 */
#include "tests/programs/kernels.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (UINT64_C(4) << 20)

static unsigned long children = 2;
static unsigned long ask;

/* Without cudaw there is no handler to inherit, and the signals would end the child. */
static void plain_child(void)
{
	const int signals[] = {SIGUSR1, SIGUSR2};
	struct sigaction inherited;

	for (int i = 0; i < 2; i++) {
		if (!sigaction(signals[i], NULL, &inherited) && inherited.sa_handler != SIG_DFL)
			kill(getpid(), signals[i]);
	}
	step_sleep_ms(100);
	step_exit_child(0);
}

static void counter_child(void)
{
	char path[PATH_MAX];
	char steps[32], ms[32];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - sizeof("counter"));
	char *slash;

	if (len < 0)
		step_die("forker: /proc/self/exe: %s", strerror(errno));
	path[len] = '\0';
	slash = strrchr(path, '/');
	strcpy(slash + 1, "counter");
	snprintf(steps, sizeof(steps), "%lu", step_count);
	snprintf(ms, sizeof(ms), "%lu", step_ms);
	/* Its steps are not ours: they would mix with ours on stdout. */
	if (!freopen("/dev/null", "w", stdout))
		step_die("forker: /dev/null: %s", strerror(errno));
	execl(path, "counter", "--steps", steps, "--step-ms", ms, (char *)NULL);
	step_die("forker: %s: %s", path, strerror(errno));
}

static void start_children(void)
{
	void (*const run[])(void) = {plain_child, counter_child};

	fflush(stdout);
	for (unsigned long i = 0; i < children && i < 2; i++) {
		pid_t pid = fork();

		if (pid < 0)
			step_die("forker: fork: %s", strerror(errno));
		if (!pid)
			run[i]();
	}
}

static void *ask_main(void *arg)
{
	char line[16];

	while (fgets(line, sizeof(line), stdin)) {
		pid_t pid = fork();

		if (pid < 0)
			step_die("forker: fork: %s", strerror(errno));
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			dprintf(STDOUT_FILENO, "child %d\n", getpid());
			for (;;)
				pause();
		}
	}
	return arg;
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"children", &children}, {"ask", &ask}};
	pthread_t thread;
	const uint64_t words = WORDS;
	struct kernels kernels;
	CUdeviceptr data;
	uint32_t first = 0, last = 0;
	uint32_t seed = 1;
	unsigned long k;
	int status;
	void *args[] = {&data, (void *)&words, &seed};

	step_parse(argc, argv, options, 2);
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, WORDS * sizeof(uint32_t)));
	kernels_launch(kernels.iota, NULL, args);
	CALL(cuCtxSynchronize());
	start_children();
	if (ask)
		CALL(pthread_create(&thread, NULL, ask_main, NULL));
	for (k = 0; step_more(k); k++) {
		kernels_launch(kernels.increment, NULL, args);
		CALL(cuCtxSynchronize());
		step_done(k);
	}
	CALL(cuMemcpyDtoH_v2(&first, data, sizeof(first)));
	CALL(cuMemcpyDtoH_v2(&last, data + (WORDS - 1) * sizeof(last), sizeof(last)));
	if (first != 2654435761u + k || last != first + WORDS - 1)
		step_wrong("forker: wrong after %lu steps: %u, %u", k, first, last);
	while (wait(&status) > 0) {
		if (status)
			step_die("forker: a child ended with status 0x%x", status);
	}
	printf("forker: %lu steps right, every child well\n", k);
	return 0;
}
