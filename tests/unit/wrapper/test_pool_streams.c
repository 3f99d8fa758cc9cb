/* SPDX-License-Identifier: Apache-2.0 */
/* The streams of stream-ordered allocations. */
#include "tests/unit/wrapper/pooling.h"

#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/green.h"
#include "common/system/threads.h"
#include "vmem/context_gone.h"
#include "wrapper/hooks/ordered/pool_passed.h"

#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

START_TEST(an_event_shows_that_frees_have_passed)
{
	struct stream *s = stream_of(STREAM(0));
	struct pool_block *b = freed(s), *later;

	ck_assert_uint_eq(records, 0);
	ck_assert_ptr_null(look());
	ck_assert_uint_eq(records, 1);
	later = freed(s);
	ck_assert_ptr_null(look());
	ck_assert_uint_eq(records, 1);
	passes(s->event);
	ck_assert_ptr_eq(look(), b);
	pool_block_take(b);
	ck_assert_uint_eq(records, 2);
	ck_assert_ptr_null(look());
	passes(s->event);
	ck_assert_ptr_eq(look(), later);
	ck_assert_uint_eq(s->count, 0);
}
END_TEST

/* What was freed behind the event, too: no other one is needed. */
START_TEST(an_idle_stream_shows_that_frees_have_passed)
{
	struct stream *s = stream_of(STREAM(0));

	freed(s);
	ck_assert_ptr_null(look());
	freed(s);
	idle = true;
	pthread_mutex_lock(&pools_lock);
	stream_ask(s, STREAM_LOOK);
	ck_assert_uint_eq(s->passed, 0);
	passes(s->event);
	stream_ask(s, STREAM_LOOK);
	streams_settle(&pool);
	pthread_mutex_unlock(&pools_lock);
	ck_assert_uint_eq(s->count, 0);
	ck_assert_uint_eq(records, 1);
}
END_TEST

/* Between the streams that wait for it an event of another moment would order what nobody has ordered. */
START_TEST(streams_that_wait_for_others_get_events_by_frees_alone)
{
	struct stream *s;
	struct pool_block *b, *later;

	flags = CU_STREAM_DEFAULT;
	s = stream_of(_i ? STREAM(0) : CU_STREAM_LEGACY);
	b = freed(s);
	ck_assert_uint_eq(records, 1);
	ck_assert_ptr_null(look());
	ck_assert_uint_eq(records, 1);
	pthread_mutex_lock(&pools_lock);
	stream_ask(s, STREAM_RECORD);
	pthread_mutex_unlock(&pools_lock);
	ck_assert_uint_eq(records, 2);
	later = freed(s);
	passes(s->event);
	ck_assert_ptr_eq(look(), b);
	pool_block_take(b);
	ck_assert_ptr_null(look());
	ck_assert_uint_eq(records, 3);
	passes(s->mark);
	ck_assert_ptr_eq(look(), later);
}
END_TEST

struct thread {
	pid_t tid;
	struct stream *order;
	struct pool_block *blocks[3];
};

static void *free_in_own_stream(void *arg)
{
	struct thread *t = arg;

	t->tid = gettid();
	t->order = stream_of(CU_STREAM_PER_THREAD);
	for (size_t i = 0; i < 3; i++)
		t->blocks[i] = freed(t->order);
	return NULL;
}

static void run_thread(struct thread *t)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, free_in_own_stream, t), 0);
	pthread_join(thread, NULL);
	/* The kernel may say for a moment that a thread is still there after it was joined. */
	while (!threads_ended(t->tid))
		usleep(100);
}

/* Nobody can record an event there any more. */
START_TEST(frees_of_a_thread_that_has_ended_pass)
{
	struct thread t;

	flags = CU_STREAM_DEFAULT;
	run_thread(&t);
	ck_assert_ptr_null(look());
	ck_assert_ptr_eq(((struct event *)t.order->mark)->stream, CU_STREAM_PER_THREAD);
	passes(t.order->mark);
	for (size_t i = 3; i--;) {
		ck_assert_ptr_eq(look(), t.blocks[i]);
		pool_block_take(t.blocks[i]);
	}
	ck_assert_ptr_null(look());
}
END_TEST

