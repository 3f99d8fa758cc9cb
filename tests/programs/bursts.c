/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cuMemAlloc and cuMemFree cost in bursts: 16 allocations, then 16 frees, again and again, of
 * one size, of mixed sizes, and by 64 threads at once. Runs one round for each line that it reads
 * and prints the time of a pair of calls (of 64 pairs, if there are 64 threads), so that a native and
 * a wrapped one can be timed in turns.
 */
#include "tests/programs/step.h"

#include <cuda.h>
#include <pthread.h>

#define KIB     (UINT64_C(1) << 10)
#define MIB     (UINT64_C(1) << 20)
#define BURST   16
#define THREADS 64
#define DEVICES 2

static CUcontext contexts[DEVICES];
static int ndevices;
static unsigned long repeats = 40;

struct burst {
	size_t sizes[BURST];
	CUcontext ctx;
};

static const size_t mixed[BURST] = {4 * KIB,  96 * MIB,   700 * KIB, 20 * MIB, 256 * KIB, 2 * MIB,
				    6 * MIB,  64 * KIB,   150 * MIB, 1 * MIB,  32 * MIB,  512,
				    12 * MIB, 1536 * KIB, 48 * MIB,  100 * KIB};

static void *repeat(void *arg)
{
	const struct burst *burst = arg;
	CUdeviceptr ptrs[BURST];

	CALL(cuCtxSetCurrent(burst->ctx));
	for (unsigned long n = 0; n < repeats; n++) {
		for (int i = 0; i < BURST; i++)
			CALL(cuMemAlloc(&ptrs[i], burst->sizes[(i + n) % BURST]));
		for (int i = 0; i < BURST; i++)
			CALL(cuMemFree(ptrs[i]));
	}
	return NULL;
}

static void print_time(const char *name, double start)
{
	printf("round %s %.4f us\n", name, (step_seconds() - start) * 1e6 / (repeats * BURST));
}

static struct burst same_sizes(size_t size, int dev)
{
	struct burst burst = {.ctx = contexts[dev]};

	for (int i = 0; i < BURST; i++)
		burst.sizes[i] = size;
	return burst;
}

static void time_sizes(const char *name, size_t size)
{
	struct burst burst = same_sizes(size, 0);
	double start = step_seconds();

	repeat(&burst);
	print_time(name, start);
}

static void time_mixed(void)
{
	struct burst burst = {.ctx = contexts[0]};
	double start = step_seconds();

	memcpy(burst.sizes, mixed, sizeof(mixed));
	repeat(&burst);
	print_time("burst_mixed", start);
}

static void time_threads(const char *name, int devices, size_t size)
{
	struct burst bursts[DEVICES];
	pthread_t threads[THREADS];
	double start = step_seconds();

	for (int dev = 0; dev < devices; dev++)
		bursts[dev] = same_sizes(size, dev);
	for (int t = 0; t < THREADS; t++)
		CALL(pthread_create(&threads[t], NULL, repeat, &bursts[t % devices]));
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	print_time(name, start);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"repeats", &repeats}};
	CUdeviceptr held;
	char line[64];

	step_parse(argc, argv, options, 1);
	CALL(cuInit(0));
	CALL(cuDeviceGetCount(&ndevices));
	for (int dev = 0; dev < DEVICES && dev < ndevices; dev++)
		CALL(cuDevicePrimaryCtxRetain(&contexts[dev], dev));
	CALL(cuCtxSetCurrent(contexts[0]));
	/* Some memory in use, as a real program has. */
	CALL(cuMemAlloc(&held, MIB));
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		time_sizes("burst_1.5MiB", 1536 * KIB);
		time_sizes("burst_4MiB", 4 * MIB);
		time_sizes("burst_32MiB", 32 * MIB);
		time_sizes("burst_300MiB", 300 * MIB);
		time_mixed();
		time_threads("threads_4KiB", 1, 4 * KIB);
		time_threads("threads_1MiB", 1, MIB);
		if (ndevices >= DEVICES) {
			time_threads("threads_4KiB_2gpus", DEVICES, 4 * KIB);
			time_threads("threads_1MiB_2gpus", DEVICES, MIB);
		}
		printf("done\n");
		fflush(stdout);
	}
	CALL(cuMemFree(held));
	return 0;
}
