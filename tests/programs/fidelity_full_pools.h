/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIDELITY_FULL_POOLS_H
#define CUDAW_FIDELITY_FULL_POOLS_H
/* The cases of fidelity.c about stream-ordered allocations on a full GPU. */
#include "tests/programs/fidelity_pools.h"

#include <poll.h>

/*
 * A GPU that is full of memory which was freed in a busy stream. Nobody ends the work before the calls
 * have returned. A call that fails makes the pointer 0, or leaves it.
 */
static void pool_full(const char *what, CUstream stream)
{
	CUstream other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX), second = pool_new(0);
	CUdeviceptr ptr, none = 1;
	size_t free, total;

	say("in %s", what);
	CALL(cuMemGetInfo(&free, &total));
	ptr = pool_alloc(pool, free / 4 * 3, stream);
	busy(stream);
	CALL(cuMemsetD32Async(ptr, 1, MIB / 4, stream));
	CALL(cuMemFreeAsync(ptr, stream));
	say_result("its own stream, as much",
		   cuMemAllocFromPoolAsync(&ptr, free / 4 * 3, pool, stream));
	CALL(cuMemsetD32Async(ptr, 2, MIB / 4, stream));
	CALL(cuMemFreeAsync(ptr, stream));
	say_result("another stream, half", cuMemAllocFromPoolAsync(&ptr, free / 2, pool, other));
	CALL(cuMemsetD32Async(ptr, 3, MIB / 4, other));
	say("  the first is still busy: %s", yes(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY));
	say("  so is the other: %s", yes(cuStreamQuery(other) == CUDA_ERROR_NOT_READY));
	say_result("another pool, half", cuMemAllocFromPoolAsync(&none, free / 2, second, other));
	say("  the pointer: %s", none == 1 ? "as before" : none ? "another" : "0");
	end_busy();
	CALL(cuStreamSynchronize(other));
	say_words("the other stream's memory has its contents", ptr, MIB, 3);
	CALL(cuMemFreeAsync(ptr, other));
	CALL(cuCtxSynchronize());
	say_result("cuMemAlloc of half", cuMemAlloc(&ptr, free / 2));
	CALL(cuMemFree(ptr));
	CALL(cuMemPoolDestroy(pool));
	CALL(cuMemPoolDestroy(second));
	CALL(cuStreamDestroy(other));
}

static void case_pool_full(void)
{
	pool_full("a stream", stream_new());
	pool_full("the thread's stream", CU_STREAM_PER_THREAD);
	pool_full("the legacy stream", CU_STREAM_LEGACY);
}

/* The same in a pool that inserts no dependencies between streams. */
static void case_pool_full_apart(void)
{
	CUstream stream = stream_new(), other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	size_t free, total;
	CUdeviceptr ptr;
	int no = 0;

	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
	CALL(cuMemGetInfo(&free, &total));
	ptr = pool_alloc(pool, free / 4 * 3, stream);
	busy(stream);
	CALL(cuMemFreeAsync(ptr, stream));
	say_result("another stream, half", cuMemAllocFromPoolAsync(&ptr, free / 2, pool, other));
	say("  the first is still busy: %s", yes(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY));
	say("  so is the other: %s", yes(cuStreamQuery(other) == CUDA_ERROR_NOT_READY));
	end_busy();
	CALL(cuCtxSynchronize());
}

/* The same beside a capture. A call that fails returns before it could wait for long. */
static void case_pool_full_captured(void)
{
	CUstream stream = stream_new(), other = stream_new(), captured = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr ptr, half = 0;
	size_t free, total;
	CUgraph graph;
	double begin;

	CALL(cuMemGetInfo(&free, &total));
	ptr = pool_alloc(pool, free / 4 * 3, stream);
	busy(stream);
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	begin = now_s();
	say_result("beside a capture, half", cuMemAllocFromPoolAsync(&half, free / 2, pool, other));
	say("  it returns at once: %s", yes(now_s() - begin < 5));
	say_result("  the capture's end", cuStreamEndCapture(captured, &graph));
	CALL(half ? CUDA_SUCCESS : cuMemAllocFromPoolAsync(&half, free / 2, pool, other));
	end_busy();
	CALL(cuMemFreeAsync(half, other));
	CALL(cuCtxSynchronize());
}

/* The same with pieces, each of which is too small for a later allocation. */
static void case_pool_pieces(void)
{
	CUstream stream = stream_new(), other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr piece[4], ptr = 0;
	size_t free, total;

	CALL(cuMemGetInfo(&free, &total));
	for (int i = 0; i < 4; i++)
		piece[i] = pool_alloc(pool, free / 5, stream);
	WAITS("half, of pieces that its own stream frees",
	      (cuMemFreeAsync(piece[0], stream), cuMemFreeAsync(piece[1], stream),
	       cuMemFreeAsync(piece[2], stream), cuMemFreeAsync(piece[3], stream),
	       cuMemAllocFromPoolAsync(&ptr, free / 2, pool, stream)));
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemPoolTrimTo(pool, 0));
	for (int i = 0; i < 4; i++)
		piece[i] = pool_alloc(pool, free / 5, stream);
	ptr = 0;
	WAITS("half, of pieces that another stream frees",
	      (cuMemFreeAsync(piece[0], stream), cuMemFreeAsync(piece[1], stream),
	       cuMemFreeAsync(piece[2], stream), cuMemFreeAsync(piece[3], stream),
	       cuMemAllocFromPoolAsync(&ptr, free / 2, pool, other)));
	CALL(cuMemFreeAsync(ptr, other));
	CALL(cuCtxSynchronize());
}

