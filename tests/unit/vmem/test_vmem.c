/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations, their addresses and their contexts. */
#include "tests/check_suite.h"
#include "tests/unit/vmem/allocating.h"
#include "vmem/context_gone.h"
#include "vmem/addresses/space.h"

START_TEST(lookup_reports_what_was_asked_for)
{
	CUdeviceptr small = alloc(1000), large = alloc(5 * MB + 1), next = alloc(1);

	ck_assert_uint_eq(small % 512, 0);
	ck_assert_uint_eq(next % 512, 0);
	check_info(small, small, 1000, CTX1, 0);
	check_info(small + 999, small, 1000, CTX1, 0);
	check_none(small + 1000);
	check_info(next, next, 1, CTX1, 0);
	check_info(large, large, 5 * MB + 1, CTX1, 0);
	check_info(large + 5 * MB, large, 5 * MB + 1, CTX1, 0);
	/* The rest of the last granule is ours, but no part of the allocation. */
	check_none(large + 5 * MB + 1);
	ck_assert(vmem_contains(large + 6 * MB - 1));
	check_none(0);
	check_none(VMEM_BASE - 1);
	ck_assert(!vmem_contains(VMEM_BASE - 1));
	ck_assert(!vmem_contains(0x7fff00000000));
	check_stats(1000 + 5 * MB + 2, 8 * MB, 0, 3);

	OK(vmem_free(small, 0));
	OK(vmem_free(large, 0));
	check_none(small);
	check_none(large);
	check_info(next, next, 1, CTX1, 0);
}
END_TEST

START_TEST(ids_are_unique)
{
	struct vmem_info a, b, c;
	CUdeviceptr ptr = alloc(64 * MB);

	ck_assert(vmem_lookup(ptr, &a));
	ck_assert_uint_eq(a.id, 1);
	OK(vmem_free(ptr, 0));
	ck_assert_uint_eq(alloc(64 * MB), ptr);
	ck_assert(vmem_lookup(ptr, &b));
	ck_assert_uint_eq(b.id, 2);
	ck_assert(vmem_lookup(alloc(1), &c));
	ck_assert_uint_eq(c.id, 3);
}
END_TEST

