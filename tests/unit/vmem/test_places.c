/* SPDX-License-Identifier: Apache-2.0 */
/* The reverse of translated addresses, while the driver gives out an address anew at once. */
#include "vmem/addresses/places.h"

#include "tests/check_suite.h"

#define REAL 0x7f0000000000UL
#define SIZE 0x200000UL

static const CUdeviceptr starts[] = {0x550100000000UL, 0x550100400000UL, 0x550100800000UL};

static CUdeviceptr start_at(CUdeviceptr real)
{
	struct place near[PLACES_NEAR];

	ck_assert_uint_eq(places_near(real, SIZE / 2, near), 1);
	return near[0].start;
}

START_TEST(memory_that_took_the_address_is_kept)
{
	ck_assert_int_eq(places_add(REAL, starts[_i], SIZE), 0);
	ck_assert_int_eq(places_add(REAL, starts[2], SIZE), 0);
	places_remove(REAL, starts[1 - _i]);
	places_remove(REAL, starts[_i]);
	ck_assert_uint_eq(start_at(REAL + SIZE / 2), starts[2]);
	places_remove(REAL, starts[2]);
}
END_TEST

START_TEST(neighbours_are_kept)
{
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(places_add(REAL + 2 * i * SIZE, starts[i], SIZE), 0);
	places_remove(REAL + 2 * SIZE, starts[0]);
	places_remove(REAL, starts[0]);
	ck_assert_uint_eq(start_at(REAL + 2 * SIZE + SIZE / 2), starts[1]);
	ck_assert_uint_eq(start_at(REAL + 4 * SIZE + SIZE / 2), starts[2]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("places");
	TCase *tc = tcase_create("places");

	tcase_add_loop_test(tc, memory_that_took_the_address_is_kept, 0, 2);
	tcase_add_test(tc, neighbours_are_kept);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
