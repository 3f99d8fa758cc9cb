/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that allocate, launch, copy and free all the time, on several devices and in several
 * contexts of each: where pauses meet every kind of call. Every byte of every buffer is verified
 * before it is freed. A step is work done by any of the threads.
 *
 *	soak [--threads N] [--devices N] [--contexts N] [--slack-mib N]
 *
 * Device memory must not become less, except by --slack-mib: a GPU's driver keeps some of what
 * streams took, those of a pause included.
 *
 * The first context of a device is its primary one; the others are created.
 */
#include "tests/programs/kernels.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>

#define SLOTS        6
#define SIZE_MAX_LOG 22
#define MAX_THREADS  64
#define MAX_CONTEXTS 16

/* CUDA 13's cuda.h has only later ones under the plain name. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);

struct slot {
	CUdeviceptr data;
	uint64_t words; /* 0: empty */
	uint32_t seed;
	uint32_t steps;
};

struct thread {
	pthread_t id;
	const struct kernels *kernels;
	CUstream stream;
	CUevent event;
	uint32_t random;
	uint32_t *host;
	struct slot slots[SLOTS];
};

static unsigned long nthreads = 4;
static unsigned long ndevices = 1;
static unsigned long ncontexts = 1;
static unsigned long slack_mib;
static struct kernels contexts[MAX_CONTEXTS]; /* those of device 0 first */
static struct thread threads[MAX_THREADS];
static unsigned long work_done; /* atomic */
static int stop;                /* atomic */

static uint32_t next_random(struct thread *t)
{
	t->random = t->random * 1664525u + 1013904223u;
	return t->random >> 8;
}

/* Sizes of all magnitudes, so that small and large allocations come equally often. */
static void slot_fill(struct thread *t, struct slot *slot)
{
	uint64_t size = 4 + next_random(t) % (1u << (4 + next_random(t) % (SIZE_MAX_LOG - 3)));
	void *args[] = {&slot->data, &slot->words, &slot->seed};

	slot->words = size / sizeof(uint32_t);
	slot->seed = next_random(t);
	slot->steps = 0;
	CALL(cuMemAlloc_v2(&slot->data, slot->words * sizeof(uint32_t)));
	CALL(cuLaunchKernel(t->kernels->iota, 64, 1, 1, 256, 1, 1, 0, t->stream, args, NULL));
}

static void slot_increment(struct thread *t, struct slot *slot)
{
	void *args[] = {&slot->data, &slot->words};

	CALL(cuLaunchKernel(t->kernels->increment, 64, 1, 1, 256, 1, 1, 0, t->stream, args, NULL));
	slot->steps++;
}

/* cudaw answers these itself; the answers must fit the allocation. */
static void check_attributes(const struct thread *t, const struct slot *slot)
{
	CUdeviceptr inside = slot->data + slot->words * sizeof(uint32_t) - 1, start;
	CUcontext ctx;
	size_t size;

	CALL(cuMemGetAddressRange_v2(&start, &size, inside));
	CALL(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
	if (start != slot->data || size != slot->words * sizeof(uint32_t) || ctx != t->kernels->ctx)
		step_die("soak: wrong attributes of %zu bytes", (size_t)slot->words * 4);
}

static void slot_check(struct thread *t, struct slot *slot)
{
	const uint32_t first = slot->seed * 2654435761u + slot->steps;

	CALL(cuMemcpyDtoHAsync_v2(t->host, slot->data, slot->words * sizeof(uint32_t), t->stream));
	if (next_random(t) & 1) {
		CALL(cuStreamSynchronize(t->stream));
	} else {
		CALL(cuEventRecord(t->event, t->stream));
		CALL(cuEventSynchronize(t->event));
	}
	for (uint64_t i = 0; i < slot->words; i++)
		if (t->host[i] != first + (uint32_t)i)
			step_wrong("soak: word %" PRIu64 " of %" PRIu64 " is %" PRIu32
				   ", should be %" PRIu32,
				   i, slot->words, t->host[i], first + (uint32_t)i);
	check_attributes(t, slot);
	CALL(cuMemFree_v2(slot->data));
	slot->words = 0;
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	CALL(cuCtxSetCurrent(t->kernels->ctx));
	CALL(cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING));
	CALL(cuEventCreate(&t->event, CU_EVENT_DISABLE_TIMING));
	do {
		struct slot *slot = &t->slots[next_random(t) % SLOTS];

		if (!slot->words)
			slot_fill(t, slot);
		else if (next_random(t) % 3)
			slot_increment(t, slot);
		else
			slot_check(t, slot);
		__atomic_fetch_add(&work_done, 1, __ATOMIC_RELAXED);
	} while (!__atomic_load_n(&stop, __ATOMIC_RELAXED));
	for (int i = 0; i < SLOTS; i++)
		if (t->slots[i].words)
			slot_check(t, &t->slots[i]);
	CALL(cuEventDestroy_v2(t->event));
	CALL(cuStreamDestroy_v2(t->stream));
	return NULL;
}

