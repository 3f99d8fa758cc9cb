/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that allocations share, and what is kept of freed memory. */
#include "tests/check_suite.h"
#include "tests/unit/vmem/allocating.h"

#define MANY 10000
#define FEW  2000      /* of 1 MiB: blocks that a resume maps one by one */
#define RUN  (16 * MB) /* that it maps at once, of so many */

static CUdeviceptr many[MANY];

START_TEST(slabs_are_blocks_of_the_drivers_size)
{
	struct vmem_stats st;
	size_t n;

	many[0] = alloc(MB);
	check_stats(MB, 2 * MB, 0, 1);
	/* What lies between two slabs in time does not lie between them in space. */
	OK(vmem_free(alloc(64 * MB), 0));
	vmem_trim();
	for (int i = 1; i < MANY; i++)
		many[i] = alloc(MB);
	check_stats(MANY * MB, MANY * MB, 0, MANY);
	/* The pause engine sees them in regions of 32 MiB. */
	n = vmem_regions(NULL, 0);
	ck_assert_uint_ge(n, MANY / 32);
	ck_assert_uint_le(n, MANY * MB / RUN + 2);

	/* Some stay, but no more than of large regions. */
	for (int i = 0; i < MANY; i++)
		OK(vmem_free(many[i], 0));
	vmem_get_stats(&st);
	ck_assert_uint_eq(st.mapped, VMEM_CACHE);
	ck_assert_uint_eq(st.cached, VMEM_CACHE);
	vmem_trim();
	check_stats(0, 0, 0, 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 0);
}
END_TEST

/* Few allocations of many are left: they hold what they hold natively, a block of 2 MiB each. */
static const struct {
	int count;
	size_t size;
	int keep;
} patterns[] = {
	{MANY, 100 * KB, 300}, {MANY, 4 * KB, 2000}, {MANY, 700 * KB, 300}, {3000, 1536 * KB, 50}};

START_TEST(few_that_are_left_hold_little)
{
	int count = patterns[_i].count, keep = patterns[_i].keep;
	size_t live = (size_t)(count + keep - 1) / (size_t)keep, blocks;
	struct vmem_stats st;

	for (int i = 0; i < count; i++)
		many[i] = alloc(patterns[_i].size);
	for (int i = 0; i < count; i++)
		if (i % keep)
			OK(vmem_free(many[i], 0));
	vmem_get_stats(&st);
	ck_assert_uint_eq(st.nalloc, live);
	blocks = (st.mapped - st.cached) / (2 * MB);
	ck_assert_uint_le(blocks, live);
	vmem_trim();
	vmem_get_stats(&st);
	ck_assert_uint_eq(st.mapped, blocks * 2 * MB);
	ck_assert_uint_eq(fake.used[0], st.mapped);
}
END_TEST

/* Bursts of 16 that fit into what is kept make driver calls only the first time. */
START_TEST(bursts_make_no_calls)
{
	static const size_t sizes[] = {100 * KB, 1536 * KB, 2 * MB, 4 * MB, 16 * MB};

	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < 16; i++)
			many[i] = alloc(sizes[_i]);
		for (int i = 0; i < 16; i++)
			OK(vmem_free(many[i], 0));
	}
	ck_assert_uint_le(fake.count[FAKE_CREATE], 16);
	ck_assert_uint_eq(fake.count[FAKE_UNMAP], 0);
}
END_TEST

/* As many regions as vmem_regions() says, each unmapped and mapped. */
static void pause_and_resume(void)
{
	static struct vmem_region regions[MANY];
	size_t n = vmem_regions(regions, MANY);

	for (size_t i = 0; i < n; i++)
		OK(vmem_region_unmap(regions[i].start));
	ck_assert_uint_eq(fake.used[0], 0);
	for (size_t i = 0; i < n; i++)
		OK(vmem_region_map(regions[i].start));
}

