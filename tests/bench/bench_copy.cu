/* SPDX-License-Identifier: Apache-2.0 */
/* The ceiling of any pause: plain copies between the GPU and pinned host memory, each way. */
#include "tests/programs/step.h"

#include <cuda_runtime.h>

#define SIZE  (4UL << 30)
#define TIMES 3

static void time_copies(const char *name, void *to, const void *from, cudaMemcpyKind kind)
{
	double best = 0;

	for (int i = 0; i < TIMES; i++) {
		const double start = step_seconds();
		double rate;

		CALL(cudaMemcpy(to, from, SIZE, kind));
		rate = SIZE / (step_seconds() - start) / 1e9;
		if (rate > best)
			best = rate;
	}
	printf("figure %s %.2f GB/s\n", name, best);
}

int main(void)
{
	void *device, *host;

	CALL(cudaMalloc(&device, SIZE));
	CALL(cudaHostAlloc(&host, SIZE, cudaHostAllocDefault));
	memset(host, 1, SIZE);
	time_copies("copy_to_gpu", device, host, cudaMemcpyHostToDevice);
	time_copies("copy_to_host", host, device, cudaMemcpyDeviceToHost);
	CALL(cudaFreeHost(host));
	CALL(cudaFree(device));
	return 0;
}
