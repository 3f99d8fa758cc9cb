/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight threads, each with a stream of its own, that allocate, fill, compute, copy back and free
 * in every step. The first thread names the steps; the digests are taken together in the order of
 * the threads, so the output does not depend on who was first.
 */
#include "tests/programs/step.h"

#include <cuda_runtime.h>
#include <pthread.h>

#define THREADS 8

struct worker {
	pthread_t thread;
	unsigned int number;
	unsigned long steps;
	uint64_t digest;
};

__global__ static void mix(uint32_t *data, size_t n, uint32_t salt)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		data[i] = data[i] * 1664525u + 1013904223u + salt + (uint32_t)i;
}

/* From a few hundred bytes to 16 MiB, in another order for each thread. */
static size_t size_for(const struct worker *w, unsigned long step)
{
	return (size_t)256 << ((w->number * 5 + step * 7) % 16) << (step % 3 == 0);
}

static void work(struct worker *w, cudaStream_t stream, unsigned long step)
{
	const size_t size = size_for(w, step);
	uint32_t head[64];
	uint32_t *data, *other;

	CALL(cudaMalloc(&data, size));
	CALL(cudaMalloc(&other, size));
	CALL(cudaMemsetAsync(data, (int)w->number, size, stream));
	mix<<<32, 128, 0, stream>>>(data, size / 4, (uint32_t)step);
	CALL(cudaMemcpyAsync(other, data, size, cudaMemcpyDeviceToDevice, stream));
	mix<<<32, 128, 0, stream>>>(other, size / 4, w->number);
	CALL(cudaGetLastError());
	CALL(cudaMemcpyAsync(head, (char *)other + size - sizeof(head), sizeof(head),
			     cudaMemcpyDeviceToHost, stream));
	CALL(cudaStreamSynchronize(stream));
	CALL(cudaFree(data));
	CALL(cudaFree(other));
	w->digest = step_digest(w->digest, head, sizeof(head));
}

static void *run(void *arg)
{
	struct worker *w = (struct worker *)arg;
	cudaStream_t stream;

	CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (; step_more(w->steps); w->steps++) {
		work(w, stream, w->steps);
		if (w->number == 0)
			step_done(w->steps);
		else
			step_sleep_ms(step_ms);
	}
	CALL(cudaStreamDestroy(stream));
	return NULL;
}

int main(int argc, char **argv)
{
	struct worker workers[THREADS] = {};
	uint64_t digest = STEP_DIGEST_INIT;

	step_parse(argc, argv, NULL, 0);
	for (unsigned int i = 0; i < THREADS; i++) {
		workers[i].number = i;
		workers[i].digest = STEP_DIGEST_INIT;
		CALL(pthread_create(&workers[i].thread, NULL, run, &workers[i]));
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		CALL(pthread_join(workers[i].thread, NULL));
		digest = step_digest(digest, &workers[i].digest, sizeof(workers[i].digest));
	}
	step_print_digest("threads", digest);
	return 0;
}
