/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver allows two processes that exchange GPU memory: one copies its memory to the host
 * and unmaps it part by part, while the other creates, maps and fills what has become free. Native;
 * the floor under a hand-over of two jobs.
 *
 *	exchange --mib N --part-mib N			gives: says "ready" on stderr, and begins when a
 *							line comes on stdin; then "freed" for each part
 *	exchange --mib N --part-mib N --takes 1		takes a part for each line on stdin
 *
 * The stdout of the first is the stdin of the second. At the end each says on stderr "figure NAME
 * VALUE" for its rate and seconds, the longest of its driver calls, and the longest and the median
 * time of a part's copy. In the one that takes, "short" counts the parts for which there was no
 * memory at first: what was unmapped is not free at once.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>

#define MIB (UINT64_C(1) << 20)

static unsigned long mib = 1024, part_mib = 256, takes;
static uint64_t part;
static size_t count;
static CUdeviceptr base;
static char *host;
static CUstream stream;
static CUevent *events; /* [k] before the copy of part k, the last one behind all */
static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e3 + ts.tv_nsec / 1e6;
}

/* The longest of the calls of one kind, and their sum. */
struct calls {
	const char *name;
	double longest, sum;
};

static struct calls creates = {.name = "create"}, maps = {.name = "map"},
		    accesses = {.name = "access"}, unmaps = {.name = "unmap"};

static void timed(struct calls *calls, double start)
{
	double ms = now_ms() - start;

	calls->sum += ms;
	if (ms > calls->longest)
		calls->longest = ms;
}

static void say(const struct calls *calls)
{
	fprintf(stderr, "figure longest_%s_ms %.3f\nfigure all_%s_ms %.3f\n", calls->name,
		calls->longest, calls->name, calls->sum);
}

/* False: there is no memory. */
static bool map_part(size_t k)
{
	const CUmemAccessDesc desc = {.location = prop.location,
				      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	double start = now_ms();
	CUresult res = cuMemCreate(&handle, part, &prop, 0);

	timed(&creates, start);
	if (res == CUDA_ERROR_OUT_OF_MEMORY)
		return false;
	CALL(res);
	start = now_ms();
	CALL(cuMemMap(base + k * part, part, 0, handle, 0));
	timed(&maps, start);
	CALL(cuMemRelease(handle));
	start = now_ms();
	CALL(cuMemSetAccess(base + k * part, part, &desc, 1));
	timed(&accesses, start);
	return true;
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void say_copies(double ms)
{
	float *times = calloc(count, sizeof(*times));

	for (size_t k = 0; k < count; k++)
		CALL(cuEventElapsedTime(&times[k], events[k], events[k + 1]));
	qsort(times, count, sizeof(*times), compare);
	fprintf(stderr, "figure seconds %.4f\nfigure gbps %.2f\n", ms / 1e3,
		(double)(count * part) / ms / 1e6);
	fprintf(stderr, "figure median_part_ms %.3f\nfigure longest_part_ms %.3f\n",
		times[count / 2], times[count - 1]);
	free(times);
}

static void *unmap_all(void *arg)
{
	CALL(cuCtxSetCurrent(arg));
	for (size_t k = 0; k < count; k++) {
		double start;

		CALL(cuEventSynchronize(events[k + 1]));
		start = now_ms();
		CALL(cuMemUnmap(base + k * part, part));
		timed(&unmaps, start);
		puts("freed");
		fflush(stdout);
	}
	return NULL;
}

static void give(const struct kernels *kernels)
{
	char line[16];
	pthread_t thread;
	double start;

	for (size_t k = 0; k < count; k++)
		if (!map_part(k))
			step_die("exchange: no memory for part %zu", k);
	CALL(cuMemsetD8_v2(base, 0x5a, count * part));
	CALL(cuCtxSynchronize());
	fputs("ready\n", stderr);
	if (!fgets(line, sizeof(line), stdin))
		return;
	start = now_ms();
	CALL(cuEventRecord(events[0], stream));
	for (size_t k = 0; k < count; k++) {
		CALL(cuMemcpyDtoHAsync_v2(host + k * part, base + k * part, part, stream));
		CALL(cuEventRecord(events[k + 1], stream));
	}
	if (pthread_create(&thread, NULL, unmap_all, kernels->ctx))
		step_die("exchange: no thread");
	pthread_join(thread, NULL);
	say_copies(now_ms() - start);
	say(&unmaps);
}

static void take(void)
{
	unsigned long shortages = 0;
	char line[16];
	double start = 0;

	fputs("ready\n", stderr);
	for (size_t k = 0; k < count; k++) {
		bool missed = false;

		if (!fgets(line, sizeof(line), stdin))
			step_die("exchange: %zu parts only", k);
		if (!k)
			start = now_ms();
		while (!map_part(k)) {
			missed = true;
			usleep(100);
		}
		shortages += missed;
		if (!k)
			CALL(cuEventRecord(events[0], stream));
		CALL(cuMemcpyHtoDAsync_v2(base + k * part, host + k * part, part, stream));
		CALL(cuEventRecord(events[k + 1], stream));
	}
	CALL(cuStreamSynchronize(stream));
	say_copies(now_ms() - start);
	say(&creates);
	say(&maps);
	say(&accesses);
	fprintf(stderr, "figure short %lu\n", shortages);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"mib", &mib}, {"part-mib", &part_mib}, {"takes", &takes}};
	struct kernels kernels;

	step_parse(argc, argv, options, 3);
	kernels_init(&kernels);
	part = part_mib * MIB;
	count = mib / part_mib;
	if (!count)
		step_die("exchange: --mib %lu is less than a part", mib);
	events = calloc(count + 1, sizeof(*events));
	CALL(cuMemAddressReserve(&base, count * part, 0, 0, 0));
	CALL(cuMemHostAlloc((void **)&host, count * part, 0));
	memset(host, 0x5a, count * part);
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (size_t k = 0; k <= count; k++)
		CALL(cuEventCreate(&events[k], CU_EVENT_DEFAULT));
	if (takes)
		take();
	else
		give(&kernels);
	return 0;
}
