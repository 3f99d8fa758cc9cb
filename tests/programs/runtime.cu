/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain runtime-API program. Built twice from this source: static_rt holds the runtime
 * (nvcc's default), dynamic_rt needs libcudart.so.13. Allocations of all sizes live and die
 * between the steps, and every kind of plain copy moves them.
 */
#include "tests/programs/step.h"

#include <cuda_runtime.h>

#define NSIZES 6

static const size_t sizes[NSIZES] = {512, 4096, 100000, 1 << 20, (2 << 20) + 4096, 48 << 20};

__global__ static void mix(uint32_t *data, size_t n, uint32_t step)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		data[i] = data[i] * 1664525u + 1013904223u + step + (uint32_t)i;
}

/* A buffer that lives for one step only, and passes its bytes on to @data. */
static void through_temporary(uint32_t *data, size_t size, uint32_t step, cudaStream_t stream)
{
	void *temporary;

	CALL(cudaMalloc(&temporary, size));
	CALL(cudaMemcpyAsync(temporary, data, size, cudaMemcpyDeviceToDevice, stream));
	mix<<<64, 256, 0, stream>>>((uint32_t *)temporary, size / 4, step);
	CALL(cudaGetLastError());
	CALL(cudaMemcpyAsync(data, temporary, size, cudaMemcpyDeviceToDevice, stream));
	CALL(cudaFree(temporary));
}

static uint64_t digest_of(const void *data, size_t size, uint64_t digest)
{
	void *host = malloc(size);

	if (!host)
		step_die("out of memory");
	CALL(cudaMemcpy(host, data, size, cudaMemcpyDeviceToHost));
	digest = step_digest(digest, host, size);
	free(host);
	return digest;
}

int main(int argc, char **argv)
{
	uint64_t digest = STEP_DIGEST_INIT;
	cudaPointerAttributes attributes;
	uint32_t *data[NSIZES];
	cudaStream_t stream;

	step_parse(argc, argv, NULL, 0);
	CALL(cudaStreamCreate(&stream));
	for (int b = 0; b < NSIZES; b++) {
		CALL(cudaMalloc(&data[b], sizes[b]));
		CALL(cudaMemset(data[b], b + 1, sizes[b]));
		CALL(cudaPointerGetAttributes(&attributes, (char *)data[b] + sizes[b] - 1));
		printf("buffer %d: memory type %d on device %d\n", b, (int)attributes.type,
		       attributes.device);
	}
	CALL(cudaDeviceSynchronize());
	for (unsigned long k = 0; step_more(k); k++) {
		for (int b = 0; b < NSIZES; b++) {
			mix<<<64, 256, 0, stream>>>(data[b], sizes[b] / 4, (uint32_t)k);
			CALL(cudaGetLastError());
		}
		through_temporary(data[k % NSIZES], sizes[k % NSIZES], (uint32_t)k, stream);
		CALL(cudaStreamSynchronize(stream));
		step_done(k);
	}
	for (int b = 0; b < NSIZES; b++) {
		digest = digest_of(data[b], sizes[b], digest);
		CALL(cudaFree(data[b]));
	}
	CALL(cudaStreamDestroy(stream));
	step_print_digest("runtime", digest);
	return 0;
}
