/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of the simulated devices. A module has those of them that its image names. They are
 * all written for a flat grid, so the grid is not looked at: one call does the work of all threads.
 */
#include "tests/digest_formula.h"
#include "tests/sim/sim.h"

#include <time.h>

struct array_args {
	uint32_t *data;
	uint64_t n;
	uint32_t value;
};

static void run_increment(const void *args)
{
	const struct array_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		a->data[i] += 1;
}

static void run_fill(const void *args)
{
	const struct array_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		a->data[i] = a->value;
}

static void run_iota(const void *args)
{
	const struct array_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		a->data[i] = a->value * 2654435761u + (uint32_t)i;
}

struct checksum_args {
	const uint32_t *data;
	uint64_t n;
	uint64_t *out;
};

static void run_checksum(const void *args)
{
	const struct checksum_args *a = args;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < a->n; i++)
		sum += a->data[i] * (2 * i + 1);
	*a->out = sum;
}

static void run_spin_until(const void *args)
{
	const uint32_t *flag = *(uint32_t *const *)args;
	struct timespec pause = {.tv_nsec = 50000};

	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
		nanosleep(&pause, NULL);
}

struct chase_args {
	uint32_t **list;
	uint64_t n;
};

static void run_chase(const void *args)
{
	const struct chase_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		*a->list[i] += 1;
}

struct digest_args {
	const char *data;
	struct digest *digests;
	uint64_t count;
};

static void run_digest(const void *args)
{
	const struct digest_args *a = args;

	for (uint64_t i = 0; i < a->count; i++)
		a->digests[i] = digest_formula(a->data + i * VMEM_GRANULE);
}

struct texture_args {
	uint32_t *data;
	uint64_t n;
	CUtexObject texture;
	uint32_t width;
};

static void run_add_texels(const void *args)
{
	const struct texture_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		a->data[i] += *(uint32_t *)texture_element(a->texture, i % a->width, i / a->width);
}

struct surface_args {
	CUsurfObject surface;
	uint64_t n;
	uint32_t width;
};

static void run_increment_surface(const void *args)
{
	const struct surface_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		*(uint32_t *)surface_element(a->surface, i % a->width, i / a->width) += 1;
}

struct all_reduce_args {
	uint32_t *shared;
	uint32_t *data;
	uint32_t rank, ranks, round;
};

/* The layout of shared is in tests/programs/ranks.c. */
static void run_all_reduce(const void *args)
{
	const struct all_reduce_args *a = args;
	uint32_t *values = a->shared + 16 + a->round % 2 * 16, sum = 0;
	struct timespec pause = {.tv_nsec = 50000};

	values[a->rank] = *a->data;
	__atomic_store_n(&a->shared[a->rank], a->round + 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < a->ranks; i++) {
		while (__atomic_load_n(&a->shared[i], __ATOMIC_ACQUIRE) < a->round + 1)
			nanosleep(&pause, NULL);
		sum += values[i];
	}
	*a->data = *a->data * 1664525u + sum + a->round;
}

/* The layout is in tests/programs/rank_kernels.c. The first parameter is not looked at. */
struct peer_comm {
	uint32_t rank, size;
	uint32_t *arrived; /* of each rank: the rounds that it has come to */
	uint32_t round, sum;
};

static void run_peers_meet(const void *args)
{
	struct peer_comm *comm = ((struct peer_comm *const *)args)[1];
	struct timespec pause = {.tv_nsec = 50000};

	__atomic_store_n(&comm->arrived[comm->rank], comm->round + 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < comm->size; i++)
		while (__atomic_load_n(&comm->arrived[i], __ATOMIC_ACQUIRE) < comm->round + 1)
			nanosleep(&pause, NULL);
	comm->sum = comm->sum * 1664525u + comm->round;
	comm->round++;
}

struct pair_args {
	uint64_t n;
	uint32_t *to;
	const uint32_t *from;
};

static void run_add_pair(const void *args)
{
	const struct pair_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		a->to[i] += a->from[i];
}

struct lists_args {
	uint32_t *lists[4];
	uint64_t n;
};

static void run_add_three(const void *args)
{
	const struct lists_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		a->lists[3][i] = a->lists[0][i] + a->lists[1][i] + a->lists[2][i];
}

/* Of clusters of two blocks. */
static void run_cluster_ranks(const void *args)
{
	const struct array_args *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		a->data[i] = a->value + (uint32_t)(i % 2);
}

struct tile_args {
	char map[sizeof(CUtensorMap)];
	uint32_t *out;
	uint32_t x, y;
};

/* 8 rows of 32 words. */
static void run_load_tile(const void *args)
{
	const struct tile_args *a = args;

	for (uint32_t i = 0; i < 256; i++) {
		const uint32_t *word = tensor_map_word(a->map, a->x + i % 32, a->y + i / 32);

		a->out[i] = word ? *word : 0;
	}
}

static void run_assert_fails(const void *args)
{
	(void)args;
	run_fail(CUDA_ERROR_ASSERT);
}

static void run_nothing(const void *args)
{
	(void)args;
}

const struct sim_kernel *kernel_table(size_t *count)
{
	static const struct sim_kernel table[] = {
		{"increment", run_increment, 2, {8, 8}},
		{"fill", run_fill, 3, {8, 8, 4}},
		{"iota", run_iota, 3, {8, 8, 4}},
		{"checksum", run_checksum, 3, {8, 8, 8}},
		{"spin_until", run_spin_until, 1, {8}},
		{"chase", run_chase, 2, {8, 8}},
		{"add_texels", run_add_texels, 4, {8, 8, 8, 4}},
		{"increment_surface", run_increment_surface, 3, {8, 8, 4}},
		{"cudaw_digest", run_digest, 3, {8, 8, 8}},
		{"all_reduce", run_all_reduce, 5, {8, 8, 4, 4, 4}},
		{"ncclDevKernel_AllReduce_test", run_peers_meet, 2, {8, 8}},
		{"ncclDevKernel_SendRecv_test", run_peers_meet, 2, {8, 8}},
		{"_Z6upwardPjm", run_increment, 2, {8, 8}},
		{"add_pair", run_add_pair, 1, {24}},
		{"add_three", run_add_three, 1, {40}},
		{"cluster_ranks", run_cluster_ranks, 3, {8, 8, 4}},
		{"assert_fails", run_assert_fails, 0, {0}},
		{"load_tile", run_load_tile, 4, {128, 8, 4, 4}},
		{"_Z5eightPfPKfS1_PdPiPPvmi", run_nothing, 8, {8, 8, 8, 8, 8, 8, 8, 4}},
	};

	*count = sizeof(table) / sizeof(table[0]);
	return table;
}
