/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted of memory that vmem does not manage. */
#include "checkpoint/ledger/handles.h"
#include "checkpoint/ledger/driver_memory.h"
#include "wrapper/real.h"

#include "tests/check_suite.h"

#define MIB (1UL << 20)

/* An address comes again though its end was not seen: its pool or its context was destroyed. */
START_TEST(test_a_handle_counts_once)
{
	driver_memory_add(DRIVER_MEMORY_POOL, 0x1000, 3 * MIB);
	driver_memory_add(DRIVER_MEMORY_POOL, 0x1000, 5 * MIB);
	driver_memory_add(DRIVER_MEMORY_ARRAY, 0x1000, MIB);
	ck_assert_uint_eq(driver_memory_total(), 6 * MIB);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_POOL), 1);
	driver_memory_remove(DRIVER_MEMORY_POOL, 0x1000);
	driver_memory_remove(DRIVER_MEMORY_POOL, 0x1000);
	ck_assert_uint_eq(driver_memory_total(), MIB);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_POOL), 0);
}
END_TEST

START_TEST(test_memory_lives_until_released_and_unmapped)
{
	handles_add(7, DRIVER_MEMORY_VMM, 4 * MIB);
	handles_map(7, 0x10000000, 2 * MIB);
	handles_map(7, 0x10200000, 2 * MIB);
	handles_release(7);
	ck_assert_uint_eq(driver_memory_total(), 4 * MIB);
	handles_retain(7);
	handles_unmap(0x10000000, 4 * MIB);
	ck_assert_uint_eq(driver_memory_total(), 4 * MIB);
	handles_release(7);
	ck_assert_uint_eq(driver_memory_total(), 0);
	/* What is not known: memory on the host, which is not counted. */
	handles_map(8, 0x10000000, 2 * MIB);
	handles_retain(8);
	handles_release(8);
	handles_unmap(0x10000000, 2 * MIB);
	ck_assert_uint_eq(driver_memory_total(), 0);
}
END_TEST

START_TEST(test_imported_memory_has_the_size_of_its_mapping)
{
	handles_add(9, DRIVER_MEMORY_VMM_IMPORT, 0);
	ck_assert_uint_eq(driver_memory_total(), 0);
	handles_map(9, 0x10000000, 6 * MIB);
	handles_release(9);
	ck_assert_uint_eq(driver_memory_total(), 6 * MIB);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_VMM_IMPORT), 1);
	handles_unmap(0x10000000, 6 * MIB);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_VMM_IMPORT), 0);
}
END_TEST

START_TEST(test_a_dmabuf_counts_while_its_memory_lives)
{
	handles_add(7, DRIVER_MEMORY_VMM, 0);
	handles_add(8, DRIVER_MEMORY_VMM, 0);
	handles_map(7, 0x10000000, 2 * MIB);
	handles_map(8, 0x10200000, 2 * MIB);
	ck_assert(!handles_export_dmabuf(0x0fe00000, 2 * MIB));
	ck_assert(handles_export_dmabuf(0x103ff000, 0x1000));
	ck_assert(handles_export_dmabuf(0x10200000, 0x1000));
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_DMABUF_LEFT), 1);
	handles_unmap(0x10000000, 4 * MIB);
	handles_release(7);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_DMABUF_LEFT), 1);
	handles_release(8);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_DMABUF_LEFT), 0);
}
END_TEST

/* The driver is about to return, and another thread has the handle for what it has made. */
static CUresult external_ends(CUexternalMemory handle)
{
	driver_memory_add(DRIVER_MEMORY_EXTERNAL, (uintptr_t)handle, MIB);
	return CUDA_SUCCESS;
}

static CUresult import_ends(CUdeviceptr ptr)
{
	driver_memory_opened(ptr, MIB, NULL);
	return CUDA_SUCCESS;
}

static CUresult handle_ends(CUmemGenericAllocationHandle handle)
{
	handles_add(handle, DRIVER_MEMORY_VMM_IMPORT, MIB);
	return CUDA_SUCCESS;
}

