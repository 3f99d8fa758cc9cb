/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes digests of memory on the GPU and compares them with the formula, for contents of several
 * kinds. It uses the driver as our engine does, by its table.
 */
#include "tests/digest_formula.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRANULES 40

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

int main(void)
{
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
	must(alloc(&data, (GRANULES + 1) * VMEM_GRANULE), "cuMemAlloc");
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
	digest_unload(&drv, &kernel);
	must(drv.cuMemHostUnregister(digests), "unregister");
	free(digests);
	free(words);
	printf("digests: every one right\n");
	return 0;
}
