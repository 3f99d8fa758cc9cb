/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ceiling of a first pause: 16 threads touch fresh host memory and copy into it from small
 * buffers, and do nothing else. Each thread takes pieces of 16 MiB; it makes STEP MiB present, fills
 * them, and so on.
 *
 *	bench_touch
 *
 * Each line "STEP MIB" on stdin touches MIB more and prints "rate GB/s". All that was touched is
 * held until stdin ends, so that no line finds memory that an earlier line has given back.
 */
#include "common/system/hostmem.h"
#include "common/system/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB     (1UL << 20)
#define PIECE   (16 * MIB)
#define BUFFER  (4 * MIB)
#define THREADS 16

struct round {
	struct workers workers;
	char *start;
	size_t step;
};

static char buffers[THREADS][BUFFER];
static unsigned int threads_begun;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int fill(char *start, size_t size, const char *buffer)
{
	int error = hostmem_populate(start, size);

	for (size_t at = 0; at < size && !error; at += BUFFER)
		memcpy(start + at, buffer, size - at < BUFFER ? size - at : BUFFER);
	return error;
}

static void *touch_main(void *arg)
{
	struct round *r = arg;
	const char *buffer =
		buffers[__atomic_fetch_add(&threads_begun, 1, __ATOMIC_RELAXED) % THREADS];
	size_t i;

	while (workers_next(&r->workers, &i)) {
		int error = 0;

		for (size_t at = 0; at < PIECE && !error; at += r->step)
			error = fill(r->start + i * PIECE + at, r->step, buffer);
		if (error)
			workers_fail(&r->workers, error);
	}
	return NULL;
}

static int touch(size_t step, size_t size)
{
	struct round r = {
		.workers = {.count = size / PIECE},
		.start = hostmem_reserve(size),
		.step = step,
	};
	double start;
	int error;

	if (!r.start)
		return -1;
	start = now();
	error = workers_run(&r.workers, THREADS, touch_main, &r);
	if (error)
		return error;
	printf("%.3f GB/s\n", (double)(r.workers.count * PIECE) / 1e9 / (now() - start));
	return fflush(stdout);
}

int main(void)
{
	size_t step, size;

	memset(buffers, 1, sizeof(buffers));
	while (scanf("%zu %zu", &step, &size) == 2) {
		if (!step || PIECE / MIB % step || touch(step * MIB, size * MIB)) {
			fprintf(stderr, "bench_touch: %zu MiB in steps of %zu MiB failed\n", size,
				step);
			return 1;
		}
	}
	return 0;
}
