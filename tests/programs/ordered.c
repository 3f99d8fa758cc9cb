/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory, passed between streams and threads, with every word checked:
 *
 *	ordered [--threads N] [--mib N] [--keep-mib N] [--streams-end N] [--pools-end N] [--steps N]
 *		[--step-ms N] [--green 1]
 *
 * Each thread takes allocations of mixed sizes from the default pool and from one of its own, in
 * streams of its own, in one that all threads share, in the legacy stream, in its default stream, and in
 * that of a thread that ends at once; fills them there, now and then behind work that takes its time;
 * and later sums them up and frees them in another stream, which waits for the first one by an
 * event. Memory that another allocation gets too early has wrong words. --mib is a larger allocation
 * that lives to the end, --keep-mib free memory that a pool keeps.
 *
 * Now and then a stream ends, another of any kind comes in its place, and a pool ends: 0 never, 1 once its
 * work is done and its memory freed (the default), 2 while memory that was freed in it is on its way, or
 * while it has memory. With --green 1 some of these streams are of a green context, which ends behind its
 * work. All of this is allowed, but with 2 for both and three threads an H200's driver 580.159 dies by
 * SIGSEGV in the third step, when cudaw does not serve the memory.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>

#define SLOTS       24
#define OPS         48 /* of each thread in a step */
#define WORDS_MAX   (UINT64_C(1) << 19)
#define KEEP        (UINT64_C(16) << 20) /* what a pool keeps */
#define NAP_US      3000                 /* work that takes its time */
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* The streams of a worker, as slots name them. The legacy stream comes rarely: it waits for most others. */
enum { REPLACED, BLOCKING, SHARED, OF_THREAD, LEGACY, STREAMS };

/* When streams and pools end. */
enum { NEVER, DONE, BUSY };

/* An allocation, filled by iota(seed). */
struct slot {
	CUdeviceptr ptr;
	uint64_t words;
	uint32_t seed;
	unsigned int stream; /* that it was allocated in */
};

struct worker {
	pthread_t thread;
	uint64_t random;
	CUstream streams[STREAMS];
	CUgreenCtx green; /* of the stream REPLACED; NULL: that is of the primary context */
	CUevent event;
	CUevent green_event; /* of it: a stream records events of its context alone */
	CUmemoryPool pool;
	CUdeviceptr sums; /* of OPS */
	uint64_t expected[OPS];
	unsigned int checked; /* of them */
	struct slot slots[SLOTS];
};

static struct kernels gpu;
static CUstream common;
static unsigned long nthreads = 3, mib = 8, keep_mib, streams_end = DONE, pools_end = DONE, greens;
static int ended; /* atomic */

static uint64_t next(struct worker *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

static CUmemoryPool pool_new(cuuint64_t keep)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};
	CUmemoryPool pool;

	CALL(cuMemPoolCreate(&pool, &props));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	return pool;
}

static uint64_t sum_of(const struct slot *s)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < s->words; i++)
		sum += (uint64_t)(uint32_t)(s->seed * 2654435761U + (uint32_t)i) * (2 * i + 1);
	return sum;
}

/* Few sizes come again and again, as in a program; some are any. */
static uint64_t words_of(struct worker *w)
{
	static const uint32_t usual[] = {64, 1000, 1024, 16384, 65536, 262144, 524288};
	uint64_t any = next(w);

	return any % 4 ? usual[any / 4 % COUNT(usual)] : 1 + any / 4 % (WORDS_MAX / 8);
}

static unsigned int any_stream(struct worker *w)
{
	uint64_t any = next(w);

	return any % 64 ? (unsigned int)(any / 64 % LEGACY) : LEGACY;
}

static void CUDA_CB nap(void *none)
{
	(void)none;
	usleep(NAP_US);
}

static void fill_in(struct worker *w, struct slot *s, unsigned int stream)
{
	void *args[] = {&s->ptr, &s->words, &s->seed};

	s->stream = stream;
	s->words = words_of(w);
	s->seed = (uint32_t)next(w);
	if (next(w) % 2)
		CALL(cuMemAllocAsync(&s->ptr, s->words * 4, w->streams[s->stream]));
	else
		CALL(cuMemAllocFromPoolAsync(&s->ptr, s->words * 4, w->pool,
					     w->streams[s->stream]));
	if (next(w) % 64 == 0)
		CALL(cuLaunchHostFunc(w->streams[s->stream], nap, NULL));
	CALL(cuLaunchKernel(gpu.iota, 64, 1, 1, 256, 1, 1, 0, w->streams[s->stream], args, NULL));
}

