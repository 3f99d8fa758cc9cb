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

	ck_assert_int_eq(vmem_alloc(ctx, 0, size, &ptr, NULL), CUDA_SUCCESS);
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
	ck_assert_int_eq(vmem_free(first, 0), CUDA_SUCCESS);
	ck_assert_int_eq(vmem_free(second, 0), CUDA_SUCCESS);
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
	ck_assert_int_eq(vmem_free(small, 0), CUDA_SUCCESS);
	ck_assert_int_eq(vmem_free(large, 0), CUDA_SUCCESS);
	ck_assert_int_ne(vmem_free(large, 0), CUDA_SUCCESS);
	ck_assert(vmem_lookup_freed(small + 999, &info));
	ck_assert_uint_eq(info.start, small);
	ck_assert_uint_eq(info.size, 1000);
	ck_assert_uint_eq(info.id, 1);
	ck_assert(!vmem_lookup_freed(small + 1000, &info));
	ck_assert(vmem_lookup_freed(large, &info));
	ck_assert_uint_eq(info.id, 2);
	/* The same address again: the one that was freed last. */
	ck_assert_uint_eq(alloc(10), small);
	ck_assert_int_eq(vmem_free(small, 0), CUDA_SUCCESS);
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

#define WINDOW (1UL << 32)
#define GB     (1UL << 30)

/* Each in windows of its own, 512 MiB behind the beginning of one; small ones are elsewhere. */
START_TEST(large_ones_share_no_upper_half)
{
	static const size_t mib[] = {760, 1024, 3500, 3580, 3584, 4000, 4096, 8000};
	CUdeviceptr ptrs[24], small = alloc(20 * MB);

	for (size_t i = 0; i < 24; i++)
		ptrs[i] = alloc(1024 * MB);
	for (size_t i = 0; i < 24; i += 2)
		ck_assert_int_eq(vmem_free(ptrs[i], 0), CUDA_SUCCESS);
	vmem_trim();
	for (size_t i = 0; i < 24; i += 2)
		ptrs[i] = alloc(mib[i / 2 % 8] * MB);
	ck_assert_uint_eq(fake.nreserved, 2);
	for (size_t i = 0; i < 24; i++) {
		size_t size = i % 2 ? 1024 * MB : mib[i / 2 % 8] * MB;

		ck_assert_uint_eq(ptrs[i] % WINDOW, 512 * MB);
		ck_assert_uint_ne(ptrs[i] / WINDOW, small / WINDOW);
		for (size_t j = 0; j < 24; j++)
			ck_assert(i == j || ptrs[j] / WINDOW < ptrs[i] / WINDOW ||
				  ptrs[j] / WINDOW > (ptrs[i] + size - 1) / WINDOW);
	}
}
END_TEST

/* As by ulimit -v: all are in the one segment, where they should be as far as there is room. */
START_TEST(there_are_few_addresses)
{
	CUdeviceptr ptrs[60], large, ptr;
	unsigned int calls;

	fake.reserve_max = 64 * GB;
	ptr = alloc(20 * MB);
	ck_assert_uint_ge((uint32_t)ptr, 0x50000000);
	fake.reserve_max = 1;
	large = alloc(GB);
	ck_assert_uint_eq(large % WINDOW, 512 * MB);
	ck_assert_uint_eq(fake.nreserved, 1);
	for (size_t i = 0; i < 60; i++)
		ptrs[i] = alloc(700 * MB);
	ck_assert_uint_ge((uint32_t)ptrs[0], 0x50000000);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 62);
	/* That there are no more is known. */
	calls = fake.calls;
	ptr = alloc(2 * GB);
	ck_assert_uint_le(fake.calls, calls + 10);
	ck_assert_int_eq(vmem_alloc(ctx, 0, 60 * GB, &ptr, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	for (size_t i = 0; i < 60; i++)
		ck_assert_int_eq(vmem_free(ptrs[i], 0), CUDA_SUCCESS);
	ck_assert_uint_ge((uint32_t)alloc(700 * MB), 0x50000000);
}
END_TEST

/* A segment of just this size has no room for it where it should be. */
START_TEST(one_fills_a_segment)
{
	fake.reserve_max = 64 * GB;
	ck_assert_uint_eq(alloc(64 * GB - 2 * VMEM_GRANULE), VMEM_BASE);
	ck_assert_uint_ge((uint32_t)alloc(2 * MB), 0x50000000);
	ck_assert_uint_eq(alloc(64 * GB - 2 * VMEM_GRANULE), VMEM_BASE + 128 * GB);
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
	tcase_add_test(tc, large_ones_share_no_upper_half);
	tcase_add_test(tc, there_are_few_addresses);
	tcase_add_test(tc, one_fills_a_segment);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
