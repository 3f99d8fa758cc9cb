/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks --forks times while other threads set handlers and make calls of the driver, and so may
 * have any lock that is on their way. Each child does the same; every 256th then uses CUDA, which
 * it may, as no process before it did. A child that does not end is killed and reported.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <unistd.h>

#define THREADS 2 /* of each kind */

static void on_signal(int sig)
{
	(void)sig;
}

static void set_handlers(void)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
	struct sigaction act = {.sa_handler = on_signal};

	for (int i = 0; i < 4; i++)
		if (sigaction(numbers[i], &act, NULL))
			step_die("fork_storm: sigaction(%d) failed", numbers[i]);
}

/* No more than the driver does before it is initialised. */
static void make_calls(void)
{
	CUdeviceptr data;
	CUcontext ctx;
	const char *text;
	int version;

	CALL(cuGetErrorString(CUDA_ERROR_NOT_INITIALIZED, &text));
	CALL(cuDriverGetVersion(&version));
	if (cuMemAlloc_v2(&data, 4096) != CUDA_ERROR_NOT_INITIALIZED ||
	    cuCtxGetCurrent(&ctx) != CUDA_ERROR_NOT_INITIALIZED)
		step_die("fork_storm: the driver works without cuInit()");
}

static void use_cuda(void)
{
	struct kernels kernels;
	unsigned char byte = 0;
	CUdeviceptr data;

	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, 4096));
	CALL(cuMemsetD8_v2(data, 7, 4096));
	CALL(cuMemcpyDtoH_v2(&byte, data + 4095, 1));
	CALL(cuMemFree_v2(data));
	if (byte != 7)
		step_die("fork_storm: a child found %u", byte);
}

static void *for_ever(void *what)
{
	for (;;)
		((void (*)(void))what)();
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long forks = 1000;
	const struct step_option options[] = {{"forks", &forks}};
	void (*const whats[])(void) = {set_handlers, make_calls};
	pthread_t thread;

	step_parse(argc, argv, options, 1);
	make_calls(); /* a driver watches forks from its first call on */
	for (int i = 0; i < 2 * THREADS; i++)
		CALL(pthread_create(&thread, NULL, for_ever, (void *)whats[i % 2]));
	for (unsigned long i = 1; i <= forks; i++) {
		pid_t pid = fork();

		if (pid < 0)
			step_die("fork_storm: fork: %s", strerror(errno));
		if (!pid) {
			set_handlers();
			make_calls();
			free(malloc(1 << 20));
			if (i % 256 == 0)
				use_cuda();
			_exit(0);
		}
		step_await_child(pid, i);
	}
	printf("fork_storm: %lu children ended\n", forks);
	return 0;
}