struct passed {
	struct worker *w;
	struct slot *slot;
};

/* Work of a stream that nobody can name any more, once the thread has ended. */
static void *fill_and_end(void *arg)
{
	struct passed *p = arg;

	CALL(cuCtxSetCurrent(gpu.ctx));
	fill_in(p->w, p->slot, OF_THREAD);
	CALL(cuEventRecord(p->w->event, CU_STREAM_PER_THREAD));
	return NULL;
}

static void fill_by_thread(struct worker *w, struct slot *s)
{
	struct passed passed = {w, s};
	pthread_t thread;

	if (pthread_create(&thread, NULL, fill_and_end, &passed))
		step_die("ordered: no thread");
	pthread_join(thread, NULL);
	s->stream = REPLACED;
	CALL(cuStreamWaitEvent(w->streams[REPLACED], w->event, 0));
}

static void fill(struct worker *w, struct slot *s)
{
	if (next(w) % 64)
		fill_in(w, s, any_stream(w));
	else
		fill_by_thread(w, s);
}

/* What comes later in @to comes after what @from has now. */
static void order(struct worker *w, unsigned int from, CUstream to)
{
	CUevent event = from == REPLACED && w->green ? w->green_event : w->event;

	CALL(cuEventRecord(event, w->streams[from]));
	CALL(cuStreamWaitEvent(to, event, 0));
}

static void check_and_free(struct worker *w, struct slot *s)
{
	unsigned int to = any_stream(w);
	CUdeviceptr out = w->sums + w->checked * sizeof(uint64_t);
	void *args[] = {&s->ptr, &s->words, &out};

	if (to != s->stream)
		order(w, s->stream, w->streams[to]);
	CALL(cuMemsetD32Async(out, 0, 2, w->streams[to]));
	CALL(cuLaunchKernel(gpu.checksum, 64, 1, 1, 256, 1, 1, 0, w->streams[to], args, NULL));
	CALL(cuMemFreeAsync(s->ptr, w->streams[to]));
	w->expected[w->checked++] = sum_of(s);
	s->ptr = 0;
}

static void check_sums(struct worker *w)
{
	uint64_t sums[OPS];

	for (size_t i = 0; i < COUNT(w->streams); i++)
		CALL(cuStreamSynchronize(w->streams[i]));
	CALL(cuMemcpyDtoH(sums, w->sums, sizeof(sums)));
	for (unsigned int i = 0; i < w->checked; i++)
		if (sums[i] != w->expected[i])
			step_wrong("ordered: memory has changed: its sum is %llx, not %llx",
				   (unsigned long long)sums[i], (unsigned long long)w->expected[i]);
	w->checked = 0;
}

