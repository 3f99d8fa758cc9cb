/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What single calls cost: the launch of an empty kernel, cudaMalloc with cudaFree of several sizes,
 * and cudaMallocAsync with cudaFreeAsync in a stream of their own and in the default one. Runs one round for
 * each line that it reads and prints the median of each, so that a native and a wrapped one can be timed in
 * turns.
 */
#include "tests/programs/step.h"

#include <cuda_runtime.h>

#define BATCHES  200
#define LAUNCHES 500 /* fewer than the queue holds, so that a launch never waits for the GPU */
#define MALLOCS  400

__global__ static void empty(void)
{
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print_median(const char *name, double *times, int count)
{
	qsort(times, count, sizeof(*times), compare);
	printf("round %s %.4f us\n", name, times[count / 2] * 1e6);
}

static void time_launches(void)
{
	static double times[BATCHES];

	for (int b = 0; b < BATCHES; b++) {
		const double start = step_seconds();

		for (int i = 0; i < LAUNCHES; i++)
			empty<<<1, 1>>>();
		times[b] = (step_seconds() - start) / LAUNCHES;
		CALL(cudaGetLastError());
		CALL(cudaDeviceSynchronize());
	}
	print_median("launch", times, BATCHES);
}

static void time_mallocs(const char *name, size_t size)
{
	static double times[MALLOCS];
	void *data;

	for (int i = 0; i < MALLOCS; i++) {
		const double start = step_seconds();

		CALL(cudaMalloc(&data, size));
		CALL(cudaFree(data));
		times[i] = step_seconds() - start;
	}
	print_median(name, times, MALLOCS);
}

/* Pairs of calls of which no single one could be timed. */
static void time_mallocs_async(const char *name, size_t size, cudaStream_t stream)
{
	static double times[BATCHES];
	void *data;

	for (int b = 0; b < BATCHES; b++) {
		const double start = step_seconds();

		for (int i = 0; i < MALLOCS; i++) {
			CALL(cudaMallocAsync(&data, size, stream));
			CALL(cudaFreeAsync(data, stream));
		}
		times[b] = (step_seconds() - start) / MALLOCS;
		CALL(cudaStreamSynchronize(stream));
	}
	print_median(name, times, BATCHES);
}

int main(void)
{
	char line[64];
	cudaStream_t stream;
	void *held;

	/* Some memory in use, as a real program has. */
	CALL(cudaMalloc(&held, 1 << 20));
	CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	empty<<<1, 1>>>();
	CALL(cudaDeviceSynchronize());
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		time_launches();
		time_mallocs("malloc_4KiB", 4UL << 10);
		time_mallocs("malloc_1MiB", 1UL << 20);
		time_mallocs("malloc_64MiB", 64UL << 20);
		time_mallocs_async("malloc_async", 64UL << 10, stream);
		time_mallocs_async("malloc_async_64MiB", 64UL << 20, stream);
		time_mallocs_async("malloc_async_default", 64UL << 10, 0);
		printf("done\n");
		fflush(stdout);
	}
	CALL(cudaFree(held));
	return 0;
}
