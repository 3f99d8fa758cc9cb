/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demonstration's job: buffers on the GPU, small and large, each counted up by one in every
 * step. At the end a kernel sums every word with its place and the host computes what the sum
 * must be, so that one word lost, changed or moved shows.
 *
 *	counter [--mib N] [--allocs N] [--chunk-mib N] [--verify N] [--steps N] [--step-ms N]
 *
 * --verify 1 does that after every step as well. No memory is allocated after the first one. With
 * --chunk-mib the buffers lie side by side in chunks of that size, which the program creates and maps
 * by itself, as PyTorch does with expandable segments.
 */
#include "tests/programs/kernels.h"

#include <inttypes.h>

#define SMALL_MAX 8    /* at most so many buffers below 1 MiB */
#define SAMPLE    1024 /* words copied back from either end of a buffer */

struct buffer {
	CUdeviceptr data;
	uint64_t words;
	uint32_t seed;
};

static unsigned long total_mib = 16;
static unsigned long nbuffers = 8;
static unsigned long verify;
static unsigned long chunk_mib; /* 0: cuMemAlloc() */
static CUdeviceptr sum_out;     /* what checksum() writes; 0 before the first check */

/* The chunks, which are one range of addresses. */
static struct {
	CUdeviceptr start;
	size_t size, used; /* bytes mapped, and given to buffers */
	CUmemGenericAllocationHandle *handles;
} segment;

static void segment_make(const struct kernels *kernels)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = kernels->dev},
	};
	const CUmemAccessDesc access = {.location = prop.location,
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	/* A buffer begins at a multiple of 512, and the small ones are not in total_mib. */
	const size_t chunk = chunk_mib << 20,
		     bytes = (total_mib + 1) * (1UL << 20) + 512 * nbuffers;
	const size_t count = (bytes + chunk - 1) / chunk;

	segment.size = count * chunk;
	segment.handles = calloc(count, sizeof(*segment.handles));
	if (!segment.handles)
		step_die("counter: out of memory");
	CALL(cuMemAddressReserve(&segment.start, segment.size, 0, 0, 0));
	for (size_t i = 0; i < count; i++) {
		CALL(cuMemCreate(&segment.handles[i], chunk, &prop, 0));
		CALL(cuMemMap(segment.start + i * chunk, chunk, 0, segment.handles[i], 0));
	}
	CALL(cuMemSetAccess(segment.start, segment.size, &access, 1));
}

static void segment_free(void)
{
	const size_t chunk = chunk_mib << 20;

	for (size_t i = 0; i < segment.size / chunk; i++) {
		CALL(cuMemUnmap(segment.start + i * chunk, chunk));
		CALL(cuMemRelease(segment.handles[i]));
	}
	CALL(cuMemAddressFree(segment.start, segment.size));
	free(segment.handles);
}

static void buffer_alloc(CUdeviceptr *data, uint64_t bytes)
{
	if (!chunk_mib) {
		CALL(cuMemAlloc_v2(data, bytes));
		return;
	}
	*data = segment.start + segment.used;
	segment.used += (bytes + 511) & -512UL;
}

/* Half of the buffers, up to SMALL_MAX, take 4 KiB to 512 KiB; the others share what is left. */
static void buffers_alloc(struct buffer *buffers)
{
	const unsigned long nsmall = nbuffers / 2 < SMALL_MAX ? nbuffers / 2 : SMALL_MAX;
	uint64_t left = (uint64_t)total_mib << 20;

	for (unsigned long b = 0; b < nbuffers; b++) {
		uint64_t bytes = b < nsmall ? 4096UL << b : left / (nbuffers - b);

		bytes &= ~UINT64_C(3);
		left -= bytes;
		buffers[b].words = bytes / sizeof(uint32_t);
		buffers[b].seed = (uint32_t)b + 1;
		buffer_alloc(&buffers[b].data, bytes);
	}
}

static uint32_t word_at(const struct buffer *buffer, uint64_t i, uint64_t steps)
{
	return (uint32_t)(buffer->seed * 2654435761u + i + steps);
}

/* The sum of i from 0 to n-1, of (first + i) * (2 * i + 1), modulo 2^64. */
static uint64_t sum_to(uint64_t first, uint64_t n)
{
	unsigned __int128 wide = n;
	unsigned __int128 squares = n ? (wide - 1) * wide * (2 * wide - 1) / 3 : 0;
	unsigned __int128 triangle = n ? wide * (wide - 1) / 2 : 0;

	return (uint64_t)(wide * wide) * first + (uint64_t)squares + (uint64_t)triangle;
}

