/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes a copy or set of each shape touches, by where it is found to pass an allocation. */
#include "wrapper/kernels/check.h"

#include "tests/check_suite.h"
#include "tests/unit/fake_driver.h"

#define BYTES   4096UL
#define RIGHT   CUDA_SUCCESS
#define WRONG   CUDA_ERROR_ILLEGAL_ADDRESS
#define DEVICE  CU_MEMORYTYPE_DEVICE
#define HOST    CU_MEMORYTYPE_HOST
#define UNIFIED CU_MEMORYTYPE_UNIFIED

static CUdeviceptr ptr;

static void setup(void)
{
	ck_assert_int_eq(vmem_init(&fake_driver), 0);
	vmem_watch();
	check_start(CHECK_FAILS);
	ck_assert_int_eq(vmem_alloc((CUcontext)0x1000, 0, BYTES, &ptr, NULL), CUDA_SUCCESS);
}

START_TEST(ranges)
{
	ck_assert_int_eq(check_range("call", "ptr", ptr, BYTES), RIGHT);
	ck_assert_int_eq(check_range("call", "ptr", ptr, BYTES + 1), WRONG);
	ck_assert_int_eq(check_range("call", "ptr", ptr + BYTES - 1, 1), RIGHT);
	ck_assert_int_eq(check_range("call", "ptr", ptr + BYTES - 1, 2), WRONG);
	ck_assert_int_eq(check_range("call", "ptr", ptr + BYTES, 1), WRONG);
	ck_assert_int_eq(check_range("call", "ptr", ptr + BYTES, 0), RIGHT);
	ck_assert_int_eq(check_range("call", "ptr", ptr, SIZE_MAX), WRONG);
	/* What is not vmem's is not judged. */
	ck_assert_int_eq(check_range("call", "ptr", 0, BYTES), RIGHT);
	ck_assert_int_eq(check_range("call", "ptr", VMEM_BASE - 1, BYTES), RIGHT);
	ck_assert_int_eq(check_range("call", "ptr", 0x7fff00000000, BYTES), RIGHT);
}
END_TEST

START_TEST(extents)
{
	ck_assert_uint_eq(check_extent(100, 10, 7, 3, 2), 10 * 100 + 2 * 100 + 7);
	ck_assert_uint_eq(check_extent(100, 0, 7, 1, 1), 7);
	ck_assert_uint_eq(check_extent(100, 10, 0, 3, 2), 0);
	ck_assert_uint_eq(check_extent(100, 10, 7, 0, 2), 0);
	ck_assert_uint_eq(check_extent(100, 10, 7, 3, 0), 0);
	ck_assert_uint_eq(check_extent(SIZE_MAX, 0, 7, 3, 1), SIZE_MAX);
	ck_assert_uint_eq(check_extent(1, SIZE_MAX / 2, 7, 3, 4), SIZE_MAX);
	ck_assert_uint_eq(check_extent(1, 0, SIZE_MAX, 3, 1), SIZE_MAX);
}
END_TEST

static const struct {
	size_t x, y, z, pitch, rows, width, height, depth;
	CUresult result;
} boxes[] = {
	{0, 0, 0, 64, 8, 64, 8, 8, RIGHT},
	{0, 0, 0, 64, 8, 64, 8, 9, WRONG},
	{0, 0, 0, 64, 8, 65, 8, 8, WRONG},
	{0, 0, 7, 64, 8, 64, 8, 1, RIGHT},
	{0, 1, 7, 64, 8, 64, 8, 1, WRONG},
	{1, 0, 7, 64, 8, 64, 8, 1, WRONG},
	{1, 1, 7, 64, 8, 63, 7, 1, RIGHT},
	{0, 0, 8, 64, 8, 1, 1, 1, WRONG},
	{0, 0, SIZE_MAX, 64, 8, 1, 1, 1, WRONG},
	{0, 0, 99, 64, 8, 0, 1, 1, RIGHT}, /* nothing is copied */
};

