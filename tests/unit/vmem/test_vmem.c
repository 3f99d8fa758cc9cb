/* SPDX-License-Identifier: Apache-2.0 */
/* vmem over a driver that keeps books instead of memory (fake_driver.h). */
#include "tests/check_suite.h"
#include "tests/unit/fake_driver.h"
#include "vmem/context_gone.h"
#include "vmem/space.h"

#include <stdatomic.h>
#include <stdlib.h>

#define KB (1UL << 10)
#define MB (1UL << 20)
#define GB (1UL << 30)

#define OK(call) ck_assert_int_eq(call, CUDA_SUCCESS)

static const CUcontext ctx1 = (CUcontext)0x1000, ctx2 = (CUcontext)0x2000, ctx3 = (CUcontext)0x3000,
		       ctx4 = (CUcontext)0x4000;

static void setup(void)
{
	ck_assert_int_eq(vmem_init(&fake_driver), 0);
}

static CUdeviceptr alloc_on(CUcontext ctx, CUdevice dev, size_t size)
{
	CUdeviceptr ptr;

	OK(vmem_alloc(ctx, dev, size, &ptr));
	return ptr;
}

static CUdeviceptr alloc(size_t size)
{
	return alloc_on(ctx1, 0, size);
}

static void check_info(CUdeviceptr at, CUdeviceptr start, size_t size, CUcontext ctx, CUdevice dev)
{
	struct vmem_info info;

	ck_assert(vmem_lookup(at, &info));
	ck_assert_uint_eq(info.start, start);
	ck_assert_uint_eq(info.size, size);
	ck_assert_ptr_eq(info.ctx, ctx);
	ck_assert_int_eq(info.dev, dev);
	ck_assert_uint_gt(info.id, 0);
}

static void check_none(CUdeviceptr at)
{
	struct vmem_info info;

	ck_assert(!vmem_lookup(at, &info));
}

static void check_stats(size_t carried, size_t mapped, size_t cached, size_t nalloc)
{
	struct vmem_stats st;

	vmem_get_stats(&st);
	ck_assert_uint_eq(st.carried, carried);
	ck_assert_uint_eq(st.mapped, mapped);
	ck_assert_uint_eq(st.cached, cached);
	ck_assert_uint_eq(st.nalloc, nalloc);
	ck_assert_uint_eq(fake.used[0] + fake.used[1], mapped);
}

START_TEST(lookup_reports_what_was_asked_for)
{
	CUdeviceptr small = alloc(1000), large = alloc(5 * MB + 1), next = alloc(1);

	ck_assert_uint_eq(small % 512, 0);
	ck_assert_uint_eq(next % 512, 0);
	check_info(small, small, 1000, ctx1, 0);
	check_info(small + 999, small, 1000, ctx1, 0);
	check_none(small + 1000);
	check_info(next, next, 1, ctx1, 0);
	check_info(large, large, 5 * MB + 1, ctx1, 0);
	check_info(large + 5 * MB, large, 5 * MB + 1, ctx1, 0);
	/* The rest of the last granule is ours, but no part of the allocation. */
	check_none(large + 5 * MB + 1);
	ck_assert(vmem_contains(large + 6 * MB - 1));
	check_none(0);
	check_none(VMEM_BASE - 1);
	ck_assert(!vmem_contains(VMEM_BASE - 1));
	ck_assert(!vmem_contains(0x7fff00000000));
	check_stats(1000 + 5 * MB + 2, 8 * MB, 0, 3);

	OK(vmem_free(small));
	OK(vmem_free(large));
	check_none(small);
	check_none(large);
	check_info(next, next, 1, ctx1, 0);
}
END_TEST

START_TEST(ids_are_unique)
{
	struct vmem_info a, b, c;
	CUdeviceptr ptr = alloc(64 * MB);

	ck_assert(vmem_lookup(ptr, &a));
	ck_assert_uint_eq(a.id, 1);
	OK(vmem_free(ptr));
	ck_assert_uint_eq(alloc(64 * MB), ptr);
	ck_assert(vmem_lookup(ptr, &b));
	ck_assert_uint_eq(b.id, 2);
	ck_assert(vmem_lookup(alloc(1), &c));
	ck_assert_uint_eq(c.id, 3);
}
END_TEST

