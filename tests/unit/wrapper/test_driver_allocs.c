/* SPDX-License-Identifier: Apache-2.0 */
/* How many bytes arrays are taken for. */
#include "tests/check_suite.h"
#include "wrapper/hooks/driver_allocs.h"

/* Of 64 x 64 texels. */
static const struct {
	CUarray_format format;
	unsigned int channels;
	size_t bytes;
} formats[] = {
	{CU_AD_FORMAT_UNSIGNED_INT8, 1, 4096},
	{CU_AD_FORMAT_HALF, 2, 4 * 4096},
	{CU_AD_FORMAT_FLOAT, 4, 16 * 4096},
	{CU_AD_FORMAT_UNORM_INT8X4, 4, 4 * 4096},
	{CU_AD_FORMAT_UNORM_INT16X1, 1, 2 * 4096},
	{CU_AD_FORMAT_UNORM_INT16X4, 4, 8 * 4096},
	{CU_AD_FORMAT_SNORM_INT8X2, 2, 2 * 4096},
	{CU_AD_FORMAT_SNORM_INT16X2, 2, 4 * 4096},
	{CU_AD_FORMAT_UNORM_INT_101010_2, 4, 4 * 4096},
	{CU_AD_FORMAT_NV12, 3, 4096 + 4096 / 2},
	{CU_AD_FORMAT_P016, 3, 2 * (4096 + 4096 / 2)},
	{CU_AD_FORMAT_P210, 3, 4 * 4096},
	{CU_AD_FORMAT_Y216, 2, 4 * 4096},
	{CU_AD_FORMAT_Y416, 4, 8 * 4096},
	{CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 3, 6 * 4096},
	{CU_AD_FORMAT_BC1_UNORM, 4, 4096 / 2},
	{CU_AD_FORMAT_BC4_SNORM, 1, 4096 / 2},
	{CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 4096},
	{CU_AD_FORMAT_MAX, 1, 4096},
};

START_TEST(arrays_have_the_bytes_of_their_texels)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {.Width = 64,
					    .Height = 64,
					    .Format = formats[_i].format,
					    .NumChannels = formats[_i].channels};
	const CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 64,
					      .Height = 64,
					      .Depth = 3,
					      .Format = formats[_i].format,
					      .NumChannels = formats[_i].channels};

	ck_assert_uint_eq(array_bytes(&flat), formats[_i].bytes);
	ck_assert_uint_eq(array3d_bytes(&deep), 3 * formats[_i].bytes);
	ck_assert_uint_eq(mipmapped_bytes(&deep, 2), 6 * formats[_i].bytes);
}
END_TEST

START_TEST(arrays_of_one_dimension)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 100, .Format = CU_AD_FORMAT_SIGNED_INT32, .NumChannels = 2};
	const CUDA_ARRAY3D_DESCRIPTOR sparse = {.Width = 100,
						.Format = CU_AD_FORMAT_FLOAT,
						.NumChannels = 2,
						.Flags = CUDA_ARRAY3D_SPARSE};

	ck_assert_uint_eq(array_bytes(&flat), 800);
	ck_assert_uint_eq(array3d_bytes(&sparse), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory left to the driver");
	TCase *tc = tcase_create("arrays");

	tcase_add_loop_test(tc, arrays_have_the_bytes_of_their_texels, 0,
			    sizeof(formats) / sizeof(formats[0]));
	tcase_add_test(tc, arrays_of_one_dimension);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