START_TEST(threads_that_have_ended_leave_nothing)
{
	struct stream *first = NULL;
	struct thread t;

	flags = CU_STREAM_DEFAULT;
	for (int i = 0; i < 40; i++) {
		run_thread(&t);
		if (!first)
			first = t.order;
		ck_assert_ptr_eq(t.order, first);
		ck_assert_uint_eq(t.order->count, 3);
		passes(t.order->mark);
		for (int k = 0; k < 3; k++)
			pool_block_take(look());
	}
}
END_TEST

static struct pool_block *take_behind(struct stream *s, size_t size)
{
	struct pool_block *b;

	pthread_mutex_lock(&pools_lock);
	s->users++;
	b = stream_block_behind(s, &pool, size);
	if (b)
		pool_block_take(b);
	stream_end_use(s);
	pthread_mutex_unlock(&pools_lock);
	return b;
}

static void *collect(void *arg)
{
	pools_collect();
	*(bool *)arg = pool_none_is_free();
	return NULL;
}

static sem_t is_asked, may_answer;

static void wait_to_answer(void)
{
	sem_post(&is_asked);
	sem_wait(&may_answer);
}

/* Another thread is still asking about it: memory is given back before the caller looks again. */
START_TEST(a_thread_waits_for_one_that_asks)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	struct stream *s = stream_of(STREAM(0));
	struct pool_block *b = calloc(1, sizeof(*b));
	bool none[2] = {false, false};
	pthread_t threads[2];

	pool_created(HANDLE(3), &props);
	*b = (struct pool_block){
		.ptr = 512, .room = SIZE, .ctx = CONTEXT, .pool = pool_find(HANDLE(3))};
	ck_assert(pool_block_add(b));
	stream_put(s, stream_list(s, b->pool), b);
	pools_collect();
	passes(s->event);
	sem_init(&is_asked, 0, 0);
	sem_init(&may_answer, 0, 0);
	asked = wait_to_answer;
	ck_assert_int_eq(pthread_create(&threads[0], NULL, collect, &none[0]), 0);
	sem_wait(&is_asked);
	ck_assert_int_eq(pthread_create(&threads[1], NULL, collect, &none[1]), 0);
	usleep(50000);
	sem_post(&may_answer);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert(none[0]);
	ck_assert(none[1]);
}
END_TEST

START_TEST(a_stream_waits_for_the_free)
{
	struct stream *busy = stream_of(STREAM(0)), *s = stream_of(STREAM(1));
	struct pool_block *b = freed(busy), *second = freed(busy), *own;

	ck_assert_ptr_null(take_behind(s, SIZE + 1));
	ck_assert_ptr_null(waited);
	ck_assert_ptr_eq(take_behind(s, SIZE), second);
	ck_assert_ptr_eq(waits, STREAM(1));
	ck_assert_ptr_eq(waited, busy->event);
	ck_assert_ptr_eq(((struct event *)waited)->stream, STREAM(0));
	ck_assert_uint_eq(records, 1);
	/* The event follows this free as well. */
	waited = NULL;
	ck_assert_ptr_eq(take_behind(s, 1), b);
	ck_assert_ptr_eq(waited, busy->event);
	ck_assert_uint_eq(records, 1);
	/* Until that is known to have passed, they are memory of the first stream. */
	ck_assert_uint_eq(busy->count, 2);
	/* The stream's own memory needs no event. */
	own = freed(s);
	waited = NULL;
	ck_assert_ptr_eq(take_behind(s, SIZE), own);
	ck_assert_ptr_null(waited);
}
END_TEST

