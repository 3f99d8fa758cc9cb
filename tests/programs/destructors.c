/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In each step some threads begin, use the GPU, and end: their thread-specific destructors use it
 * once more in every round, the last included. Every second thread ends by the bare system call
 * instead, which runs none. At the end the program verifies what all of them wrote.
 */
#include "tests/programs/kernels.h"

#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>

#define THREADS 20
#define ROUNDS  PTHREAD_DESTRUCTOR_ITERATIONS

static struct kernels kernels;
static CUdeviceptr data;
static pthread_key_t key;

struct life {
	pthread_t thread;
	uint32_t number;
	uint32_t rounds; /* left to come */
	uint32_t written;
};

static void write_word(struct life *life)
{
	CALL(cuCtxSetCurrent(kernels.ctx));
	life->written++;
	CALL(cuMemsetD32_v2(data + 4 * life->number, life->written, 1));
	CALL(cuCtxSynchronize());
}

static void end_of_life(void *arg)
{
	struct life *life = arg;

	write_word(life);
	if (--life->rounds)
		pthread_setspecific(key, life);
}

static void *live(void *arg)
{
	struct life *life = arg;

	write_word(life);
	if (life->number % 2)
		syscall(SYS_exit, 0);
	pthread_setspecific(key, life);
	return NULL;
}

static void one_generation(void)
{
	struct life lives[THREADS];
	uint32_t words[THREADS];

	for (uint32_t i = 0; i < THREADS; i++) {
		lives[i] = (struct life){.number = i, .rounds = ROUNDS};
		if (pthread_create(&lives[i].thread, NULL, live, &lives[i]))
			step_die("destructors: no thread");
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(lives[i].thread, NULL);
	CALL(cuMemcpyDtoH_v2(words, data, sizeof(words)));
	for (uint32_t i = 0; i < THREADS; i++)
		if (words[i] != lives[i].written || words[i] != (i % 2 ? 1 : 1 + ROUNDS))
			step_wrong("destructors: word %u is %u", i, words[i]);
}

int main(int argc, char **argv)
{
	step_parse(argc, argv, NULL, 0);
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, THREADS * sizeof(uint32_t)));
	/* Behind the keys of the libraries below: its destructor is the last of each round. */
	if (pthread_key_create(&key, end_of_life))
		step_die("destructors: no key");
	for (unsigned long steps = 0; step_more(steps); steps++) {
		one_generation();
		step_done(steps);
	}
	puts("every word right");
	return 0;
}
