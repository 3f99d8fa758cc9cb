/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes digests of memory on the GPU and compares them with the formula, for contents of several
 * kinds. It uses the driver as our engine does, by its table. With a number it then takes those of
 * so many GiB, twice, and prints how fast the second time was.
 *
 *	digests [GIB]
 */
#include "tests/digest_formula.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GRANULES 40
#define GIB_MAX  128UL

static struct cuda_driver drv;

static void must(CUresult result, const char *what)
{
	if (!result)
		return;
	printf("digests: %s: driver error %d\n", what, result);
	exit(1);
}

static void fill(uint64_t *words, int kind)
{
	size_t n = GRANULES * VMEM_GRANULE / sizeof(*words);

	memset(words, 0, n * sizeof(*words));
	for (size_t i = 0; i < n && kind == 1; i++)
		words[i] = i * 0x123456789abcdefUL;
	for (size_t i = 0; i < n && kind == 2; i++)
		words[i] = ~0UL;
	/* One bit in each granule, at another place each time. */
	for (size_t g = 0; g < GRANULES && kind == 3; g++)
		words[(g * VMEM_GRANULE + g * 52429 * 8 % VMEM_GRANULE) / sizeof(*words)] = 1UL
											    << g;
}

static void compare(const uint64_t *words, const struct digest *digests, int kind)
{
	for (size_t g = 0; g < GRANULES; g++) {
		struct digest d = digest_formula(words + g * VMEM_GRANULE / sizeof(*words));

		if (!digest_equal(&d, &digests[g]) || d.any != digests[g].any) {
			printf("digests: contents %d, granule %zu: %016lx %016lx %016lx, should be "
			       "%016lx %016lx %016lx\n",
			       kind, g, digests[g].any, digests[g].sum, digests[g].mix, d.any,
			       d.sum, d.mix);
			exit(1);
		}
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static void measure(const struct digest_kernel *kernel, CUdeviceptr data, size_t bytes)
{
	size_t granules = bytes / VMEM_GRANULE, size = granules * sizeof(struct digest);
	struct digest *digests = aligned_alloc(4096, (size + 4095) & -4096UL);
	double start = 0;

	if (!digests) {
		printf("digests: out of memory\n");
		exit(1);
	}
	must(drv.cuMemHostRegister_v2(digests, size, CU_MEMHOSTREGISTER_PORTABLE), "register");
	must(drv.cuMemsetD8Async(data, 1, bytes, NULL), "set");
	for (int i = 0; i < 2; i++) {
		must(drv.cuStreamSynchronize(NULL), "cuStreamSynchronize");
		start = seconds();
		must(digest_take(&drv, kernel, data, granules, digests, NULL), "digest_take");
		must(drv.cuStreamSynchronize(NULL), "cuStreamSynchronize");
	}
	printf("figure digest %.3f TB/s\n", bytes / (seconds() - start) * 1e-12);
	must(drv.cuMemHostUnregister(digests), "unregister");
	free(digests);
}

int main(int argc, char **argv)
{
	size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) % GIB_MAX : 0) << 30;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*init)(unsigned int) =
		lib ? (CUresult(*)(unsigned int))dlsym(lib, "cuInit") : NULL;
	CUresult (*alloc)(CUdeviceptr *, size_t) =
		lib ? (CUresult(*)(CUdeviceptr *, size_t))dlsym(lib, "cuMemAlloc_v2") : NULL;
	uint64_t *words = malloc(GRANULES * VMEM_GRANULE);
	struct digest *digests = aligned_alloc(4096, 4096);
	struct digest_kernel kernel;
	const char *missing;
	CUdeviceptr data;
	CUcontext ctx;

	if (!init || !alloc || !words || !digests || cuda_driver_fill(&drv, lib, &missing)) {
		printf("digests: no driver\n");
		return 1;
	}
	must(init(0), "cuInit");
	must(drv.cuDevicePrimaryCtxRetain(&ctx, 0), "cuDevicePrimaryCtxRetain");
	must(drv.cuCtxSetCurrent(ctx), "cuCtxSetCurrent");
	must(alloc(&data, (GRANULES + 1) * VMEM_GRANULE + bytes), "cuMemAlloc");
	data = (data + VMEM_GRANULE - 1) & ~(VMEM_GRANULE - 1);
	must(drv.cuMemHostRegister_v2(digests, 4096, CU_MEMHOSTREGISTER_PORTABLE), "register");
	must(digest_load(&drv, ctx, &kernel), "digest_load");
	for (int kind = 0; kind < 4; kind++) {
		fill(words, kind);
		must(drv.cuMemcpyHtoDAsync_v2(data, words, GRANULES * VMEM_GRANULE, NULL), "copy");
		must(digest_take(&drv, &kernel, data, GRANULES, digests, NULL), "digest_take");
		must(drv.cuStreamSynchronize(NULL), "cuStreamSynchronize");
		compare(words, digests, kind);
	}
	if (bytes)
		measure(&kernel, data, bytes);
	digest_unload(&drv, &kernel);
	must(drv.cuMemHostUnregister(digests), "unregister");
	free(digests);
	free(words);
	printf("digests: every one right\n");
	return 0;
}
