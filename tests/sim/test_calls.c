/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated driver's operations on memory, copies of less usual shapes, linker, tensor maps. */
#include "tests/check_suite.h"
#include "tests/sim/testing.h"

#define WORDS 256U
#define BYTES (WORDS * sizeof(uint32_t))

static uint32_t host[WORDS];
static CUdeviceptr from, to;
static CUstream stream;

/* Word i of @from is i; @to is 0. */
static void open_with_words(void)
{
	open_context();
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuMemAlloc_v2(&from, BYTES));
	ok(cu.cuMemAlloc_v2(&to, BYTES));
	for (uint32_t i = 0; i < WORDS; i++)
		host[i] = i;
	ok(cu.cuMemcpyHtoD_v2(from, host, BYTES));
	ok(cu.cuMemsetD8_v2(to, 0, BYTES));
	ok(cu.cuCtxSynchronize());
}

static void all_arrived(void)
{
	ok(cu.cuCtxSynchronize());
	ok(cu.cuMemcpyDtoH_v2(host, to, BYTES));
	for (uint32_t i = 0; i < WORDS; i++)
		ck_assert_uint_eq(host[i], i);
	ok(cu.cuMemsetD8_v2(to, 0, BYTES));
	ok(cu.cuCtxSynchronize());
}

