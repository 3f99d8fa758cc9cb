/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks while another thread is in the middle of the process's first CUDA call, before the driver
 * is: the child uses CUDA, which it may. The thread is held where cudaw reads its settings.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread bool is_first;
static sem_t arrived, go_on;

/* In place of the C library's, also for cudaw, which looks for the setting by it: the Makefile exports it. */
int strcmp(const char *a, const char *b)
{
	static const char setting[] = "CUDAW_CHECK";
	size_t i = 0;

	while (a[i] && a[i] == b[i])
		i++;
	if (is_first && i == sizeof(setting) - 1 && !memcmp(a, setting, i) && !b[i]) {
		is_first = false;
		sem_post(&arrived);
		sem_wait(&go_on);
	}
	return (unsigned char)a[i] - (unsigned char)b[i];
}

static void *first_call(void *unused)
{
	(void)unused;
	is_first = true;
	CALL(cuInit(0));
	if (is_first)
		step_die("fork_binding: no setting was read");
	return NULL;
}

int main(void)
{
	pthread_t thread;
	int status = 0;
	pid_t child;

	sem_init(&arrived, 0, 0);
	sem_init(&go_on, 0, 0);
	if (pthread_create(&thread, NULL, first_call, NULL))
		return 1;
	sem_wait(&arrived);
	child = fork();
	if (!child) {
		alarm(step_hang_s());
		CALL(cuInit(0));
		_exit(0);
	}
	waitpid(child, &status, 0);
	sem_post(&go_on);
	pthread_join(thread, NULL);
	if (status)
		step_die("fork_binding: the child ended with status %#x", status);
	printf("the child could use CUDA\n");
	return 0;
}
