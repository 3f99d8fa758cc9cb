/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory (--mib of it) that the GPU changes in each step, and the host in every eighth one,
 * with advice and prefetches as programs give them. At the end all words are verified.
 *
 * With --rate N it says instead how fast the GPU uses the memory: N times each by a kernel that reads
 * and writes it, and by copies to and from memory of cuMemAlloc().
 */
#include "tests/programs/kernels.h"

static unsigned long mib = 64, rate;
static struct kernels gpu;
static CUdeviceptr data;
static uint64_t words;

static void prefetch(CUmemLocationType type)
{
	CUmemLocation where = {type, type == CU_MEM_LOCATION_TYPE_DEVICE ? gpu.dev : 0};

	CALL(cuMemPrefetchAsync(data, words * 4, where, 0, NULL));
}

static void increment(void)
{
	void *args[] = {&data, &words};

	kernels_launch(gpu.increment, NULL, args);
}

static void step(unsigned long k)
{
	uint32_t *host = (uint32_t *)(uintptr_t)data;

	prefetch(CU_MEM_LOCATION_TYPE_DEVICE);
	increment();
	if (k % 8 == 7)
		prefetch(CU_MEM_LOCATION_TYPE_HOST);
	CALL(cuCtxSynchronize());
	for (uint64_t i = 0; k % 8 == 7 && i < words; i++)
		host[i] += 3;
}

static void verify(unsigned long steps)
{
	const uint32_t *host = (const uint32_t *)(uintptr_t)data;
	uint32_t added = (uint32_t)(steps + steps / 8 * 3);

	for (uint64_t i = 0; i < words; i++)
		if (host[i] != (uint32_t)i + added)
			step_wrong("managed_run: word %llu is %u, expected %u",
				   (unsigned long long)i, host[i], (uint32_t)i + added);
}

static void say_rate(const char *what, uint64_t bytes, double begin)
{
	CALL(cuCtxSynchronize());
	printf("%s %.1f GB/s\n", what, (double)(bytes * rate) / (step_seconds() - begin) / 1e9);
}

static void measure(void)
{
	uint64_t bytes = words * 4;
	CUdeviceptr other;
	double begin;

	CALL(cuMemAlloc(&other, bytes));
	prefetch(CU_MEM_LOCATION_TYPE_DEVICE);
	increment();
	CALL(cuCtxSynchronize());
	begin = step_seconds();
	for (unsigned long i = 0; i < rate; i++)
		increment();
	say_rate("kernel_reads_and_writes", 2 * bytes, begin);
	begin = step_seconds();
	for (unsigned long i = 0; i < rate; i++)
		CALL(cuMemcpyDtoDAsync(other, data, bytes, NULL));
	say_rate("copied_to_device_memory", bytes, begin);
	begin = step_seconds();
	for (unsigned long i = 0; i < rate; i++)
		CALL(cuMemcpyDtoDAsync(data, other, bytes, NULL));
	say_rate("copied_from_device_memory", bytes, begin);
}

static void make(void)
{
	CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev};
	uint32_t seed = 0;
	void *args[] = {&data, &words, &seed};

	words = (uint64_t)mib << 18;
	CALL(cuMemAllocManaged(&data, words * 4, CU_MEM_ATTACH_GLOBAL));
	CALL(cuMemAdvise(data, words * 4, CU_MEM_ADVISE_SET_ACCESSED_BY, device));
	kernels_launch(gpu.iota, NULL, args);
	CALL(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"mib", &mib}, {"rate", &rate}};
	unsigned long k;

	step_parse(argc, argv, options, 2);
	kernels_init(&gpu);
	make();
	if (rate) {
		measure();
		return 0;
	}
	for (k = 0; step_more(k); k++) {
		step(k);
		step_done(k);
	}
	verify(k);
	CALL(cuMemFree(data));
	printf("managed_run: every word right\n");
	return 0;
}
