/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of launches, targets, and what is read of communicators, over a driver of a few words. */
#include "checkpoint/ledger/ranks.h"

#include "tests/check_suite.h"

#include <stdint.h>
#include <string.h>

#define COMMS 3

/* What lies at the addresses 0x1000, 0x2000, ...; all zeros: no memory is there. */
static uint32_t words[COMMS][2];

static uint32_t *words_at(CUdeviceptr at)
{
	return words[at / 0x1000 - 1];
}

static CUresult get_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
	(void)attribute;
	if (!words_at(at)[1])
		return CUDA_ERROR_INVALID_VALUE;
	*(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
	return CUDA_SUCCESS;
}

static unsigned int copies;

static CUresult copy(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	(void)stream;
	ck_assert_uint_ne(words_at(from)[1], 0);
	memcpy(to, words_at(from), bytes);
	copies++;
	return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext ctx)
{
	(void)ctx;
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream, unsigned int flags)
{
	ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
	*stream = NULL;
	return CUDA_SUCCESS;
}

static CUresult stream_done(CUstream stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}

static const struct cuda_driver drv = {
	.cuCtxSetCurrent = set_current,
	.cuPointerGetAttribute = get_attribute,
	.cuMemcpyDtoHAsync_v2 = copy,
	.cuStreamCreate = stream_create,
	.cuStreamSynchronize = stream_done,
	.cuStreamDestroy_v2 = stream_done,
};

static struct context both[] = {{.ctx = (CUcontext)1}, {.ctx = (CUcontext)2}};
static const struct context_list contexts = {.items = both, .count = 2};

/* A launch in the communicator @comm, from 1, in the context @ctx. */
static bool launch(unsigned int comm, uintptr_t ctx)
{
	const struct ranks_launch one = {RANKS_ALL, comm * 0x1000, (CUcontext)ctx, 1};
	int seen;

	return ranks_try(&one, 1, &seen);
}

static uint32_t outside(uint32_t rank, uint32_t size)
{
	words[0][0] = rank;
	words[0][1] = size;
	ranks_read(&drv, &contexts, true);
	return ranks_outside();
}

START_TEST(launches_pass_until_all_targets_are_met)
{
	const struct ranks_target targets[] = {{1, 2}, {2, 2}, {99, 5}};

	ck_assert(launch(1, 1) && launch(2, 1) && launch(1, 1));
	ranks_aim(targets, 3);
	ck_assert(!ranks_arrived() && !ranks_passed());
	/* The second has to get on, whatever that takes of the first. */
	ck_assert(launch(1, 1) && ranks_passed() && !ranks_passed());
	ck_assert(launch(2, 1) && ranks_arrived());
	ck_assert(!launch(1, 1) && !launch(2, 1) && !launch(3, 1));
	ranks_let_go();
	ck_assert(launch(1, 1));
}
END_TEST

START_TEST(a_graph_counts_all_of_its_launches_or_none)
{
	const struct ranks_launch two[] = {{RANKS_ALL, 0x1000, (CUcontext)1, 3},
					   {RANKS_SOME, 0x1000, (CUcontext)1, 2}};
	const struct ranks_target target = {1, 3};
	struct ranks_comm list[RANKS_COMMS];
	int seen;

	ck_assert(ranks_try(two, 2, &seen));
	ranks_aim(&target, 1);
	ck_assert(!ranks_try(two, 2, &seen));
	ck_assert_uint_eq(ranks_list(list), 2);
	ck_assert_uint_eq(list[0].made.count, 3);
	ck_assert_uint_eq(list[1].made.count, 2);
}
END_TEST

START_TEST(a_communicator_of_several_ranks_has_peers)
{
	ck_assert_uint_eq(outside(0, 2), 0); /* nothing was launched */
	launch(1, 1);
	ck_assert_uint_eq(outside(1, 4), 4);
	ck_assert_uint_eq(outside(0, 1), 0);
	ck_assert_uint_eq(outside(4, 4), 0);        /* that is not a rank */
	ck_assert_uint_eq(outside(0, 1u << 20), 0); /* nor this a size */
	ck_assert_uint_eq(outside(0, 2), 2);
}
END_TEST

START_TEST(ranks_that_may_all_be_in_this_process_are_no_peers)
{
	launch(1, 1);
	launch(2, 2);
	words[1][0] = 1;
	words[1][1] = 2;
	ck_assert_uint_eq(outside(0, 2), 0);
}
END_TEST

START_TEST(a_communicator_whose_memory_is_freed_is_forgotten)
{
	struct ranks_comm list[RANKS_COMMS];

	launch(1, 1);
	ck_assert_uint_eq(outside(0, 2), 2);
	ck_assert_uint_eq(outside(0, 0), 0);
	ck_assert_uint_eq(ranks_list(list), 0);
	/* The next at this address is another one. */
	launch(1, 1);
	ck_assert_uint_eq(outside(0, 2), 2);
	ck_assert_uint_eq(ranks_list(list), 1);
	ck_assert_uint_eq(list[0].id, 2);
	ck_assert_uint_eq(list[0].made.count, 1);
}
END_TEST

START_TEST(launches_in_too_many_communicators_are_not_counted)
{
	struct ranks_comm list[RANKS_COMMS];

	for (unsigned int i = 1; i <= RANKS_COMMS + 5; i++)
		ck_assert(launch(i, 1));
	ck_assert_uint_eq(ranks_list(list), RANKS_COMMS);
}
END_TEST

START_TEST(what_is_known_is_read_again_after_a_launch)
{
	struct ranks_comm list[RANKS_COMMS];

	words[0][1] = words[1][1] = 8;
	launch(1, 1);
	launch(2, 1);
	for (int i = 0; i < 3; i++)
		ranks_read(&drv, &contexts, false);
	ck_assert_uint_eq(copies, 2);
	launch(2, 1);
	ranks_read(&drv, &contexts, false);
	ck_assert_uint_eq(copies, 3);
	ranks_read(&drv, &contexts, true);
	ck_assert_uint_eq(copies, 5);
	words[0][1] = 0; /* freed */
	ranks_read(&drv, &contexts, false);
	ck_assert_uint_eq(copies, 5);
	ck_assert_uint_eq(ranks_list(list), 1);
	ck_assert_uint_eq(list[0].size, 8);
}
END_TEST

START_TEST(a_launch_that_not_all_ranks_make_is_reported_once)
{
	const struct ranks_launch some = {RANKS_SOME, 0x1000, (CUcontext)1, 1};
	int seen;

	ck_assert(launch(1, 1));
	ck_assert(!ranks_paired());
	ck_assert(ranks_try(&some, 1, &seen));
	ck_assert(ranks_paired());
	ck_assert(!ranks_paired());
	ranks_aim(NULL, 0);
	ck_assert(!ranks_try(&some, 1, &seen));
	ck_assert(!ranks_paired()); /* it waits */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ranks");
	TCase *tc = tcase_create("ranks");

	tcase_add_test(tc, launches_pass_until_all_targets_are_met);
	tcase_add_test(tc, a_graph_counts_all_of_its_launches_or_none);
	tcase_add_test(tc, a_communicator_of_several_ranks_has_peers);
	tcase_add_test(tc, ranks_that_may_all_be_in_this_process_are_no_peers);
	tcase_add_test(tc, a_communicator_whose_memory_is_freed_is_forgotten);
	tcase_add_test(tc, launches_in_too_many_communicators_are_not_counted);
	tcase_add_test(tc, what_is_known_is_read_again_after_a_launch);
	tcase_add_test(tc, a_launch_that_not_all_ranks_make_is_reported_once);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
