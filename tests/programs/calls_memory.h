/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CALLS_MEMORY_H
#define CUDAW_CALLS_MEMORY_H
/* Copies, sets, operations of streams on memory, and hints; see calls.h. */
#include "tests/programs/calls.h"

#define HALF (SIZE / 2)
#define ROW  1024UL /* bytes */
#define ROWS (SIZE / ROW)

static CUarray array;
static CUresult prefetched = CUDA_ERROR_NOT_SUPPORTED, advised = CUDA_ERROR_NOT_SUPPORTED;

static void copy_any(uint32_t step)
{
	(void)step;
	CALL(cuMemcpy(b, a, HALF));
	CALL(cuMemcpyAsync(b + HALF, a + HALF, HALF, stream));
	expect_copy("cuMemcpy");
	CALL(cuMemcpy((CUdeviceptr)host, a, SIZE));
	CALL(cuMemcpy(b, (CUdeviceptr)host, SIZE));
	expect_copy("cuMemcpy from and to the host");
}

static void copy_peer(uint32_t step)
{
	(void)step;
	CALL(cuMemcpyPeer(b, gpu.ctx, a, gpu.ctx, HALF));
	CALL(cuMemcpyPeerAsync(b + HALF, gpu.ctx, a + HALF, gpu.ctx, HALF, stream));
	expect_copy("cuMemcpyPeer");
}

static void copy_shapes(uint32_t step)
{
	const CUDA_MEMCPY2D rectangle = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
					 .srcDevice = a,
					 .srcPitch = ROW,
					 .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
					 .dstDevice = b,
					 .dstPitch = ROW,
					 .WidthInBytes = ROW,
					 .Height = ROWS};
	const CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
				   .srcDevice = a,
				   .srcPitch = ROW,
				   .srcHeight = ROWS / 4,
				   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				   .dstDevice = b,
				   .dstPitch = ROW,
				   .dstHeight = ROWS / 4,
				   .WidthInBytes = ROW,
				   .Height = ROWS / 4,
				   .Depth = 4};
	const CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
					 .srcDevice = a,
					 .srcContext = gpu.ctx,
					 .srcPitch = ROW,
					 .srcHeight = ROWS / 4,
					 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					 .dstDevice = b,
					 .dstContext = gpu.ctx,
					 .dstPitch = ROW,
					 .dstHeight = ROWS / 4,
					 .WidthInBytes = ROW,
					 .Height = ROWS / 4,
					 .Depth = 4};

	(void)step;
	CALL(cuMemcpy2D(&rectangle));
	expect_copy("cuMemcpy2D");
	CALL(cuMemcpy2DUnaligned(&rectangle));
	expect_copy("cuMemcpy2DUnaligned");
	CALL(cuMemcpy3D(&box));
	expect_copy("cuMemcpy3D");
	CALL(cuMemcpy3DPeer(&peer));
	expect_copy("cuMemcpy3DPeer");
	CALL(cuMemcpy3DPeerAsync(&peer, stream));
	expect_copy("cuMemcpy3DPeerAsync");
}

static void copy_batch(uint32_t step)
{
	CUdeviceptr to[] = {b, b + HALF}, from[] = {a, a + HALF};
	size_t sizes[] = {HALF, HALF}, index = 0;
	CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

	(void)step;
	CALL(cuMemcpyBatchAsync(to, from, sizes, 2, &how, &index, 1, stream));
	expect_copy("cuMemcpyBatchAsync");
}

static void make_array(void)
{
	const CUDA_ARRAY_DESCRIPTOR words = {
		.Width = WORDS, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};

	CALL(cuArrayCreate(&array, &words));
}

static void copy_arrays(uint32_t step)
{
	(void)step;
	CALL(cuMemcpyDtoA(array, 0, a, SIZE));
	CALL(cuMemcpyAtoD(b, array, 0, SIZE));
	expect_copy("cuMemcpyDtoA, cuMemcpyAtoD");
	for (size_t i = 0; i < WORDS; i++)
		host[i] = first + (uint32_t)i;
	CALL(cuMemcpyHtoA(array, 0, host, SIZE));
	memset(host, 0, sizeof(host));
	CALL(cuMemcpyAtoH(host, array, 0, SIZE));
	CALL(cuMemcpyHtoD(b, host, SIZE));
	expect_copy("cuMemcpyHtoA, cuMemcpyAtoH");
}

