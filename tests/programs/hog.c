/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes GPU memory and holds it until it is killed: --mib N of it, or without that everything
 * that is free. Says how many bytes it has once it has them. What a second job sees of the GPU
 * while the first is paused.
 */
#include "tests/programs/kernels.h"

#include <unistd.h>

#define PIECE_MAX (UINT64_C(1) << 30)
#define PIECE_MIN (UINT64_C(1) << 20)

static unsigned long wanted_mib;

/* Take @bytes in pieces as large as can be had; returns how many were taken. */
static uint64_t take(uint64_t bytes)
{
	uint64_t taken = 0;
	uint64_t piece = PIECE_MAX;
	CUdeviceptr data;
	CUresult res;

	while (taken < bytes && piece >= PIECE_MIN) {
		if (piece > bytes - taken) {
			piece /= 2;
			continue;
		}
		res = cuMemAlloc_v2(&data, piece);
		if (res == CUDA_SUCCESS)
			taken += piece;
		else if (res == CUDA_ERROR_OUT_OF_MEMORY)
			piece /= 2;
		else
			CALL(res);
	}
	return taken;
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"mib", &wanted_mib}};
	struct kernels kernels;
	uint64_t taken;

	step_parse(argc, argv, options, 1);
	kernels_init(&kernels);
	taken = take(wanted_mib ? (uint64_t)wanted_mib << 20 : UINT64_MAX);
	if (taken < (uint64_t)wanted_mib << 20)
		step_die("hog: got %llu bytes only", (unsigned long long)taken);
	printf("hog: %llu\n", (unsigned long long)taken);
	fflush(stdout);
	while (!step_told)
		pause();
	return 0;
}