START_TEST(test_values_are_waited_for)
{
	CUstream other;

	open_with_words();
	ok(cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamWaitValue32_v2(stream, to, 7, CU_STREAM_WAIT_VALUE_GEQ));
	ok(cu.cuStreamWriteValue32_v2(stream, to + 4, 1, 0));
	ok(cu.cuStreamWriteValue32_v2(other, to, 6, 0));
	ok(cu.cuStreamSynchronize(other));
	fails(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	ok(cu.cuStreamWriteValue32_v2(other, to, 8, 0));
	ok(cu.cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(to + 4), 1);
	fails(cu.cuStreamWaitValue32_v2(stream, to + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuStreamWaitValue64_v2(stream, to + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuStreamWriteValue32_v2(stream, 0x1000, 0, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(test_waits_of_every_kind)
{
	const uint64_t wide = 0x1122334455667788;
	CUstreamBatchMemOpParams ops[] = {
		{.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, .value64 = wide}},
		{.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, .value = 0x55667788,
			       .flags = CU_STREAM_WAIT_VALUE_EQ}},
		{.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, .value64 = 1UL << 60,
			       .flags = CU_STREAM_WAIT_VALUE_AND}},
		{.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, .value64 = wide,
			       .flags = CU_STREAM_WAIT_VALUE_NOR}},
		{.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, .value64 = wide - 1,
			       .flags = CU_STREAM_WAIT_VALUE_GEQ}},
	};

	open_with_words();
	for (int i = 0; i < 5; i++)
		ops[i].waitValue.address = to;
	ok(cu.cuStreamBatchMemOp_v2(stream, 5, ops, 0));
	ok(cu.cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(to), 0x55667788);
	ck_assert_uint_eq(word_at(to + 4), 0x11223344);
	ops[0].operation = CU_STREAM_MEM_OP_BARRIER;
	fails(cu.cuStreamBatchMemOp_v2(stream, 1, ops, 0), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

START_TEST(test_rows_are_set)
{
	open_with_words();
	ok(cu.cuMemsetD2D8_v2(to, 64, 1, 4, 2));
	ok(cu.cuMemsetD2D16_v2(to + 4, 64, 2, 2, 2));
	ok(cu.cuMemsetD2D32Async(to + 8, 64, 3, 1, 2, NULL));
	fails(cu.cuMemsetD2D32_v2(to, 64, 3, 17, 2), CUDA_ERROR_INVALID_VALUE);
	for (CUdeviceptr row = to; row < to + 3 * 64; row += 64) {
		bool set = row < to + 2 * 64;

		ck_assert_uint_eq(word_at(row), set ? 0x01010101 : 0);
		ck_assert_uint_eq(word_at(row + 4), set ? 0x00020002 : 0);
		ck_assert_uint_eq(word_at(row + 8), set ? 3 : 0);
		ck_assert_uint_eq(word_at(row + 12), 0);
	}
}
END_TEST

START_TEST(test_copies)
{
	const CUDA_ARRAY3D_DESCRIPTOR desc = {
		.Width = WORDS, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
	CUDA_MEMCPY3D_PEER copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				   .WidthInBytes = BYTES,
				   .Height = 1,
				   .Depth = 1};
	CUdeviceptr tos[2], froms[2];
	size_t sizes[] = {BYTES / 2, BYTES / 2};
	CUarray array;

	open_with_words();
	copy.srcDevice = from;
	copy.dstDevice = to;
	ok(cu.cuMemcpy3DPeer(&copy));
	all_arrived();
	for (int i = 0; i < 2; i++) {
		tos[i] = to + i * sizes[0];
		froms[i] = from + i * sizes[0];
	}
	ok(cu.cuMemcpyBatchAsync_v2(tos, froms, sizes, 2, NULL, NULL, 0, stream));
	all_arrived();
	fails(cu.cuMemcpyBatchAsync_v2(tos, froms, sizes, 2, NULL, NULL, 0, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuArray3DCreate_v2(&array, &desc));
	ok(cu.cuMemcpyDtoA_v2(array, 0, from, BYTES));
	ok(cu.cuMemcpyAtoD_v2(to, array, 0, BYTES));
	all_arrived();
	ok(cu.cuMemcpyHtoA_v2(array, 4, host, 8));
	ok(cu.cuMemcpyAtoH_v2(host, array, 0, 12));
	ck_assert_uint_eq(host[0], 0);
	ck_assert_uint_eq(host[1], 0);
	ck_assert_uint_eq(host[2], 1);
	fails(cu.cuMemcpyAtoD_v2(to, array, 4, BYTES), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(test_linker)
{
	uint64_t count = WORDS;
	void *params[] = {&from, &count}, *image;
	CUmodule linked;
	CUlinkState state;
	CUfunction f;
	size_t size;

	open_with_words();
	ok(cu.cuLinkCreate_v2(0, NULL, NULL, &state));
	fails(cu.cuLinkComplete(state, &image, &size), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, ".entry fill(", 13, NULL, 0, NULL, NULL));
	ok(cu.cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, ".entry increment(", 18, NULL, 0, NULL,
			       NULL));
	ok(cu.cuLinkComplete(state, &image, &size));
	ok(cu.cuModuleLoadData(&linked, image));
	ok(cu.cuLinkDestroy(state));
	fails(cu.cuLinkDestroy(state), CUDA_ERROR_INVALID_HANDLE);
	ok(cu.cuModuleGetFunction(&f, linked, "fill"));
	ok(cu.cuModuleGetFunction(&f, linked, "increment"));
	ok(cu.cuLaunchCooperativeKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, params));
	ck_assert_uint_eq(word_at(from + 4), 2);
}
END_TEST

START_TEST(test_tensor_maps)
{
	const cuuint64_t dims[] = {64, WORDS / 64}, pitch = 256;
	const cuuint32_t box[] = {32, 8}, steps[] = {1, 1};
	uint32_t x = 4, y = 1;
	CUtensorMap map;
	void *params[] = {&map, &to, &x, &y};
	CUmodule own;
	CUfunction f;

	open_with_words();
	ok(cu.cuModuleLoadData(&own, ".entry load_tile("));
	ok(cu.cuModuleGetFunction(&f, own, "load_tile"));
	ok(cu.cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, (void *)to, dims,
				     &pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
				     CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
				     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
	ok(cu.cuTensorMapReplaceAddress(&map, (void *)from));
	ok(cu.cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
	ck_assert_uint_eq(word_at(to), 64 + 4);
	ck_assert_uint_eq(word_at(to + 4 * 31), 64 + 4 + 31);
	ck_assert_uint_eq(word_at(to + 4 * 32), 2 * 64 + 4);
	ck_assert_uint_eq(word_at(to + 4 * 3 * 32), 0); /* outside of it */
}
END_TEST

START_TEST(test_nodes_of_any_type)
{
	CUgraphNodeParams set = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	CUgraphNodeParams copy = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;

	open_with_words();
	set.memset.dst = from;
	set.memset.value = 9;
	set.memset.elementSize = 4;
	set.memset.width = set.memset.height = 1;
	copy.memcpy.copyParams = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
						 .srcDevice = from,
						 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
						 .dstDevice = to,
						 .WidthInBytes = BYTES,
						 .Height = 1,
						 .Depth = 1};
	ok(cu.cuGraphCreate(&graph, 0));
	ok(cu.cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &set));
	ok(cu.cuGraphAddNode_v2(&node, graph, &node, NULL, 1, &copy));
	set.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	fails(cu.cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &set), CUDA_ERROR_NOT_SUPPORTED);
	ok(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cu.cuGraphLaunch(exec, stream));
	ok(cu.cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(to), 9);
	ck_assert_uint_eq(word_at(to + 4), 1);
}
END_TEST

START_TEST(test_attachments)
{
	CUdeviceptr managed;

	open_with_words();
	ok(cu.cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_HOST));
	ok(cu.cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE));
	ok(cu.cuStreamAttachMemAsync(NULL, managed, BYTES, CU_MEM_ATTACH_GLOBAL));
	fails(cu.cuStreamAttachMemAsync(NULL, managed, 0, CU_MEM_ATTACH_SINGLE),
	      CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuStreamAttachMemAsync(stream, managed, 4, CU_MEM_ATTACH_GLOBAL),
	      CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuStreamAttachMemAsync(stream, managed, 0, 3), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuStreamAttachMemAsync(stream, from, 0, CU_MEM_ATTACH_GLOBAL),
	      CUDA_ERROR_INVALID_VALUE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: calls");
	TCase *tcase = tcase_create("calls");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, test_values_are_waited_for);
	tcase_add_test(tcase, test_waits_of_every_kind);
	tcase_add_test(tcase, test_rows_are_set);
	tcase_add_test(tcase, test_copies);
	tcase_add_test(tcase, test_linker);
	tcase_add_test(tcase, test_tensor_maps);
	tcase_add_test(tcase, test_nodes_of_any_type);
	tcase_add_test(tcase, test_attachments);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