/* What a thread has freed in its default stream: the event that each free records does. */
START_TEST(a_stream_waits_for_a_thread_that_has_ended)
{
	struct stream *s = stream_of(STREAM(1));
	struct thread t;

	flags = CU_STREAM_DEFAULT;
	run_thread(&t);
	records = 0;
	ck_assert_ptr_eq(take_behind(s, SIZE), t.blocks[2]);
	ck_assert_ptr_eq(waited, t.order->mark);
	ck_assert_uint_eq(records, 0);
}
END_TEST

/* It is allocated again in its stream, and freed before any work has used it. */
static void put_back_unused(struct pool_block *b)
{
	pthread_mutex_lock(&pools_lock);
	pool_block_take(b);
	stream_put_back(b);
	pthread_mutex_unlock(&pools_lock);
}

START_TEST(unused_memory_is_free_as_before)
{
	struct stream *s = stream_of(STREAM(0));
	struct pool_block *first = freed(s), *second = freed(s);

	put_back_unused(first);
	ck_assert_uint_eq(s->count, 2);
	ck_assert_ptr_null(look());
	ck_assert_ptr_eq(stream_block_find(s, &pool, SIZE), first);
	/* A later free does not keep the event from showing that this one has passed. */
	freed(s);
	passes(s->event);
	ck_assert_ptr_eq(look(), second);
	pool_block_take(second);
	ck_assert_ptr_eq(look(), first);
	put_back_unused(first);
	ck_assert_ptr_eq(look(), first);
	ck_assert_uint_eq(s->count, 1);
}
END_TEST

/* The stream has ended meanwhile, with an event, and its object is no other stream's. */
START_TEST(unused_memory_outlives_its_stream)
{
	struct stream *s = stream_of(STREAM(0));
	struct pool_block *b = freed(s);

	pool_block_take(b);
	streams_ended(streams_ending(STREAM(0)), false);
	ck_assert_uint_eq(records, 1);
	ck_assert_ptr_ne(stream_of(STREAM(1)), s);
	stream_put_back(b);
	ck_assert_ptr_null(look());
	passes(s->event);
	ck_assert_ptr_eq(look(), b);
	ck_assert_ptr_eq(stream_of(STREAM(2)), s);
}
END_TEST

START_TEST(a_stream_ends)
{
	struct stream *s = stream_of(STREAM(0));
	struct key key = s->key;
	struct pool_block *b = freed(s);

	ck_assert_ptr_eq(streams_ending(STREAM(0)), s);
	ck_assert_ptr_null(stream_find(&key));
	ck_assert_uint_eq(records, 1);
	streams_ended(s, false);
	ck_assert_ptr_null(stream_find(&key));
	ck_assert_ptr_ne(stream_of(STREAM(0)), s);
	passes(s->event);
	ck_assert_ptr_eq(look(), b);
	/* Another stream has the object now. */
	pool_block_take(b);
	ck_assert_ptr_eq(stream_of(STREAM(1)), s);
	ck_assert_ptr_null(streams_ending(STREAM(2)));
	streams_ended(NULL, false);
}
END_TEST

START_TEST(a_stream_ends_on_a_full_gpu)
{
	struct stream *s = stream_of(STREAM(0));
	struct pool_block *b = freed(s);

	full = true;
	streams_ended(streams_ending(STREAM(0)), false);
	ck_assert_ptr_null(look());
	passes(s->event);
	ck_assert_ptr_eq(look(), b);
}
END_TEST

START_TEST(an_idle_stream_ends)
{
	struct stream *s = stream_of(STREAM(0));
	struct pool_block *b = freed(s);

	idle = true;
	streams_ended(streams_ending(STREAM(0)), false);
	ck_assert_uint_eq(records, 0);
	ck_assert_ptr_eq(look(), b);
}
END_TEST