static void green_new(struct worker *w)
{
	CUdevResource all, part;
	CUdevResourceDesc desc;
	unsigned int groups = 1;
	CUcontext ctx;

	CALL(cuDeviceGetDevResource(gpu.dev, &all, CU_DEV_RESOURCE_TYPE_SM));
	CALL(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
	CALL(cuDevResourceGenerateDesc(&desc, &part, 1));
	CALL(cuGreenCtxCreate(&w->green, desc, gpu.dev, CU_GREEN_CTX_DEFAULT_STREAM));
	CALL(cuCtxFromGreenCtx(&ctx, w->green));
	CALL(cuCtxPushCurrent(ctx));
	CALL(cuEventCreate(&w->green_event, CU_EVENT_DISABLE_TIMING));
	CALL(cuCtxPopCurrent(&ctx));
}

static CUstream stream_of_any_kind(struct worker *w)
{
	static const unsigned int kinds[] = {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT};
	unsigned int flags = kinds[next(w) % 2];
	CUstream stream;
	int priority;

	CALL(cuCtxGetStreamPriorityRange(NULL, &priority));
	if (greens && next(w) % 3 == 0) {
		green_new(w);
		CALL(cuGreenCtxStreamCreate(&stream, w->green, CU_STREAM_NON_BLOCKING, 0));
	} else if (next(w) % 2) {
		CALL(cuStreamCreate(&stream, flags));
	} else {
		CALL(cuStreamCreateWithPriority(&stream, flags, priority));
	}
	return stream;
}

/* What the stream has allocated is another's then. */
static void replace_stream(struct worker *w)
{
	CUstream *stream = &w->streams[REPLACED];
	CUgreenCtx green = w->green;
	CUevent last = green ? w->green_event : w->event;

	if (streams_end == DONE)
		CALL(cuStreamSynchronize(*stream));
	CALL(cuEventRecord(last, *stream));
	CALL(cuStreamDestroy(*stream));
	w->green = NULL;
	*stream = stream_of_any_kind(w);
	CALL(cuStreamWaitEvent(*stream, last, 0));
	if (green) {
		CALL(cuEventSynchronize(last));
		CALL(cuEventDestroy(last));
		CALL(cuGreenCtxDestroy(green));
	}
}

/* Of the worker's allocations some are of another pool. */
static void replace_pool(struct worker *w)
{
	if (pools_end == DONE) {
		for (size_t i = 0; i < SLOTS; i++)
			if (w->slots[i].ptr)
				check_and_free(w, &w->slots[i]);
		check_sums(w);
	}
	CALL(cuMemPoolDestroy(w->pool));
	w->pool = pool_new(KEEP);
}

static void work(struct worker *w)
{
	for (unsigned int i = 0; i < OPS; i++) {
		struct slot *s = &w->slots[next(w) % SLOTS];

		if (s->ptr)
			check_and_free(w, s);
		else
			fill(w, s);
	}
	if (pools_end == DONE)
		check_sums(w);
	if (streams_end && next(w) % 4 == 0)
		replace_stream(w);
	if (pools_end && next(w) % 8 == 0)
		replace_pool(w);
	check_sums(w);
}

static void start(struct worker *w, uint64_t seed)
{
	w->random = seed * 0x9e3779b97f4a7c15 + 1;
	CALL(cuCtxSetCurrent(gpu.ctx));
	CALL(cuStreamCreate(&w->streams[REPLACED], CU_STREAM_NON_BLOCKING));
	CALL(cuStreamCreate(&w->streams[BLOCKING], CU_STREAM_DEFAULT));
	w->streams[SHARED] = common;
	w->streams[OF_THREAD] = CU_STREAM_PER_THREAD;
	w->streams[LEGACY] = CU_STREAM_LEGACY;
	CALL(cuEventCreate(&w->event, CU_EVENT_DISABLE_TIMING));
	CALL(cuMemAlloc(&w->sums, OPS * sizeof(uint64_t)));
	w->pool = pool_new(KEEP);
}

static void finish(struct worker *w)
{
	for (size_t i = 0; i < SLOTS; i++)
		if (w->slots[i].ptr)
			check_and_free(w, &w->slots[i]);
	check_sums(w);
	CALL(cuMemPoolDestroy(w->pool));
}

/* Nobody synchronises the stream in which it was freed. */
static void keep_free_memory(void)
{
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUstream stream;
	CUdeviceptr ptr;

	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CALL(cuMemAllocFromPoolAsync(&ptr, (size_t)keep_mib << 20, pool, stream));
	CALL(cuMemsetD32Async(ptr, 1, (size_t)keep_mib << 18, stream));
	CALL(cuMemFreeAsync(ptr, stream));
}

static void *run(void *arg)
{
	struct worker *w = arg;

	start(w, (uintptr_t)w);
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
		work(w);
		step_sleep_ms(1);
	}
	finish(w);
	return NULL;
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"threads", &nthreads},    {"mib", &mib},
		{"keep-mib", &keep_mib},   {"streams-end", &streams_end},
		{"pools-end", &pools_end}, {"green", &greens}};
	struct slot kept = {.seed = 5};
	struct worker *workers;
	unsigned long k;

	step_parse(argc, argv, options, COUNT(options));
	step_tell_crashes();
	kernels_init(&gpu);
	workers = calloc(nthreads, sizeof(*workers));
	CALL(cuStreamCreate(&common, CU_STREAM_NON_BLOCKING));
	start(&workers[0], 1);
	if (keep_mib)
		keep_free_memory();
	kept.words = (uint64_t)mib << 18;
	CALL(cuMemAllocAsync(&kept.ptr, kept.words * 4, common));
	kernels_launch(gpu.iota, common, (void *[]){&kept.ptr, &kept.words, &kept.seed});
	for (unsigned long i = 1; i < nthreads; i++)
		if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
			step_die("ordered: no thread");
	for (k = 0; step_more(k); k++) {
		work(&workers[0]);
		step_done(k);
	}
	__atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
	for (unsigned long i = 1; i < nthreads; i++)
		pthread_join(workers[i].thread, NULL);
	kept.stream = SHARED;
	check_and_free(&workers[0], &kept);
	finish(&workers[0]);
	free(workers);
	printf("ordered: every word right\n");
	return 0;
}