/* Its memory waits for the next allocation there, and is nobody's until then. */
static void keep_one(size_t size, size_t room)
{
	CUdeviceptr ptr = alloc(size), other = alloc(size), later;
	struct vmem_info before, after;

	ck_assert_uint_eq(vmem_room(ptr), room);
	ck_assert(vmem_lookup(ptr, &before));
	ck_assert_int_eq(vmem_keep(ptr + 512, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_reuse(ptr, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free_kept(ptr), CUDA_ERROR_INVALID_VALUE);
	OK(vmem_keep(ptr, 0));
	check_none(ptr);
	ck_assert_int_eq(vmem_keep(ptr, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(ptr, 0), CUDA_ERROR_INVALID_VALUE);
	later = alloc(size);
	ck_assert_uint_ne(later, ptr);
	OK(vmem_free(later, 0));
	OK(vmem_free(other, 0));
	vmem_trim();
	ck_assert(!vmem_granule_live(ptr & ~(VMEM_GRANULE - 1)));
	check_stats(0, room < VMEM_GRANULE ? VMEM_GRANULE : room, 0, 0);
	/* A pause unmaps it, and a resume maps it. */
	OK(vmem_region_unmap(ptr & ~(VMEM_GRANULE - 1)));
	OK(vmem_region_map(ptr & ~(VMEM_GRANULE - 1)));
	ck_assert_uint_eq(vmem_room(ptr), room);
	OK(vmem_reuse(ptr, room));
	check_info(ptr + room - 1, ptr, room, CTX1, 0);
	ck_assert(vmem_lookup(ptr, &after));
	ck_assert_uint_gt(after.id, before.id);
	ck_assert(vmem_granule_live(ptr & ~(VMEM_GRANULE - 1)));
	OK(vmem_keep(ptr, 0));
	OK(vmem_free_kept(ptr));
	ck_assert_int_eq(vmem_free_kept(ptr), CUDA_ERROR_INVALID_VALUE);
	vmem_trim();
	check_stats(0, 0, 0, 0);
}

START_TEST(kept_memory)
{
	keep_one(1000, 1024);
	keep_one(3 * MB, 4 * MB);
	keep_one(VMEM_CACHE + 1, VMEM_CACHE + VMEM_GRANULE);
}
END_TEST

START_TEST(a_new_allocation_has_the_room_that_is_foretold)
{
	static const size_t sizes[] = {1,      512,        700,        100 * KB, 2 * MB - 1,
				       2 * MB, 2 * MB + 1, 3 * MB + 5, 64 * MB,  3 * GB + 1};

	if (_i)
		vmem_watch();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		ck_assert_uint_eq(vmem_room_for(sizes[i]), vmem_room(alloc(sizes[i])));
	ck_assert_uint_eq(vmem_room_for(SIZE_MAX), 0);
}
END_TEST

START_TEST(kept_memory_goes_with_its_context)
{
	CUdeviceptr small = alloc(4 * KB), live = alloc(4 * KB), large = alloc(4 * MB);

	OK(vmem_keep(small, 0));
	OK(vmem_keep(large, 0));
	check_stats(4 * KB, 6 * MB, 0, 1);
	context_gone(CTX1);
	check_stats(0, 0, 0, 0);
	check_none(live);
	ck_assert_int_eq(vmem_reuse(small, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free_kept(large), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(kept_memory_that_is_not_unmapped_stays_kept)
{
	CUdeviceptr ptr = alloc(VMEM_CACHE + 1);

	OK(vmem_keep(ptr, 0));
	fake.unmap_fails = CUDA_ERROR_UNKNOWN;
	ck_assert_int_eq(vmem_free_kept(ptr), CUDA_ERROR_UNKNOWN);
	fake.unmap_fails = CUDA_SUCCESS;
	check_none(ptr);
	check_stats(0, VMEM_CACHE + VMEM_GRANULE, 0, 0);
	OK(vmem_free_kept(ptr));
}
END_TEST

START_TEST(bad_arguments)
{
	CUdeviceptr small = alloc(4 * KB), large = alloc(4 * MB), ptr = 42;
	struct vmem_stats st;

	ck_assert_int_eq(vmem_free(small + 512, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(large + 1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(large + 2 * MB, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(0x7fff00000000, 0), CUDA_ERROR_INVALID_VALUE);
	OK(vmem_free(small, 0));
	OK(vmem_free(large, 0));
	ck_assert_int_eq(vmem_free(small, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(large, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_region_unmap(large + VMEM_GRANULE), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_region_map(VMEM_BASE + GB), CUDA_ERROR_INVALID_VALUE);

	ck_assert_int_eq(vmem_alloc(CTX1, 0, 0, &ptr, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_alloc(CTX1, 64, 1, &ptr, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_alloc(CTX1, 0, SIZE_MAX, &ptr, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(vmem_alloc(CTX1, FAKE_NO_VMM, 1, &ptr, NULL), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(vmem_access_enable(CTX2, 64, CTX1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_access_enable(CTX2, 1, CTX1, -1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(ptr, 42);
	vmem_get_device_stats(64, &st);
	ck_assert_uint_eq(st.mapped, 0);
}
END_TEST

START_TEST(contexts_go_with_what_they_own)
{
	CUdeviceptr kept = alloc_on(CTX2, 0, 4 * KB), kept_large = alloc_on(CTX2, 1, 2 * MB);
	struct vmem_stats st;
	CUdeviceptr ptr;

	for (int i = 0; i < 40; i++)
		alloc(MB);
	OK(vmem_free(alloc(3 * MB), 0));
	ptr = alloc(64 * MB);
	alloc_on(CTX1, 1, 8 * KB);
	vmem_get_device_stats(1, &st);
	ck_assert_uint_eq(st.carried, 2 * MB + 8 * KB);
	ck_assert_uint_eq(st.mapped, 4 * MB);
	ck_assert_uint_eq(st.nalloc, 2);

	vmem_release_context(CTX1);
	check_none(ptr);
	check_info(kept, kept, 4 * KB, CTX2, 0);
	check_info(kept_large, kept_large, 2 * MB, CTX2, 1);
	check_stats(2 * MB + 4 * KB, 4 * MB, 0, 2);
	/* A context at the same address later starts from nothing. */
	alloc(4 * KB);
	check_stats(2 * MB + 8 * KB, 6 * MB, 0, 3);
}
END_TEST

START_TEST(what_a_dying_context_does_not_unmap_is_tried_again)
{
	CUdeviceptr small = alloc(4 * KB), large = alloc(64 * MB);

	fake.unmap_fails = CUDA_ERROR_ILLEGAL_ADDRESS;
	vmem_release_context(CTX1);
	check_none(small);
	check_none(large);
	check_stats(0, 66 * MB, 66 * MB, 0);
	vmem_trim();
	check_stats(0, 66 * MB, 66 * MB, 0);
	fake.unmap_fails = CUDA_SUCCESS;
	vmem_trim();
	check_stats(0, 0, 0, 0);
}
END_TEST

START_TEST(what_the_driver_keeps_mapped_lives_on)
{
	CUdeviceptr large = alloc(VMEM_CACHE + MB);

	fake.unmap_fails = CUDA_ERROR_ILLEGAL_ADDRESS;
	ck_assert_int_eq(vmem_free(large, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	check_info(large, large, VMEM_CACHE + MB, CTX1, 0);
	ck_assert_int_eq(vmem_region_unmap(large), CUDA_ERROR_ILLEGAL_ADDRESS);
	check_stats(VMEM_CACHE + MB, VMEM_CACHE + 2 * MB, 0, 1);
	fake.unmap_fails = CUDA_SUCCESS;
	OK(vmem_free(large, 0));
	check_stats(0, 0, 0, 0);
}
END_TEST

START_TEST(addresses_merge_and_fit_best)
{
	CUdeviceptr a = alloc(300 * MB), b = alloc(300 * MB), c = alloc(260 * MB), d;

	d = alloc(300 * MB);
	ck_assert_uint_eq(a, VMEM_BASE);
	OK(vmem_free(b, 0));
	OK(vmem_free(a, 0));
	OK(vmem_free(d, 0));
	/* 600 MiB are free before c; behind it, all the rest. */
	ck_assert_uint_eq(alloc(600 * MB), a);
	OK(vmem_free(c, 0));
	ck_assert_uint_eq(alloc(500 * MB), c);
}
END_TEST

START_TEST(addresses_come_in_smaller_segments_too)
{
	CUdeviceptr ptr = 42, last, tail;

	fake.reserve_max = 64 * GB;
	alloc(40 * GB);
	last = alloc(40 * GB);
	ck_assert_uint_eq(last, VMEM_BASE + 64 * GB);
	ck_assert_uint_eq(fake.nreserved, 2);
	/* The free ends of two segments are not one run, whichever is freed first. */
	tail = alloc(24 * GB);
	alloc(24 * GB);
	OK(vmem_free(tail, 0));
	OK(vmem_free(last, 0));
	ck_assert_uint_eq(vmem_regions(NULL, 0), (40 + 24) * GB / VMEM_PIECE);
	last = alloc(40 * GB);
	ck_assert_uint_eq(last, VMEM_BASE + 64 * GB);
	tail = alloc(24 * GB);
	ck_assert_uint_eq(tail, VMEM_BASE + 40 * GB);
	OK(vmem_free(last, 0));
	OK(vmem_free(tail, 0));
	ck_assert_uint_eq(alloc(40 * GB), VMEM_BASE + 64 * GB);
	ck_assert_int_eq(vmem_alloc(CTX1, 0, 65 * GB, &ptr, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(ptr, 42);
	ck_assert(vmem_contains(VMEM_BASE + 128 * GB - 1));
	ck_assert(!vmem_contains(VMEM_BASE + 128 * GB));
}
END_TEST

START_TEST(addresses_elsewhere_are_refused)
{
	CUdeviceptr ptr;

	fake.reserve_at = 0x7f0000000000;
	ck_assert_int_eq(vmem_alloc(CTX1, 0, 1, &ptr, NULL), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(vmem_alloc(CTX1, 0, GB, &ptr, NULL), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(fake.count[FAKE_RESERVE], 1);
	ck_assert_uint_eq(fake.nreserved, 0);
	ck_assert(!vmem_contains(0x7f0000000000));
}
END_TEST

/* As under ulimit -v: memory is then the real allocator's to give, from the first call on. */
START_TEST(no_addresses_at_all_are_a_refusal)
{
	CUdeviceptr ptr = 42;
	unsigned int tries;

	fake.reserve_max = 32 * GB;
	ck_assert_int_eq(vmem_alloc(CTX1, 0, 2 * SPACE_SEGMENT, &ptr, NULL),
			 CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(vmem_alloc(CTX1, 0, 1, &ptr, NULL), CUDA_ERROR_NOT_SUPPORTED);
	tries = fake.count[FAKE_RESERVE];
	ck_assert_uint_gt(tries, 1);
	fake.reserve_max = 0;
	ck_assert_int_eq(vmem_alloc(CTX1, 0, GB, &ptr, NULL), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(fake.count[FAKE_RESERVE], tries);
	ck_assert_uint_eq(ptr, 42);
	check_stats(0, 0, 0, 0);
}
END_TEST

/* {x, n} as a word of a kernel's parameters, with an n that may be a size or a stride. */
START_TEST(sizes_are_no_pointers)
{
	for (uint64_t n = 128; n < 1 << 20; n += 128)
		ck_assert_msg((n << 32) - VMEM_BASE >= 256 * GB, "%lu is the upper half of one", n);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("vmem");
	TCase *tc = tcase_create("vmem");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, lookup_reports_what_was_asked_for);
	tcase_add_test(tc, ids_are_unique);
	tcase_add_test(tc, kept_memory);
	tcase_add_loop_test(tc, a_new_allocation_has_the_room_that_is_foretold, 0,
			    2); /* 1: with gaps */
	tcase_add_test(tc, kept_memory_goes_with_its_context);
	tcase_add_test(tc, kept_memory_that_is_not_unmapped_stays_kept);
	tcase_add_test(tc, bad_arguments);
	tcase_add_test(tc, contexts_go_with_what_they_own);
	tcase_add_test(tc, what_a_dying_context_does_not_unmap_is_tried_again);
	tcase_add_test(tc, what_the_driver_keeps_mapped_lives_on);
	tcase_add_test(tc, addresses_merge_and_fit_best);
	tcase_add_test(tc, addresses_come_in_smaller_segments_too);
	tcase_add_test(tc, addresses_elsewhere_are_refused);
	tcase_add_test(tc, no_addresses_at_all_are_a_refusal);
	tcase_add_test(tc, sizes_are_no_pointers);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
