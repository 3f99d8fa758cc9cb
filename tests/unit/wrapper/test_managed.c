/* SPDX-License-Identifier: Apache-2.0 */
/* The table of managed allocations that are host memory: what covers a range, what is remembered. */
#include "tests/check_suite.h"
#include "vmem/context_gone.h"
#include "wrapper/hooks/managed/managed.h"
#include "wrapper/real.h"

#define PAGE  4096UL
#define BASE  0x7f0000000000UL
#define CTX   ((CUcontext)0x1000)
#define OTHER ((CUcontext)0x2000)

static void add(CUdeviceptr start, size_t size, CUcontext ctx)
{
	const struct managed_info info = {.start = start, .size = size, .ctx = ctx};

	ck_assert(managed_add(&info));
}

static void mark(struct managed_hints *hints, const void *arg)
{
	hints->accessed_by |= *(const uint64_t *)arg;
	hints->read_mostly = true;
}

static void set(CUdeviceptr ptr, size_t size, uint64_t bits)
{
	ck_assert_int_eq(managed_change(ptr, size, mark, &bits), CUDA_SUCCESS);
}

static uint64_t bits_of(CUdeviceptr ptr, size_t size)
{
	struct managed_hints hints = {.accessed_by = 99};

	ck_assert_int_eq(managed_common(ptr, size, &hints), CUDA_SUCCESS);
	ck_assert_int_eq(hints.read_mostly, hints.accessed_by != 0);
	return hints.accessed_by;
}

START_TEST(test_bytes_are_found)
{
	struct managed_info info;

	ck_assert(!managed_lookup(BASE, NULL));
	add(BASE + 8 * PAGE, PAGE, CTX);
	add(BASE, 100, CTX);
	add(BASE + 4 * PAGE, PAGE, OTHER);
	ck_assert(managed_lookup(BASE + 99, &info));
	ck_assert_uint_eq(info.start, BASE);
	ck_assert_uint_eq(info.size, 100);
	ck_assert(!managed_lookup(BASE + 100, NULL));
	ck_assert(!managed_lookup(BASE - 1, NULL));
	ck_assert(managed_lookup(BASE + 9 * PAGE - 1, &info));
	ck_assert_uint_eq(info.start, BASE + 8 * PAGE);
	context_gone(CTX);
	ck_assert(!managed_lookup(BASE, NULL));
	ck_assert(managed_lookup(BASE + 4 * PAGE, NULL));
	ck_assert(!managed_lookup(BASE + 8 * PAGE, NULL));
}
END_TEST

START_TEST(test_ranges_are_covered)
{
	add(BASE, 2 * PAGE, CTX);
	add(BASE + 2 * PAGE, PAGE + 1, CTX);
	add(BASE + 5 * PAGE, PAGE, CTX);
	ck_assert(managed_covers(BASE, 1));
	ck_assert(managed_covers(BASE + 10, 2 * PAGE - 10));
	ck_assert(managed_covers(BASE, 3 * PAGE + 1)); /* two that are neighbours */
	ck_assert(managed_covers(BASE, 4 * PAGE));     /* up to the end of the last page */
	ck_assert(!managed_covers(BASE, 4 * PAGE + 1));
	ck_assert(!managed_covers(BASE + 4 * PAGE, 2 * PAGE));
	ck_assert(!managed_covers(BASE + 3 * PAGE + 1, 1)); /* no byte of an allocation */
	ck_assert(!managed_covers(BASE, 0));
	ck_assert(!managed_covers(BASE + 5 * PAGE, SIZE_MAX));
}
END_TEST

