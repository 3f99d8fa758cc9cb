/* SPDX-License-Identifier: Apache-2.0 */
/* What a pause refuses, and how it names it. */
#include "checkpoint/ledger/handles.h"
#include "vmem/cuda_driver.h"
#include "checkpoint/release/unsupported.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdlib.h>

static CUresult no_call(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static const struct cuda_driver drv = {
	.cuCheckpointProcessLock = (void *)no_call,
	.cuCheckpointProcessCheckpoint = (void *)no_call,
	.cuCheckpointProcessRestore = (void *)no_call,
	.cuCheckpointProcessUnlock = (void *)no_call,
};

START_TEST(test_multicast_is_always_refused)
{
	char text[512] = "";

	setenv("CUDAW_RELEASE", "memory", 1);
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, text, sizeof(text)), 0);
	handles_add(1, DRIVER_MEMORY_MULTICAST, 0);
	handles_add(2, DRIVER_MEMORY_MULTICAST, 0);
	handles_add(3, DRIVER_MEMORY_VMM_IMPORT, 0);
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, text, sizeof(text)), -ENOTSUP);
	ck_assert_str_eq(text, "2 multicast objects (cuMulticastCreate) cannot be carried");
	handles_release(1);
	handles_release(2);
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, text, sizeof(text)), 0);
}
END_TEST

START_TEST(test_shared_memory_is_refused_by_a_full_release)
{
	char text[512] = "", small[16];

	handles_add(1, DRIVER_MEMORY_VMM, 4096);
	handles_export(1, DRIVER_MEMORY_VMM_EXPORT);
	handles_export(1, DRIVER_MEMORY_VMM_EXPORT);
	driver_memory_add(DRIVER_MEMORY_IPC_IMPORT, 0x1000, 4096);
	driver_memory_add(DRIVER_MEMORY_IPC_IMPORT, 0x2000, 4096);
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, text, sizeof(text)), -ENOTSUP);
	ck_assert_str_eq(text, "2 allocations imported (cuIpcOpenMemHandle), "
			       "1 allocation exported (cuMemExportToShareableHandle) "
			       "cannot be carried; 'cudaw pause --release memory' "
			       "leaves them on the GPU");
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, small, sizeof(small)), -ENOTSUP);
	ck_assert_str_eq(small, "2 allocations i");
	setenv("CUDAW_RELEASE", "memory", 1);
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, text, sizeof(text)), 0);
	setenv("CUDAW_RELEASE", "all", 1);
	handles_release(1);
	driver_memory_remove(DRIVER_MEMORY_IPC_IMPORT, 0x1000);
	driver_memory_remove(DRIVER_MEMORY_IPC_IMPORT, 0x2000);
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, text, sizeof(text)), 0);
}
END_TEST

START_TEST(test_managed_memory_has_another_way)
{
	char text[512] = "";

	driver_memory_add(DRIVER_MEMORY_MANAGED, 0x1000, 4096);
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, text, sizeof(text)), -ENOTSUP);
	ck_assert_str_eq(text, "1 managed allocation (cuMemAllocManaged) cannot be carried; "
			       "'cudaw pause --release memory' leaves them on the GPU; a job that "
			       "is started with CUDAW_MANAGED=host has its managed memory in host "
			       "memory, where no pause has to carry it");
	driver_memory_remove(DRIVER_MEMORY_MANAGED, 0x1000);
	ck_assert_int_eq(unsupported_check(&drv, RELEASE_AS_SET, text, sizeof(text)), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unsupported memory");
	TCase *tcase = tcase_create("unsupported");

	tcase_add_test(tcase, test_multicast_is_always_refused);
	tcase_add_test(tcase, test_shared_memory_is_refused_by_a_full_release);
	tcase_add_test(tcase, test_managed_memory_has_another_way);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
