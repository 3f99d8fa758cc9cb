/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that other processes may have, over the simulated driver: their names, what is exported
 * under them, and that a pause leaves the shared memory in one mapping.
 */
#include "vmem/legacy.h"

#include "tests/check_suite.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRANULE   VMEM_GRANULE
#define NSMALL    2100 /* of a MiB: more blocks than a resume maps one by one */
#define SMALL     (1UL << 20)
#define MAXREGION 128
#define POSIX_FD  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define OK(call)  ck_assert_int_eq(call, CUDA_SUCCESS)
#define BAD(call) ck_assert_int_eq(call, CUDA_ERROR_INVALID_VALUE)

static struct cuda_driver drv;
static CUcontext ctx;
static CUdeviceptr small[NSMALL];

static void setup(void)
{
	const char *path = getenv("CUDAW_REAL_LIBCUDA"), *missing = "";
	void *library = dlopen(path, RTLD_NOW);

	ck_assert_msg(library, "CUDAW_REAL_LIBCUDA=%s: %s", path, dlerror());
	OK(cuda_driver_fill(&drv, library, &missing));
	OK(((__typeof__(cuInit) *)dlsym(library, "cuInit"))(0));
	ck_assert_int_eq(vmem_init(&drv), 0);
	OK(drv.cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(drv.cuCtxSetCurrent(ctx));
}

static CUdeviceptr make(size_t size)
{
	CUdeviceptr at;

	OK(vmem_alloc(ctx, 0, size, &at, NULL));
	return at;
}

/* The first byte of the key is @name, unless it has one. */
static struct vmem_shared share(CUdeviceptr at, unsigned char name)
{
	const unsigned char fresh[OBJECT_KEY] = {name, 1, 2, 3, [15] = 4};
	struct vmem_shared shared;

	OK(vmem_share(at, fresh, &shared));
	return shared;
}

/* Unmap all regions; map them. Of those that many small allocations take, the one in the middle will do. */
static void change(CUresult (*how)(CUdeviceptr start))
{
	CUdeviceptr middle = small[NSMALL / 2];
	struct vmem_region regions[MAXREGION];
	size_t n = vmem_regions(regions, MAXREGION);

	ck_assert_uint_le(n, MAXREGION);
	for (size_t i = 0; i < n; i++)
		if (!middle || middle - regions[i].start < regions[i].size)
			OK(how(regions[i].start));
}

/* As another process maps it. */
static CUdeviceptr import(const struct vmem_shared *shared)
{
	const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	size_t size;
	int fd;

	OK(shared_export(shared->key, &fd, &size));
	ck_assert_uint_eq(size, shared->size);
	OK(drv.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, POSIX_FD));
	close(fd);
	OK(drv.cuMemAddressReserve(&at, size, 0, 0, 0));
	OK(drv.cuMemMap(at, size, 0, handle, 0));
	OK(drv.cuMemSetAccess(at, size, &desc, 1));
	OK(drv.cuMemRelease(handle));
	return at;
}

static volatile uint32_t *word(CUdeviceptr at)
{
	return (volatile uint32_t *)(uintptr_t)at;
}

static void check_imported(CUdeviceptr at, uint32_t value)
{
	const struct vmem_shared shared = share(at, 77);
	CUdeviceptr there = import(&shared);

	*word(at) = value;
	ck_assert_uint_eq(*word(there + shared.offset), value);
	OK(drv.cuMemUnmap(there, shared.size));
}

START_TEST(a_name_ends_with_the_allocation)
{
	CUdeviceptr at = make(2 * GRANULE);
	const struct vmem_shared shared = share(at, 1), again = share(at + GRANULE, 2);
	struct vmem_stats stats;

	ck_assert_mem_eq(shared.key, again.key, OBJECT_KEY);
	ck_assert_uint_eq(shared.size, 2 * GRANULE);
	ck_assert_uint_eq(again.offset, 0);
	ck_assert(legacy_has(shared.key));
	check_imported(at, 5);
	BAD(vmem_share(at + 2 * GRANULE, shared.key, &(struct vmem_shared){0}));
	OK(vmem_free(at, 0));
	ck_assert(!legacy_has(shared.key));
	vmem_get_stats(&stats);
	ck_assert_uint_eq(stats.cached, 0);
	ck_assert_uint_eq(stats.mapped, 0);
}
END_TEST