START_TEST(test_pages_keep_their_hints)
{
	const CUdeviceptr next = BASE + 16 * PAGE;
	struct managed_hints hints;
	uint64_t bits = 1;

	add(BASE, 16 * PAGE, CTX);
	add(next, 16 * PAGE, CTX);
	ck_assert_uint_eq(bits_of(BASE, 16 * PAGE), 0);
	set(BASE + 4 * PAGE + 1, 2, 1); /* one page */
	ck_assert_uint_eq(bits_of(BASE + 4 * PAGE, PAGE), 1);
	ck_assert_uint_eq(bits_of(BASE + 3 * PAGE, PAGE), 0);
	ck_assert_uint_eq(bits_of(BASE + 5 * PAGE, PAGE), 0);
	ck_assert_uint_eq(bits_of(BASE + 4 * PAGE, PAGE + 1), 0);
	set(BASE, 16 * PAGE, 2);
	ck_assert_uint_eq(bits_of(BASE + 4 * PAGE, PAGE), 3);
	ck_assert_uint_eq(bits_of(BASE, 16 * PAGE), 2);
	set(BASE + 8 * PAGE, 16 * PAGE, 4); /* in both */
	ck_assert_uint_eq(bits_of(BASE + 8 * PAGE, 16 * PAGE), 4);
	ck_assert_uint_eq(bits_of(BASE + 8 * PAGE, 8 * PAGE), 6);
	ck_assert_uint_eq(bits_of(next + 8 * PAGE, PAGE), 0);
	ck_assert_uint_eq(bits_of(BASE + 7 * PAGE, PAGE), 2);
	ck_assert_int_eq(managed_change(BASE, 33 * PAGE, mark, &bits), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(managed_common(BASE, 33 * PAGE, &hints), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(bits_of(BASE, PAGE), 2);
	/* Small ones that share a page have hints of their own. */
	add(BASE + 64 * PAGE, 512, CTX);
	add(BASE + 64 * PAGE + 512, 512, CTX);
	set(BASE + 64 * PAGE + 512, 512, 8);
	ck_assert_uint_eq(bits_of(BASE + 64 * PAGE + 512, 512), 8);
	ck_assert_uint_eq(bits_of(BASE + 64 * PAGE, 512), 0);
}
END_TEST

/* In a list that grows with each piece this takes minutes. */
START_TEST(test_pieces_in_a_row)
{
	const size_t pages = 400000;

	add(BASE, pages * PAGE, CTX);
	for (size_t i = 0; i < pages; i++)
		set(BASE + i * PAGE, PAGE, 1);
	ck_assert_uint_eq(bits_of(BASE, pages * PAGE), 1);
}
END_TEST

START_TEST(test_a_free_that_fails)
{
	add(BASE, PAGE, CTX);
	set(BASE, PAGE, 1);
	ck_assert(!managed_ending(BASE + 1));
	ck_assert(managed_ending(BASE));
	ck_assert(!managed_ending(BASE)); /* by another thread */
	managed_ended(BASE, false);
	ck_assert_uint_eq(bits_of(BASE, PAGE), 1);
	ck_assert(managed_ending(BASE));
	managed_ended(BASE, true);
	ck_assert(!managed_lookup(BASE, NULL));
}
END_TEST

/* The driver gives the addresses to another thread before the free is noted. */
START_TEST(test_an_address_that_comes_again)
{
	add(BASE, 4 * PAGE, CTX);
	set(BASE, PAGE, 1);
	ck_assert(managed_ending(BASE));
	add(BASE, 2 * PAGE, CTX);
	managed_ended(BASE, true);
	ck_assert(managed_lookup(BASE + 2 * PAGE - 1, NULL));
	ck_assert(!managed_lookup(BASE + 2 * PAGE, NULL));
	ck_assert_uint_eq(bits_of(BASE, PAGE), 0);
}
END_TEST

START_TEST(test_many)
{
	for (CUdeviceptr i = 0; i < 1000; i++)
		add(BASE + i * 7 % 1000 * PAGE, PAGE, CTX);
	ck_assert(managed_covers(BASE, 1000 * PAGE));
	for (CUdeviceptr i = 0; i < 1000; i += 2) {
		ck_assert(managed_ending(BASE + i * PAGE));
		managed_ended(BASE + i * PAGE, true);
	}
	for (CUdeviceptr i = 0; i < 1000; i++)
		ck_assert_int_eq(managed_lookup(BASE + i * PAGE, NULL), i % 2);
}
END_TEST

static CUresult host_alloc(void **ptr, size_t size, unsigned int flags)
{
	(void)size;
	(void)flags;
	*ptr = (void *)(BASE + PAGE);
	return CUDA_SUCCESS;
}

static CUresult alloc_host(void **ptr, size_t size)
{
	return host_alloc(ptr, size, 0);
}

static CUresult alloc_host_old(void **ptr, unsigned int size)
{
	return host_alloc(ptr, size, 0);
}

static CUresult host_register(void *ptr, size_t size, unsigned int flags)
{
	return host_alloc(&ptr, size, flags);
}

/* The driver has freed managed memory with its context, and others get its addresses before that is noted. */
START_TEST(test_other_memory_has_the_addresses)
{
	void *ptr = (void *)(BASE + PAGE);

	real.cuMemHostAlloc = host_alloc;
	real.cuMemAllocHost_v2 = alloc_host;
	real.cuMemAllocHost = alloc_host_old;
	real.cuMemHostRegister_v2 = host_register;
	real.cuMemHostRegister = host_register;
	add(BASE, 2 * PAGE, CTX);
	add(BASE + 2 * PAGE, PAGE, CTX);
	if (_i == 0)
		call_cuMemHostAlloc(&ptr, PAGE, 0);
	else if (_i == 1)
		call_cuMemAllocHost_v2(&ptr, PAGE);
	else if (_i == 2)
		call_cuMemAllocHost(&ptr, PAGE);
	else if (_i == 3)
		call_cuMemHostRegister_v2(ptr, PAGE, 0);
	else
		call_cuMemHostRegister(ptr, PAGE, 0);
	ck_assert(!managed_lookup(BASE, NULL));
	ck_assert(managed_lookup(BASE + 2 * PAGE, NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("managed memory");
	TCase *tcase = tcase_create("managed");

	tcase_add_test(tcase, test_bytes_are_found);
	tcase_add_test(tcase, test_ranges_are_covered);
	tcase_add_test(tcase, test_pages_keep_their_hints);
	tcase_add_test(tcase, test_pieces_in_a_row);
	tcase_add_test(tcase, test_a_free_that_fails);
	tcase_add_test(tcase, test_an_address_that_comes_again);
	tcase_add_loop_test(tcase, test_other_memory_has_the_addresses, 0, 5);
	tcase_add_test(tcase, test_many);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
