/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What real drivers crash on: with CUDAW_SIM_STRICT it ends the process, and else it is an error.
 */
#include "tests/check_suite.h"
#include "tests/sim/testing.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

static void open_strict(void)
{
	setenv("CUDAW_SIM_STRICT", "1", 1);
	open_context();
}

START_TEST(test_destroyed_stream)
{
	CUstream stream;

	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamQuery(stream));
	ok(cu.cuStreamDestroy_v2(stream));
	cu.cuStreamQuery(stream);
}
END_TEST

START_TEST(test_destroyed_event)
{
	CUevent event;

	ok(cu.cuEventCreate(&event, 0));
	ok(cu.cuEventQuery(event));
	ok(cu.cuEventDestroy_v2(event));
	cu.cuEventQuery(event);
}
END_TEST

START_TEST(test_destroyed_context)
{
	CUcontext ctx;

	ok(cu.cuCtxCreate_v4(&ctx, NULL, 0, 0));
	ok(cu.cuCtxSetCurrent(primary));
	ok(cu.cuCtxSetCurrent(ctx));
	ok(cu.cuCtxSetCurrent(primary));
	ok(cu.cuCtxDestroy_v2(ctx));
	cu.cuCtxSetCurrent(ctx);
}
END_TEST

START_TEST(test_unmapped_while_registered)
{
	void *ptr = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ok(cu.cuMemHostRegister_v2(ptr, MIB, 0));
	ck_assert_int_eq(munmap(ptr, MIB), 0);
	cu.cuMemHostUnregister(ptr);
}
END_TEST

/* A handle that is given out again is no old one; other wrong ones are errors. */
START_TEST(test_right_use)
{
	void *ptr = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 1000; i++) {
		CUstream stream;
		CUevent event;

		ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		ok(cu.cuEventCreate(&event, 0));
		ok(cu.cuStreamQuery(stream));
		ok(cu.cuEventQuery(event));
		ok(cu.cuEventDestroy_v2(event));
		ok(cu.cuStreamDestroy_v2(stream));
	}
	fails(cu.cuStreamQuery((CUstream)ptr), CUDA_ERROR_INVALID_HANDLE);
	ok(cu.cuMemHostRegister_v2(ptr, MIB, 0));
	ok(cu.cuMemHostUnregister(ptr));
	ck_assert_int_eq(munmap(ptr, MIB), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: strict");
	TCase *tcase = tcase_create("strict");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, open_strict, NULL);
	tcase_add_test_raise_signal(tcase, test_destroyed_stream, SIGABRT);
	tcase_add_test_raise_signal(tcase, test_destroyed_event, SIGABRT);
	tcase_add_test_raise_signal(tcase, test_destroyed_context, SIGABRT);
	tcase_add_test_raise_signal(tcase, test_unmapped_while_registered, SIGABRT);
	tcase_add_test(tcase, test_right_use);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