static void contexts_init(void)
{
	for (unsigned long i = 0; i < ndevices * ncontexts; i++) {
		struct kernels *k = &contexts[i];

		if (i == 0) {
			kernels_init(k);
			continue;
		}
		CALL(cuDeviceGet(&k->dev, (int)(i / ncontexts)));
		if (i % ncontexts)
			CALL(cuCtxCreate_v2(&k->ctx, 0, k->dev));
		else
			CALL(cuDevicePrimaryCtxRetain(&k->ctx, k->dev));
		CALL(cuCtxSetCurrent(k->ctx));
		CALL(cuModuleLoadData(&k->module, kernels_ptx));
		CALL(cuModuleGetFunction(&k->increment, k->module, "increment"));
		CALL(cuModuleGetFunction(&k->iota, k->module, "iota"));
	}
}

/* As many streams at once as the threads will have, for the driver keeps what they take. */
static void streams_warm(void)
{
	uint64_t words = 1;
	CUdeviceptr data;
	void *args[] = {&data, &words};

	for (unsigned long i = 0; i < nthreads; i++) {
		struct thread *t = &threads[i];

		t->kernels = &contexts[i % (ndevices * ncontexts)];
		CALL(cuCtxSetCurrent(t->kernels->ctx));
		CALL(cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING));
		CALL(cuMemAlloc_v2(&data, sizeof(uint32_t)));
		CALL(cuLaunchKernel(t->kernels->increment, 1, 1, 1, 1, 1, 1, 0, t->stream, args,
				    NULL));
		CALL(cuStreamSynchronize(t->stream));
		CALL(cuMemFree_v2(data));
	}
	for (unsigned long i = 0; i < nthreads; i++)
		CALL(cuStreamDestroy_v2(threads[i].stream));
}

static size_t free_bytes(void)
{
	size_t sum = 0, free_now, total;

	for (unsigned long i = 0; i < ndevices; i++) {
		CALL(cuCtxSetCurrent(contexts[i * ncontexts].ctx));
		CALL(cuMemGetInfo_v2(&free_now, &total));
		sum += free_now;
	}
	return sum;
}

static void threads_start(void)
{
	for (unsigned long i = 0; i < nthreads; i++) {
		struct thread *t = &threads[i];

		t->random = (uint32_t)i + 1;
		t->host = malloc(1ul << SIZE_MAX_LOG);
		/* Whole from the start, so that a test sees what else grows. */
		if (t->host)
			memset(t->host, 0xff, 1ul << SIZE_MAX_LOG);
		if (!t->host || pthread_create(&t->id, NULL, thread_main, t))
			step_die("soak: no thread");
	}
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"threads", &nthreads},
					      {"devices", &ndevices},
					      {"contexts", &ncontexts},
					      {"slack-mib", &slack_mib}};
	unsigned long last = 0;
	size_t free_before;

	step_parse(argc, argv, options, 4);
	if (nthreads > MAX_THREADS || !ndevices || !ncontexts ||
	    ndevices * ncontexts > MAX_CONTEXTS)
		step_die("soak: too much or too little");
	contexts_init();
	streams_warm();
	free_before = free_bytes();
	threads_start();
	for (unsigned long k = 0; step_more(k); k++) {
		while (__atomic_load_n(&work_done, __ATOMIC_RELAXED) < last + nthreads)
			sched_yield();
		last = __atomic_load_n(&work_done, __ATOMIC_RELAXED);
		step_done(k);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (unsigned long i = 0; i < nthreads; i++) {
		pthread_join(threads[i].id, NULL);
		free(threads[i].host);
	}
	if (free_bytes() + (slack_mib << 20) < free_before)
		step_die("soak: %zu bytes were lost", free_before - free_bytes());
	printf("soak: every byte right\n");
	return 0;
}
