/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms by cuFFT, which reaches the driver by dlsym alone: batched one-dimensional
 * ones and a two-dimensional one, forward and back in every step. What is allocated first is freed
 * before the first step: memory that a pause takes has another place to come back to.
 */
#include "tests/programs/step.h"

#include <cuda_runtime.h>
#include <cufft.h>

#define LENGTH 4096
#define BATCH  64
#define SIDE   512
#define WORDS  ((size_t)LENGTH * BATCH)
#define FIRST  ((size_t)24 << 20)

static_assert(WORDS == (size_t)SIDE * SIDE, "both plans transform the same data");

__global__ static void fill(cufftComplex *data, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x) {
		uint32_t x = (uint32_t)i * 2654435761u;

		data[i].x = (float)(x >> 16) / 65536.0f;
		data[i].y = (float)(x & 0xffff) / 65536.0f;
	}
}

__global__ static void scale(cufftComplex *data, size_t n, float factor)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x) {
		data[i].x *= factor;
		data[i].y *= factor;
	}
}

/* There and back, which multiplies by the number of points that one transform has. */
static void both_ways(cufftHandle plan, cufftComplex *data, size_t points)
{
	CALL(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
	CALL(cufftExecC2C(plan, data, data, CUFFT_INVERSE));
	scale<<<256, 256>>>(data, WORDS, 1.0f / (float)points);
	CALL(cudaGetLastError());
}

int main(int argc, char **argv)
{
	const size_t size = WORDS * sizeof(cufftComplex);
	cufftComplex *data, *host = (cufftComplex *)malloc(size);
	cufftHandle rows, square;
	void *first;

	step_parse(argc, argv, NULL, 0);
	if (!host)
		step_die("out of memory");
	CALL(cudaMalloc(&first, FIRST));
	CALL(cudaMalloc(&data, size));
	CALL(cufftPlan1d(&rows, LENGTH, CUFFT_C2C, BATCH));
	CALL(cufftPlan2d(&square, SIDE, SIDE, CUFFT_C2C));
	fill<<<256, 256>>>(data, WORDS);
	CALL(cudaGetLastError());
	CALL(cudaFree(first));
	for (unsigned long k = 0; step_more(k); k++) {
		both_ways(rows, data, LENGTH);
		both_ways(square, data, (size_t)SIDE * SIDE);
		CALL(cudaDeviceSynchronize());
		step_done(k);
	}
	CALL(cufftExecC2C(rows, data, data, CUFFT_FORWARD));
	CALL(cudaMemcpy(host, data, size, cudaMemcpyDeviceToHost));
	step_print_digest("fft", step_digest(STEP_DIGEST_INIT, host, size));
	CALL(cufftDestroy(rows));
	CALL(cufftDestroy(square));
	CALL(cudaFree(data));
	free(host);
	return 0;
}
