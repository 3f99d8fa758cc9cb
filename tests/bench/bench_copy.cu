/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ceiling of any pause: plain copies of --gib N (4) between the GPU and pinned host memory, each way. With
 * --gpus N, of so many GPUs at once; the rate is that of all together.
 */
#include "tests/programs/step.h"

#include <cuda_runtime.h>
#include <pthread.h>

#define TIMES    3
#define MAX_GPUS 16

static unsigned long gpus = 1, gib = 4;
static size_t size;
static void *device[MAX_GPUS], *host[MAX_GPUS];

static void time_copies(const char *name, void **to, void **from, cudaMemcpyKind kind)
{
	double best = 0;

	for (int i = 0; i < TIMES; i++) {
		const double start = step_seconds();
		double rate;

		for (unsigned long gpu = 0; gpu < gpus; gpu++) {
			CALL(cudaSetDevice((int)gpu));
			CALL(cudaMemcpyAsync(to[gpu], from[gpu], size, kind, 0));
		}
		for (unsigned long gpu = 0; gpu < gpus; gpu++) {
			CALL(cudaSetDevice((int)gpu));
			CALL(cudaDeviceSynchronize());
		}
		rate = (double)gpus * size / (step_seconds() - start) / 1e9;
		if (rate > best)
			best = rate;
	}
	printf("figure %s %.2f GB/s\n", name, best);
}

/* Of each GPU at the same time: much host memory takes seconds. */
static void *prepare(void *arg)
{
	unsigned long gpu = (unsigned long)arg;

	CALL(cudaSetDevice((int)gpu));
	CALL(cudaMalloc(&device[gpu], size));
	CALL(cudaHostAlloc(&host[gpu], size, cudaHostAllocDefault));
	memset(host[gpu], 1, size);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_GPUS];
	const struct step_option options[] = {{"gpus", &gpus}, {"gib", &gib}};

	step_parse(argc, argv, options, 2);
	size = gib << 30;
	if (!gpus || gpus > MAX_GPUS)
		step_die("bench_copy: expected 1 to %d GPUs, found %lu", MAX_GPUS, gpus);
	for (unsigned long gpu = 0; gpu < gpus; gpu++)
		if (pthread_create(&threads[gpu], NULL, prepare, (void *)gpu))
			step_die("bench_copy: no thread");
	for (unsigned long gpu = 0; gpu < gpus; gpu++)
		pthread_join(threads[gpu], NULL);
	time_copies("copy_to_gpu", device, host, cudaMemcpyHostToDevice);
	time_copies("copy_to_host", host, device, cudaMemcpyDeviceToHost);
	for (unsigned long gpu = 0; gpu < gpus; gpu++) {
		CALL(cudaFreeHost(host[gpu]));
		CALL(cudaFree(device[gpu]));
	}
	return 0;
}
