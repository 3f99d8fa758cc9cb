/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks while another thread is in the middle of the process's first CUDA call, before the driver
 * is: the child uses CUDA, which it may. The thread is held there by what cudaw has to say to a
 * full pipe as stderr, as it does with CUDAW_CHECK=nonsense.
 */
#include "tests/programs/kernels.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t tid;

static void *first_call(void *unused)
{
	(void)unused;
	__atomic_store_n(&tid, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	CALL(cuInit(0));
	return NULL;
}

/* Make stderr a full pipe, and return its other end. */
static int clog_stderr(void)
{
	static const char zeros[4096];
	int ends[2];

	if (pipe2(ends, O_NONBLOCK))
		step_die("pipe");
	while (write(ends[1], zeros, sizeof(zeros)) > 0)
		;
	while (write(ends[1], zeros, 1) > 0)
		;
	fcntl(ends[1], F_SETFL, 0);
	dup2(ends[1], 2);
	close(ends[1]);
	return ends[0];
}

/* True while the thread sleeps in write(). */
static bool writes(void)
{
	char path[64], text[16] = "";
	pid_t thread = __atomic_load_n(&tid, __ATOMIC_ACQUIRE);
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread);
	file = thread ? fopen(path, "r") : NULL;
	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	return !strncmp(text, "1 ", 2);
}

int main(void)
{
	int err = dup(2), pipe_end = clog_stderr(), status = 0;
	char drain[4096];
	pthread_t thread;
	pid_t child;

	if (pthread_create(&thread, NULL, first_call, NULL))
		return 1;
	while (!writes())
		step_sleep_ms(1);
	child = fork();
	if (!child) {
		dup2(err, 2);
		alarm(step_hang_s());
		CALL(cuInit(0));
		_exit(0);
	}
	waitpid(child, &status, 0);
	fcntl(pipe_end, F_SETFL, O_NONBLOCK);
	while (writes())
		if (read(pipe_end, drain, sizeof(drain)) < 0)
			step_sleep_ms(1);
	dup2(err, 2);
	pthread_join(thread, NULL);
	if (status)
		step_die("fork_binding: the child ended with status %#x", status);
	printf("the child could use CUDA\n");
	return 0;
}
