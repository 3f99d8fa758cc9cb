/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that other devices may access. */
#include "tests/check_suite.h"
#include "tests/unit/vmem/allocating.h"
#include "vmem/context_gone.h"

START_TEST(peers_see_all_memory_of_the_device)
{
	CUdeviceptr early = alloc(100 * MB), other = alloc_on(CTX2, 1, 2 * MB), late, small;
	unsigned int calls;

	ck_assert_uint_eq(fake_users(early, 100 * MB), 1 << 0);
	OK(vmem_access_enable(CTX2, 1, CTX1, 0));
	calls = fake.calls;
	OK(vmem_access_enable(CTX2, 1, CTX1, 0));
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
	OK(vmem_access_disable(CTX2, CTX1));
	OK(vmem_region_map(late));
	ck_assert_uint_eq(fake_users(early, 100 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(late, 2 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(small, 2 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(other, 2 * MB), 1 << 1);
}
END_TEST

START_TEST(access_lasts_as_long_as_a_peer)
{
	CUdeviceptr ptr = alloc(2 * MB), other = alloc_on(CTX2, 1, 2 * MB);
	const unsigned int both = 1 << 0 | 1 << 1;

	/* Two contexts of a device have one each, and the first has a second one. */
	OK(vmem_access_enable(CTX2, 1, CTX1, 0));
	OK(vmem_access_enable(CTX3, 1, CTX1, 0));
	OK(vmem_access_enable(CTX2, 1, CTX4, 0));
	ck_assert_uint_eq(fake_users(other, 2 * MB), 1 << 1);
	OK(vmem_access_disable(CTX2, CTX1));
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), both);
	OK(vmem_access_disable(CTX2, CTX1));
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), both);
	context_gone(CTX3);
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), both);
	context_gone(CTX4);
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), 1 << 0);
	/* The other direction is another matter, and a device needs no access to itself. */
	OK(vmem_access_enable(CTX1, 0, CTX2, 1));
	OK(vmem_access_enable(CTX1, 0, CTX3, 0));
	ck_assert_uint_eq(fake_users(ptr, 2 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(other, 2 * MB), both);
	context_gone(CTX1);
	ck_assert_uint_eq(fake_users(other, 2 * MB), 1 << 1);
}
END_TEST

START_TEST(copies_keep_their_access)
{
	CUdeviceptr ptr = alloc(2 * MB), other = alloc_on(CTX2, 1, 2 * MB);
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
	OK(vmem_access_enable(CTX2, 1, CTX1, 0));
	OK(vmem_access_disable(CTX2, CTX1));
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
	ck_assert_int_eq(vmem_access_enable(CTX2, 1, CTX1, 0), CUDA_ERROR_UNKNOWN);
	ck_assert_uint_eq(fake_users(a, 2 * MB), 1 << 0);
	ck_assert_uint_eq(fake_users(b, 4 * MB), 1 << 0);
	OK(vmem_access_enable(CTX2, 1, CTX1, 0));
	fake.fail_at = fake.calls + 2;
	ck_assert_int_eq(vmem_access_disable(CTX2, CTX1), CUDA_ERROR_UNKNOWN);
	ck_assert_uint_eq(fake_users(a, 2 * MB), 1 << 0 | 1 << 1);
	ck_assert_uint_eq(fake_users(c, 6 * MB), 1 << 0 | 1 << 1);
	ck_assert_uint_eq(fake_users(alloc(8 * MB), 8 * MB), 1 << 0 | 1 << 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("vmem_peers");
	TCase *tc = tcase_create("vmem_peers");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, peers_see_all_memory_of_the_device);
	tcase_add_test(tc, access_lasts_as_long_as_a_peer);
	tcase_add_test(tc, copies_keep_their_access);
	tcase_add_test(tc, a_peer_is_enabled_everywhere_or_nowhere);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