/* The event of its frees says nothing of the frees of a stream that records none. */
START_TEST(a_stream_ends_that_others_wait_for)
{
	struct stream *other = stream_of(STREAM(2)), *s;
	struct pool_block *b;

	flags = CU_STREAM_DEFAULT;
	s = stream_of(STREAM(0));
	b = freed(s);
	passes(s->mark);
	ck_assert_ptr_eq(look(), b);
	pool_block_take(b);
	streams_ended(streams_ending(STREAM(0)), false);
	flags = CU_STREAM_NON_BLOCKING;
	ck_assert_ptr_eq(stream_of(STREAM(1)), s);
	b = freed(s);
	ck_assert_ptr_null(look());
	/* Nor do other streams wait for it. */
	ck_assert_ptr_eq(take_behind(other, SIZE), b);
	ck_assert_ptr_eq(waited, s->event);
	ck_assert_ptr_eq(((struct event *)waited)->stream, STREAM(1));
}
END_TEST

START_TEST(a_stream_ends_while_a_thread_holds_its_object)
{
	struct stream *s = stream_of(STREAM(0));

	s->holds++;
	streams_ended(streams_ending(STREAM(0)), false);
	ck_assert_ptr_ne(stream_of(STREAM(1)), s);
	ck_assert_ptr_eq(s->ctx, CONTEXT);
	s->holds--;
	ck_assert_ptr_eq(stream_of(STREAM(2)), s);
}
END_TEST

/* Nothing that is later added to an object survives its stream either. */
START_TEST(a_stream_gets_nothing_of_the_one_before)
{
	struct stream *s = stream_of(STREAM(0));

	freed(s);
	idle = true;
	pool_block_take(look());
	ck_assert_uint_ne(s->last, 0);
	streams_ended(streams_ending(STREAM(0)), false);
	s->tid = 1;
	s->clock.of[0].from = s;
	ck_assert_ptr_eq(stream_of(STREAM(1)), s);
	ck_assert_uint_eq(s->last, 0);
	ck_assert_uint_eq(s->passed, 0);
	ck_assert_int_eq(s->tid, 0);
	ck_assert_ptr_null(s->clock.of[0].from);
}
END_TEST

/* Its object may be that of a stream in another context only once the context has ended. */
START_TEST(a_stream_has_ended_in_a_context_that_ends)
{
	struct stream *s, *other;

	flags = CU_STREAM_DEFAULT;
	s = stream_of(STREAM(0));
	streams_ended(streams_ending(STREAM(0)), false);
	streams_context_ending(CONTEXT);
	current = HANDLE(9);
	other = stream_of(STREAM(1));
	ck_assert(!other->ending);
	context_gone(CONTEXT);
	ck_assert_ptr_eq(other->ctx, HANDLE(9));
	ck_assert_ptr_eq(stream_of(STREAM(2)), s);
	ck_assert(!s->ending);
}
END_TEST

static CUresult primary_state(CUdevice dev, unsigned int *how, int *active)
{
	(void)dev;
	*how = 0;
	*active = 0;
	return CUDA_SUCCESS;
}

static CUresult green_destroy(CUgreenCtx green)
{
	(void)green;
	return CUDA_SUCCESS;
}

/* A later context with its handle has another one. */
START_TEST(the_default_stream_of_a_green_context_ends)
{
	const CUcontext green = HANDLE(9);
	const struct key key = stream_key(CU_STREAM_LEGACY, green);

	ck_assert(green_reserve());
	green_add(HANDLE(10), CONTEXT, 0);
	green_set_context(HANDLE(10), green);
	current = green;
	pthread_mutex_lock(&pools_lock);
	ck_assert_ptr_nonnull(stream_get(CU_STREAM_LEGACY, green));
	pthread_mutex_unlock(&pools_lock);
	real.cuDevicePrimaryCtxGetState = primary_state;
	real.cuGreenCtxDestroy = green_destroy;
	if (_i)
		context_gone(CONTEXT);
	else
		ck_assert_int_eq(hook_cuGreenCtxDestroy(HANDLE(10)), CUDA_SUCCESS);
	ck_assert_ptr_null(stream_find(&key));
}
END_TEST