/* Each side of each kind of memory; a side that is not device memory is not judged. */
START_TEST(copies_3d)
{
	const CUmemorytype types[] = {DEVICE, UNIFIED, HOST, CU_MEMORYTYPE_ARRAY};

	for (int i = 0; i < 8; i++) {
		CUDA_MEMCPY3D_v2 c = {.WidthInBytes = boxes[_i].width,
				      .Height = boxes[_i].height,
				      .Depth = boxes[_i].depth,
				      .srcMemoryType = HOST,
				      .dstMemoryType = HOST,
				      .srcDevice = ptr,
				      .dstDevice = ptr};
		CUDA_MEMCPY3D_PEER peer;
		CUresult result = i % 4 < 2 ? boxes[_i].result : RIGHT;

		if (i < 4) {
			c.srcMemoryType = types[i];
			c.srcXInBytes = boxes[_i].x;
			c.srcY = boxes[_i].y;
			c.srcZ = boxes[_i].z;
			c.srcPitch = boxes[_i].pitch;
			c.srcHeight = boxes[_i].rows;
		} else {
			c.dstMemoryType = types[i - 4];
			c.dstXInBytes = boxes[_i].x;
			c.dstY = boxes[_i].y;
			c.dstZ = boxes[_i].z;
			c.dstPitch = boxes[_i].pitch;
			c.dstHeight = boxes[_i].rows;
		}
		ck_assert_int_eq(check_copy_3d("call", &c), result);
		memcpy(&peer, &c, sizeof(peer));
		ck_assert_int_eq(check_copy_3d_peer("call", &peer), result);
	}
}
END_TEST

START_TEST(copies_2d)
{
	CUDA_MEMCPY2D_v2 c = {.srcMemoryType = DEVICE,
			      .srcDevice = ptr,
			      .srcPitch = 512,
			      .dstMemoryType = HOST,
			      .WidthInBytes = 512,
			      .Height = 8};

	ck_assert_int_eq(check_copy_2d("call", &c), RIGHT);
	c.srcXInBytes = 1;
	ck_assert_int_eq(check_copy_2d("call", &c), WRONG);
	c.WidthInBytes = 511;
	ck_assert_int_eq(check_copy_2d("call", &c), RIGHT);
	c.srcY = 1;
	ck_assert_int_eq(check_copy_2d("call", &c), WRONG);
	c.srcMemoryType = HOST;
	c.dstMemoryType = DEVICE;
	c.dstDevice = ptr;
	c.dstPitch = 512;
	ck_assert_int_eq(check_copy_2d("call", &c), RIGHT);
	c.dstY = 1;
	ck_assert_int_eq(check_copy_2d("call", &c), WRONG);
}
END_TEST

START_TEST(batches)
{
	CUdeviceptr good[] = {ptr, ptr + 8, 0x7fff00000000}, bad[] = {ptr, ptr + 9, ptr};
	const size_t sizes[] = {BYTES, BYTES - 8, BYTES};
	CUDA_MEMCPY3D_BATCH_OP op = {.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
				     .dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY};

	ck_assert_int_eq(check_copy_batch("call", good, good, sizes, 3), RIGHT);
	ck_assert_int_eq(check_copy_batch("call", bad, good, sizes, 3), WRONG);
	ck_assert_int_eq(check_copy_batch("call", good, bad, sizes, 3), WRONG);
	ck_assert_int_eq(check_copy_batch("call", good, bad, sizes, 1), RIGHT);
	op.extent = (CUextent3D){64, 8, 8};
	op.src.op.ptr.ptr = ptr;
	op.dst.op.ptr.ptr = ptr + BYTES; /* an array: no pointer */
	ck_assert_int_eq(check_copy_3d_batch("call", &op, 1), RIGHT);
	op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
	ck_assert_int_eq(check_copy_3d_batch("call", &op, 1), WRONG);
	op.dst.op.ptr.ptr = ptr;
	ck_assert_int_eq(check_copy_3d_batch("call", &op, 1), RIGHT);
	op.src.op.ptr.rowLength = 65;
	ck_assert_int_eq(check_copy_3d_batch("call", &op, 1), WRONG);
	op.src.op.ptr.rowLength = 64;
	op.dst.op.ptr.layerHeight = 9;
	ck_assert_int_eq(check_copy_3d_batch("call", &op, 1), WRONG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("check");
	TCase *tc = tcase_create("check");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, ranges);
	tcase_add_test(tc, extents);
	tcase_add_loop_test(tc, copies_3d, 0, sizeof(boxes) / sizeof(boxes[0]));
	tcase_add_test(tc, copies_2d);
	tcase_add_test(tc, batches);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
