/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory that the program creates and maps by itself (cuMemCreate, cuMemMap), used in the
 * ways of known programs. Each step changes all of it, and checks every word of what it has:
 *
 *	segments	PyTorch's expandable segments: chunks mapped at the end of a reservation,
 *			unmapped in the middle, and mapped there again
 *	sleeper		vLLM's sleep: unmapped and released; later created and mapped at the same address
 *	scratch		NCCL's buffers: created, reserved, mapped, retained by their address, and freed
 *	twice		an object that is mapped at two addresses
 *	parts		an object that is mapped in two parts, if the driver maps parts
 *	hidden		an object with contents that is unmapped for some steps
 *	bare		a mapping whose handle was released
 *	readable	a mapping that may only be read, if the driver knows such
 *
 * --chunk-mib N: the size of an object, an even number. --handles 1: also use handles after their
 * release, which the driver refuses. --exports N: have an object that is exported as a descriptor, and
 * one that is exported as a dma-buf, until step N. --other 1: have an object on GPU 1, on which there
 * is no context; 2: and do not map it. --threads N: N more threads make objects, check and free them.
 */
#include "tests/programs/kernels.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>

#define NCHUNKS 8

static unsigned long chunk_mib = 4;
static unsigned long handles, exports, other, nthreads;
static struct kernels kernels;
static size_t size;     /* of a chunk */
static uint32_t *words; /* of the host, for one chunk */
static CUmemAllocationProp prop;

/* An object, and what its words are: seed * 2654435761 + i. */
struct chunk {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at; /* 0: not mapped */
	uint32_t seed;
};

