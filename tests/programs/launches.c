/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the bench of launches: what one costs of a kernel with eight parameters, six of them
 * pointers, by one thread and by sixteen at once, each into a stream of its own. Runs one round for
 * each line that it reads, and prints the median of each.
 *
 * Batches by the cuLaunchKernel() that the program was linked to and by the real driver's take
 * turns, so that both have the same neighbours and the same places in memory: from process to
 * process a launch differs by more than cudaw adds. Natively the two are one.
 */
#include "tests/programs/step.h"

#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

#define BATCHES  60  /* of each */
#define LAUNCHES 500 /* fewer than the queue holds, so that a launch never waits for the GPU */
#define THREADS  16

/* void eight(float *, const float *, const float *, double *, int *, void **, size_t, int) */
#define EIGHT "_Z5eightPfPKfS1_PdPiPPvmi"
static const char eight_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"
	".visible .entry " EIGHT "(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,\n"
	"	.param .u64 e, .param .u64 f, .param .u64 n, .param .u32 more)\n"
	"{\n"
	"	ret;\n"
	"}\n";

typedef __typeof__(&cuLaunchKernel) launch_fn;

static CUcontext ctx;
static CUfunction kernel;
static CUdeviceptr data;
static launch_fn linked, driver, current;
static pthread_barrier_t barrier;

/* For dl_iterate_phdr(): set driver to that of a libcuda other than @face. */
static int find_driver(struct dl_phdr_info *info, size_t size, void *face)
{
	void *lib;

	(void)size;
	if (!strstr(info->dlpi_name, "/libcuda.so") || !strcmp(info->dlpi_name, face))
		return 0;
	lib = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
	driver = lib ? (launch_fn)dlsym(lib, "cuLaunchKernel") : NULL;
	return driver != NULL;
}

static void find_functions(void)
{
	Dl_info info;

	linked = (launch_fn)dlsym(RTLD_DEFAULT, "cuLaunchKernel");
	if (!linked || !dladdr((void *)linked, &info))
		step_die("launches: no cuLaunchKernel");
	driver = linked;
	dl_iterate_phdr(find_driver, (void *)info.dli_fname);
}

static void load(void)
{
	CUmodule module;
	CUdevice dev;

	CALL(cuInit(0));
	CALL(cuDeviceGet(&dev, 0));
	CALL(cuDevicePrimaryCtxRetain(&ctx, dev));
	CALL(cuCtxSetCurrent(ctx));
	CALL(cuModuleLoadData(&module, eight_ptx));
	CALL(cuModuleGetFunction(&kernel, module, EIGHT));
	CALL(cuMemAlloc_v2(&data, 1 << 20));
}

static void launch_many(CUstream stream)
{
	CUdeviceptr a = data, b = data + 4, c = data + 8, d = data, e = data, f = data;
	const launch_fn launch = current;
	size_t n = 0;
	int more = 0;
	void *args[] = {&a, &b, &c, &d, &e, &f, &n, &more};

	for (int i = 0; i < LAUNCHES; i++)
		CALL(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void *run_thread(void *unused)
{
	CUstream stream;

	CALL(cuCtxSetCurrent(ctx));
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int b = 0; b < 2 * BATCHES; b++) {
		pthread_barrier_wait(&barrier);
		launch_many(stream);
		pthread_barrier_wait(&barrier);
		CALL(cuStreamSynchronize(stream));
	}
	CALL(cuStreamDestroy_v2(stream));
	return unused;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print_median(const char *name, const char *whose, double *times)
{
	qsort(times, BATCHES, sizeof(*times), compare);
	printf("round %s_%s %.4f us\n", name, whose, times[BATCHES / 2] * 1e6);
}

/* The median, over batches, of the time per launch of all threads. */
static void time_threads(const char *name, int count)
{
	static double times[2][BATCHES];
	pthread_t threads[THREADS];

	CALL(pthread_barrier_init(&barrier, NULL, count + 1));
	for (int i = 0; i < count; i++)
		CALL(pthread_create(&threads[i], NULL, run_thread, NULL));
	for (int b = 0; b < 2 * BATCHES; b++) {
		double start;

		current = b % 2 ? driver : linked;
		pthread_barrier_wait(&barrier);
		start = step_seconds();
		pthread_barrier_wait(&barrier);
		times[b % 2][b / 2] = (step_seconds() - start) / LAUNCHES / count;
	}
	for (int i = 0; i < count; i++)
		CALL(pthread_join(threads[i], NULL));
	CALL(pthread_barrier_destroy(&barrier));
	print_median(name, "linked", times[0]);
	print_median(name, "driver", times[1]);
}

int main(void)
{
	char line[64];

	load();
	find_functions();
	current = linked;
	launch_many(NULL);
	CALL(cuCtxSynchronize());
	printf("the driver is %s\nready\n", driver == linked ? "linked" : "another");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		time_threads("launch", 1);
		time_threads("launch_16_threads", THREADS);
		printf("done\n");
		fflush(stdout);
	}
	CALL(cuMemFree_v2(data));
	return 0;
}