/* Free four pieces in @stream, which is busy. Returns a size for which all of them are needed, or three. */
static size_t pieces_free(CUmemoryPool pool, CUstream stream)
{
	CUdeviceptr piece[4];
	size_t free, total;

	CALL(cuMemGetInfo(&free, &total));
	for (int i = 0; i < 4; i++)
		piece[i] = pool_alloc(pool, free / 5, stream);
	CALL(cuStreamSynchronize(stream));
	busy(stream);
	for (int i = 0; i < 4; i++)
		CALL(cuMemFreeAsync(piece[i], stream));
	return free / 2;
}

static void *synchronise(void *stream)
{
	CALL(cuCtxSetCurrent(gpu.ctx));
	CALL(cuStreamSynchronize(stream));
	return NULL;
}

static void *end_busy_soon(void *arg)
{
	step_sleep_ms(20);
	end_busy();
	return arg;
}

static void *call_and_end_busy(void *arg)
{
	struct pollfd byte = {.fd = STDIN_FILENO, .events = POLLIN};

	CALL(cuCtxSetCurrent(gpu.ctx));
	/* A test may have something to do meanwhile: see step.h. */
	if (getenv("STEP_LINGER"))
		while (!poll(&byte, 1, 1))
			CALL(cuStreamDestroy(stream_new()));
	else
		step_sleep_ms(2000);
	stream_new();
	end_busy();
	return arg;
}

/* The same while another thread waits for the stream: its synchronisation gives the pieces back. */
static void case_pool_pieces_synced(void)
{
	CUstream stream = stream_new(), other = stream_new();
	int failed = 0;

	for (int i = 0; i < 30; i++) {
		CUmemoryPool pool = pool_new(0);
		size_t half = pieces_free(pool, stream);
		pthread_t waiting, ending;
		CUdeviceptr ptr = 0;

		pthread_create(&waiting, NULL, synchronise, stream);
		pthread_create(&ending, NULL, end_busy_soon, NULL);
		failed += cuMemAllocFromPoolAsync(&ptr, half, pool, other) != CUDA_SUCCESS;
		pthread_join(waiting, NULL);
		pthread_join(ending, NULL);
		CALL(ptr ? cuMemFreeAsync(ptr, other) : CUDA_SUCCESS);
		CALL(cuStreamSynchronize(other));
		CALL(cuMemPoolDestroy(pool));
	}
	say("allocations that failed: %d", failed);
}

/* The work ends only once another thread has made one more call. */
static void case_pool_pieces_calls(void)
{
	CUstream stream = stream_new(), other = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	size_t half = pieces_free(pool, stream);
	pthread_t calling;
	CUdeviceptr ptr = 0;

	pthread_create(&calling, NULL, call_and_end_busy, NULL);
	say("the pieces are freed: yes");
	say_result("half", cuMemAllocFromPoolAsync(&ptr, half, pool, other));
	pthread_join(calling, NULL);
	CALL(cuCtxSynchronize());
}

/* More than there is: to wait for the pool's memory would not help. */
static void case_pool_too_much(void)
{
	CUstream stream = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	CUdeviceptr ptr = pool_alloc(pool, POOL_SIZE, stream);
	size_t free, total;
	double begin;

	CALL(cuMemGetInfo(&free, &total));
	busy(stream);
	CALL(cuMemFreeAsync(ptr, stream));
	begin = now_s();
	say_result("more than the GPU has free, beside a busy stream",
		   cuMemAllocFromPoolAsync(&ptr, free + 64 * MIB, pool, stream));
	say("  it returns at once: %s", yes(now_s() - begin < 5));
	end_busy();
	CALL(cuCtxSynchronize());
}

/* Other threads allocate without a pool what this one gives back: it is theirs. */
static void *alloc_plain(void *arg)
{
	struct seeker *s = arg;
	CUdeviceptr ptr;

	CALL(cuCtxSetCurrent(gpu.ctx));
	while (!__atomic_load_n(&s->ended, __ATOMIC_RELAXED)) {
		CALL(cuMemAlloc(&ptr, POOL_SIZE));
		CALL(cuMemFree(ptr));
	}
	return NULL;
}

static void case_pool_plain(void)
{
	struct seeker seeker = {.pool = pool_new(0), .stream = stream_new()};
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CALL(pthread_create(&threads[i], NULL, i % 2 ? alloc_plain : seek, &seeker)
			     ? CUDA_ERROR_UNKNOWN
			     : CUDA_SUCCESS);
	step_sleep_ms(2000);
	__atomic_store_n(&seeker.ended, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	say("all memory was freed: yes");
}

/* Another thread needs the memory that is freed in a busy stream: this keeps nobody from ending that. */
static void *alloc_half(void *arg)
{
	CUdeviceptr ptr;

	CALL(cuCtxSetCurrent(gpu.ctx));
	cuMemAlloc(&ptr, *(size_t *)arg / 2);
	return NULL;
}

static void case_pool_full_ends(void)
{
	CUstream stream = stream_new();
	CUmemoryPool pool = pool_new(UINT64_MAX);
	size_t free, total;
	pthread_t thread;
	CUdeviceptr ptr;

	CALL(cuMemGetInfo(&free, &total));
	ptr = pool_alloc(pool, free / 4 * 3, stream);
	busy(stream);
	CALL(cuMemFreeAsync(ptr, stream));
	CALL(pthread_create(&thread, NULL, alloc_half, &free) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
	step_sleep_ms(100);
	say_result("the stream's end", cuStreamDestroy(stream));
	end_busy();
	pthread_join(thread, NULL);
}

#endif