/* Freed for the program, while the GPU may still use it: the address is not given out again. */
START_TEST(retired_allocations)
{
	CUdeviceptr small = alloc(4 * KB), large = alloc(4 * MB);
	struct vmem_info first, second, none;

	ck_assert_int_eq(vmem_retire(large + 512, &first), CUDA_ERROR_INVALID_VALUE);
	OK(vmem_retire(small, &first));
	OK(vmem_retire(large, &second));
	ck_assert_uint_eq(second.start, large);
	ck_assert_int_eq(vmem_retire(large, &none), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(small), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(large), CUDA_ERROR_INVALID_VALUE);
	check_none(small);
	check_none(large + 1);
	ck_assert_uint_ne(alloc(4 * MB), large);
	ck_assert_uint_ne(alloc(4 * KB), small);
	OK(vmem_free_retired(&first));
	OK(vmem_free_retired(&second));
	ck_assert_int_eq(vmem_free_retired(&second), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(alloc(4 * MB), large);
	check_info(large, large, 4 * MB, ctx1, 0);
}
END_TEST

/* Its memory waits for the next allocation there, and is nobody's until then. */
static void keep_one(size_t size, size_t room)
{
	CUdeviceptr ptr = alloc(size), other = alloc(size);
	struct vmem_info before, after;

	ck_assert_uint_eq(vmem_room(ptr), room);
	ck_assert(vmem_lookup(ptr, &before));
	ck_assert_int_eq(vmem_keep(ptr + 512), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_reuse(ptr, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free_kept(ptr), CUDA_ERROR_INVALID_VALUE);
	OK(vmem_keep(ptr));
	check_none(ptr);
	ck_assert_int_eq(vmem_keep(ptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(ptr), CUDA_ERROR_INVALID_VALUE);
	OK(vmem_free(other));
	vmem_trim();
	ck_assert(!vmem_granule_live(ptr & ~(VMEM_GRANULE - 1)));
	check_stats(0, room < VMEM_GRANULE ? VMEM_GRANULE : room, 0, 0);
	/* A pause unmaps it, and a resume maps it. */
	OK(vmem_region_unmap(ptr & ~(VMEM_GRANULE - 1)));
	OK(vmem_region_map(ptr & ~(VMEM_GRANULE - 1)));
	ck_assert_uint_eq(vmem_room(ptr), room);
	OK(vmem_reuse(ptr, room));
	check_info(ptr + room - 1, ptr, room, ctx1, 0);
	ck_assert(vmem_lookup(ptr, &after));
	ck_assert_uint_gt(after.id, before.id);
	ck_assert(vmem_granule_live(ptr & ~(VMEM_GRANULE - 1)));
	OK(vmem_keep(ptr));
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

START_TEST(kept_memory_goes_with_its_context)
{
	CUdeviceptr small = alloc(4 * KB), live = alloc(4 * KB), large = alloc(4 * MB);

	OK(vmem_keep(small));
	OK(vmem_keep(large));
	check_stats(4 * KB, 6 * MB, 0, 1);
	context_gone(ctx1);
	check_stats(0, 0, 0, 0);
	check_none(live);
	ck_assert_int_eq(vmem_reuse(small, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free_kept(large), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(kept_memory_that_is_not_unmapped_stays_kept)
{
	CUdeviceptr ptr = alloc(VMEM_CACHE + 1);

	OK(vmem_keep(ptr));
	fake.unmap_fails = CUDA_ERROR_UNKNOWN;
	ck_assert_int_eq(vmem_free_kept(ptr), CUDA_ERROR_UNKNOWN);
	fake.unmap_fails = CUDA_SUCCESS;
	check_none(ptr);
	check_stats(0, VMEM_CACHE + VMEM_GRANULE, 0, 0);
	OK(vmem_free_kept(ptr));
}
END_TEST

START_TEST(a_retired_allocation_that_goes_with_its_context)
{
	CUdeviceptr ptr = alloc(4 * MB);
	struct vmem_info lost;

	OK(vmem_retire(ptr, &lost));
	vmem_release_context(ctx1);
	ck_assert_uint_eq(alloc_on(ctx2, 0, 4 * MB), ptr);
	ck_assert_int_eq(vmem_free_retired(&lost), CUDA_ERROR_INVALID_VALUE);
	check_info(ptr, ptr, 4 * MB, ctx2, 0);
}
END_TEST

START_TEST(bad_arguments)
{
	CUdeviceptr small = alloc(4 * KB), large = alloc(4 * MB), ptr = 42;
	struct vmem_stats st;

	ck_assert_int_eq(vmem_free(small + 512), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(large + 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(large + 2 * MB), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(0x7fff00000000), CUDA_ERROR_INVALID_VALUE);
	OK(vmem_free(small));
	OK(vmem_free(large));
	ck_assert_int_eq(vmem_free(small), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_free(large), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_region_unmap(large + VMEM_GRANULE), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_region_map(VMEM_BASE + GB), CUDA_ERROR_INVALID_VALUE);

	ck_assert_int_eq(vmem_alloc(ctx1, 0, 0, &ptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_alloc(ctx1, 64, 1, &ptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_alloc(ctx1, 0, SIZE_MAX, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(vmem_alloc(ctx1, FAKE_NO_VMM, 1, &ptr), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(vmem_peer_enable(ctx2, 64, ctx1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_peer_enable(ctx2, 1, ctx1, -1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(ptr, 42);
	vmem_get_device_stats(64, &st);
	ck_assert_uint_eq(st.mapped, 0);
}
END_TEST

#define MANY 10000

static CUdeviceptr many[MANY];

START_TEST(slabs_are_blocks_of_the_drivers_size)
{
	struct vmem_stats st;
	size_t n;

	many[0] = alloc(MB);
	check_stats(MB, 2 * MB, 0, 1);
	/* What lies between two slabs in time does not lie between them in space. */
	OK(vmem_free(alloc(64 * MB)));
	vmem_trim();
	for (int i = 1; i < MANY; i++)
		many[i] = alloc(MB);
	check_stats(MANY * MB, MANY * MB, 0, MANY);
	/* The pause engine sees them in regions of 32 MiB. */
	n = vmem_regions(NULL, 0);
	ck_assert_uint_ge(n, MANY / 32);
	ck_assert_uint_le(n, MANY / 32 + 2);

	/* Some stay, but no more than of large regions. */
	for (int i = 0; i < MANY; i++)
		OK(vmem_free(many[i]));
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
			OK(vmem_free(many[i]));
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
			OK(vmem_free(many[i]));
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
	ck_assert_uint_le(fake.count[FAKE_UNMAP] - calls, MANY / 32 + 2);
	calls = fake.count[FAKE_CREATE];
	pause_and_resume();
	ck_assert_uint_le(fake.count[FAKE_CREATE] - calls, MANY / 32 + 2);
	check_stats(MANY * MB, MANY * MB, 0, MANY);
	OK(vmem_peer_enable(ctx2, 1, ctx1, 0));
	ck_assert_uint_eq(fake_users(many[500] - many[500] % (32 * MB), 32 * MB), 1 << 0 | 1 << 1);

	/* What goes back only as a whole is not counted as spare. */
	for (int i = 0; i < MANY; i++)
		if (i % 100)
			OK(vmem_free(many[i]));
	vmem_get_stats(&st);
	ck_assert_uint_ge(st.mapped, 100 * 32 * MB - 32 * MB);
	ck_assert_uint_eq(st.cached, 0);
	/* The free slabs of a run are used first. */
	calls = fake.count[FAKE_CREATE];
	for (int i = 1; i < 100; i++)
		many[i] = alloc(MB);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], calls);
	for (int i = 1; i < 100; i++)
		OK(vmem_free(many[i]));
	/* The next pause cuts the runs. */
	pause_and_resume();
	vmem_trim();
	check_stats(MANY / 100 * MB, MANY / 100 * 2 * MB, 0, MANY / 100);
	pause_and_resume();
	for (int i = 0; i < MANY; i += 100)
		OK(vmem_free(many[i]));
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
		OK(vmem_free(many[i]));
	check_stats(0, 0, 0, 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 0);
}
END_TEST

/* Few slabs are mapped one by one, so that each can go back. */
START_TEST(few_slabs_are_not_joined)
{
	for (int i = 0; i < 200; i++)
		many[i] = alloc(MB);
	pause_and_resume();
	for (int i = 0; i < 200; i++)
		if (i % 50)
			OK(vmem_free(many[i]));
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
	ck_assert_uint_eq(fake.used[0], _i ? 32 * MB : 0);
	fake.unmap_fails = CUDA_SUCCESS;
	for (size_t i = 0; i < n; i++)
		OK(vmem_region_map(regions[i].start));
	ck_assert(!vmem_has_left());
	check_stats(MANY * MB, MANY * MB, 0, MANY);
	vmem_release_context(ctx1);
	check_stats(0, 0, 0, 0);
}
END_TEST

START_TEST(freed_large_regions_are_used_again)
{
	CUdeviceptr ptr = alloc(64 * MB), other;
	unsigned int calls;

	OK(vmem_free(ptr));
	check_stats(0, 64 * MB, 64 * MB, 0);
	calls = fake.calls;
	for (int i = 0; i < 100; i++) {
		/* The granules count, not the bytes. */
		ck_assert_uint_eq(alloc(64 * MB - (size_t)i), ptr);
		check_info(ptr, ptr, 64 * MB - (size_t)i, ctx1, 0);
		OK(vmem_free(ptr));
	}
	ck_assert_uint_eq(fake.calls, calls);

	/* Neither another context nor another size takes it. */
	other = alloc_on(ctx2, 0, 64 * MB);
	ck_assert_uint_ne(other, ptr);
	ck_assert_uint_ne(alloc(62 * MB), ptr);
	check_stats(126 * MB, 190 * MB, 64 * MB, 2);
}
END_TEST

START_TEST(the_cache_is_bounded)
{
	CUdeviceptr ptrs[5], huge = alloc(VMEM_CACHE + MB);
	unsigned int calls;

	for (int i = 0; i < 5; i++)
		ptrs[i] = alloc(64 * MB);
	for (int i = 0; i < 5; i++)
		OK(vmem_free(ptrs[i]));
	check_stats(VMEM_CACHE + MB, 2 * VMEM_CACHE + 2 * MB, VMEM_CACHE, 1);
	/* The oldest is gone, the others are there. */
	calls = fake.count[FAKE_CREATE];
	for (int i = 1; i < 5; i++)
		ck_assert_uint_eq(alloc(64 * MB), ptrs[i]);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], calls);
	alloc(64 * MB);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], calls + 1);
	/* What is larger than the cache does not enter it, nor empty it. */
	OK(vmem_free(ptrs[1]));
	OK(vmem_free(huge));
	check_stats(256 * MB, 320 * MB, 64 * MB, 4);
}
END_TEST

START_TEST(one_empty_slab_stays)
{
	unsigned int calls;

	OK(vmem_free(alloc(4 * KB)));
	check_stats(0, 2 * MB, 2 * MB, 0);
	calls = fake.calls;
	for (int i = 0; i < 10; i++)
		OK(vmem_free(alloc(4 * KB)));
	ck_assert_uint_eq(fake.calls, calls);
	/* Also after the kept one was dropped, whatever took its place. */
	vmem_trim();
	OK(vmem_free(alloc(4 * MB)));
	OK(vmem_free(alloc(4 * KB)));
	check_stats(0, 6 * MB, 6 * MB, 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 2);
}
END_TEST

START_TEST(idle_memory_is_given_back_before_oom)
{
	CUdeviceptr ptr, small;

	fake.limit[0] = 256 * MB;
	fake.limit[1] = 256 * MB;
	OK(vmem_free(alloc_on(ctx1, 1, 64 * MB)));
	OK(vmem_free(alloc(128 * MB)));
	small = alloc(4 * KB);
	ptr = alloc(200 * MB);
	check_stats(200 * MB + 4 * KB, 202 * MB + 64 * MB, 64 * MB, 2);
	/* Small allocations are given what a cached large one held, too. */
	OK(vmem_free(ptr));
	for (int i = 0; i < 250; i++)
		alloc(MB - 1);
	OK(vmem_free(small));
}
END_TEST

START_TEST(out_of_memory_changes_nothing)
{
	CUdeviceptr ptr = 42;
	size_t n = 0;

	fake.limit[0] = 200 * MB;
	alloc(90 * MB);
	ck_assert_int_eq(vmem_alloc(ctx1, 0, 150 * MB, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(ptr, 42);
	check_stats(90 * MB, 90 * MB, 0, 1);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 1);
	/* Slabs grow smaller again before they fail: every byte can be had. */
	while (vmem_alloc(ctx1, 0, MB, &ptr) == CUDA_SUCCESS)
		n++;
	ck_assert_uint_eq(n, 110);
	check_stats(200 * MB, 200 * MB, 0, 111);
}
END_TEST

START_TEST(pause_and_resume_keep_addresses)
{
	CUdeviceptr a = alloc(4 * KB), b = alloc(100 * MB), c = alloc_on(ctx2, 1, 3 * MB);
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
		check_info(a, a, 4 * KB, ctx1, 0);
		check_info(b + 99 * MB, b, 100 * MB, ctx1, 0);
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
	OK(vmem_free(a));
	OK(vmem_free(b));
	OK(vmem_free(c));
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

	OK(vmem_peer_enable(ctx3, 1, ctx1, 0));
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
	check_info(r[2].start, ptr, size, ctx1, 0);
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
	OK(vmem_free(ptr));
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

	OK(vmem_alloc(ctx1, 0, 8 << 20, &ptr));
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
	OK(vmem_free(ptr));
	vmem_trim();
	ck_assert_uint_eq(fake.used[0], 0);
}
END_TEST

/* The same of a new allocation: its addresses are nobody's until they are free of it. */
START_TEST(a_failed_allocation_that_is_not_undone)
{
	CUdeviceptr ptr, first;

	OK(vmem_alloc(ctx1, 0, 8 << 20, &first));
	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.fail_at = fake.calls + 4;
	fake.unmap_fails = CUDA_ERROR_NOT_READY;
	ck_assert_int_eq(vmem_alloc(ctx1, 0, 8 << 20, &ptr), CUDA_ERROR_UNKNOWN);
	ck_assert_int_eq(fake.failed_call, FAKE_ACCESS);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 1);
	ck_assert(!vmem_has_left()); /* no allocation waits for it */
	OK(vmem_alloc(ctx1, 0, 8 << 20, &ptr));
	vmem_trim();
	ck_assert_uint_eq(fake.used[0], 24 << 20);
	fake.unmap_fails = CUDA_SUCCESS;
	vmem_trim();
	ck_assert_uint_eq(fake.used[0], 16 << 20);
	OK(vmem_free(first));
	OK(vmem_free(ptr));
	vmem_trim();
	ck_assert_uint_eq(fake.used[0], 0);
}
END_TEST

/* A handle that was not released keeps the memory of what is unmapped. */
START_TEST(a_handle_that_is_released_late)
{
	CUdeviceptr ptr;

	OK(vmem_alloc(ctx1, 0, 8 << 20, &ptr));
	OK(vmem_region_unmap(ptr));
	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.fail_at = fake.calls + 3;
	OK(vmem_region_map(ptr));
	ck_assert_int_eq(fake.failed_call, FAKE_RELEASE);
	OK(vmem_region_unmap(ptr));
	ck_assert_uint_eq(fake.used[0], 0);
	OK(vmem_free(ptr));
}
END_TEST

START_TEST(a_doomed_map_takes_nothing)
{
	unsigned int created;
	CUdeviceptr ptr = 42;

	alloc(1);
	created = fake.count[FAKE_CREATE];
	fake.limit[0] = 2 * VMEM_PIECE;
	ck_assert_int_eq(vmem_alloc(ctx1, 0, 3 * VMEM_PIECE, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(ptr, 42);
	ck_assert_uint_eq(fake.count[FAKE_CREATE], created);
}
END_TEST

START_TEST(idle_regions_can_be_unmapped_and_dropped)
{
	CUdeviceptr ptr = alloc(4 * MB);

	OK(vmem_free(ptr));
	OK(vmem_region_unmap(ptr));
	check_stats(0, 0, 0, 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 1);
	vmem_trim();
	ck_assert_uint_eq(vmem_regions(NULL, 0), 0);
}
END_TEST

START_TEST(contexts_go_with_what_they_own)
{
	CUdeviceptr kept = alloc_on(ctx2, 0, 4 * KB), kept_large = alloc_on(ctx2, 1, 2 * MB);
	struct vmem_stats st;
	CUdeviceptr ptr;

	for (int i = 0; i < 40; i++)
		alloc(MB);
	OK(vmem_free(alloc(3 * MB)));
	ptr = alloc(64 * MB);
	alloc_on(ctx1, 1, 8 * KB);
	vmem_get_device_stats(1, &st);
	ck_assert_uint_eq(st.carried, 2 * MB + 8 * KB);
	ck_assert_uint_eq(st.mapped, 4 * MB);
	ck_assert_uint_eq(st.nalloc, 2);

	vmem_release_context(ctx1);
	check_none(ptr);
	check_info(kept, kept, 4 * KB, ctx2, 0);
	check_info(kept_large, kept_large, 2 * MB, ctx2, 1);
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
	vmem_release_context(ctx1);
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
	ck_assert_int_eq(vmem_free(large), CUDA_ERROR_ILLEGAL_ADDRESS);
	check_info(large, large, VMEM_CACHE + MB, ctx1, 0);
	ck_assert_int_eq(vmem_region_unmap(large), CUDA_ERROR_ILLEGAL_ADDRESS);
	check_stats(VMEM_CACHE + MB, VMEM_CACHE + 2 * MB, 0, 1);
	fake.unmap_fails = CUDA_SUCCESS;
	OK(vmem_free(large));
	check_stats(0, 0, 0, 0);
}
END_TEST

START_TEST(peers_see_all_memory_of_the_device)
{
	CUdeviceptr early = alloc(100 * MB), other = alloc_on(ctx2, 1, 2 * MB), late, small;
	unsigned int calls;

	ck_assert_uint_eq(fake_users(early, 100 * MB), 1 << 0);
	OK(vmem_peer_enable(ctx2, 1, ctx1, 0));
	calls = fake.calls;
	OK(vmem_peer_enable(ctx2, 1, ctx1, 0));
	ck_assert_uint_eq(fake.calls, calls);
	late = alloc(2 * MB);
	small = alloc(1);
	ck_assert_uint_eq(fake_users(early, 100 * MB), 1 << 0 | 1 << 1);
	ck_assert_uint_eq(fake_users(late, 2 * MB), 1 << 0 | 1 << 1);
	ck_assert_uint_eq(fake_users(small, 2 * MB), 1 << 0 | 1 << 1);
	ck_assert_uint_eq(fake_users(other, 2 * MB), 1 << 1);

	/* A peer stays one across a pause, and what changes while paused holds after it. */
	OK(vmem_region_unmap(early));
	OK(vmem_region_unmap(late));
	OK(vmem_region_map(early));
	ck_assert_uint_eq(fake_users(early, 100 * MB), 1 << 0 | 1 << 1);
	OK(vmem_peer_disable(ctx2, ctx1));
	OK(vmem_region_map(late));
	ck_assert_uint_eq(fake_users(early, 100 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(late, 2 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(small, 2 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(other, 2 * MB), 1 << 1);
}
END_TEST

START_TEST(access_lasts_as_long_as_a_peer)
{
	CUdeviceptr ptr = alloc(2 * MB), other = alloc_on(ctx2, 1, 2 * MB);
	const unsigned int both = 1 << 0 | 1 << 1;

	/* Two contexts of a device have one each, and the first has a second one. */
	OK(vmem_peer_enable(ctx2, 1, ctx1, 0));
	OK(vmem_peer_enable(ctx3, 1, ctx1, 0));
	OK(vmem_peer_enable(ctx2, 1, ctx4, 0));
	ck_assert_uint_eq(fake_users(other, 2 * MB), 1 << 1);
	OK(vmem_peer_disable(ctx2, ctx1));
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), both);
	OK(vmem_peer_disable(ctx2, ctx1));
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), both);
	context_gone(ctx3);
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), both);
	context_gone(ctx4);
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), 1 << 0);
	/* The other direction is another matter, and a device needs no access to itself. */
	OK(vmem_peer_enable(ctx1, 0, ctx2, 1));
	OK(vmem_peer_enable(ctx1, 0, ctx3, 0));
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(other, 2 * MB), both);
	context_gone(ctx1);
	ck_assert_uint_eq(fake_users(other, 2 * MB), 1 << 1);
}
END_TEST

START_TEST(copies_keep_their_access)
{
	CUdeviceptr ptr = alloc(2 * MB), other = alloc_on(ctx2, 1, 2 * MB);
	const unsigned int both = 1 << 0 | 1 << 1;
	unsigned int calls;

	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.fail_at = fake.calls + 1;
	ck_assert_int_eq(vmem_copies_enable(1, 0), CUDA_ERROR_UNKNOWN);
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), 1 << 0);
	OK(vmem_copies_enable(1, 0));
	calls = fake.calls;
	OK(vmem_copies_enable(1, 0));
	ck_assert_uint_eq(fake.calls, calls);
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), both);
	ck_assert_uint_eq(fake_users(alloc(1), 2 * MB), both);
	ck_assert_uint_eq(fake_users(other, 2 * MB), 1 << 1);
	/* Peer access comes and goes beside it, and so does a pause. */
	OK(vmem_peer_enable(ctx2, 1, ctx1, 0));
	OK(vmem_peer_disable(ctx2, ctx1));
	OK(vmem_region_unmap(ptr));
	OK(vmem_region_map(ptr));
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), both);
	ck_assert_int_eq(vmem_copies_enable(1, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(vmem_copies_enable(64, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(a_peer_is_enabled_everywhere_or_nowhere)
{
	CUdeviceptr a = alloc(2 * MB), b = alloc(4 * MB), c = alloc(6 * MB);

	fake.fail_with = CUDA_ERROR_UNKNOWN;
	fake.fail_at = fake.calls + 3;
	ck_assert_int_eq(vmem_peer_enable(ctx2, 1, ctx1, 0), CUDA_ERROR_UNKNOWN);
	ck_assert_uint_eq(fake_users(a, 2 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(b, 4 * MB), 1 << 0);
	OK(vmem_peer_enable(ctx2, 1, ctx1, 0));
	fake.fail_at = fake.calls + 2;
	ck_assert_int_eq(vmem_peer_disable(ctx2, ctx1), CUDA_ERROR_UNKNOWN);
	ck_assert_uint_eq(fake_users(a, 2 * MB), 1 << 0 | 1 << 1);
	ck_assert_uint_eq(fake_users(c, 6 * MB), 1 << 0 | 1 << 1);
	ck_assert_uint_eq(fake_users(alloc(8 * MB), 8 * MB), 1 << 0 | 1 << 1);
}
END_TEST

START_TEST(addresses_merge_and_fit_best)
{
	CUdeviceptr a = alloc(300 * MB), b = alloc(300 * MB), c = alloc(260 * MB), d;

	d = alloc(300 * MB);
	ck_assert_uint_eq(a, VMEM_BASE);
	OK(vmem_free(b));
	OK(vmem_free(a));
	OK(vmem_free(d));
	/* 600 MiB are free before c; behind it, all the rest. */
	ck_assert_uint_eq(alloc(600 * MB), a);
	OK(vmem_free(c));
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
	OK(vmem_free(tail));
	OK(vmem_free(last));
	ck_assert_uint_eq(vmem_regions(NULL, 0), (40 + 24) * GB / VMEM_PIECE);
	last = alloc(40 * GB);
	ck_assert_uint_eq(last, VMEM_BASE + 64 * GB);
	tail = alloc(24 * GB);
	ck_assert_uint_eq(tail, VMEM_BASE + 40 * GB);
	OK(vmem_free(last));
	OK(vmem_free(tail));
	ck_assert_uint_eq(alloc(40 * GB), VMEM_BASE + 64 * GB);
	ck_assert_int_eq(vmem_alloc(ctx1, 0, 65 * GB, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(ptr, 42);
	ck_assert(vmem_contains(VMEM_BASE + 128 * GB - 1));
	ck_assert(!vmem_contains(VMEM_BASE + 128 * GB));
}
END_TEST

START_TEST(addresses_elsewhere_are_refused)
{
	CUdeviceptr ptr;

	fake.reserve_at = 0x7f0000000000;
	ck_assert_int_eq(vmem_alloc(ctx1, 0, 1, &ptr), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(vmem_alloc(ctx1, 0, GB, &ptr), CUDA_ERROR_NOT_SUPPORTED);
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
	ck_assert_int_eq(vmem_alloc(ctx1, 0, 2 * SPACE_SEGMENT, &ptr), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(vmem_alloc(ctx1, 0, 1, &ptr), CUDA_ERROR_NOT_SUPPORTED);
	tries = fake.count[FAKE_RESERVE];
	ck_assert_uint_gt(tries, 1);
	fake.reserve_max = 0;
	ck_assert_int_eq(vmem_alloc(ctx1, 0, GB, &ptr), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(fake.count[FAKE_RESERVE], tries);
	ck_assert_uint_eq(ptr, 42);
	check_stats(0, 0, 0, 0);
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

	STEP(vmem_alloc(ctx1, 0, 4 * KB, &a));
	STEP(vmem_alloc(ctx1, 0, VMEM_PIECE + 36 * MB, &b));
	STEP(vmem_alloc(ctx1, 0, 4 * VMEM_PIECE + MB, &c));
	STEP(vmem_peer_enable(ctx2, 1, ctx1, 0));
	STEP(vmem_region_unmap(b + VMEM_PIECE));
	STEP(vmem_region_unmap(b));
	STEP(vmem_region_map(b));
	STEP(vmem_region_map(b + VMEM_PIECE));
	STEP(vmem_peer_disable(ctx2, ctx1));
	STEP(vmem_free(a));
	STEP(vmem_free(b));
	STEP(vmem_free(c));
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

#define THREADS 8

static CUdeviceptr _Atomic shared[THREADS];
static atomic_bool done;

/* Allocate and free in one of two contexts on one of two devices; look all of it up. */
static void *churn(void *arg)
{
	int t = (int)(intptr_t)arg;
	CUcontext ctx = t % 2 ? ctx2 : ctx1;
	CUdeviceptr ptrs[16] = {0};
	size_t sizes[16];
	uint64_t seed = (uint64_t)t + 1;

	for (int i = 0; i < 5000; i++) {
		struct vmem_info info;
		int k;

		seed = seed * 6364136223846793005 + 1442695040888963407;
		k = (int)(seed >> 60);
		if (ptrs[k]) {
			FAKE_MUST(vmem_lookup(ptrs[k] + sizes[k] - 1, &info));
			FAKE_MUST(info.start == ptrs[k] && info.size == sizes[k]);
			FAKE_MUST(info.ctx == ctx && info.dev == t % 2);
			FAKE_MUST(vmem_free(ptrs[k]) == CUDA_SUCCESS);
			ptrs[k] = 0;
			continue;
		}
		sizes[k] = seed >> 32 & 1023 ? 1 + (seed >> 34) % (64 * KB) : 3 * MB;
		FAKE_MUST(vmem_alloc(ctx, t % 2, sizes[k], &ptrs[k]) == CUDA_SUCCESS);
		atomic_store(&shared[t], ptrs[k]);
	}
	for (int k = 0; k < 16; k++)
		if (ptrs[k])
			FAKE_MUST(vmem_free(ptrs[k]) == CUDA_SUCCESS);
	return NULL;
}

/* Look up what may be freed meanwhile: it is found or not, but nothing breaks. */
static void *watch(void *arg)
{
	(void)arg;
	while (!atomic_load(&done))
		for (int t = 0; t < THREADS; t++) {
			CUdeviceptr ptr = atomic_load(&shared[t]);
			struct vmem_info info;

			if (ptr && vmem_lookup(ptr, &info))
				FAKE_MUST(info.size <= 3 * MB && info.dev < 2);
		}
	return NULL;
}

START_TEST(threads)
{
	pthread_t churners[THREADS], watchers[2];

	for (intptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&churners[i], NULL, churn, (void *)i), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&watchers[i], NULL, watch, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(churners[i], NULL);
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++)
		pthread_join(watchers[i], NULL);
	vmem_trim();
	check_stats(0, 0, 0, 0);
}
END_TEST

static void *alloc_slowly(void *arg)
{
	*(CUdeviceptr *)arg = alloc_on(ctx2, 1, 4 * MB);
	return NULL;
}

/* While the driver makes memory of one device, nobody who wants another's waits. */
START_TEST(devices_do_not_wait_for_each_other)
{
	CUdeviceptr kept = alloc_on(ctx2, 1, 4 * KB), small, large, slow;
	struct vmem_stats st;
	pthread_t thread;

	fake.slow[1] = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, alloc_slowly, &slow), 0);
	while (!__atomic_load_n(&fake.waits[1], __ATOMIC_ACQUIRE))
		usleep(100);
	small = alloc(4 * KB);
	large = alloc(300 * MB);
	check_info(kept, kept, 4 * KB, ctx2, 1);
	vmem_get_device_stats(0, &st);
	ck_assert_uint_eq(st.nalloc, 2);
	OK(vmem_free(small));
	OK(vmem_free(large));
	__atomic_store_n(&fake.slow[1], false, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	check_info(slow, slow, 4 * MB, ctx2, 1);
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
	tcase_add_test(tc, retired_allocations);
	tcase_add_test(tc, a_retired_allocation_that_goes_with_its_context);
	tcase_add_test(tc, kept_memory);
	tcase_add_test(tc, kept_memory_goes_with_its_context);
	tcase_add_test(tc, kept_memory_that_is_not_unmapped_stays_kept);
	tcase_add_test(tc, bad_arguments);
	tcase_add_test(tc, slabs_are_blocks_of_the_drivers_size);
	tcase_add_loop_test(tc, few_that_are_left_hold_little, 0, 4);
	tcase_add_loop_test(tc, bursts_make_no_calls, 0, 5);
	tcase_add_test(tc, a_resume_maps_neighbours_at_once);
	tcase_add_test(tc, a_run_goes_back_as_a_whole);
	tcase_add_test(tc, few_slabs_are_not_joined);
	tcase_add_loop_test(tc, a_run_that_fails, 0, 2);
	tcase_add_test(tc, freed_large_regions_are_used_again);
	tcase_add_test(tc, the_cache_is_bounded);
	tcase_add_test(tc, one_empty_slab_stays);
	tcase_add_test(tc, idle_memory_is_given_back_before_oom);
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
	tcase_add_test(tc, contexts_go_with_what_they_own);
	tcase_add_test(tc, what_a_dying_context_does_not_unmap_is_tried_again);
	tcase_add_test(tc, what_the_driver_keeps_mapped_lives_on);
	tcase_add_test(tc, peers_see_all_memory_of_the_device);
	tcase_add_test(tc, access_lasts_as_long_as_a_peer);
	tcase_add_test(tc, copies_keep_their_access);
	tcase_add_test(tc, a_peer_is_enabled_everywhere_or_nowhere);
	tcase_add_test(tc, addresses_merge_and_fit_best);
	tcase_add_test(tc, addresses_come_in_smaller_segments_too);
	tcase_add_test(tc, addresses_elsewhere_are_refused);
	tcase_add_test(tc, no_addresses_at_all_are_a_refusal);
	tcase_add_test(tc, the_scenario_has_so_many_calls);
	tcase_add_loop_test(tc, every_call_can_fail, 0, 2 * SCENARIO_CALLS);
	tcase_add_test(tc, threads);
	tcase_add_test(tc, devices_do_not_wait_for_each_other);
	tcase_add_test(tc, sizes_are_no_pointers);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