START_TEST(large_allocations_are_shared_in_pieces)
{
	struct vmem_shared shared = share(make(VMEM_PIECE + GRANULE), 1);
	size_t size;
	int fd;

	ck_assert_uint_eq(shared.size, VMEM_PIECE + GRANULE);
	for (uint32_t piece = 0; piece < 3; piece++) {
		CUresult result;

		legacy_key_piece(shared.key, piece);
		ck_assert(legacy_has(shared.key) == (piece < 2));
		result = shared_export(shared.key, &fd, &size);
		ck_assert_int_eq(result, piece < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
		ck_assert_uint_eq(size, piece ? GRANULE : VMEM_PIECE);
		if (!result)
			close(fd);
	}
}
END_TEST

START_TEST(a_pause_has_the_memory)
{
	const struct vmem_shared shared = share(make(GRANULE), 1);
	size_t size;
	int fd;

	ck_assert_uint_eq(legacy_held(), 1);
	ck_assert_uint_eq(objects_shared_held(), 1);
	change(vmem_region_unmap);
	ck_assert_uint_eq(objects_shared_held(), 0);
	ck_assert(legacy_has(shared.key));
	ck_assert_int_eq(shared_export(shared.key, &fd, &size), CUDA_ERROR_NOT_READY);
	change(vmem_region_map);
	ck_assert_uint_eq(objects_shared_held(), 1);
}
END_TEST

static void make_small(void)
{
	for (size_t i = 0; i < NSMALL; i++)
		small[i] = make(SMALL);
	change(vmem_region_unmap);
	change(vmem_region_map);
}

/* The driver maps what a handle has from its beginning only. */
START_TEST(blocks_that_were_mapped_at_once_are_shared_as_one)
{
	struct vmem_shared shared, other;
	size_t n = 0, in_run = 0;

	make_small();
	shared = share(small[NSMALL / 2], 1);
	ck_assert_uint_gt(shared.size, GRANULE);
	ck_assert_uint_eq(objects_shared_held(), 1);
	/* All in it have one name, which stays in pauses, as does the run. */
	for (int turn = 0; turn < 3; turn++) {
		for (size_t i = NSMALL / 2 - 20; i < NSMALL / 2 + 20; i++) {
			CUdeviceptr run = small[NSMALL / 2] - shared.offset;

			if (small[i] - run >= shared.size)
				continue;
			other = share(small[i], 2);
			ck_assert_mem_eq(other.key, shared.key, OBJECT_KEY);
			ck_assert_uint_eq(other.size, shared.size);
			ck_assert_uint_eq(other.offset, small[i] - run);
			check_imported(small[i], (uint32_t)i);
			n++;
		}
		in_run = n / (size_t)(turn + 1);
		change(vmem_region_unmap);
		ck_assert_uint_eq(objects_shared_held(), 0);
		change(vmem_region_map);
	}
	ck_assert_uint_eq(in_run, shared.size / SMALL);
}
END_TEST

START_TEST(a_run_is_shared_until_its_last_allocation_is_gone)
{
	struct vmem_shared shared;
	struct vmem_stats before, after;
	CUdeviceptr run;
	size_t left;

	make_small();
	shared = share(small[NSMALL / 2], 1);
	run = small[NSMALL / 2] - shared.offset;
	left = shared.size / SMALL;
	vmem_get_stats(&before);
	for (size_t i = 0; i < NSMALL; i++) {
		if (small[i] - run >= shared.size)
			continue;
		ck_assert(legacy_has(shared.key));
		OK(vmem_free(small[i], 0));
		if (--left == 1) {
			change(vmem_region_unmap);
			change(vmem_region_map);
		}
	}
	ck_assert(!legacy_has(shared.key));
	vmem_get_stats(&after);
	ck_assert_uint_eq(after.mapped, before.mapped - shared.size);
	ck_assert_uint_eq(objects_shared_held(), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shared");
	TCase *tc = tcase_create("shared");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_name_ends_with_the_allocation);
	tcase_add_test(tc, large_allocations_are_shared_in_pieces);
	tcase_add_test(tc, a_pause_has_the_memory);
	tcase_add_test(tc, blocks_that_were_mapped_at_once_are_shared_as_one);
	tcase_add_test(tc, a_run_is_shared_until_its_last_allocation_is_gone);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
