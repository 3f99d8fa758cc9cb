/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads at once. */
#include "tests/check_suite.h"
#include "tests/unit/vmem/allocating.h"
#include "vmem/legacy.h"

#include <stdio.h>

#define THREADS 8

static CUdeviceptr shared[THREADS];
static bool done;

/* Allocate and free in one of two contexts on one of two devices; look all of it up. */
static void *churn(void *arg)
{
	int t = (int)(intptr_t)arg;
	CUcontext ctx = t % 2 ? CTX2 : CTX1;
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
			FAKE_MUST(vmem_free(ptrs[k], 0) == CUDA_SUCCESS);
			ptrs[k] = 0;
			continue;
		}
		sizes[k] = seed >> 32 & 1023 ? 1 + (seed >> 34) % (64 * KB) : 3 * MB;
		FAKE_MUST(vmem_alloc(ctx, t % 2, sizes[k], &ptrs[k], NULL) == CUDA_SUCCESS);
		__atomic_store_n(&shared[t], ptrs[k], __ATOMIC_SEQ_CST);
	}
	for (int k = 0; k < 16; k++)
		if (ptrs[k])
			FAKE_MUST(vmem_free(ptrs[k], 0) == CUDA_SUCCESS);
	return NULL;
}

/* Look up what may be freed meanwhile: it is found or not, but nothing breaks. */
static void *watch(void *arg)
{
	static const unsigned char unknown[OBJECT_KEY];

	(void)arg;
	while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST)) {
		FAKE_MUST(!legacy_has(unknown));
		for (int t = 0; t < THREADS; t++) {
			CUdeviceptr ptr = __atomic_load_n(&shared[t], __ATOMIC_SEQ_CST);
			struct vmem_info info;

			if (ptr && vmem_lookup(ptr, &info))
				FAKE_MUST(info.size <= 3 * MB && info.dev < 2);
		}
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
	__atomic_store_n(&done, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++)
		pthread_join(watchers[i], NULL);
	vmem_trim();
	check_stats(0, 0, 0, 0);
}
END_TEST

static void *alloc_slowly(void *arg)
{
	*(CUdeviceptr *)arg = alloc_on(CTX2, 1, 4 * MB);
	return NULL;
}

/* While the driver makes memory of one device, nobody who wants another's waits. */
START_TEST(devices_do_not_wait_for_each_other)
{
	CUdeviceptr kept = alloc_on(CTX2, 1, 4 * KB), small, large, slow;
	struct vmem_stats st;
	pthread_t thread;

	fake.slow[1] = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, alloc_slowly, &slow), 0);
	while (!__atomic_load_n(&fake.waits[1], __ATOMIC_ACQUIRE))
		usleep(100);
	small = alloc(4 * KB);
	large = alloc(300 * MB);
	check_info(kept, kept, 4 * KB, CTX2, 1);
	vmem_get_device_stats(0, &st);
	ck_assert_uint_eq(st.nalloc, 2);
	OK(vmem_free(small, 0));
	OK(vmem_free(large, 0));
	__atomic_store_n(&fake.slow[1], false, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	check_info(slow, slow, 4 * MB, CTX2, 1);
}
END_TEST

static void *fail_slowly(void *arg)
{
	CUdeviceptr at;

	(void)arg;
	FAKE_MUST(vmem_alloc(CTX2, 1, 4 * MB, &at, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	return NULL;
}

static pid_t seeker;

static void *seek(void *arg)
{
	static const unsigned char unknown[OBJECT_KEY];

	(void)arg;
	__atomic_store_n(&seeker, gettid(), __ATOMIC_SEQ_CST);
	FAKE_MUST(!legacy_has(unknown));
	__atomic_store_n(&done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static bool sleeps(pid_t thread)
{
	char path[64], state = 0;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	stat = fopen(path, "re");
	if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (stat)
		fclose(stat);
	return state == 'S';
}

/* A thread has found a region, and waits for its device; then there is no memory for the region, and it goes. */
START_TEST(a_region_that_goes_is_not_looked_at)
{
	pthread_t thread, other;

	fake.slow[1] = true;
	fake.limit[1] = MB;
	ck_assert_int_eq(pthread_create(&thread, NULL, fail_slowly, NULL), 0);
	while (!__atomic_load_n(&fake.waits[1], __ATOMIC_ACQUIRE))
		usleep(100);
	ck_assert_int_eq(pthread_create(&other, NULL, seek, NULL), 0);
	while (!__atomic_load_n(&seeker, __ATOMIC_SEQ_CST) ||
	       !sleeps(__atomic_load_n(&seeker, __ATOMIC_SEQ_CST)))
		ck_assert(!__atomic_load_n(&done, __ATOMIC_SEQ_CST));
	__atomic_store_n(&fake.slow[1], false, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	pthread_join(other, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("vmem_threads");
	TCase *tc = tcase_create("vmem_threads");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, threads);
	tcase_add_test(tc, devices_do_not_wait_for_each_other);
	tcase_add_test(tc, a_region_that_goes_is_not_looked_at);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