/*
 * What checksum() must give: sum_to(), except that the words wrap at 2^32. From index 2^32 - first
 * on a word is 2^32 less than first + i, from 2^33 - first on 2^33 less, and the sum of 2 * i + 1
 * up to m is m squared.
 */
static uint64_t expected_sum(const struct buffer *buffer, uint64_t steps)
{
	const uint64_t first = word_at(buffer, 0, steps);
	const uint64_t n = buffer->words;
	uint64_t sum = sum_to(first, n);

	for (uint64_t wrap = (UINT64_C(1) << 32) - first; wrap < n; wrap += UINT64_C(1) << 32)
		sum -= (n * n - wrap * wrap) << 32;
	return sum;
}

static int check_samples(const struct buffer *buffer, uint64_t first, uint64_t steps)
{
	const uint64_t count = buffer->words - first < SAMPLE ? buffer->words - first : SAMPLE;
	uint32_t sample[SAMPLE];

	CALL(cuMemcpyDtoH_v2(sample, buffer->data + first * sizeof(uint32_t),
			     count * sizeof(uint32_t)));
	for (uint64_t i = 0; i < count; i++) {
		if (sample[i] == word_at(buffer, first + i, steps))
			continue;
		fprintf(stderr, "counter: word %" PRIu64 " is %" PRIu32 ", should be %" PRIu32 "\n",
			first + i, sample[i], word_at(buffer, first + i, steps));
		return 0;
	}
	return 1;
}

/* True where every word of the buffer is what @steps increments make of it. */
static int check_buffer(const struct kernels *kernels, struct buffer *buffer, uint64_t steps)
{
	const uint64_t zero = 0;
	uint64_t sum;
	void *args[] = {&buffer->data, &buffer->words, &sum_out};

	if (!sum_out)
		CALL(cuMemAlloc_v2(&sum_out, sizeof(sum)));
	CALL(cuMemcpyHtoD_v2(sum_out, &zero, sizeof(zero)));
	kernels_launch(kernels->checksum, NULL, args);
	CALL(cuMemcpyDtoH_v2(&sum, sum_out, sizeof(sum)));
	if (sum != expected_sum(buffer, steps)) {
		fprintf(stderr, "counter: sum is %016" PRIx64 ", should be %016" PRIx64 "\n", sum,
			expected_sum(buffer, steps));
		return 0;
	}
	return check_samples(buffer, 0, steps) &&
	       check_samples(buffer, buffer->words > SAMPLE ? buffer->words - SAMPLE : 0, steps);
}

static void check_all(const struct kernels *kernels, struct buffer *buffers, uint64_t steps)
{
	for (unsigned long b = 0; b < nbuffers; b++)
		if (!check_buffer(kernels, &buffers[b], steps))
			step_wrong("counter: buffer %lu is wrong after %" PRIu64 " steps", b,
				   steps);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"mib", &total_mib},
		{"allocs", &nbuffers},
		{"verify", &verify},
		{"chunk-mib", &chunk_mib},
	};
	struct kernels kernels;
	struct buffer *buffers;
	unsigned long steps;

	step_parse(argc, argv, options, 4);
	if (!nbuffers || total_mib < nbuffers)
		step_die("counter: needs a buffer, and 1 MiB for each");
	buffers = calloc(nbuffers, sizeof(*buffers));
	if (!buffers)
		step_die("counter: out of memory");
	kernels_init(&kernels);
	if (chunk_mib)
		segment_make(&kernels);
	buffers_alloc(buffers);
	for (unsigned long b = 0; b < nbuffers; b++) {
		void *args[] = {&buffers[b].data, &buffers[b].words, &buffers[b].seed};

		kernels_launch(kernels.iota, NULL, args);
	}
	printf("counter: %lu MiB in %lu buffers\n", total_mib, nbuffers);
	for (steps = 0; step_more(steps); steps++) {
		for (unsigned long b = 0; b < nbuffers; b++) {
			void *args[] = {&buffers[b].data, &buffers[b].words};

			kernels_launch(kernels.increment, NULL, args);
		}
		CALL(cuCtxSynchronize());
		if (verify)
			check_all(&kernels, buffers, steps + 1);
		step_done(steps);
	}
	check_all(&kernels, buffers, steps);
	for (unsigned long b = 0; b < nbuffers && !chunk_mib; b++)
		CALL(cuMemFree_v2(buffers[b].data));
	if (chunk_mib)
		segment_free();
	CALL(cuMemFree_v2(sum_out));
	free(buffers);
	printf("counter: %lu steps, every word right\n", steps);
	return 0;
}
