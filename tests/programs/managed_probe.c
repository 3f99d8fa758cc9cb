/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where managed memory is after a prefetch to the host: --mib of it are changed by the GPU, and stay
 * there; later they are prefetched to the host. Each state is said in a line, and ended by a byte on
 * stdin, so that another process can try how much memory it gets (tests/gpu/managed_probe.py). At
 * the end all words are verified, and used by the GPU once more.
 */
#include "tests/programs/kernels.h"

static unsigned long mib = 8192;
static struct kernels gpu;
static CUdeviceptr data;
static uint64_t words;

static void prefetch(CUmemLocationType type)
{
	CUmemLocation where = {type, type == CU_MEM_LOCATION_TYPE_DEVICE ? gpu.dev : 0};
	double begin = step_seconds();

	CALL(cuMemPrefetchAsync(data, words * 4, where, 0, NULL));
	CALL(cuCtxSynchronize());
	fprintf(stderr, "managed_probe: the prefetch took %.3f s\n", step_seconds() - begin);
}

static void say_state(const char *state)
{
	size_t free, total;

	CALL(cuMemGetInfo(&free, &total));
	printf("%s, free: %zu MiB\n", state, free >> 20);
	fflush(stdout);
	step_wait_byte();
}

/* Never more than is free: the probe is not about oversubscription. */
static void check_room(void)
{
	size_t free, total;

	CALL(cuMemGetInfo(&free, &total));
	if (free < words * 4 + (1UL << 30))
		step_die("managed_probe: %zu MiB are free, %lu MiB and 1024 more are needed",
			 free >> 20, mib);
}

static void verify(uint32_t added)
{
	const uint32_t *host = (const uint32_t *)(uintptr_t)data;

	for (uint64_t i = 0; i < words; i++)
		if (host[i] != (uint32_t)i + added)
			step_wrong("managed_probe: word %llu is %u, expected %u",
				   (unsigned long long)i, host[i], (uint32_t)i + added);
}

static void use(CUfunction kernel, void **args)
{
	prefetch(CU_MEM_LOCATION_TYPE_DEVICE);
	kernels_launch(kernel, NULL, args);
	CALL(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"mib", &mib}};
	uint32_t seed = 0;
	void *args[] = {&data, &words, &seed};

	step_parse(argc, argv, options, 1);
	kernels_init(&gpu);
	words = (uint64_t)mib << 18;
	check_room();
	CALL(cuMemAllocManaged(&data, words * 4, CU_MEM_ATTACH_GLOBAL));
	say_state("allocated");
	use(gpu.iota, args);
	say_state("on the GPU");
	/* The other process may have driven it off. */
	use(gpu.increment, args);
	prefetch(CU_MEM_LOCATION_TYPE_HOST);
	say_state("on the host");
	verify(1);
	use(gpu.increment, args);
	verify(2);
	CALL(cuMemFree(data));
	say_state("freed");
	return 0;
}