static void set_rows(uint32_t step)
{
	const size_t rows = 2, words = rows * ROW / sizeof(uint32_t);
	CUdeviceptr at = b;

	CALL(cuMemsetD2D8(at, ROW, step & 0xff, ROW, rows));
	CALL(cuMemsetD2D16(at += rows * ROW, ROW, step & 0xffff, ROW / 2, rows));
	CALL(cuMemsetD2D32(at += rows * ROW, ROW, step, ROW / 4, rows));
	CALL(cuMemsetD2D8Async(at += rows * ROW, ROW, ~step & 0xff, ROW, rows, stream));
	CALL(cuMemsetD2D16Async(at += rows * ROW, ROW, ~step & 0xffff, ROW / 2, rows, stream));
	CALL(cuMemsetD2D32Async(at += rows * ROW, ROW, ~step, ROW / 4, rows, stream));
	for (int i = 0; i < 2; i++) {
		const uint32_t value = i ? ~step : step;

		at = b + i * 3 * rows * ROW;
		expect("cuMemsetD2D8", at, words, (value & 0xff) * 0x01010101, 0);
		expect("cuMemsetD2D16", at += rows * ROW, words, (value & 0xffff) * 0x00010001, 0);
		expect("cuMemsetD2D32", at += rows * ROW, words, value, 0);
	}
}

/* What is waited for has been written before: the stream would stay where it is otherwise. */
static void write_and_wait(uint32_t step)
{
	const uint64_t wide = (uint64_t)~step << 32 | step;
	CUstreamBatchMemOpParams ops[] = {
		{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
				.address = b + 16,
				.value = step}},
		{.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
			       .address = b + 16,
			       .value = step,
			       .flags = CU_STREAM_WAIT_VALUE_EQ}},
		{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
				.address = b + 24,
				.value64 = wide}},
		{.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64,
			       .address = b + 24,
			       .value64 = wide,
			       .flags = CU_STREAM_WAIT_VALUE_EQ}},
	};

	CALL(cuStreamWriteValue32(stream, b, step, CU_STREAM_WRITE_VALUE_DEFAULT));
	CALL(cuStreamWaitValue32(stream, b, step, CU_STREAM_WAIT_VALUE_EQ));
	CALL(cuStreamWriteValue64(stream, b + 8, wide, CU_STREAM_WRITE_VALUE_DEFAULT));
	CALL(cuStreamWaitValue64(stream, b + 8, wide, CU_STREAM_WAIT_VALUE_EQ));
	CALL(cuStreamBatchMemOp(stream, sizeof(ops) / sizeof(ops[0]), ops, 0));
	for (int i = 0; i < 2; i++) {
		expect("32 bits written", b + 16 * i, 1, step, 0);
		expect("64 bits written", b + 16 * i + 8, 2, step, ~step - step);
	}
}

/*
 * They are for managed memory; natively the driver refuses them for any other. What they return is
 * the same in every step, and printed in the end.
 */
static void give_hints(uint32_t step)
{
	const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev};
	CUresult prefetch = cuMemPrefetchAsync(a, SIZE, where, 0, stream);
	CUresult advise = cuMemAdvise(a, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, where);

	if (step && (prefetch != prefetched || advise != advised))
		step_die("calls: hints return %d and %d, not %d and %d", prefetch, advise,
			 prefetched, advised);
	prefetched = prefetch;
	advised = advise;
}

static void report_hints(void)
{
	const char *prefetch, *advise;

	CALL(cuGetErrorName(prefetched, &prefetch));
	CALL(cuGetErrorName(advised, &advise));
	printf("cuMemPrefetchAsync %s\ncuMemAdvise %s\n", prefetch, advise);
}

#endif
