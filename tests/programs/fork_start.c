/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks without end while its main thread initialises CUDA, then says "ready" and sleeps. The last
 * children stay until stdin ends, whatever becomes of their parent: what they have of it keeps.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 64

static volatile bool initialised;

static void stay(void)
{
	char byte;

	close(1);
	while (read(0, &byte, 1) > 0)
		;
	_exit(0);
}

static void *fork_main(void *unused)
{
	static pid_t children[CHILDREN];

	for (size_t i = 0; !initialised; i = (i + 1) % CHILDREN) {
		if (children[i]) {
			kill(children[i], SIGKILL);
			waitpid(children[i], NULL, 0);
		}
		children[i] = fork();
		if (!children[i])
			stay();
	}
	return unused;
}

int main(void)
{
	pthread_t thread;

	CALL(pthread_create(&thread, NULL, fork_main, NULL));
	CALL(cuInit(0));
	initialised = true;
	CALL(pthread_join(thread, NULL));
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
