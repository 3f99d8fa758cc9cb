/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products in a batch: by a stride, whose pointers are parameters, and with --arrays 1 by
 * arrays of pointers in GPU memory, which translated addressing cannot reach.
 */
#include "tests/programs/step.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>

#define N     128
#define BATCH 8
#define WORDS ((size_t)N * N * BATCH)

static unsigned long arrays;

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"arrays", &arrays}};
	const float scale = 1.0f / N, zero = 0.0f;
	float *lists[3][BATCH], **device_lists[3], *data[3], *host = (float *)malloc(WORDS * 4);
	cublasHandle_t handle;

	step_parse(argc, argv, options, 1);
	for (size_t i = 0; i < WORDS; i++)
		host[i] = (float)(i % 17) - 8.0f;
	for (int m = 0; m < 3; m++) {
		CALL(cudaMalloc(&data[m], WORDS * sizeof(float)));
		CALL(cudaMalloc(&device_lists[m], sizeof(lists[m])));
		CALL(cudaMemcpy(data[m], host, WORDS * sizeof(float), cudaMemcpyHostToDevice));
		for (int i = 0; i < BATCH; i++)
			lists[m][i] = data[m] + (size_t)i * N * N;
		if (arrays)
			CALL(cudaMemcpy(device_lists[m], lists[m], sizeof(lists[m]),
					cudaMemcpyHostToDevice));
	}
	CALL(cublasCreate(&handle));
	for (unsigned long k = 0; step_more(k); k++) {
		if (arrays)
			CALL(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &scale,
						device_lists[0], N, device_lists[1], N, &zero,
						device_lists[2], N, BATCH));
		else
			CALL(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N,
						       &scale, data[0], N, (long long)N * N,
						       data[1], N, (long long)N * N, &zero,
						       data[2], N, (long long)N * N, BATCH));
		CALL(cudaDeviceSynchronize());
		step_done(k);
	}
	CALL(cudaMemcpy(host, data[2], WORDS * sizeof(float), cudaMemcpyDeviceToHost));
	step_print_digest("batched", step_digest(STEP_DIGEST_INIT, host, WORDS * sizeof(float)));
	CALL(cublasDestroy(handle));
	free(host);
	return 0;
}
