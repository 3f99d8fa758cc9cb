/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that allocate host memory of all sizes, and memory on the GPU, beside children that do so
 * as well: with whatever allocator is loaded beside cudaw.
 */
#include "tests/guests/programs/guest.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#define THREADS 4
#define BLOCKS  64

static struct guest_memory memory;
static volatile int over;

static void fill_and_free(unsigned seed)
{
	void *blocks[BLOCKS];

	for (size_t i = 0; i < BLOCKS; i++) {
		size_t size = 16 + rand_r(&seed) % (i % 16 ? 4096 : 1 << 20);

		if (i % 7 == 0 && posix_memalign(&blocks[i], 4096, size))
			step_die("allocate: no aligned memory");
		if (i % 7)
			blocks[i] = i % 3 ? malloc(size) : calloc(1, size);
		if (!blocks[i])
			step_die("allocate: no memory");
		memset(blocks[i], (int)i, size);
		if (i % 5 == 0 && !(blocks[i] = realloc(blocks[i], 2 * size)))
			step_die("allocate: no more memory");
	}
	for (size_t i = 0; i < BLOCKS; i++)
		free(blocks[(i * 7) % BLOCKS]);
}

static void *allocate_main(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	CUdeviceptr data;

	CALL(cuCtxSetCurrent(memory.kernels.ctx));
	while (!over) {
		fill_and_free(seed++);
		CALL(cuMemAlloc_v2(&data, 1 + rand_r(&seed) % (1 << 20)));
		CALL(cuMemFree_v2(data));
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	int status;

	setlinebuf(stdout);
	guest_memory_init(&memory);
	for (uintptr_t i = 0; i < THREADS; i++)
		CALL(pthread_create(&threads[i], NULL, allocate_main, (void *)i));
	puts("point");
	for (int i = 0; i < 20 || !guest_told(); i++) {
		pid_t pid = fork();

		if (!pid) {
			fill_and_free((unsigned)i);
			_exit(0);
		}
		MUST(pid);
		MUST(waitpid(pid, &status, 0));
		if (status)
			step_die("allocate: a child ended with %#x", status);
		guest_memory_step(&memory);
	}
	over = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	guest_memory_check(&memory);
	return 0;
}
