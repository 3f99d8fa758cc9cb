/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed behind work, while its context ends or only might (cuCtxDetach() of one that was attached). */
#include "tests/unit/vmem/allocating.h"
#include "vmem/context_gone.h"
#include "wrapper/hooks/ordered/frees.h"
#include "wrapper/hooks/ordered/pool_passed.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/hooks/ordered/pools.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define SIZE (4 * MB)

static int event;
static bool passed;
static void (*recorded_by)(void); /* called in each cuEventRecord() */
static CUcontext current = CTX1, before_push, ended;

static void (*asked_by)(void); /* called in each cuCtxGetCurrent() */

static CUresult get_current(CUcontext *ctx)
{
	if (asked_by)
		asked_by();
	*ctx = current;
	return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext ctx)
{
	if (ctx == ended)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	before_push = current;
	current = ctx;
	return CUDA_SUCCESS;
}

static CUresult pop_current(CUcontext *ctx)
{
	*ctx = current;
	current = before_push;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *dev)
{
	*dev = current != CTX1;
	return CUDA_SUCCESS;
}

static void (*synchronized_by)(void); /* called in each cuCtxSynchronize() */

static CUresult synchronize(void)
{
	if (synchronized_by)
		synchronized_by();
	return CUDA_SUCCESS;
}

