/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by cuBLAS in single precision and in bfloat16, each step's product an operand of
 * the next. One handle and one stream, so the library gives the same bits every time.
 */
#include "tests/programs/step.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define N 1024
#define WORDS ((size_t)N * N)

/* Independent values from -1 to 1 (MurmurHash3's last steps): no pattern that products amplify. */
__global__ static void fill(float *data, size_t n, uint32_t seed)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x) {
		uint32_t x = (uint32_t)i + seed * (uint32_t)n;

		x = (x ^ (x >> 16)) * 0x85ebca6bu;
		x = (x ^ (x >> 13)) * 0xc2b2ae35u;
		x ^= x >> 16;
		data[i] = ((int)(x & 0xffff) - 32768) / 32768.0f;
	}
}

__global__ static void narrow(__nv_bfloat16 *to, const float *from, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		to[i] = __float2bfloat16(from[i]);
}

static void print_digest(const char *what, const void *data, size_t size)
{
	void *host = malloc(size);

	if (!host)
		step_die("out of memory");
	CALL(cudaMemcpy(host, data, size, cudaMemcpyDeviceToHost));
	step_print_digest(what, step_digest(STEP_DIGEST_INIT, host, size));
	free(host);
}

int main(int argc, char **argv)
{
	/* The factor keeps products of random matrices at the size of their operands. */
	const float scale = 1.0f / 18.5f, zero = 0.0f;
	cublasHandle_t handle;
	float *a, *b, *c;
	__nv_bfloat16 *half_a, *half_b;

	setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
	step_parse(argc, argv, NULL, 0);
	CALL(cudaMalloc(&a, WORDS * sizeof(*a)));
	CALL(cudaMalloc(&b, WORDS * sizeof(*b)));
	CALL(cudaMalloc(&c, WORDS * sizeof(*c)));
	CALL(cudaMalloc(&half_a, WORDS * sizeof(*half_a)));
	CALL(cudaMalloc(&half_b, WORDS * sizeof(*half_b)));
	CALL(cublasCreate(&handle));
	fill<<<256, 256>>>(a, WORDS, 1);
	fill<<<256, 256>>>(b, WORDS, 2);
	narrow<<<256, 256>>>(half_a, a, WORDS);
	CALL(cudaGetLastError());
	for (unsigned long k = 0; step_more(k); k++) {
		float *product = c;

		CALL(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, N, N, N, &scale, a, N, b, N,
				 &zero, c, N));
		c = b;
		b = product;
		narrow<<<256, 256>>>(half_b, b, WORDS);
		CALL(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &scale, half_a,
				  CUDA_R_16BF, N, half_b, CUDA_R_16BF, N, &zero, c, CUDA_R_32F, N,
				  CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
		CALL(cudaDeviceSynchronize());
		step_done(k);
	}
	print_digest("sgemm", b, WORDS * sizeof(*b));
	print_digest("bf16", c, WORDS * sizeof(*c));
	CALL(cublasDestroy(handle));
	return 0;
}