START_TEST(a_resume_maps_neighbours_at_once)
{
	unsigned int calls;
	struct vmem_stats st;

	for (int i = 0; i < MANY; i++)
		many[i] = alloc(MB);
	calls = fake.count[FAKE_UNMAP];
	pause_and_resume();
	ck_assert_uint_le(fake.count[FAKE_UNMAP] - calls, MANY * MB / RUN + 2);
	calls = fake.count[FAKE_CREATE];
	pause_and_resume();
	ck_assert_uint_le(fake.count[FAKE_CREATE] - calls, MANY * MB / RUN + 2);
	check_stats(MANY * MB, MANY * MB, 0, MANY);
	OK(vmem_access_enable(CTX2, 1, CTX1, 0));
	ck_assert_uint_eq(fake_users(many[500] - many[500] % RUN, RUN), 1 << 0 | 1 << 1);

	/* What goes back only as a whole is not counted as spare. */
	for (int i = 0; i < MANY; i++)
		if (i % 100)
			OK(vmem_free(many[i], 0));
	vmem_get_stats(&st);
	ck_assert_uint_ge(st.mapped, 99 * RUN);
	ck_assert_uint_eq(st.cached, 0);
	/* The free slabs of a run are used first. */
	calls = fake.count[FAKE_CREATE];
	for (int i = 1; i < 100; i++)
		many[i] = alloc(MB);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], calls);
	for (int i = 1; i < 100; i++)
		OK(vmem_free(many[i], 0));
	/* The next pause cuts the runs. */
	pause_and_resume();
	vmem_trim();
	check_stats(MANY / 100 * MB, MANY / 100 * 2 * MB, 0, MANY / 100);
	pause_and_resume();
	for (int i = 0; i < MANY; i += 100)
		OK(vmem_free(many[i], 0));
	vmem_trim();
	check_stats(0, 0, 0, 0);
}
END_TEST

/* A run goes back when its last allocation is gone, though none of its slabs is kept. */
START_TEST(a_run_goes_back_as_a_whole)
{
	for (int i = 0; i < MANY; i++)
		many[i] = alloc(MB);
	pause_and_resume();
	for (int i = 0; i < MANY; i++)
		OK(vmem_free(many[i], 0));
	check_stats(0, 0, 0, 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 0);
}
END_TEST

/* Few slabs are mapped one by one, so that each can go back. */
START_TEST(few_slabs_are_not_joined)
{
	for (int i = 0; i < FEW; i++)
		many[i] = alloc(MB);
	pause_and_resume();
	for (int i = 0; i < FEW; i++)
		if (i % 500)
			OK(vmem_free(many[i], 0));
	vmem_trim();
	check_stats(4 * MB, 8 * MB, 0, 4);
}
END_TEST

/* A run that cannot be mapped, or cannot be undone. */
START_TEST(a_run_that_fails)
{
	static struct vmem_region regions[MANY];
	struct vmem_stats st;
	size_t n;

	for (int i = 0; i < MANY; i++)
		many[i] = alloc(MB);
	n = vmem_regions(regions, MANY);
	for (size_t i = 0; i < n; i++)
		OK(vmem_region_unmap(regions[i].start));
	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.fail_at = fake.calls + 4; /* create, map, release, access */
	fake.unmap_fails = _i ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	ck_assert_int_eq(vmem_region_map(regions[1].start), CUDA_ERROR_UNKNOWN);
	ck_assert_int_eq(vmem_has_left(), _i);
	vmem_get_stats(&st);
	ck_assert_uint_eq(st.mapped, 0);
	ck_assert_uint_eq(fake.used[0], _i ? RUN : 0);
	fake.unmap_fails = CUDA_SUCCESS;
	for (size_t i = 0; i < n; i++)
		OK(vmem_region_map(regions[i].start));
	ck_assert(!vmem_has_left());
	check_stats(MANY * MB, MANY * MB, 0, MANY);
	vmem_release_context(CTX1);
	check_stats(0, 0, 0, 0);
}
END_TEST

START_TEST(freed_large_regions_are_used_again)
{
	CUdeviceptr ptr = alloc(64 * MB), other;
	unsigned int calls;

	OK(vmem_free(ptr, 0));
	check_stats(0, 64 * MB, 64 * MB, 0);
	calls = fake.calls;
	for (int i = 0; i < 100; i++) {
		/* The granules count, not the bytes. */
		ck_assert_uint_eq(alloc(64 * MB - (size_t)i), ptr);
		check_info(ptr, ptr, 64 * MB - (size_t)i, CTX1, 0);
		OK(vmem_free(ptr, 0));
	}
	ck_assert_uint_eq(fake.calls, calls);

	/* Neither another context nor another size takes it. */
	other = alloc_on(CTX2, 0, 64 * MB);
	ck_assert_uint_ne(other, ptr);
	ck_assert_uint_ne(alloc(62 * MB), ptr);
	check_stats(126 * MB, 190 * MB, 64 * MB, 2);
}
END_TEST