static CUresult get_device_at_the_end(CUdevice *dev)
{
	static bool ended;

	if (ended)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	context_gone(CONTEXT);
	ended = true;
	return get_device(dev);
}

/* A later context with its handle has another one. */
START_TEST(a_context_ends_while_its_stream_becomes_known)
{
	const struct key key = stream_key(CU_STREAM_LEGACY, CONTEXT);

	real.cuCtxGetDevice = get_device_at_the_end;
	ck_assert_ptr_null(stream_of(CU_STREAM_LEGACY));
	ck_assert_ptr_null(stream_find(&key));
}
END_TEST

static CUresult stream_create(CUstream *stream, unsigned int how)
{
	(void)how;
	*stream = STREAM(0);
	return CUDA_SUCCESS;
}

static CUresult stream_create_prior(CUstream *stream, unsigned int how, int priority)
{
	(void)priority;
	return stream_create(stream, how);
}

static CUresult stream_create_green(CUstream *stream, CUgreenCtx green, unsigned int how,
				    int priority)
{
	(void)green;
	return stream_create_prior(stream, how, priority);
}

/* The driver gives the handle of a stream to another one before the end of its context is noted. */
START_TEST(a_stream_has_the_handle_of_one_that_ends)
{
	struct stream *s = stream_of(STREAM(0)), *other;
	CUstream made = NULL;

	freed(s);
	streams_context_ending(CONTEXT);
	current = HANDLE(9);
	real.cuStreamCreate = stream_create;
	real.cuStreamCreateWithPriority = stream_create_prior;
	real.cuGreenCtxStreamCreate = stream_create_green;
	if (_i == 0)
		call_cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
	else if (_i == 1)
		call_cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0);
	else
		call_cuGreenCtxStreamCreate(&made, NULL, CU_STREAM_NON_BLOCKING, 0);
	ck_assert_ptr_eq(made, STREAM(0));
	other = stream_of(STREAM(0));
	ck_assert_ptr_ne(other, s);
	ck_assert_ptr_eq(other->ctx, HANDLE(9));
	context_gone(CONTEXT);
	ck_assert_ptr_eq(stream_of(STREAM(0)), other);
	ck_assert_ptr_eq(other->ctx, HANDLE(9));
}
END_TEST

START_TEST(the_driver_refuses_to_end_a_stream)
{
	struct stream *s = stream_of(STREAM(0));
	struct pool_block *b = freed(s);

	ck_assert_ptr_eq(streams_ending(STREAM(0)), s);
	streams_ended(s, true);
	ck_assert_ptr_eq(stream_of(STREAM(0)), s);
	ck_assert_ptr_eq(stream_block_find(s, &pool, SIZE), b);
	/* Meanwhile another thread has learned about a stream with this handle. */
	ck_assert_ptr_eq(streams_ending(STREAM(0)), s);
	ck_assert_ptr_ne(stream_of(STREAM(0)), s);
	streams_ended(s, true);
	ck_assert_ptr_ne(stream_of(STREAM(0)), s);
}
END_TEST

START_TEST(frees_before_a_capture_pass)
{
	struct stream *s = stream_of(STREAM(0));
	struct pool_block *b = freed(s);

	streams_before_capture(STREAM(1));
	ck_assert_uint_eq(records, 0);
	streams_before_capture(STREAM(0));
	ck_assert_uint_eq(records, 1);
	captured = STREAM(0);
	streams_before_capture(STREAM(0));
	streams_ended(streams_ending(STREAM(0)), false);
	ck_assert_uint_eq(records, 1);
	passes(s->event);
	ck_assert_ptr_eq(look(), b);
}
END_TEST

