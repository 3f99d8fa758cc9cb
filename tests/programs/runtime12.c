/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program built for CUDA 12: linked with libcudart.so.12, and therefore of copies and fills
 * alone, since its build has no compiler for kernels of that release. The functions it calls have
 * had the same form in every release, so the headers may be of a later one.
 */
#include <cuda_runtime_api.h>

#include "tests/programs/step.h"

#define SIZE  (3UL << 20)
#define SLICE 4096UL

int main(int argc, char **argv)
{
	unsigned char *host = malloc(SIZE);
	void *data, *other;
	int version;

	step_parse(argc, argv, NULL, 0);
	if (!host)
		step_die("out of memory");
	CALL(cudaRuntimeGetVersion(&version));
	printf("CUDA %d\n", version / 1000);
	CALL(cudaMalloc(&data, SIZE));
	CALL(cudaMalloc(&other, SIZE));
	CALL(cudaMemset(data, 0x5a, SIZE));
	for (unsigned long k = 0; step_more(k); k++) {
		const size_t at = k * SLICE % SIZE;

		CALL(cudaMemset((char *)data + at, (int)k, SLICE));
		CALL(cudaMemcpy(other, data, SIZE, cudaMemcpyDeviceToDevice));
		CALL(cudaMemcpy(host, other, SIZE, cudaMemcpyDeviceToHost));
		host[(at + SLICE) % SIZE] ^= (unsigned char)k;
		CALL(cudaMemcpy(data, host, SIZE, cudaMemcpyHostToDevice));
		CALL(cudaDeviceSynchronize());
		step_done(k);
	}
	CALL(cudaMemcpy(host, data, SIZE, cudaMemcpyDeviceToHost));
	step_print_digest("runtime12", step_digest(STEP_DIGEST_INIT, host, SIZE));
	CALL(cudaFree(data));
	CALL(cudaFree(other));
	free(host);
	return 0;
}