static CUdeviceptr reserve(size_t bytes)
{
	CUdeviceptr at;

	CALL(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	return at;
}

static CUresult allow(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags)
{
	CUmemAccessDesc desc = {.location = prop.location, .flags = flags};

	return cuMemSetAccess(at, bytes, &desc, 1);
}

static void map(struct chunk *c, CUdeviceptr at)
{
	CALL(cuMemMap(at, size, 0, c->handle, 0));
	CALL(allow(at, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	c->at = at;
}

static void unmap(struct chunk *c)
{
	CALL(cuMemUnmap(c->at, size));
	c->at = 0;
}

static void fill(struct chunk *c, uint32_t seed)
{
	uint64_t count = size / sizeof(uint32_t);
	void *args[] = {&c->at, &count, &seed};

	kernels_launch(kernels.iota, NULL, args);
	c->seed = seed;
}

static void check_at(CUdeviceptr at, size_t bytes, uint32_t first, const char *what)
{
	CALL(cuMemcpyDtoH_v2(words, at, bytes));
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		if (words[i] != first + (uint32_t)i)
			step_wrong("%s: word %zu is %" PRIu32 ", not %" PRIu32, what, i, words[i],
				   first + (uint32_t)i);
}

static void check(const struct chunk *c, const char *what)
{
	check_at(c->at, size, c->seed * 2654435761u, what);
}

static void make(struct chunk *c)
{
	CALL(cuMemCreate(&c->handle, size, &prop, 0));
}

static uint32_t new_seed(void)
{
	static uint32_t last;

	return ++last;
}

static struct {
	CUdeviceptr base;
	struct chunk chunks[NCHUNKS];
} segments;

static void segments_step(unsigned long k)
{
	struct chunk *c = &segments.chunks[k * 5 % NCHUNKS];

	if (!segments.base)
		segments.base = reserve(NCHUNKS * size);
	for (int i = 0; i < NCHUNKS; i++)
		if (segments.chunks[i].at)
			check(&segments.chunks[i], "segments");
	if (c->at) {
		unmap(c);
		CALL(cuMemRelease(c->handle));
		return;
	}
	make(c);
	map(c, segments.base + (size_t)(c - segments.chunks) * size);
	fill(c, new_seed());
}

static struct chunk sleeper;
static CUdeviceptr bed;

static void sleeper_step(unsigned long k)
{
	if (!bed)
		bed = reserve(size);
	if (k % 3) {
		if (sleeper.at)
			check(&sleeper, "sleeper");
		return;
	}
	if (sleeper.at) {
		unmap(&sleeper);
		CALL(cuMemRelease(sleeper.handle));
		return;
	}
	make(&sleeper);
	map(&sleeper, bed);
	fill(&sleeper, new_seed());
}

static struct chunk scratch[3];

static void scratch_free(struct chunk *c)
{
	CUmemGenericAllocationHandle again;
	CUdeviceptr at = c->at;
	size_t bytes;

	CALL(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
	if (again != c->handle)
		step_die("scratch: retained as another handle");
	CALL(cuMemRelease(again));
	CALL(cuMemGetAddressRange_v2(NULL, &bytes, at));
	if (bytes != size)
		step_die("scratch: %zu bytes", bytes);
	unmap(c);
	CALL(cuMemRelease(c->handle));
	CALL(cuMemAddressFree(at, size));
}

static void scratch_step(unsigned long k)
{
	struct chunk *c = &scratch[k % 3];
	CUmemAllocationProp found;

	if (c->at) {
		check(c, "scratch");
		scratch_free(c);
	}
	make(c);
	CALL(cuMemGetAllocationPropertiesFromHandle(&found, c->handle));
	if (found.location.id != prop.location.id || found.location.type != prop.location.type)
		step_die("scratch: its properties differ");
	map(c, reserve(size));
	fill(c, new_seed());
}

static struct chunk twice;
static CUdeviceptr second;

static void twice_step(unsigned long k)
{
	(void)k;
	if (!second) {
		make(&twice);
		map(&twice, reserve(size));
		second = reserve(size);
		CALL(cuMemMap(second, size, 0, twice.handle, 0));
		CALL(allow(second, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	} else {
		check(&twice, "twice, the first");
		check_at(second, size, twice.seed * 2654435761u, "twice, the second");
	}
	fill(&twice, new_seed());
}

static struct chunk parted;
static CUdeviceptr parts;

static void parts_step(unsigned long k)
{
	size_t half = size / 2;
	CUresult result;

	if (!k) {
		make(&parted);
		parts = reserve(2 * size);
		result = cuMemMap(parts + size, half, half, parted.handle, 0);
		printf("a part is mapped: error %d\n", result);
		if (result) {
			CALL(cuMemRelease(parted.handle));
			parts = 0;
			return;
		}
		CALL(allow(parts + size, half, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
		CALL(cuMemMap(parts, half, 0, parted.handle, 0));
		CALL(allow(parts, half, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	}
	if (!parts)
		return;
	for (int i = 0; i < 2; i++) {
		struct chunk c = {.at = parts + (size_t)i * size};
		uint64_t count = half / sizeof(uint32_t);
		uint32_t seed = (uint32_t)(2 * k) + (uint32_t)i;
		void *args[] = {&c.at, &count, &seed};

		if (k)
			check_at(c.at, half, (seed - 2) * 2654435761u, "parts");
		kernels_launch(kernels.iota, NULL, args);
	}
}

static struct chunk hidden;
static CUdeviceptr place;

static void hidden_step(unsigned long k)
{
	if (!place) {
		place = reserve(size);
		make(&hidden);
	}
	if (k % 4)
		return;
	map(&hidden, place);
	if (k)
		check(&hidden, "hidden");
	fill(&hidden, new_seed());
	CALL(cuCtxSynchronize());
	unmap(&hidden);
}

static struct chunk bare;

static void bare_step(unsigned long k)
{
	(void)k;
	if (!bare.at) {
		make(&bare);
		map(&bare, reserve(size));
		CALL(cuMemRelease(bare.handle));
	} else {
		check(&bare, "bare");
	}
	fill(&bare, new_seed());
}

static struct chunk readable;

static void readable_step(unsigned long k)
{
	static unsigned long long first;
	unsigned long long flags;

	if (!k) {
		make(&readable);
		map(&readable, reserve(size));
		fill(&readable, new_seed());
		CALL(cuCtxSynchronize());
		printf("a mapping to be read: error %d\n",
		       allow(readable.at, size, CU_MEM_ACCESS_FLAGS_PROT_READ));
		CALL(cuMemGetAccess(&first, &prop.location, readable.at));
	}
	CALL(cuMemGetAccess(&flags, &prop.location, readable.at));
	if (flags != first)
		step_die("readable: the access is %llu, not %llu", flags, first);
	check(&readable, "readable");
}

/* A handle that was released once too often, and one that another object might have now. */
static void handles_step(unsigned long k)
{
	CUmemAllocationProp found;
	struct chunk gone;

	if (k || !handles)
		return;
	make(&gone);
	CALL(cuMemRelease(gone.handle));
	printf("released: properties %d, map %d, release %d\n",
	       cuMemGetAllocationPropertiesFromHandle(&found, gone.handle),
	       cuMemMap(reserve(size), size, 0, gone.handle, 0), cuMemRelease(gone.handle));
	printf("a mapped handle that was released: map %d, release %d\n",
	       cuMemMap(reserve(size), size, 0, bare.handle, 0), cuMemRelease(bare.handle));
}

static struct chunk exported[2];

static void exports_step(unsigned long k)
{
	int fd;

	if (!k && exports) {
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
		for (int i = 0; i < 2; i++) {
			make(&exported[i]);
			map(&exported[i], reserve(size));
			fill(&exported[i], new_seed());
		}
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
		CALL(cuMemExportToShareableHandle(&fd, exported[0].handle,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		close(fd);
		CALL(cuMemGetHandleForAddressRange(&fd, exported[1].at, size,
						   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
		close(fd);
	}
	for (int i = 0; i < 2 && k < exports; i++)
		check(&exported[i], "exports");
	for (int i = 0; i < 2 && exports && k == exports; i++) {
		unmap(&exported[i]);
		CALL(cuMemRelease(exported[i].handle));
	}
}

static struct chunk far;

static void other_step(unsigned long k)
{
	if (!other)
		return;
	if (!k) {
		prop.location.id = 1;
		make(&far);
		prop.location.id = kernels.dev;
		if (other == 1)
			map(&far, reserve(size));
	} else if (other == 1) {
		check(&far, "other");
	}
	if (far.at)
		fill(&far, new_seed());
}

static void (*const steps[])(unsigned long) = {
	segments_step, sleeper_step,  scratch_step, twice_step,   parts_step, hidden_step,
	bare_step,     readable_step, handles_step, exports_step, other_step};

static bool ended;

static void *thread_main(void *arg)
{
	const size_t bytes = 2UL << 20;
	const CUdeviceptr at = reserve(bytes);
	uint32_t value = 0, first, last;
	CUmemGenericAllocationHandle handle, again;

	(void)arg;
	CALL(cuCtxSetCurrent(kernels.ctx));
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
		value++;
		CALL(cuMemCreate(&handle, bytes, &prop, 0));
		CALL(cuMemMap(at, bytes, 0, handle, 0));
		CALL(allow(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
		CALL(cuMemRelease(handle));
		CALL(cuMemsetD32_v2(at, value, bytes / sizeof(value)));
		CALL(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
		if (again != handle)
			step_die("threads: retained as another handle");
		CALL(cuMemcpyDtoH_v2(&first, at, sizeof(first)));
		CALL(cuMemcpyDtoH_v2(&last, at + bytes - sizeof(last), sizeof(last)));
		if (first != value || last != value)
			step_wrong("threads: %" PRIu32 " and %" PRIu32 ", not %" PRIu32, first,
				   last, value);
		CALL(cuMemUnmap(at, bytes));
		CALL(cuMemRelease(again));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"chunk-mib", &chunk_mib},
					      {"handles", &handles},
					      {"exports", &exports},
					      {"other", &other},
					      {"threads", &nthreads}};
	pthread_t *threads;

	step_parse(argc, argv, options, 5);
	kernels_init(&kernels);
	prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = kernels.dev},
	};
	size = chunk_mib << 20;
	words = malloc(size);
	threads = calloc(nthreads + 1, sizeof(*threads));
	if (!words || !threads)
		step_die("objects: out of memory");
	for (unsigned long k = 0; step_more(k); k++) {
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			steps[i](k);
		CALL(cuCtxSynchronize());
		/* The steps before change prop for a moment. */
		for (unsigned long t = 0; !k && t < nthreads; t++)
			if (pthread_create(&threads[t], NULL, thread_main, NULL))
				step_die("objects: no thread");
		step_done(k);
	}
	__atomic_store_n(&ended, true, __ATOMIC_RELAXED);
	for (unsigned long t = 0; t < nthreads; t++)
		pthread_join(threads[t], NULL);
	free(threads);
	puts("objects: every word right");
	free(words);
	return 0;
}