/* It has become part of a capture by an event: none can be recorded for its frees. */
START_TEST(a_stream_ends_that_captures)
{
	struct stream *s = stream_of(STREAM(0));

	freed(s);
	captured = STREAM(0);
	streams_ended(streams_ending(STREAM(0)), false);
	ck_assert_uint_eq(records, 0);
	ck_assert_ptr_null(look());
	pthread_mutex_lock(&pools_lock);
	streams_context_passed(CONTEXT, streams_now());
	pthread_mutex_unlock(&pools_lock);
	ck_assert_ptr_nonnull(look());
}
END_TEST

static void *give(void *arg)
{
	pthread_mutex_lock(&pools_lock);
	pool_giver_ends(arg);
	pthread_mutex_unlock(&pools_lock);
	return NULL;
}

/* Of another context, whose work may last: it is not waited for. */
START_TEST(a_context_ends_while_a_thread_gives_back_its_memory)
{
	struct pool_giver giver, other;
	pthread_t thread;

	pthread_mutex_lock(&pools_lock);
	pool_giver_begins(&other, HANDLE(9));
	pool_giver_begins(&giver, CONTEXT);
	ck_assert_int_eq(pthread_create(&thread, NULL, give, &giver), 0);
	pool_givers_wait_of(CONTEXT);
	ck_assert_ptr_null(other.next);
	pthread_mutex_unlock(&pools_lock);
	pthread_join(thread, NULL);
}
END_TEST

/* The driver gives the handle of a pool to another one before the end of the first is noted. */
START_TEST(a_pool_has_the_handle_of_one_that_ends)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	struct pool *first, *second;
	uint64_t id;

	pool_created(HANDLE(3), &props);
	first = pool_find(HANDLE(3));
	id = pool_id(HANDLE(3));
	ck_assert_uint_ne(id, 0);
	first->blocks++;
	pool_created(HANDLE(3), &props);
	second = pool_find(HANDLE(3));
	ck_assert_ptr_ne(second, first);
	pthread_mutex_lock(&pools_lock);
	ck_assert_ptr_eq(pool_end(id), first);
	ck_assert_ptr_eq(pool_find(HANDLE(3)), second);
	ck_assert_ptr_null(pool_end(0));
	/* The next one gets its object. */
	first->blocks--;
	first->used = SIZE;
	pthread_mutex_unlock(&pools_lock);
	pool_created(HANDLE(4), &props);
	ck_assert_ptr_eq(pool_find(HANDLE(4)), first);
	ck_assert_uint_eq(first->used, 0);
	ck_assert_ptr_null(pool_end(id));
	ck_assert_ptr_eq(pool_find(HANDLE(4)), first);
	ck_assert_uint_eq(pool_id(HANDLE(5)), 0);
}
END_TEST

static CUresult pool_create(CUmemoryPool *made, const CUmemPoolProps *props)
{
	(void)props;
	*made = HANDLE(3);
	return CUDA_SUCCESS;
}

static CUresult pool_import(CUmemoryPool *made, void *from, CUmemAllocationHandleType type,
			    unsigned long long how)
{
	(void)from;
	(void)type;
	(void)how;
	return pool_create(made, NULL);
}

/* The same, and the driver serves the other one: it can be exported, has a limit, or was imported. */
START_TEST(a_pool_of_the_driver_has_the_handle_of_one_that_ends)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemoryPool made;
	struct pool *first;
	uint64_t id;

	real.cuMemPoolCreate = pool_create;
	real.cuMemPoolImportFromShareableHandle = pool_import;
	ck_assert_int_eq(hook_cuMemPoolCreate(&made, &props), CUDA_SUCCESS);
	first = pool_find(HANDLE(3));
	id = first->id;
	props.handleTypes =
		_i == 0 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
	props.maxSize = _i == 1 ? SIZE : 0;
	ck_assert_int_eq(_i < 2 ? hook_cuMemPoolCreate(&made, &props)
				: hook_cuMemPoolImportFromShareableHandle(
					  &made, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_SUCCESS);
	ck_assert_ptr_null(pool_find(HANDLE(3)));
	ck_assert_ptr_eq(pool_end(id), first);
}
END_TEST

