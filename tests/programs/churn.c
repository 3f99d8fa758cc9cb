/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes on beside a job's own work: one thread creates and destroys contexts with memory in
 * them, another forks children that exit. The primary context's memory must stay as it was, and
 * every child must end, however often the job is paused. --fork 1: children only, no CUDA call
 * but the first ones, so that it goes on while the job is paused.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <unistd.h>

#define WORDS (1UL << 20)

static void *create_and_destroy(void *arg)
{
	(void)arg;
	for (;;) {
		CUcontext ctx;
		CUdeviceptr ptr;

		CALL(cuCtxCreate_v4(&ctx, NULL, 0, 0));
		CALL(cuMemAlloc_v2(&ptr, 3 << 20));
		CALL(cuMemsetD8_v2(ptr, 0xee, 3 << 20));
		CALL(cuCtxDestroy_v2(ctx));
	}
	return NULL;
}

static void fork_and_wait(unsigned long number)
{
	pid_t pid = fork();

	if (pid < 0)
		step_die("fork");
	if (!pid)
		step_exit_child(0);
	step_await_child(pid, number);
}

static void check(CUdeviceptr ptr)
{
	static uint32_t words[WORDS];

	CALL(cuMemcpyDtoH_v2(words, ptr, sizeof(words)));
	for (size_t i = 0; i < WORDS; i++)
		if (words[i] != 0x12345678)
			step_wrong("word %zu is %#x", i, words[i]);
}

int main(int argc, char **argv)
{
	unsigned long forks = 0;
	const struct step_option options[] = {{"fork", &forks}};
	CUcontext ctx;
	CUdeviceptr ptr;
	pthread_t thread;

	step_parse(argc, argv, options, 1);
	CALL(cuInit(0));
	CALL(cuDevicePrimaryCtxRetain(&ctx, 0));
	CALL(cuCtxSetCurrent(ctx));
	CALL(cuMemAlloc_v2(&ptr, WORDS * sizeof(uint32_t)));
	CALL(cuMemsetD32_v2(ptr, 0x12345678, WORDS));
	CALL(cuCtxSynchronize());
	if (!forks)
		CALL(pthread_create(&thread, NULL, create_and_destroy, NULL));
	for (unsigned long k = 0; step_more(k); k++) {
		if (forks)
			fork_and_wait(k);
		else
			check(ptr);
		step_done(k);
	}
	printf("churn: as it was\n");
	fflush(stdout);
	_exit(0); /* the other thread is in the middle of something */
}