static CUresult get_limit(size_t *bytes, CUlimit limit)
{
	(void)limit;
	*bytes = 1024;
	return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *created, unsigned int flags)
{
	(void)flags;
	*created = (CUevent)&event;
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent recorded, CUstream stream)
{
	(void)recorded;
	(void)stream;
	if (recorded_by)
		recorded_by();
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent asked)
{
	(void)asked;
	return passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_destroy(CUevent destroyed)
{
	(void)destroyed;
	return CUDA_SUCCESS;
}

static CUresult refuse_mode(CUstreamCaptureMode *mode)
{
	(void)mode;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static void begin(void)
{
	setup();
	driver_table_set(&fake_driver);
	real.cuCtxGetCurrent = get_current;
	real.cuCtxPushCurrent_v2 = push_current;
	real.cuCtxPopCurrent_v2 = pop_current;
	real.cuCtxGetDevice = get_device;
	real.cuCtxSynchronize = synchronize;
	real.cuCtxGetLimit = get_limit;
	real.cuEventCreate = event_create;
	real.cuEventRecord = event_record;
	real.cuEventQuery = event_query;
	real.cuEventDestroy_v2 = event_destroy;
	real.cuThreadExchangeStreamCaptureMode = refuse_mode;
}

/* Freed in the legacy stream, behind work that has not ended. */
static CUdeviceptr freed(void)
{
	CUdeviceptr ptr = alloc(SIZE);

	OK(frees_ordered(ptr, CU_STREAM_LEGACY));
	check_none(ptr);
	return ptr;
}

static bool is_kept(CUdeviceptr ptr)
{
	frees_collect(FREES_PASSED);
	return vmem_room(ptr) > 0;
}

START_TEST(memory_is_free_once_the_work_has_ended)
{
	CUdeviceptr ptr = freed();

	ck_assert(is_kept(ptr));
	passed = true;
	ck_assert(!is_kept(ptr));
}
END_TEST

static void stream_passes(void)
{
	pools_stream_passed(CU_STREAM_LEGACY, 0);
}

static void context_passes(void)
{
	pools_context_passed(CTX1, 0);
}

static void (*const waits[])(void) = {stream_passes, context_passes, pools_some_passed, vmem_trim};

/* A program that only launches and waits gives it back, and so do a trim and a pause. */
START_TEST(memory_goes_back_behind_waits)
{
	CUdeviceptr ptr = freed();

	waits[_i]();
	ck_assert_uint_gt(vmem_room(ptr), 0);
	passed = true;
	waits[_i]();
	ck_assert_uint_eq(vmem_room(ptr), 0);
}
END_TEST

static CUresult refuse_event(CUevent *created, unsigned int flags)
{
	(void)created;
	(void)flags;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static unsigned int synchronized;

static void count_wait(void)
{
	synchronized++;
}

/* It might wait for work that waits for this thread. */
START_TEST(nobody_but_an_allocation_waits_for_all_work)
{
	CUdeviceptr ptr;

	real.cuEventCreate = refuse_event;
	ptr = freed();
	synchronized_by = count_wait;
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
		waits[i]();
	ck_assert_uint_eq(synchronized, 0);
	ck_assert_uint_gt(vmem_room(ptr), 0);
	ck_assert(!is_kept(ptr));
	ck_assert_uint_eq(synchronized, 1);
}
END_TEST

/* Nobody asks the driver about its events then, and a free is put off for it as before. */
START_TEST(a_context_that_only_might_end_keeps_its_frees)
{
	CUdeviceptr before = freed(), meanwhile;

	streams_context_ending(CTX1);
	meanwhile = freed();
	passed = true;
	ck_assert(is_kept(before) && is_kept(meanwhile));
	streams_context_lives(CTX1);
	ck_assert(!is_kept(before) && !is_kept(meanwhile));
}
END_TEST

START_TEST(the_first_free_may_come_while_the_context_might_end)
{
	CUdeviceptr ptr;

	streams_context_ending(CTX1);
	ptr = freed();
	streams_context_lives(CTX1);
	passed = true;
	ck_assert(!is_kept(ptr));
}
END_TEST

START_TEST(memory_goes_with_its_context)
{
	CUdeviceptr ptr = freed();

	streams_context_ending(CTX1);
	context_gone(CTX1);
	ck_assert(!is_kept(ptr));
	check_stats(0, 0, 0, 0);
}
END_TEST

static struct pool pool;

/* Memory of a pool of the first GPU, while a context of the second is current. */
static CUdeviceptr pooled(void)
{
	struct pool_block *b = calloc(1, sizeof(*b));
	CUdeviceptr ptr = alloc(SIZE);

	*b = (struct pool_block){
		.ptr = ptr, .room = SIZE, .size = SIZE, .ctx = CTX1, .pool = &pool};
	pool.handle = (CUmemoryPool)&pool;
	ck_assert(pool_block_add(b));
	current = CTX2;
	return ptr;
}

START_TEST(memory_of_a_pool_is_freed_on_another_gpu)
{
	CUdeviceptr ptr = pooled();

	OK(pools_free_ordered(ptr, CU_STREAM_LEGACY));
	check_none(ptr);
	ck_assert_ptr_null(pool_block_find(ptr));
	ck_assert_uint_eq(pool.blocks + pool.reserved + pool.used, 0);
	ck_assert(is_kept(ptr));
}
END_TEST

static struct stream *legacy_stream(void)
{
	const struct key key = stream_key(CU_STREAM_LEGACY, CTX1);
	struct stream *s;

	pthread_mutex_lock(&pools_lock);
	s = stream_find(&key);
	pthread_mutex_unlock(&pools_lock);
	return s;
}

static CUdeviceptr others;

static void end_context(void)
{
	streams_context_ending(CTX1);
	ended = CTX1;
	context_gone(CTX1);
	others = alloc_on(CTX2, 1, SIZE);
}

/* Its address is another's by then: that memory stays allocated, and is no pool's. */
START_TEST(a_context_ends_while_its_memory_is_freed)
{
	CUdeviceptr ptr = _i ? pooled() : alloc(SIZE);

	current = CTX2;
	recorded_by = end_context;
	ck_assert_int_eq(pools_free_ordered(ptr, CU_STREAM_LEGACY), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(others, ptr);
	check_info(ptr, ptr, SIZE, CTX2, 1);
	ck_assert_ptr_null(legacy_stream());
	ck_assert_ptr_null(pool_block_find(ptr));
	ck_assert_uint_eq(pool.blocks + pool.reserved + pool.used, 0);
}
END_TEST

static void end_stream(void)
{
	streams_context_ending(CTX2);
	context_gone(CTX2);
}

/* The work has ended with it, and the event is another's by then: nobody asks about that. */
START_TEST(the_context_of_the_stream_ends_behind_the_event_of_a_free)
{
	CUdeviceptr ptr = alloc(SIZE);

	current = CTX2;
	recorded_by = end_stream;
	OK(frees_ordered(ptr, CU_STREAM_LEGACY));
	current = CTX1;
	ck_assert(!is_kept(ptr));
}
END_TEST

START_TEST(a_context_ends_behind_the_wait_of_a_free)
{
	CUdeviceptr ptr = alloc(SIZE);

	synchronized_by = end_context;
	ck_assert_int_eq(frees_now(ptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(others, ptr);
	check_info(ptr, ptr, SIZE, CTX2, 1);
}
END_TEST

static CUmemoryPool handle = (CUmemoryPool)&pool;
static CUdeviceptr allocated;

static CUresult alloc_pooled(void)
{
	return pools_alloc(&allocated, SIZE, &handle, CU_STREAM_LEGACY);
}

/* A pool whose allocations come from the first GPU. */
static struct pool *pool_begin(void)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location.type = CU_MEM_LOCATION_TYPE_DEVICE};

	pool_created(handle, &props);
	return pool_find(handle);
}

static void *in_thread(void *arg)
{
	*(CUresult *)arg = alloc_pooled();
	return NULL;
}

static void *end_in_thread(void *arg)
{
	end_context();
	return arg;
}

static void *map_in_thread(void *arg)
{
	alloc(64 * MB);
	return arg;
}

static void slow_down(pthread_t *thread, void *(*function)(void *), void *arg)
{
	fake.slow[0] = true;
	pthread_create(thread, NULL, function, arg);
	while (!__atomic_load_n(&fake.waits[0], __ATOMIC_ACQUIRE))
		sched_yield();
}

START_TEST(a_context_ends_while_a_pool_gets_memory)
{
	struct pool *p = pool_begin();
	pthread_t threads[2];
	CUresult result;

	slow_down(&threads[0], in_thread, &result);
	pthread_create(&threads[1], NULL, end_in_thread, NULL);
	while (legacy_stream())
		sched_yield();
	__atomic_store_n(&fake.slow[0], false, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(result, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ck_assert_uint_eq(p->blocks + p->reserved + p->used, 0);
}
END_TEST

static bool comes_again;

/* Between the look for free memory and the allocation of other memory. */
static void end_between(void)
{
	const struct stream *s = legacy_stream();

	if (!s || s->users || !pool_find(handle)->blocks)
		return;
	asked_by = NULL;
	end_context();
	if (!comes_again)
		return;
	ended = NULL;
	pthread_mutex_lock(&pools_lock);
	ck_assert_ptr_nonnull(stream_get(CU_STREAM_LEGACY, CTX1));
	pthread_mutex_unlock(&pools_lock);
}

/* Even if the next context has its handle, the memory is not that of a pool, nor does it stay allocated. */
START_TEST(a_context_ends_before_a_pool_gets_memory)
{
	struct pool *p = pool_begin();
	struct vmem_stats st;

	comes_again = _i;
	asked_by = end_between;
	ck_assert_int_eq(alloc_pooled(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ck_assert_ptr_null(asked_by);
	ck_assert_uint_eq(p->blocks + p->reserved + p->used, 0);
	vmem_get_device_stats(0, &st);
	ck_assert_uint_eq(st.nalloc, 0);
}
END_TEST

static pthread_t ender;

static void *tell_that_it_is_gone(void *arg)
{
	context_gone(CTX1);
	return arg;
}

/* Returns once the end waits, or is over. */
static void end_begins(void *(*end)(void *))
{
	const struct stream *s = legacy_stream();
	bool begun = false;

	pthread_create(&ender, NULL, end, NULL);
	while (!begun) {
		sched_yield();
		pthread_mutex_lock(&pools_lock);
		begun = s->ending || !s->ctx;
		pthread_mutex_unlock(&pools_lock);
	}
}

static void end_unexpectedly(void)
{
	recorded_by = NULL;
	end_begins(tell_that_it_is_gone);
}

/* It waits for the thread, which has the block. */
START_TEST(a_context_ends_while_a_block_is_freed)
{
	struct pool *p = pool_begin();

	OK(alloc_pooled());
	recorded_by = end_unexpectedly;
	OK(pools_free_ordered(allocated, CU_STREAM_LEGACY));
	pthread_join(ender, NULL);
	ck_assert_ptr_null(pool_block_find(allocated));
	ck_assert_uint_eq(p->blocks + p->reserved + p->used + p->idle, 0);
}
END_TEST

/* The context does not end before the allocation has the memory. */
START_TEST(an_allocation_gets_free_memory)
{
	struct pool *p = pool_begin();
	const struct stream *s;
	pthread_t threads[2];
	bool taken = false;
	CUresult result;

	OK(alloc_pooled());
	OK(pools_free_now(allocated));
	ck_assert_uint_gt(p->idle, 0);
	slow_down(&threads[0], map_in_thread, NULL);
	pthread_create(&threads[1], NULL, in_thread, &result);
	while (!taken) {
		sched_yield();
		pthread_mutex_lock(&pools_lock);
		taken = !p->idle;
		pthread_mutex_unlock(&pools_lock);
	}
	end_begins(end_in_thread);
	s = legacy_stream();
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->users, 1);
	__atomic_store_n(&fake.slow[0], false, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_join(ender, NULL);
	OK(result);
	ck_assert_ptr_null(legacy_stream());
	ck_assert_uint_eq(p->blocks + p->reserved + p->used + p->idle, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("frees");
	TCase *tc = tcase_create("frees");

	tcase_add_checked_fixture(tc, begin, NULL);
	tcase_add_test(tc, memory_is_free_once_the_work_has_ended);
	tcase_add_loop_test(tc, memory_goes_back_behind_waits, 0, sizeof(waits) / sizeof(waits[0]));
	tcase_add_test(tc, nobody_but_an_allocation_waits_for_all_work);
	tcase_add_test(tc, a_context_that_only_might_end_keeps_its_frees);
	tcase_add_test(tc, the_first_free_may_come_while_the_context_might_end);
	tcase_add_test(tc, memory_goes_with_its_context);
	tcase_add_test(tc, memory_of_a_pool_is_freed_on_another_gpu);
	tcase_add_loop_test(tc, a_context_ends_while_its_memory_is_freed, 0, 2);
	tcase_add_test(tc, the_context_of_the_stream_ends_behind_the_event_of_a_free);
	tcase_add_test(tc, a_context_ends_behind_the_wait_of_a_free);
	tcase_add_test(tc, a_context_ends_while_a_pool_gets_memory);
	tcase_add_loop_test(tc, a_context_ends_before_a_pool_gets_memory, 0, 2);
	tcase_add_test(tc, a_context_ends_while_a_block_is_freed);
	tcase_add_test(tc, an_allocation_gets_free_memory);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
