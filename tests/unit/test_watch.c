/* SPDX-License-Identifier: Apache-2.0 */
/* What vmem does for the checks of pointers: gaps, and the memory of what was freed. */
#include "tests/check_suite.h"
#include "tests/unit/fake_driver.h"
#include "vmem/freed.h"

#define MB (1UL << 20)

static const CUcontext ctx = (CUcontext)0x1000;

static void setup(void)
{
	ck_assert_int_eq(vmem_init(&fake_driver), 0);
	vmem_watch();
}

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr ptr;

	ck_assert_int_eq(vmem_alloc(ctx, 0, size, &ptr), CUDA_SUCCESS);
	return ptr;
}

START_TEST(an_end_is_in_no_other_allocation)
{
	static const size_t sizes[] = {1, 511, 512, 513, 4096, MB, 2 * MB - 1, 2 * MB, 5 * MB};
	struct vmem_info info;

	for (size_t i = 0; i < 9; i++) {
		CUdeviceptr first = alloc(sizes[i]), second = alloc(sizes[i]);

		ck_assert(vmem_lookup(first + sizes[i] - 1, &info));
		ck_assert_uint_eq(info.start, first);
		ck_assert_uint_eq(info.size, sizes[i]);
		ck_assert(!vmem_lookup(first + sizes[i], &info));
		ck_assert(!vmem_lookup(second + sizes[i], &info));
	}
}
END_TEST

START_TEST(gaps_take_addresses_but_no_memory)
{
	struct vmem_region regions[4];
	CUdeviceptr first = alloc(4 * MB), second = alloc(4 * MB);
	struct vmem_stats st;

	ck_assert_uint_eq(second, first + 4 * MB + 2 * VMEM_GRANULE);
	ck_assert_uint_ge((uint32_t)first, 0x50000000);
	vmem_get_stats(&st);
	ck_assert_uint_eq(st.mapped, 8 * MB);
	ck_assert_uint_eq(fake.used[0], 8 * MB);
	ck_assert_uint_eq(vmem_regions(regions, 4), 2);
	ck_assert_uint_eq(regions[0].size, 4 * MB);
	ck_assert_uint_eq(regions[1].start, second);
	ck_assert_int_eq(vmem_free(first), CUDA_SUCCESS);
	ck_assert_int_eq(vmem_free(second), CUDA_SUCCESS);
	vmem_trim();
	ck_assert_uint_eq(vmem_regions(regions, 4), 0);
	/* The gap went with its region: the same addresses are free in one run. */
	ck_assert_uint_eq(alloc(8 * MB), first);
}
END_TEST

START_TEST(freed_allocations_are_remembered)
{
	CUdeviceptr small = alloc(1000), large = alloc(3 * MB);
	struct vmem_info info;

	ck_assert(!vmem_lookup_freed(small, &info));
	ck_assert_int_eq(vmem_free(small), CUDA_SUCCESS);
	ck_assert_int_eq(vmem_free(large), CUDA_SUCCESS);
	ck_assert_int_ne(vmem_free(large), CUDA_SUCCESS);
	ck_assert(vmem_lookup_freed(small + 999, &info));
	ck_assert_uint_eq(info.start, small);
	ck_assert_uint_eq(info.size, 1000);
	ck_assert_uint_eq(info.id, 1);
	ck_assert(!vmem_lookup_freed(small + 1000, &info));
	ck_assert(vmem_lookup_freed(large, &info));
	ck_assert_uint_eq(info.id, 2);
	/* The same address again: the one that was freed last. */
	ck_assert_uint_eq(alloc(10), small);
	ck_assert_int_eq(vmem_free(small), CUDA_SUCCESS);
	ck_assert(vmem_lookup_freed(small + 9, &info));
	ck_assert_uint_eq(info.size, 10);
	ck_assert(vmem_lookup_freed(small + 10, &info));
	ck_assert_uint_eq(info.size, 1000);
}
END_TEST

START_TEST(the_oldest_is_forgotten)
{
	struct freed *freed = freed_new();
	struct vmem_info info;

	for (unsigned long i = 0; i <= FREED_MAX; i++)
		freed_add(freed,
			  &(struct vmem_info){.start = VMEM_BASE + 512 * i, .size = 512, .id = i});
	ck_assert(!freed_find(freed, VMEM_BASE, &info));
	for (unsigned long i = 1; i <= FREED_MAX; i++) {
		ck_assert(freed_find(freed, VMEM_BASE + 512 * i + 511, &info));
		ck_assert_uint_eq(info.id, i);
	}
	ck_assert(!freed_find(freed, VMEM_BASE + 512 * (FREED_MAX + 1), &info));
	free(freed);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("watch");
	TCase *tc = tcase_create("watch");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, an_end_is_in_no_other_allocation);
	tcase_add_test(tc, gaps_take_addresses_but_no_memory);
	tcase_add_test(tc, freed_allocations_are_remembered);
	tcase_add_test(tc, the_oldest_is_forgotten);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
