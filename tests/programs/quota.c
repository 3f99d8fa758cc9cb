/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory there is, by what the driver says and by each way to take it:
 *
 *	quota [--piece-mib N] [--hold N]
 *
 * Takes pieces of each kind until a call fails, says how much that was and how the call failed, and frees them; at
 * the end it leaves some to a reset of the primary context.
 * With --hold it takes N pieces of cuMemAlloc() instead, fills them, and tries to take one more in each step
 * (--each-line), which it frees at once.
 */
#include "tests/programs/kernels.h"

#include <stdbool.h>

#define PIECES 64

static unsigned long piece_mib = 8, hold;
static size_t piece;
static struct kernels gpu;
static CUstream stream;
static CUmemoryPool pool;

static const char *name_of(CUresult result)
{
	const char *name = "unknown";

	cuGetErrorName(result, &name);
	return name;
}

static CUresult alloc_take(uint64_t *handle)
{
	return cuMemAlloc_v2((CUdeviceptr *)handle, piece);
}

static void any_free(uint64_t handle)
{
	CALL(cuMemFree_v2(handle));
}

/* As many rows of 512 bytes. */
static CUresult pitch_take(uint64_t *handle)
{
	size_t pitch;

	return cuMemAllocPitch_v2((CUdeviceptr *)handle, &pitch, 512, piece / 512, 4);
}

static CUresult async_take(uint64_t *handle)
{
	return cuMemAllocAsync((CUdeviceptr *)handle, piece, stream);
}

static CUresult pool_take(uint64_t *handle)
{
	return cuMemAllocFromPoolAsync((CUdeviceptr *)handle, piece, pool, stream);
}

/* The pool keeps it. */
static void pool_free(uint64_t handle)
{
	CALL(cuMemFreeAsync(handle, stream));
}

static CUresult create_take(uint64_t *handle)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.dev},
	};

	return cuMemCreate((CUmemGenericAllocationHandle *)handle, piece, &prop, 0);
}

static void create_free(uint64_t handle)
{
	CALL(cuMemRelease(handle));
}

static CUresult managed_take(uint64_t *handle)
{
	return cuMemAllocManaged((CUdeviceptr *)handle, piece, CU_MEM_ATTACH_GLOBAL);
}

static CUresult array_take(uint64_t *handle)
{
	const CUDA_ARRAY_DESCRIPTOR desc = {.Width = 1024,
					    .Height = piece / 4096,
					    .Format = CU_AD_FORMAT_UNSIGNED_INT32,
					    .NumChannels = 1};

	return cuArrayCreate_v2((CUarray *)handle, &desc);
}

static void array_free(uint64_t handle)
{
	CALL(cuArrayDestroy((CUarray)handle));
}

/* A graph that allocates a piece, which it keeps. */
static CUresult graph_take(uint64_t *handle)
{
	CUdeviceptr data;
	CUgraph graph;
	CUresult result;

	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CALL(cuMemAllocAsync(&data, piece, stream));
	CALL(cuMemFreeAsync(data, stream));
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphInstantiateWithFlags((CUgraphExec *)handle, graph, 0));
	CALL(cuGraphDestroy(graph));
	result = cuGraphLaunch((CUgraphExec)*handle, stream);
	if (result)
		CALL(cuGraphExecDestroy((CUgraphExec)*handle));
	return result;
}

/* The driver keeps its memory for later graphs. */
static void graph_free(uint64_t handle)
{
	CALL(cuStreamSynchronize(stream));
	CALL(cuGraphExecDestroy((CUgraphExec)handle));
}

static void graph_free_and_trim(uint64_t handle)
{
	graph_free(handle);
	CALL(cuDeviceGraphMemTrim(gpu.dev));
}

static const struct kind {
	const char *name;
	CUresult (*take)(uint64_t *handle);
	void (*free)(uint64_t handle);
} kinds[] = {
	{"cuMemAlloc", alloc_take, any_free},
	{"cuMemAllocPitch", pitch_take, any_free},
	{"cuMemAllocAsync", async_take, pool_free},
	{"cuMemAllocFromPoolAsync", pool_take, pool_free},
	{"cuMemCreate", create_take, create_free},
	{"cuMemAllocManaged", managed_take, any_free},
	{"cuArrayCreate", array_take, array_free},
	{"graph", graph_take, graph_free},
	{"graph after others", graph_take, graph_free_and_trim},
	{"cuMemAlloc", alloc_take, any_free},
};
static const struct kind after_reset = {"after a reset", alloc_take, any_free};

static void try_kind(const struct kind *kind)
{
	uint64_t taken[PIECES];
	CUresult result = CUDA_SUCCESS;
	unsigned int n = 0;

	while (n < PIECES && !(result = kind->take(&taken[n])))
		n++;
	printf("%s: %lu MiB, %s\n", kind->name, n * piece_mib, name_of(result));
	while (n-- > 0)
		kind->free(taken[n]);
}

static void say_memory(void)
{
	size_t free, total, device;

	CALL(cuMemGetInfo_v2(&free, &total));
	CALL(cuDeviceTotalMem_v2(&device, gpu.dev));
	printf("free %zu of %zu MiB, device %zu\n", free >> 20, total >> 20, device >> 20);
}

/* What a context has goes with it. */
static void reset(void)
{
	uint64_t taken[PIECES];

	for (unsigned int n = 0; n < PIECES && !array_take(&taken[n]); n++)
		;
	CALL(cuDevicePrimaryCtxReset(gpu.dev));
	kernels_init(&gpu);
}

static void try_all(void)
{
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.dev},
	};
	uint64_t threshold = UINT64_MAX;

	CALL(cuMemPoolCreate(&pool, &props));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		try_kind(&kinds[i]);
	reset();
	try_kind(&after_reset);
	say_memory();
}

static void hold_and_try(void)
{
	CUdeviceptr held[PIECES], more;
	size_t words = piece / 4;
	CUresult result;

	for (unsigned long i = 0; i < hold; i++) {
		uint32_t seed = (uint32_t)i;
		void *args[] = {&held[i], &words, &seed};

		CALL(cuMemAlloc_v2(&held[i], piece));
		kernels_launch(gpu.iota, stream, args);
	}
	CALL(cuStreamSynchronize(stream));
	printf("holds %lu MiB\n", hold * piece_mib);
	say_memory();
	fflush(stdout);
	for (unsigned long k = 0; step_more(k); k++) {
		result = cuMemAlloc_v2(&more, piece);
		if (!result)
			CALL(cuMemFree_v2(more));
		printf("one more: %s\n", name_of(result));
		step_done(k);
	}
	say_memory();
	for (unsigned long i = 0; i < hold; i++) {
		uint32_t first = 0;

		CALL(cuMemcpyDtoH_v2(&first, held[i], sizeof(first)));
		if (first != (uint32_t)i * 2654435761U)
			step_wrong("piece %lu begins with %u", i, first);
	}
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"piece-mib", &piece_mib}, {"hold", &hold}};

	step_parse(argc, argv, options, 2);
	if (hold > PIECES)
		step_die("--hold is at most %d", PIECES);
	piece = piece_mib << 20;
	kernels_init(&gpu);
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if (hold)
		hold_and_try();
	else
		try_all();
	return 0;
}
