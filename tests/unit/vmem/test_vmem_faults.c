/* SPDX-License-Identifier: Apache-2.0 */
/* Mapping and unmapping, and calls of the driver that fail. */
#include "tests/check_suite.h"
#include "tests/unit/vmem/allocating.h"

START_TEST(out_of_memory_changes_nothing)
{
	CUdeviceptr ptr = 42;
	size_t n = 0;

	fake.limit[0] = 200 * MB;
	alloc(90 * MB);
	ck_assert_int_eq(vmem_alloc(CTX1, 0, 150 * MB, &ptr, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(ptr, 42);
	check_stats(90 * MB, 90 * MB, 0, 1);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 1);
	/* Slabs grow smaller again before they fail: every byte can be had. */
	while (vmem_alloc(CTX1, 0, MB, &ptr, NULL) == CUDA_SUCCESS)
		n++;
	ck_assert_uint_eq(n, 110);
	check_stats(200 * MB, 200 * MB, 0, 111);
}
END_TEST

START_TEST(pause_and_resume_keep_addresses)
{
	CUdeviceptr a = alloc(4 * KB), b = alloc(100 * MB), c = alloc_on(CTX2, 1, 3 * MB);
	struct vmem_region regions[4];

	for (int round = 0; round < 3; round++) {
		ck_assert_uint_eq(vmem_regions(regions, 4), 3);
		ck_assert_uint_lt(regions[0].start, regions[1].start);
		ck_assert_uint_lt(regions[1].start, regions[2].start);
		for (int i = 0; i < 3; i++) {
			ck_assert(regions[i].mapped);
			OK(vmem_region_unmap(regions[i].start));
			OK(vmem_region_unmap(regions[i].start));
		}
		check_stats(103 * MB + 4 * KB, 0, 0, 3);
		check_info(a, a, 4 * KB, CTX1, 0);
		check_info(b + 99 * MB, b, 100 * MB, CTX1, 0);
		ck_assert_uint_eq(vmem_regions(regions, 4), 3);
		for (int i = 2; i >= 0; i--) {
			ck_assert(!regions[i].mapped);
			OK(vmem_region_map(regions[i].start));
			OK(vmem_region_map(regions[i].start));
		}
		check_stats(103 * MB + 4 * KB, 106 * MB, 0, 3);
		ck_assert_uint_eq(fake_users(b, 100 * MB), 1 << 0);
		ck_assert_uint_eq(fake_users(c, 4 * MB), 1 << 1);
	}
	OK(vmem_free(a, 0));
	OK(vmem_free(b, 0));
	OK(vmem_free(c, 0));
	vmem_trim();
	check_stats(0, 0, 0, 0);
}
END_TEST

START_TEST(a_failed_map_leaves_the_region_unmapped)
{
	CUdeviceptr ptr = alloc(VMEM_PIECE);
	struct vmem_region region;

	OK(vmem_region_unmap(ptr));
	fake.limit[0] = VMEM_PIECE - 2 * MB; /* too little for it */
	ck_assert_int_eq(vmem_region_map(ptr), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(vmem_regions(&region, 1), 1);
	ck_assert(!region.mapped);
	check_stats(VMEM_PIECE, 0, 0, 1);
	fake.limit[0] = 0;
	OK(vmem_region_map(ptr));
	check_stats(VMEM_PIECE, VMEM_PIECE, 0, 1);
}
END_TEST

/* Its last piece goes first and comes back last. */
START_TEST(a_large_region_is_unmapped_in_part)
{
	size_t size = 2 * VMEM_PIECE + 36 * MB;
	CUdeviceptr ptr = alloc(size), other = alloc(8 * MB);
	struct vmem_region r[5];

	OK(vmem_access_enable(CTX3, 1, CTX1, 0));
	ck_assert_uint_eq(vmem_regions(r, 5), 4);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(r[i].start, ptr + i * VMEM_PIECE);
		ck_assert_uint_eq(r[i].size, i < 2 ? VMEM_PIECE : 36 * MB);
		ck_assert(r[i].mapped);
	}
	ck_assert_uint_eq(r[3].start, other);
	ck_assert_int_eq(vmem_region_unmap(ptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_region_unmap(ptr + 2 * MB), CUDA_ERROR_INVALID_VALUE);
	OK(vmem_region_unmap(r[2].start));
	OK(vmem_region_unmap(r[1].start));
	OK(vmem_region_unmap(r[1].start));
	check_stats(size + 8 * MB, VMEM_PIECE + 8 * MB, 0, 2);
	check_info(r[2].start, ptr, size, CTX1, 0);
	ck_assert_uint_eq(vmem_regions(r, 5), 4);
	ck_assert(r[0].mapped && !r[1].mapped && !r[2].mapped && r[3].mapped);
	ck_assert_int_eq(vmem_region_map(r[2].start), CUDA_ERROR_INVALID_VALUE);
	fake.limit[0] = 2 * VMEM_PIECE + 8 * MB; /* enough for one more, not for both */
	OK(vmem_region_map(r[0].start));
	OK(vmem_region_map(r[1].start));
	ck_assert_int_eq(vmem_region_map(r[2].start), CUDA_ERROR_OUT_OF_MEMORY);
	check_stats(size + 8 * MB, 2 * VMEM_PIECE + 8 * MB, 0, 2);
	fake.limit[0] = 0;
	OK(vmem_region_map(r[2].start));
	check_stats(size + 8 * MB, size + 8 * MB, 0, 2);
	ck_assert_uint_eq(fake_users(ptr, size), 1 << 0 | 1 << 1);
	OK(vmem_free(ptr, 0));
	check_stats(8 * MB, 8 * MB, 0, 1);
}
END_TEST

/* What a failed map of a piece has left is undone before the next attempt; other pieces stay. */
START_TEST(a_piece_that_is_left_mapped)
{
	CUdeviceptr ptr = alloc(2 * VMEM_PIECE);

	OK(vmem_region_unmap(ptr + VMEM_PIECE));
	/* Create, map, release, and then the grant fails, and no unmap succeeds. */
	fake.calls = 0;
	fake.fail_at = 4;
	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.unmap_fails = CUDA_ERROR_UNKNOWN;
	ck_assert_int_eq(vmem_region_map(ptr + VMEM_PIECE), CUDA_ERROR_UNKNOWN);
	ck_assert(vmem_has_left());
	ck_assert_uint_eq(fake.used[0], 2 * VMEM_PIECE);
	ck_assert_int_eq(vmem_region_map(ptr + VMEM_PIECE), CUDA_ERROR_UNKNOWN);
	fake.unmap_fails = CUDA_SUCCESS;
	OK(vmem_region_unmap(ptr + VMEM_PIECE));
	ck_assert(!vmem_has_left());
	check_stats(2 * VMEM_PIECE, VMEM_PIECE, 0, 1);
	OK(vmem_region_map(ptr + VMEM_PIECE));
	check_stats(2 * VMEM_PIECE, 2 * VMEM_PIECE, 0, 1);
}
END_TEST

/* Neither the grant nor its undoing works: what is left is undone before the next attempt. */
START_TEST(a_failed_map_that_is_not_undone)
{
	struct vmem_region region;
	CUdeviceptr ptr;

	OK(vmem_alloc(CTX1, 0, 8 << 20, &ptr, NULL));
	ck_assert_uint_eq(vmem_regions(&region, 1), 1);
	OK(vmem_region_unmap(region.start));
	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.fail_at = fake.calls + 4; /* create, map, release, access */
	fake.unmap_fails = CUDA_ERROR_NOT_READY;
	ck_assert_int_eq(vmem_region_map(region.start), CUDA_ERROR_UNKNOWN);
	ck_assert_int_eq(fake.failed_call, FAKE_ACCESS);
	ck_assert(vmem_has_left());
	ck_assert_int_eq(vmem_region_map(region.start), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(vmem_region_unmap(region.start), CUDA_ERROR_NOT_READY);
	ck_assert(vmem_has_left());
	fake.unmap_fails = CUDA_SUCCESS;
	if (_i) {
		OK(vmem_region_unmap(region.start));
		ck_assert_uint_eq(fake.used[0], 0);
	}
	OK(vmem_region_map(region.start));
	ck_assert(!vmem_has_left());
	ck_assert_uint_eq(fake.used[0], 8 << 20);
	OK(vmem_free(ptr, 0));
	vmem_trim();
	ck_assert_uint_eq(fake.used[0], 0);
}
END_TEST

/* The same of a new allocation: its addresses are nobody's until they are free of it. */
START_TEST(a_failed_allocation_that_is_not_undone)
{
	CUdeviceptr ptr, first;

	OK(vmem_alloc(CTX1, 0, 8 << 20, &first, NULL));
	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.fail_at = fake.calls + 4;
	fake.unmap_fails = CUDA_ERROR_NOT_READY;
	ck_assert_int_eq(vmem_alloc(CTX1, 0, 8 << 20, &ptr, NULL), CUDA_ERROR_UNKNOWN);
	ck_assert_int_eq(fake.failed_call, FAKE_ACCESS);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 1);
	ck_assert(!vmem_has_left()); /* no allocation waits for it */
	OK(vmem_alloc(CTX1, 0, 8 << 20, &ptr, NULL));
	vmem_trim();
	ck_assert_uint_eq(fake.used[0], 24 << 20);
	fake.unmap_fails = CUDA_SUCCESS;
	vmem_trim();
	ck_assert_uint_eq(fake.used[0], 16 << 20);
	OK(vmem_free(first, 0));
	OK(vmem_free(ptr, 0));
	vmem_trim();
	ck_assert_uint_eq(fake.used[0], 0);
}
END_TEST

/* A handle that was not released keeps the memory of what is unmapped. */
START_TEST(a_handle_that_is_released_late)
{
	CUdeviceptr ptr;

	OK(vmem_alloc(CTX1, 0, 8 << 20, &ptr, NULL));
	OK(vmem_region_unmap(ptr));
	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.fail_at = fake.calls + 3;
	OK(vmem_region_map(ptr));
	ck_assert_int_eq(fake.failed_call, FAKE_RELEASE);
	OK(vmem_region_unmap(ptr));
	ck_assert_uint_eq(fake.used[0], 0);
	OK(vmem_free(ptr, 0));
}
END_TEST

START_TEST(a_doomed_map_takes_nothing)
{
	unsigned int created;
	CUdeviceptr ptr = 42;

	alloc(1);
	created = fake.count[FAKE_CREATE];
	fake.limit[0] = 2 * VMEM_PIECE;
	ck_assert_int_eq(vmem_alloc(CTX1, 0, 3 * VMEM_PIECE, &ptr, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(ptr, 42);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], created);
}
END_TEST

START_TEST(idle_regions_can_be_unmapped_and_dropped)
{
	CUdeviceptr ptr = alloc(4 * MB);

	OK(vmem_free(ptr, 0));
	OK(vmem_region_unmap(ptr));
	check_stats(0, 0, 0, 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 1);
	vmem_trim();
	ck_assert_uint_eq(vmem_regions(NULL, 0), 0);
}
END_TEST

/* Retried after the one failure; before that, everything must be as it was before the call. */
#define STEP(call)                                                            \
	do {                                                                  \
		struct vmem_stats before_, after_;                            \
		size_t used_ = fake.used[0], n_ = vmem_regions(NULL, 0);      \
		CUresult rc_;                                                 \
		vmem_get_stats(&before_);                                     \
		rc_ = (call);                                                 \
		if (rc_ != CUDA_SUCCESS) {                                    \
			ck_assert(fake.failed);                               \
			ck_assert_int_eq(rc_, fake.fail_with);                \
			vmem_get_stats(&after_);                              \
			ck_assert_mem_eq(&before_, &after_, sizeof(before_)); \
			ck_assert_uint_eq(fake.used[0], used_);               \
			ck_assert_uint_eq(vmem_regions(NULL, 0), n_);         \
			OK(call);                                             \
		}                                                             \
	} while (0)

#define SCENARIO_CALLS 51

static void scenario(void)
{
	CUdeviceptr a, b, c;

	STEP(vmem_alloc(CTX1, 0, 4 * KB, &a, NULL));
	STEP(vmem_alloc(CTX1, 0, VMEM_PIECE + 36 * MB, &b, NULL));
	STEP(vmem_alloc(CTX1, 0, 4 * VMEM_PIECE + MB, &c, NULL));
	STEP(vmem_access_enable(CTX2, 1, CTX1, 0));
	STEP(vmem_region_unmap(b + VMEM_PIECE));
	STEP(vmem_region_unmap(b));
	STEP(vmem_region_map(b));
	STEP(vmem_region_map(b + VMEM_PIECE));
	STEP(vmem_access_disable(CTX2, CTX1));
	STEP(vmem_free(a, 0));
	STEP(vmem_free(b, 0));
	STEP(vmem_free(c, 0));
	vmem_trim();
}

START_TEST(the_scenario_has_so_many_calls)
{
	scenario();
	ck_assert_uint_eq(fake.calls, SCENARIO_CALLS);
}
END_TEST

START_TEST(every_call_can_fail)
{
	fake.fail_with = _i % 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
	fake.fail_at = (unsigned int)_i / 2 + 1;
	scenario();
	ck_assert(fake.failed);
	vmem_trim();
	for (int i = 0; i < FAKE_MAX_MAPS; i++)
		ck_assert_uint_eq(fake.mem[i].size, 0);
	ck_assert_uint_eq(fake.used[0], 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 0);
	check_stats(0, 0, 0, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("vmem_faults");
	TCase *tc = tcase_create("vmem_faults");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, out_of_memory_changes_nothing);
	tcase_add_test(tc, pause_and_resume_keep_addresses);
	tcase_add_test(tc, a_failed_map_leaves_the_region_unmapped);
	tcase_add_test(tc, a_large_region_is_unmapped_in_part);
	tcase_add_test(tc, a_piece_that_is_left_mapped);
	tcase_add_loop_test(tc, a_failed_map_that_is_not_undone, 0, 2);
	tcase_add_test(tc, a_failed_allocation_that_is_not_undone);
	tcase_add_test(tc, a_handle_that_is_released_late);
	tcase_add_test(tc, a_doomed_map_takes_nothing);
	tcase_add_test(tc, idle_regions_can_be_unmapped_and_dropped);
	tcase_add_test(tc, the_scenario_has_so_many_calls);
	tcase_add_loop_test(tc, every_call_can_fail, 0, 2 * SCENARIO_CALLS);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
