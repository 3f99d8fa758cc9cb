/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses GPU 1 in the midst of the end of GPU 0's primary context, which the script holds from the first line on
 * stdin to the last. It gets what the driver has just taken from GPU 0: with --stream 1 the handle of a stream,
 * else the addresses of memory of a pool, which GPU 0 had freed with --freed 1.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>

#define MIB     (UINT64_C(1) << 20)
#define STREAMS 64

/* Their pools keep what is free. */
static CUcontext contexts[2];

static void begin(void)
{
	cuuint64_t keep = UINT64_MAX;
	CUmemoryPool pool;

	CALL(cuInit(0));
	for (int dev = 1; dev >= 0; dev--) {
		CALL(cuDevicePrimaryCtxRetain(&contexts[dev], dev));
		CALL(cuDeviceGetDefaultMemPool(&pool, dev));
		CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
		CALL(cuCtxSetCurrent(contexts[dev]));
	}
}

static void *end(void *arg)
{
	CALL(cuDevicePrimaryCtxRelease_v2(0));
	return arg;
}

static void end_beside(void (*meanwhile)(void))
{
	pthread_t thread;

	step_wait_line("holding");
	pthread_create(&thread, NULL, end, NULL);
	step_wait_line("holding");
	CALL(cuCtxSetCurrent(contexts[1]));
	meanwhile();
	step_wait_line("holding");
	pthread_join(thread, NULL);
}

static CUstream old_streams[STREAMS];

static void stream_new(CUstream *stream)
{
	CUdeviceptr ptr;

	CALL(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
	CALL(cuMemAllocAsync(&ptr, 8 * MIB, *stream));
	CALL(cuMemFreeAsync(ptr, *stream));
	CALL(cuStreamSynchronize(*stream));
}

/* A new stream with the handle of an old one. */
static bool twin_new(CUstream *twin)
{
	for (int n = 0; n < 2000; n++) {
		CALL(cuStreamCreate(twin, CU_STREAM_NON_BLOCKING));
		for (int i = 0; i < STREAMS; i++)
			if (*twin == old_streams[i])
				return true;
	}
	return false;
}

static void use_twin(void)
{
	CUstream twin;
	CUdeviceptr ptr;
	int dev = -1;

	if (!twin_new(&twin)) {
		printf("no handle twice\n");
		return;
	}
	CALL(cuMemAllocAsync(&ptr, 8 * MIB, twin));
	CALL(cuPointerGetAttribute(&dev, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	if (dev != 1)
		step_wrong("primary_ends: memory of GPU %d, should be of 1", dev);
	CALL(cuMemsetD32Async(ptr, 1, 2 * MIB, twin));
	CALL(cuStreamSynchronize(twin));
}

static void with_streams(void)
{
	CUstream stream;

	for (int i = 0; i < STREAMS; i++)
		stream_new(&old_streams[i]);
	CALL(cuCtxSetCurrent(contexts[1]));
	stream_new(&stream);
	end_beside(use_twin);
}

static CUdeviceptr old; /* of 8 MiB, of GPU 0 */

static size_t free_memory(void)
{
	size_t free, total;

	CALL(cuMemGetInfo_v2(&free, &total));
	return free;
}

/* Memory at the old addresses is freed as any other. */
static void use_addresses(void)
{
	size_t before = free_memory(), after;
	CUdeviceptr ptr;

	CALL(cuMemAlloc_v2(&ptr, 8 * MIB));
	if (ptr != old)
		step_wrong("primary_ends: memory at %#llx, should be at %#llx", ptr, old);
	CALL(cuMemFree_v2(ptr));
	after = free_memory();
	if (after != before)
		step_wrong("primary_ends: %zu bytes free, should be %zu", after, before);
}

/* The addresses of what was allocated first are given to others first. */
static void with_memory(bool freed)
{
	CUdeviceptr later;

	CALL(cuMemAllocAsync(&old, 8 * MIB, CU_STREAM_LEGACY));
	CALL(cuMemAllocAsync(&later, 16 * MIB, CU_STREAM_LEGACY));
	if (freed)
		CALL(cuMemFreeAsync(old, CU_STREAM_LEGACY));
	CALL(cuCtxSynchronize());
	end_beside(use_addresses);
}

int main(int argc, char **argv)
{
	unsigned long stream = 0, freed = 0;
	const struct step_option options[] = {{"stream", &stream}, {"freed", &freed}};

	step_parse(argc, argv, options, 2);
	begin();
	if (stream)
		with_streams();
	else
		with_memory(freed);
	printf("primary_ends: right\n");
	return 0;
}