START_TEST(test_a_handle_comes_again_before_its_end_is_noted)
{
	real.cuDestroyExternalMemory = external_ends;
	real.cuIpcCloseMemHandle = import_ends;
	real.cuMemRelease = handle_ends;
	driver_memory_add(DRIVER_MEMORY_EXTERNAL, 7, 2 * MIB);
	ck_assert_int_eq(hook_cuDestroyExternalMemory((CUexternalMemory)7), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_total(), MIB);
	driver_memory_opened(7, 2 * MIB, NULL);
	ck_assert_int_eq(hook_cuIpcCloseMemHandle(7), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_total(), 2 * MIB);
	handles_add(7, DRIVER_MEMORY_VMM, 2 * MIB);
	handles_export(7, DRIVER_MEMORY_VMM_EXPORT);
	ck_assert_int_eq(hook_cuMemRelease(7), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_total(), 3 * MIB);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_VMM), 0);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_VMM_EXPORT), 0);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_VMM_IMPORT), 1);
	handles_release(7);
	ck_assert_uint_eq(driver_memory_total(), 2 * MIB);
}
END_TEST

static CUresult import_closes(CUdeviceptr ptr)
{
	(void)ptr;
	return CUDA_SUCCESS;
}

/* The driver counts how often a context has opened it [cuda.h], and closes all with the context. */
START_TEST(test_an_import_counts_until_its_last_close)
{
	const CUcontext ctx = (CUcontext)9;

	real.cuIpcCloseMemHandle = import_closes;
	driver_memory_opened(7, MIB, ctx);
	driver_memory_opened(7, MIB, ctx);
	ck_assert_int_eq(hook_cuIpcCloseMemHandle(7), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_total(), MIB);
	ck_assert_int_eq(hook_cuIpcCloseMemHandle(7), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_total(), 0);
	driver_memory_opened(7, MIB, ctx);
	driver_memory_release_context(ctx);
	driver_memory_opened(7, MIB, ctx);
	ck_assert_int_eq(hook_cuIpcCloseMemHandle(7), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_IPC_IMPORT), 0);
}
END_TEST

/* The memory that had it is still mapped, and is another one with its own records. */
START_TEST(test_a_handle_comes_again_beside_its_mapping)
{
	handles_add(7, DRIVER_MEMORY_VMM, 4 * MIB);
	handles_map(7, 0x10000000, 4 * MIB);
	handles_export(7, DRIVER_MEMORY_VMM_EXPORT);
	handles_release(7);
	handles_add(7, _i ? DRIVER_MEMORY_VMM : DRIVER_MEMORY_VMM_IMPORT, MIB);
	ck_assert_uint_eq(driver_memory_total(), 5 * MIB);
	handles_map(7, 0x20000000, MIB);
	handles_release(7);
	handles_unmap(0x10000000, 4 * MIB);
	ck_assert_uint_eq(driver_memory_total(), MIB);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_VMM), _i);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_VMM_EXPORT), 0);
	handles_unmap(0x20000000, MIB);
	ck_assert_uint_eq(driver_memory_total(), 0);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_VMM_IMPORT), 0);
}
END_TEST

static CUresult refuses(CUmemGenericAllocationHandle handle)
{
	(void)handle;
	return CUDA_ERROR_INVALID_VALUE;
}

START_TEST(test_a_release_fails)
{
	handles_add(7, DRIVER_MEMORY_VMM, MIB);
	real.cuMemRelease = refuses;
	ck_assert_int_eq(hook_cuMemRelease(7), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(driver_memory_total(), MIB);
	handles_release(7);
	ck_assert_uint_eq(driver_memory_total(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory left to the driver");
	TCase *tcase = tcase_create("driver_memory");

	tcase_add_test(tcase, test_a_handle_counts_once);
	tcase_add_test(tcase, test_memory_lives_until_released_and_unmapped);
	tcase_add_test(tcase, test_imported_memory_has_the_size_of_its_mapping);
	tcase_add_test(tcase, test_a_dmabuf_counts_while_its_memory_lives);
	tcase_add_test(tcase, test_a_handle_comes_again_before_its_end_is_noted);
	tcase_add_test(tcase, test_an_import_counts_until_its_last_close);
	tcase_add_loop_test(tcase, test_a_handle_comes_again_beside_its_mapping, 0, 2);
	tcase_add_test(tcase, test_a_release_fails);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
