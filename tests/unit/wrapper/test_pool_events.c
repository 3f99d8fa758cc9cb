/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that follow the frees of others by the program's events. */
#include "tests/unit/wrapper/pooling.h"

#include "vmem/context_gone.h"
#include "wrapper/hooks/ordered/pool_events.h"

static CUevent event_made(void)
{
	CUevent event;

	event_create(&event, CU_EVENT_DISABLE_TIMING);
	return event;
}

/* A free in stream 0, an event behind it. */
static struct pool_block *freed_before(CUevent event)
{
	struct pool_block *b = freed(stream_of(STREAM(0)));

	ck_assert_int_eq(hook_cuEventRecord(event, STREAM(0)), CUDA_SUCCESS);
	return b;
}

/* What an allocation in @stream may have before the GPU has reached its free. */
static struct pool_block *before(CUstream stream)
{
	struct stream *s = stream_of(stream);
	struct pool_block *b;

	pthread_mutex_lock(&pools_lock);
	b = stream_block_before(s, &pool, SIZE);
	pthread_mutex_unlock(&pools_lock);
	return b;
}

static void wait_for(CUstream stream, CUevent event)
{
	ck_assert_int_eq(hook_cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
}

START_TEST(an_event_orders_a_stream_behind_a_free)
{
	CUevent event = event_made();
	struct pool_block *b = freed_before(event), *later;

	ck_assert_ptr_null(before(STREAM(1)));
	wait_for(STREAM(1), event);
	ck_assert_ptr_eq(before(STREAM(1)), b);
	ck_assert_ptr_null(before(STREAM(2)));
	later = freed(stream_of(STREAM(0)));
	ck_assert_ptr_eq(before(STREAM(1)), b);
	pthread_mutex_lock(&pools_lock);
	pool_block_take(b);
	pthread_mutex_unlock(&pools_lock);
	ck_assert_ptr_null(before(STREAM(1)));
	ck_assert_int_eq(hook_cuEventRecord(event, STREAM(0)), CUDA_SUCCESS);
	ck_assert_ptr_null(before(STREAM(1)));
	wait_for(STREAM(1), event);
	ck_assert_ptr_eq(before(STREAM(1)), later);
}
END_TEST

/* Through one of which nothing was ever freed or allocated. */
START_TEST(streams_follow_each_other)
{
	CUevent first = event_made(), second = event_made();
	struct pool_block *b = freed_before(first);

	wait_for(STREAM(1), first);
	ck_assert_int_eq(hook_cuEventRecord(second, STREAM(1)), CUDA_SUCCESS);
	wait_for(STREAM(2), second);
	ck_assert_ptr_eq(before(STREAM(2)), b);
}
END_TEST

START_TEST(an_event_means_its_latest_record)
{
	CUevent event = event_made();

	freed_before(event);
	ck_assert_int_eq(hook_cuEventRecord(event, STREAM(2)), CUDA_SUCCESS);
	wait_for(STREAM(1), event);
	ck_assert_ptr_null(before(STREAM(1)));
}
END_TEST

static CUevent shared;

static void record_elsewhere(void)
{
	hook_cuEventRecord(shared, STREAM(2));
}

static void begin_capture(void)
{
	streams_before_capture(STREAM(3));
}

/* Another thread records the event meanwhile, or a capture begins, which may take the call. */
START_TEST(who_waits_may_wait_for_something_else)
{
	shared = event_made();
	freed_before(shared);
	meanwhile = _i ? begin_capture : record_elsewhere;
	wait_for(STREAM(1), shared);
	ck_assert_ptr_null(before(STREAM(1)));
}
END_TEST

START_TEST(what_is_recorded_may_be_something_else)
{
	shared = event_made();
	stream_of(STREAM(2));
	meanwhile = _i ? begin_capture : record_elsewhere;
	freed_before(shared);
	wait_for(STREAM(1), shared);
	ck_assert_ptr_null(before(STREAM(1)));
	freed_before(shared);
	wait_for(STREAM(1), shared);
	ck_assert_ptr_nonnull(before(STREAM(1)));
}
END_TEST

static void leave(CUevent event, unsigned int how)
{
	CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
	CUlaunchAttribute attributes[] = {{.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE},
					  {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT},
					  {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT}};
	CUlaunchConfig config = {.attrs = attributes, .numAttrs = how};

	node.eventRecord.event = event;
	attributes[1].value.programmaticEvent.event = event;
	attributes[2].value.launchCompletionEvent.event = event;
	if (how > 2)
		attributes[1].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
	if (!how)
		pool_events_leave(event);
	else if (how == 1)
		pool_events_leave_node(&node);
	else
		pool_events_leave_launch(&config);
}

/* Before the record, or behind it; until its handle is that of another event. */
START_TEST(an_event_is_recorded_in_other_ways)
{
	CUevent event = event_made();

	if (_i % 2)
		leave(event, (unsigned int)_i / 2);
	freed_before(event);
	if (_i % 2 == 0)
		leave(event, (unsigned int)_i / 2);
	wait_for(STREAM(1), event);
	ck_assert_ptr_null(before(STREAM(1)));
	freed_before(event);
	wait_for(STREAM(1), event);
	ck_assert_ptr_null(before(STREAM(1)));
	hook_cuEventDestroy_v2(event);
	freed_before(event);
	wait_for(STREAM(1), event);
	ck_assert_ptr_nonnull(before(STREAM(1)));
}
END_TEST

static CUevent ended;

static CUresult event_create_again(CUevent *event, unsigned int how)
{
	(void)how;
	*event = ended;
	return CUDA_SUCCESS;
}

START_TEST(a_new_event_has_no_record)
{
	CUevent event = event_made();

	freed_before(event);
	stream_of(STREAM(1));
	ended = event;
	real.cuEventCreate = event_create_again;
	if (_i == 0)
		hook_cuEventDestroy_v2(event);
	else if (_i == 1)
		context_gone(HANDLE(50));
	else /* the end of the earlier one was not seen */
		ck_assert_int_eq(call_cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
	wait_for(STREAM(1), event);
	ck_assert_ptr_null(before(STREAM(1)));
}
END_TEST

/* Nor has a stream what another one with its handle has waited for. */
START_TEST(a_new_stream_follows_none)
{
	CUevent event = event_made();
	struct stream *s = stream_of(STREAM(1)), *again;

	freed_before(event);
	wait_for(STREAM(1), event);
	ck_assert_ptr_nonnull(before(STREAM(1)));
	streams_ended(streams_ending(STREAM(1)), false);
	again = stream_of(STREAM(1));
	ck_assert_ptr_eq(again, s);
	ck_assert_ptr_null(before(STREAM(1)));
}
END_TEST

/* More than a clock has room for: some are followed, and none wrongly. */
START_TEST(many_streams_are_followed)
{
	CUevent event = event_made();
	unsigned int found = 0;

	for (int n = 10; n < 10 + 2 * CLOCK_STREAMS; n++) {
		freed(stream_of(STREAM(n)));
		ck_assert_int_eq(hook_cuEventRecord(event, STREAM(n)), CUDA_SUCCESS);
		wait_for(STREAM(1), event);
		freed(stream_of(STREAM(n)));
	}
	for (struct pool_block *b; (b = before(STREAM(1))); found++) {
		ck_assert_uint_eq((size_t)(b - blocks) % 2, 0);
		pthread_mutex_lock(&pools_lock);
		pool_block_take(b);
		pthread_mutex_unlock(&pools_lock);
	}
	ck_assert_uint_eq(found, CLOCK_STREAMS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("events of stream-ordered allocations");
	TCase *tc = tcase_create("orders");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, an_event_orders_a_stream_behind_a_free);
	tcase_add_test(tc, streams_follow_each_other);
	tcase_add_test(tc, an_event_means_its_latest_record);
	tcase_add_loop_test(tc, who_waits_may_wait_for_something_else, 0, 2);
	tcase_add_loop_test(tc, what_is_recorded_may_be_something_else, 0, 2);
	tcase_add_loop_test(tc, an_event_is_recorded_in_other_ways, 0, 8);
	tcase_add_loop_test(tc, a_new_event_has_no_record, 0, 3);
	tcase_add_test(tc, a_new_stream_follows_none);
	tcase_add_test(tc, many_streams_are_followed);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
