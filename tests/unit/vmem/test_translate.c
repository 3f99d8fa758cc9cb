/* SPDX-License-Identifier: Apache-2.0 */
/* Translated addressing: which addresses there are, and what becomes of them. */
#include "calls.h"
#include "tests/unit/translated.h"
#include "vmem/addresses/addressing.h"
#include "wrapper/translated/symbols.h"

#include <stdlib.h>

/* A program may change its environment: its addresses stay what they are. */
START_TEST(what_is_asked_for_is_read_once)
{
	setenv("CUDAW_ADDRESSING", "nonsense", 1);
	setenv("CUDAW_TO_DRIVER", _i ? "exports,memory" : "exports,memo", 1);
	ck_assert_int_eq(addressing_asked(), _i ? ADDRESSING_NATIVE : ADDRESSING_ANY);
	setenv("CUDAW_ADDRESSING", "mapped", 1);
	unsetenv("CUDAW_TO_DRIVER");
	ck_assert_int_eq(addressing_asked(), _i ? ADDRESSING_NATIVE : ADDRESSING_ANY);
}
END_TEST

START_TEST(addresses)
{
	CUdeviceptr a = alloc_at(0x7f1000000000, 4 * MB), b = alloc_at(0x7e0000000000, 4 * MB);

	ck_assert_uint_eq(translate(a), 0x7f1000000000);
	ck_assert_uint_eq(translate(a + 3 * MB + 5), 0x7f1000000000 + 3 * MB + 5);
	ck_assert_uint_eq(translate(b + 1), 0x7e0000000001);
	/* The end belongs to it, and is in no other. */
	ck_assert_uint_eq(translate(a + 4 * MB), 0x7f1000000000 + 4 * MB);
	ck_assert_uint_eq(translate(b + 4 * MB), 0x7e0000000000 + 4 * MB);
	/* From before it kernels count from 1. */
	ck_assert_uint_eq(translate(a - 8), 0x7f0ffffffff8);
	ck_assert_uint_eq(translate(b - 2 * MB), 0x7e0000000000 - 2 * MB);
	ck_assert_uint_eq(translate(a + 6 * MB - 1), 0x7f1000000000 + 6 * MB - 1);
	/* What is nobody's stays as it is. */
	ck_assert_uint_eq(translate(0), 0);
	ck_assert_uint_eq(translate(b + 64 * MB), b + 64 * MB);
	ck_assert_uint_eq(translate(0x7f1000000000), 0x7f1000000000);
	ck_assert_uint_eq(translate(VMEM_BASE + SPACE_SIZE), VMEM_BASE + SPACE_SIZE);
}
END_TEST

static bool is_unclear(CUdeviceptr at)
{
	bool unclear = false;

	translate_back_given(at, &unclear);
	return unclear;
}

START_TEST(addresses_back)
{
	CUdeviceptr a = alloc_at(0x7f1000000000, 4 * MB), b = alloc_at(0x7e0000000000, 4 * MB);
	CUdeviceptr c = alloc_at(0x7f1000000000 + 4 * MB, 4 * MB);
	bool unclear = false;

	ck_assert_uint_eq(translate_back(0x7e0000000000), b);
	ck_assert_uint_eq(translate_back(0x7e0000000000 + 3 * MB), b + 3 * MB);
	/* An end that no kernel was given is the begin of something that is not ours. */
	ck_assert_uint_eq(translate_back(0x7e0000000000 + 4 * MB), 0x7e0000000000 + 4 * MB);
	ck_assert_uint_eq(translate_back(0x7e0000000001 + 4 * MB), 0x7e0000000001 + 4 * MB);
	ck_assert_uint_eq(translate_back(0x7f1000000000), a);
	/* Where one ends and one begins. */
	ck_assert_uint_eq(translate_back(0x7f1000000000 + 4 * MB), c);
	ck_assert_uint_eq(translate_back(a), a);
	ck_assert(!is_unclear(0x7f1000000000 + 4 * MB));
	translate_given(c);
	translate_given(b + 4 * MB);
	ck_assert(!is_unclear(0x7f1000000000 + 4 * MB));
	ck_assert(!is_unclear(0x7e0000000000 + 4 * MB));
	ck_assert_uint_eq(translate_back_given(0x7e0000000000 + 4 * MB, &unclear), b + 4 * MB);
	/* No copy or set begins there. */
	ck_assert_uint_eq(translate_back(0x7e0000000000 + 4 * MB), 0x7e0000000000 + 4 * MB);
	translate_given(a + 4 * MB);
	ck_assert(is_unclear(0x7f1000000000 + 4 * MB));
	ck_assert(!is_unclear(0x7f1000000000 + 4 * MB + 1));
	/* Where it went, and where it came back. */
	ck_assert_int_eq(vmem_region_unmap(b), CUDA_SUCCESS);
	ck_assert_uint_eq(translate_back(0x7e0000000000), 0x7e0000000000);
	next_real = 0x7d0000000000;
	ck_assert_int_eq(vmem_region_map(b), CUDA_SUCCESS);
	ck_assert_uint_eq(translate_back(0x7d0000000000), b);
	ck_assert_uint_eq(translate_back(0x7f1000000000 + MB), a + MB);
}
END_TEST