/* Who has a dma-buf of freed memory goes on to use it: no other allocation gets this memory. */
START_TEST(memory_that_others_have_serves_nobody_else)
{
	static const size_t sizes[] = {64 * MB, 2 * MB, 4 * KB};
	size_t size = sizes[_i];
	CUdeviceptr ptr = alloc(size);
	struct vmem_info info;
	unsigned int created;

	ck_assert(vmem_lookup(ptr, &info));
	vmem_has_dmabuf(ptr, info.id + 1);
	OK(vmem_free(ptr, 0));
	created = fake.count[FAKE_CREATE];
	ptr = alloc(size);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], created);
	ck_assert(vmem_lookup(ptr, &info));
	vmem_has_dmabuf(ptr, info.id);
	OK(vmem_keep(ptr, 0));
	OK(vmem_free_kept(ptr));
	check_stats(0, 0, 0, 0);
	/* The region's object serves the next one, whose memory is kept. */
	OK(vmem_free(alloc(size), 0));
	ck_assert_uint_eq(fake.count[FAKE_CREATE], created + 1);
	OK(vmem_free(alloc(size), 0));
	ck_assert_uint_eq(fake.count[FAKE_CREATE], created + 1);
}
END_TEST

START_TEST(the_cache_is_bounded)
{
	CUdeviceptr ptrs[5], huge = alloc(VMEM_CACHE + MB);
	unsigned int calls;

	for (int i = 0; i < 5; i++)
		ptrs[i] = alloc(64 * MB);
	for (int i = 0; i < 5; i++)
		OK(vmem_free(ptrs[i], 0));
	check_stats(VMEM_CACHE + MB, 2 * VMEM_CACHE + 2 * MB, VMEM_CACHE, 1);
	/* The oldest is gone, the others are there. */
	calls = fake.count[FAKE_CREATE];
	for (int i = 1; i < 5; i++)
		ck_assert_uint_eq(alloc(64 * MB), ptrs[i]);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], calls);
	alloc(64 * MB);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], calls + 1);
	/* What is larger than the cache does not enter it, nor empty it. */
	OK(vmem_free(ptrs[1], 0));
	OK(vmem_free(huge, 0));
	check_stats(256 * MB, 320 * MB, 64 * MB, 4);
}
END_TEST

START_TEST(one_empty_slab_stays)
{
	unsigned int calls;

	OK(vmem_free(alloc(4 * KB), 0));
	check_stats(0, 2 * MB, 2 * MB, 0);
	calls = fake.calls;
	for (int i = 0; i < 10; i++)
		OK(vmem_free(alloc(4 * KB), 0));
	ck_assert_uint_eq(fake.calls, calls);
	/* Also after the kept one was dropped, whatever took its place. */
	vmem_trim();
	OK(vmem_free(alloc(4 * MB), 0));
	OK(vmem_free(alloc(4 * KB), 0));
	check_stats(0, 6 * MB, 6 * MB, 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 2);
}
END_TEST

START_TEST(idle_memory_is_given_back_before_oom)
{
	CUdeviceptr ptr, small;

	fake.limit[0] = 256 * MB;
	fake.limit[1] = 256 * MB;
	OK(vmem_free(alloc_on(CTX1, 1, 64 * MB), 0));
	OK(vmem_free(alloc(128 * MB), 0));
	small = alloc(4 * KB);
	ptr = alloc(200 * MB);
	check_stats(200 * MB + 4 * KB, 202 * MB + 64 * MB, 64 * MB, 2);
	/* Small allocations are given what a cached large one held, too. */
	OK(vmem_free(ptr, 0));
	for (int i = 0; i < 250; i++)
		alloc(MB - 1);
	OK(vmem_free(small, 0));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("vmem_blocks");
	TCase *tc = tcase_create("vmem_blocks");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, slabs_are_blocks_of_the_drivers_size);
	tcase_add_loop_test(tc, few_that_are_left_hold_little, 0, 4);
	tcase_add_loop_test(tc, bursts_make_no_calls, 0, 5);
	tcase_add_test(tc, a_resume_maps_neighbours_at_once);
	tcase_add_test(tc, a_run_goes_back_as_a_whole);
	tcase_add_test(tc, few_slabs_are_not_joined);
	tcase_add_loop_test(tc, a_run_that_fails, 0, 2);
	tcase_add_test(tc, freed_large_regions_are_used_again);
	tcase_add_loop_test(tc, memory_that_others_have_serves_nobody_else, 0, 3);
	tcase_add_test(tc, the_cache_is_bounded);
	tcase_add_test(tc, one_empty_slab_stays);
	tcase_add_test(tc, idle_memory_is_given_back_before_oom);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