/* Before the call has returned, another thread has a pool with the handle, and exports it. */
static CUresult pool_destroy(CUmemoryPool handle)
{
	driver_memory_add(DRIVER_MEMORY_POOL_EXPORT, (uintptr_t)handle, 0);
	return CUDA_SUCCESS;
}

static CUresult pool_destroy_refused(CUmemoryPool handle)
{
	(void)handle;
	return CUDA_ERROR_INVALID_VALUE;
}

START_TEST(an_export_ends_with_its_own_pool)
{
	driver_memory_add(DRIVER_MEMORY_POOL_EXPORT, (uintptr_t)HANDLE(3), 0);
	driver_memory_add(DRIVER_MEMORY_POOL_IMPORT, (uintptr_t)HANDLE(3), 0);
	real.cuMemPoolDestroy = pool_destroy_refused;
	ck_assert_int_eq(hook_cuMemPoolDestroy(HANDLE(3)), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_POOL_EXPORT), 1);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_POOL_IMPORT), 1);
	real.cuMemPoolDestroy = pool_destroy;
	ck_assert_int_eq(hook_cuMemPoolDestroy(HANDLE(3)), CUDA_SUCCESS);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_POOL_EXPORT), 1);
	ck_assert_uint_eq(driver_memory_count(DRIVER_MEMORY_POOL_IMPORT), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("streams of stream-ordered allocations");
	TCase *tc = tcase_create("orders");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, an_event_shows_that_frees_have_passed);
	tcase_add_test(tc, an_idle_stream_shows_that_frees_have_passed);
	tcase_add_loop_test(tc, streams_that_wait_for_others_get_events_by_frees_alone, 0, 2);
	tcase_add_test(tc, frees_of_a_thread_that_has_ended_pass);
	tcase_add_test(tc, threads_that_have_ended_leave_nothing);
	tcase_add_test(tc, a_thread_waits_for_one_that_asks);
	tcase_add_test(tc, a_stream_waits_for_the_free);
	tcase_add_test(tc, a_stream_waits_for_a_thread_that_has_ended);
	tcase_add_test(tc, unused_memory_is_free_as_before);
	tcase_add_test(tc, unused_memory_outlives_its_stream);
	tcase_add_test(tc, a_stream_ends);
	tcase_add_test(tc, a_stream_ends_on_a_full_gpu);
	tcase_add_test(tc, an_idle_stream_ends);
	tcase_add_test(tc, a_stream_ends_that_others_wait_for);
	tcase_add_test(tc, a_stream_ends_while_a_thread_holds_its_object);
	tcase_add_test(tc, a_stream_gets_nothing_of_the_one_before);
	tcase_add_test(tc, a_stream_has_ended_in_a_context_that_ends);
	tcase_add_loop_test(tc, a_stream_has_the_handle_of_one_that_ends, 0, 3);
	tcase_add_loop_test(tc, the_default_stream_of_a_green_context_ends, 0, 2);
	tcase_add_test(tc, a_context_ends_while_its_stream_becomes_known);
	tcase_add_test(tc, the_driver_refuses_to_end_a_stream);
	tcase_add_test(tc, frees_before_a_capture_pass);
	tcase_add_test(tc, a_stream_ends_that_captures);
	tcase_add_test(tc, a_context_ends_while_a_thread_gives_back_its_memory);
	tcase_add_test(tc, a_pool_has_the_handle_of_one_that_ends);
	tcase_add_loop_test(tc, a_pool_of_the_driver_has_the_handle_of_one_that_ends, 0, 3);
	tcase_add_test(tc, an_export_ends_with_its_own_pool);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