/* Something else may be there, which only what a kernel was given is not. */
START_TEST(addresses_outside_back)
{
	const CUdeviceptr at = 0x7f1000000000, behind = at + 4 * MB + 8;
	CUdeviceptr a = alloc_at(at, 4 * MB), c = alloc_at(at + 8 * MB, 4 * MB);
	bool unclear = false;

	for (int given = 0; given < 2; given++) {
		ck_assert_int_eq(is_unclear(at - 8), given);
		ck_assert_int_eq(is_unclear(behind), given);
		ck_assert_uint_eq(translate_back_given(at - 8, &unclear), given ? a - 8 : at - 8);
		ck_assert_uint_eq(translate_back_given(behind, &unclear),
				  given ? a + 4 * MB + 8 : behind);
		/* No copy or set begins there. */
		ck_assert_uint_eq(translate_back(at - 8), at - 8);
		ck_assert_uint_eq(translate_back(behind), behind);
		ck_assert(!is_unclear(at) && !is_unclear(at + 4 * MB - 8));
		ck_assert(!is_unclear(at + 6 * MB) && !is_unclear(at + 8 * MB - 8));
		translate_given(a - 8);
		translate_given(a + 4 * MB + 8);
	}
	/* What is in another one all the same. */
	translate_given(c - 8);
	ck_assert_int_eq(vmem_region_unmap(a), CUDA_SUCCESS);
	next_real = at + 4 * MB;
	ck_assert_int_eq(vmem_region_map(a), CUDA_SUCCESS);
	ck_assert(is_unclear(at + 8 * MB - 8) && is_unclear(at + 8 * MB + 8));
	ck_assert_uint_eq(translate_back(at + 8 * MB - 8), a + 4 * MB - 8);
	ck_assert_uint_eq(translate_back(at + 8 * MB + 8), c + 8);
}
END_TEST

/* Graphs have it over a pause: what kernels were given before still counts. */
START_TEST(ends_are_known_after_a_pause)
{
	CUdeviceptr a = alloc_at(0x7f1000000000, 4 * MB);
	CUdeviceptr b = alloc_at(0x7f1000000000 + 4 * MB, 4 * MB);

	translate_given(a + 4 * MB);
	ck_assert(is_unclear(0x7f1000000000 + 4 * MB));
	ck_assert_int_eq(vmem_region_unmap(a), CUDA_SUCCESS);
	ck_assert_int_eq(vmem_region_unmap(b), CUDA_SUCCESS);
	next_real = 0x7f1000000000;
	ck_assert_int_eq(vmem_region_map(a), CUDA_SUCCESS);
	next_real = 0x7f1000000000 + 4 * MB;
	ck_assert_int_eq(vmem_region_map(b), CUDA_SUCCESS);
	ck_assert_uint_eq(translation.moves, 0);
	ck_assert(is_unclear(0x7f1000000000 + 4 * MB));
}
END_TEST

