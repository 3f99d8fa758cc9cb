/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch of a kernel with eight parameters, six of them pointers, by one thread and by sixteen
 * at once, each into a stream of its own. Rounds as in bench_calls.cu.
 */
#include "tests/programs/step.h"

#include <cuda_runtime.h>
#include <pthread.h>

#define BATCHES  100
#define LAUNCHES 500 /* fewer than the queue holds, so that a launch never waits for the GPU */
#define THREADS  16

__global__ static void eight(float *a, const float *b, const float *c, double *d, int *e, void **f,
			     size_t n, int more)
{
	if (more)
		a[n] = b[n] + c[n] + d[n] + e[n] + (f != nullptr);
}

static float *data;
static pthread_barrier_t barrier;

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void launch_many(cudaStream_t stream)
{
	for (int i = 0; i < LAUNCHES; i++)
		eight<<<1, 1, 0, stream>>>(data, data + 1, data + 2, (double *)data, (int *)data,
					   (void **)data, 0, 0);
	CALL(cudaGetLastError());
}

static void *run_thread(void *unused)
{
	cudaStream_t stream;

	CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int b = 0; b < BATCHES; b++) {
		pthread_barrier_wait(&barrier);
		launch_many(stream);
		pthread_barrier_wait(&barrier);
		CALL(cudaStreamSynchronize(stream));
	}
	CALL(cudaStreamDestroy(stream));
	return unused;
}

/* The median, over batches, of the time per launch of all threads. */
static void time_threads(const char *name, int count)
{
	static double times[BATCHES];
	pthread_t threads[THREADS];

	CALL(pthread_barrier_init(&barrier, NULL, count + 1));
	for (int i = 0; i < count; i++)
		CALL(pthread_create(&threads[i], NULL, run_thread, NULL));
	for (int b = 0; b < BATCHES; b++) {
		double start;

		pthread_barrier_wait(&barrier);
		start = step_seconds();
		pthread_barrier_wait(&barrier);
		times[b] = (step_seconds() - start) / LAUNCHES / count;
	}
	for (int i = 0; i < count; i++)
		CALL(pthread_join(threads[i], NULL));
	CALL(pthread_barrier_destroy(&barrier));
	qsort(times, BATCHES, sizeof(*times), compare);
	printf("round %s %.4f us\n", name, times[BATCHES / 2] * 1e6);
}

int main(void)
{
	char line[64];

	CALL(cudaMalloc(&data, 1 << 20));
	launch_many(NULL);
	CALL(cudaDeviceSynchronize());
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		time_threads("launch", 1);
		time_threads("launch_16_threads", THREADS);
		printf("done\n");
		fflush(stdout);
	}
	CALL(cudaFree(data));
	return 0;
}