/*
 * What is allocated at the same address is another one, whether it was unmapped in between or not.
 */
START_TEST(ends_are_forgotten_with_their_allocation)
{
	const size_t size = _i ? 2 * VMEM_CACHE : 4 * MB;
	const CUdeviceptr at = 0x7f1000000000, outside[] = {at - 8, at + size + 8};
	CUdeviceptr a = alloc_at(at, size);

	for (int i = 0; i < 2; i++) {
		translate_given(a + (outside[i] - at));
		ck_assert(is_unclear(outside[i]));
	}
	ck_assert_int_eq(vmem_free(a, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(alloc_at(at, size), a);
	ck_assert_uint_eq(nalloc, _i ? 2 : 1);
	for (int i = 0; i < 2; i++)
		ck_assert(!is_unclear(outside[i]));
}
END_TEST

/* However large: kernels run through it. */
START_TEST(an_allocation_is_one_piece)
{
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 5 * VMEM_PIECE + MB);

	ck_assert_uint_eq(nalloc, 1);
	ck_assert_uint_eq(translate(ptr + 5 * VMEM_PIECE), 0x7f0000000000 + 5 * VMEM_PIECE);
}
END_TEST

START_TEST(pauses_move_memory)
{
	CUdeviceptr ptr = alloc_at(0x7f0000000000, 4 * MB);

	ck_assert_uint_eq(translation.moves, 0);
	ck_assert_int_eq(vmem_region_unmap(ptr), CUDA_SUCCESS);
	ck_assert_uint_eq(freed, 0x7f0000000000);
	ck_assert_uint_eq(translate(ptr), ptr);
	ck_assert_int_eq(vmem_region_map(ptr), CUDA_SUCCESS);
	ck_assert_uint_eq(translation.moves, 0);
	ck_assert_int_eq(vmem_region_unmap(ptr), CUDA_SUCCESS);
	next_real = 0x7d0000000000;
	ck_assert_int_eq(vmem_region_map(ptr), CUDA_SUCCESS);
	ck_assert_uint_eq(translation.moves, 1);
	ck_assert_uint_eq(translate(ptr + 1), 0x7d0000000001);
	ck_assert_int_eq(drv.cuMemcpyDtoHAsync_v2(NULL, ptr + 2, 1, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(copied, 0x7d0000000002);
}
END_TEST

/* Its memory may be another's by now. */
START_TEST(a_context_frees_its_memory_itself)
{
	CUdeviceptr a = alloc_at(0x7f0000000000, 4 * MB), b = alloc_at(0x7e0000000000, MB);
	struct vmem_stats st;

	vmem_release_context(CTX);
	ck_assert_uint_eq(nfree, 0);
	ck_assert_uint_eq(translate(a), a);
	ck_assert_uint_eq(translate(b), b);
	vmem_get_stats(&st);
	ck_assert_uint_eq(st.mapped + st.cached + st.carried, 0);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 0);
}
END_TEST

static CUdeviceptr reused; /* 0, or what another thread loads as the unload ends */
static CUresult unloaded;

static CUresult unload(CUmodule module)
{
	if (reused)
		symbols_add(module, CTX, reused, 64);
	return unloaded;
}

/* The driver may refuse it, as that of a module that belongs to a library. */
START_TEST(variables_of_modules_that_are_unloaded)
{
	CUmodule module = (CUmodule)0x3000;

	real.cuModuleUnload = unload;
	symbols_add(module, CTX, 0x7f5000000000, 64);
	unloaded = CUDA_ERROR_NOT_PERMITTED;
	ck_assert_int_eq(hook_cuModuleUnload(module), unloaded);
	ck_assert(symbols_have(0x7f5000000008, 8));
	unloaded = CUDA_SUCCESS;
	reused = _i ? 0x7f5000000000 : 0x7f6000000000;
	ck_assert_int_eq(hook_cuModuleUnload(module), CUDA_SUCCESS);
	ck_assert_int_eq(symbols_have(0x7f5000000000, 64), _i);
	ck_assert(symbols_have(reused, 64));
	reused = 0;
	ck_assert_int_eq(hook_cuModuleUnload(module), CUDA_SUCCESS);
	ck_assert(!symbols_have(0x7f5000000000, 8) && !symbols_have(0x7f6000000000, 8));
}
END_TEST

/* @number beside the upper half of @ptr. */
static void check_no_pointer(CUdeviceptr ptr, uint32_t number)
{
	CUdeviceptr word = (ptr & ~0xffffffffUL) | number;

	ck_assert_msg(translate(word) == word, "%#llx of %#llx", word, ptr);
}

#define NSCATTERED 800

/* A number beside what was left of a pointer. Large allocations are safe from small ones only. */
START_TEST(numbers_beside_halves_of_pointers)
{
	const uint32_t numbers[] = {0,          1,          4096,       0x100000,   0x1f000000,
				    0xfffffff0, 0xffffffff, 0x3f800000, 0x45000000, 0x7f800000,
				    0x7fffffff, 0x80000000, 0xbf800000, 0xc5000000, 0xff800000};
	const size_t mib[] = {2, 20, 600, 700, 748, 750, 756, 764, 1024, 3000};
	CUdeviceptr ptrs[NSCATTERED];

	for (size_t i = 0; i < NSCATTERED; i++)
		ptrs[i] = alloc_at(0x7e0000000000 + i * 4000 * MB, mib[i % 10] * MB);
	for (size_t i = 0; i < NSCATTERED; i++) {
		CUdeviceptr last = ptrs[i] + mib[i % 10] * MB - 1;

		ck_assert_uint_ne(translate(last), last);
		for (size_t n = 0; n < (mib[i % 10] <= 748 ? 15 : 5); n++) {
			check_no_pointer(ptrs[i], numbers[n]);
			check_no_pointer(last, numbers[n]);
		}
	}
	for (size_t i = 0; i < NSCATTERED; i++)
		ck_assert_int_eq(vmem_free(ptrs[i], 0), CUDA_SUCCESS);
}
END_TEST

/* Of what is there nothing is missed, wherever it lies. */
START_TEST(regions_that_are_scattered)
{
	const size_t mib[] = {2,   30,  500,  513,  600,  748,  750,
			      764, 768, 1024, 3580, 3590, 4096, 9000};
	CUdeviceptr ptrs[NSCATTERED] = {0}, none = 42;
	unsigned int live = 0;

	for (size_t i = 0; i < 20000; i++) {
		size_t slot = (i * 2654435761UL >> 7) % NSCATTERED;

		if (ptrs[slot]) {
			ck_assert_int_eq(vmem_free(ptrs[slot], 0), CUDA_SUCCESS);
			ptrs[slot] = 0;
			live--;
		} else {
			ptrs[slot] = alloc_at(0x700000000000 + slot * 10000 * MB,
					      mib[(i * 40503 >> 3) % 14] * MB);
			live++;
		}
		if (i % 100)
			continue;
		vmem_trim();
		ck_assert_uint_eq(vmem_regions(NULL, 0), live);
	}
	for (size_t less = 1 * MB; less <= 8192 * MB; less *= 2)
		ck_assert_int_eq(vmem_alloc(CTX, 0, -less, &none, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(none, 42);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("translate");
	TCase *tc = tcase_create("translate");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, what_is_asked_for_is_read_once, 0, 2);
	tcase_add_test(tc, addresses);
	tcase_add_test(tc, numbers_beside_halves_of_pointers);
	tcase_add_test(tc, regions_that_are_scattered);
	tcase_add_test(tc, addresses_back);
	tcase_add_test(tc, addresses_outside_back);
	tcase_add_test(tc, ends_are_known_after_a_pause);
	tcase_add_loop_test(tc, ends_are_forgotten_with_their_allocation, 0, 2);
	tcase_add_test(tc, an_allocation_is_one_piece);
	tcase_add_test(tc, pauses_move_memory);
	tcase_add_test(tc, a_context_frees_its_memory_itself);
	tcase_add_loop_test(tc, variables_of_modules_that_are_unloaded, 0, 2);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
