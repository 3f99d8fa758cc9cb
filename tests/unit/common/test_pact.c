/* SPDX-License-Identifier: Apache-2.0 */
/* How processes that resume together agree: several members in one process, with a clock that is set here. */
#include "common/protocol/pact.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMBERS 3
#define LOOK_MS 100

static double now_ms = 1000;
static int fd;
static struct pact *members[MEMBERS];

double __wrap_clock_ms(void);

double __wrap_clock_ms(void)
{
	return now_ms;
}

static void begin(void)
{
	fd = pact_create(MEMBERS);
	ck_assert_int_ge(fd, 0);
	for (int i = 0; i < MEMBERS; i++) {
		members[i] = pact_open(fd);
		ck_assert_ptr_nonnull(members[i]);
	}
}

static void join_all(void)
{
	for (int i = 0; i < MEMBERS; i++)
		ck_assert(pact_join(members[i]));
}

static void all_say(enum pact_says says)
{
	for (int i = 0; i < MEMBERS; i++)
		pact_say(members[i], says);
}

/* All see it. */
static void check_phase(enum pact_phase phase)
{
	for (int i = 0; i < MEMBERS; i++)
		ck_assert_int_eq(pact_look(members[i]), phase);
}

static void check_called_back(bool are)
{
	for (int i = 0; i < MEMBERS; i++)
		ck_assert_int_eq(pact_is_called_back(members[i]), are);
}

/* All look on for @ms, except the one that is @stopped; -1: none. */
static void pass(double ms, int stopped)
{
	for (double until = now_ms + ms; now_ms < until; now_ms += LOOK_MS)
		for (int i = 0; i < MEMBERS; i++)
			if (i != stopped)
				pact_watch(members[i]);
}

START_TEST(none_takes_before_all_see_room_and_none_runs_before_all_are_whole)
{
	begin();
	for (int i = 0; i < MEMBERS; i++) {
		check_phase(PACT_SEEK);
		ck_assert(pact_join(members[i]));
		pact_say(members[i], PACT_ROOM);
	}
	check_phase(PACT_TAKE);
	for (int i = 0; i < MEMBERS; i++) {
		pact_say(members[i], PACT_TAKES);
		pact_say(members[i], PACT_HAS);
		check_phase(PACT_TAKE);
	}
	for (int i = 0; i < MEMBERS; i++) {
		check_phase(PACT_TAKE);
		pact_say(members[i], PACT_WHOLE);
	}
	check_phase(PACT_GO);
	ck_assert(!pact_stop(members[0]));
	check_phase(PACT_GO);
}
END_TEST

START_TEST(one_that_gives_up_stops_all)
{
	begin();
	join_all();
	all_say(PACT_ROOM);
	check_phase(PACT_TAKE);
	pact_say(members[0], PACT_WHOLE);
	pact_say(members[1], PACT_WHOLE);
	ck_assert(pact_stop(members[2]));
	pact_say(members[2], PACT_WHOLE);
	check_phase(PACT_STOP);
	ck_assert(pact_is_ended(members[0]));
	ck_assert(pact_stop(members[0]));
	check_called_back(false);
}
END_TEST

START_TEST(one_that_runs_already_is_not_waited_for)
{
	begin();
	join_all();
	pact_say(members[1], PACT_LEFT);
	pact_say(members[0], PACT_ROOM);
	pact_say(members[2], PACT_ROOM);
	check_phase(PACT_TAKE);
	pass(2 * PACT_SILENCE_MS, 1);
	pact_say(members[0], PACT_WHOLE);
	pact_say(members[2], PACT_WHOLE);
	check_phase(PACT_GO);
}
END_TEST

/* What they have said before does not count, and the first one waits before it seeks again. */
START_TEST(a_call_back_begins_a_new_round)
{
	begin();
	join_all();
	all_say(PACT_ROOM);
	check_phase(PACT_TAKE);
	pact_say(members[0], PACT_WHOLE);
	pact_say(members[1], PACT_TAKES);
	pact_say(members[2], PACT_TAKES);
	pact_say(members[2], PACT_LACKS);
	ck_assert(pact_others_take(members[2]));
	pact_say(members[1], PACT_WHOLE);
	ck_assert(!pact_others_take(members[2]));
	pact_call_back(members[2]);
	check_phase(PACT_SEEK);
	check_called_back(true);
	pact_say(members[2], PACT_WHOLE); /* too late */
	check_phase(PACT_SEEK);
	for (int i = 0; i < MEMBERS; i++)
		pact_begin_round(members[i]);
	check_called_back(false);
	now_ms += 200;
	ck_assert(pact_is_due(members[0], now_ms));
	all_say(PACT_ROOM);
	check_phase(PACT_TAKE);
	/* Of two that call back at once, one has been too late. */
	pact_call_back(members[0]);
	pact_call_back(members[1]);
	check_phase(PACT_SEEK);
	pact_begin_round(members[0]);
	all_say(PACT_ROOM);
	check_phase(PACT_SEEK);
}
END_TEST

/* As long as one that waits sees that, it does not call back. */
START_TEST(one_that_has_lacked_its_memory_does_not_take_it_for_the_others)
{
	begin();
	join_all();
	all_say(PACT_ROOM);
	check_phase(PACT_TAKE);
	ck_assert(!pact_others_take(members[0]));
	pact_say(members[0], PACT_HAS);
	for (int i = 1; i < MEMBERS; i++) {
		ck_assert(pact_others_take(members[0]));
		pact_say(members[i], PACT_TAKES);
		ck_assert(pact_others_take(members[0]));
		pact_say(members[i], PACT_LACKS);
	}
	for (int i = 1; i < MEMBERS; i++) {
		pact_say(members[i], PACT_TAKES);
		ck_assert(!pact_others_take(members[3 - i]));
		pact_say(members[i], PACT_LACKS);
	}
	pact_call_back(members[1]);
	for (int i = 0; i < MEMBERS; i++)
		pact_begin_round(members[i]);
	all_say(PACT_ROOM);
	check_phase(PACT_TAKE);
	pact_say(members[1], PACT_TAKES);
	pact_say(members[2], PACT_TAKES);
	pact_say(members[2], PACT_LACKS);
	ck_assert(pact_others_take(members[2]));
	pact_say(members[2], PACT_HAS);
	pact_say(members[1], PACT_WHOLE);
	pact_say(members[0], PACT_WHOLE);
	pact_say(members[2], PACT_WHOLE);
	check_phase(PACT_GO);
}
END_TEST

/* It has met the promise of another member, say, and its first attempt comes after that. */
START_TEST(one_that_could_not_try_yet_is_waited_for)
{
	begin();
	join_all();
	all_say(PACT_ROOM);
	check_phase(PACT_TAKE);
	pact_say(members[0], PACT_TAKES);
	pact_say(members[0], PACT_LACKS);
	pact_say(members[1], PACT_HAS);
	pact_say(members[2], PACT_LACKS);
	ck_assert(pact_others_take(members[0]));
	pact_say(members[2], PACT_TAKES);
	ck_assert(pact_others_take(members[0]));
	pact_say(members[2], PACT_LACKS);
	ck_assert(!pact_others_take(members[0]));
}
END_TEST

START_TEST(needs_are_known_when_all_have_spoken)
{
	begin();
	join_all();
	pact_set_need(members[0], 0, "GPU-a", 1);
	pact_set_need(members[1], 0, "GPU-b", 10);
	pact_set_need(members[1], 1, "GPU-a", 100);
	pact_say(members[0], PACT_SEEKS);
	pact_say(members[1], PACT_SEEKS);
	ck_assert(!pact_is_known(members[0]));
	pact_set_need(members[2], 0, "GPU-a", 1000);
	pact_say(members[2], PACT_SEEKS);
	ck_assert(pact_is_known(members[0]));
	ck_assert_uint_eq(pact_others_need(members[0], "GPU-a"), 1100);
	ck_assert_uint_eq(pact_others_need(members[1], "GPU-a"), 1001);
	ck_assert_uint_eq(pact_others_need(members[2], "GPU-b"), 10);
	pact_say(members[1], PACT_LEFT);
	ck_assert_uint_eq(pact_others_need(members[0], "GPU-a"), 1000);
}
END_TEST

START_TEST(one_that_is_silent_stops_all)
{
	begin();
	join_all();
	pass(2 * PACT_SILENCE_MS, -1);
	check_phase(PACT_SEEK);
	pass(PACT_SILENCE_MS - LOOK_MS, 1);
	check_phase(PACT_SEEK);
	pass(LOOK_MS, -1);
	pass(PACT_SILENCE_MS + 2 * LOOK_MS, 1);
	check_phase(PACT_STOP);
}
END_TEST

START_TEST(one_that_never_joins_stops_all)
{
	begin();
	ck_assert(pact_join(members[0]));
	for (int i = 0; i < PACT_SILENCE_MS / LOOK_MS + 2; i++, now_ms += LOOK_MS)
		pact_watch(members[0]);
	check_phase(PACT_STOP);
}
END_TEST

/* The others are heard at the first look after that. */
START_TEST(time_in_which_all_were_stopped_does_not_count)
{
	begin();
	join_all();
	pass(LOOK_MS, -1);
	pact_watch(members[0]); /* it has seen the last beat of the others */
	now_ms += 100 * PACT_SILENCE_MS;
	pass(10 * LOOK_MS, -1);
	check_phase(PACT_SEEK);
}
END_TEST

START_TEST(there_are_no_more_members_than_it_has)
{
	struct pact *more;

	begin();
	join_all();
	more = pact_open(fd);
	ck_assert_ptr_nonnull(more);
	ck_assert(!pact_join(more));
	pact_close(more);
}
END_TEST

START_TEST(later_ones_are_known)
{
	struct pact *first, *second;
	int later;

	begin();
	usleep(1);
	later = pact_create(1);
	first = members[0];
	second = pact_open(later);
	ck_assert(pact_is_later(second, first));
	ck_assert(!pact_is_later(first, second));
	ck_assert(!pact_is_later(first, members[1]));
	pact_close(second);
	close(later);
}
END_TEST

START_TEST(other_files_are_no_pacts)
{
	int open = memfd_create("test", MFD_ALLOW_SEALING), pipes[2];

	ck_assert_int_eq(ftruncate(open, 1 << 20), 0);
	ck_assert_ptr_null(pact_open(open)); /* could be cut */
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_ptr_null(pact_open(pipes[0]));
	ck_assert_ptr_null(pact_open(-1));
	ck_assert_int_eq(errno, EINVAL);
}
END_TEST

/* Some systems refuse files in memory that can be executed. */
START_TEST(its_file_cannot_be_executed)
{
	int made = pact_create(1),
	    can = memfd_create("test", 8 /* MFD_NOEXEC_SEAL, since Linux 6.3 */);

	ck_assert_int_ge(made, 0);
	ck_assert_int_eq(fcntl(made, F_GET_SEALS) & 0x20 /* F_SEAL_EXEC */, can < 0 ? 0 : 0x20);
	close(made);
	close(can);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pact");
	TCase *tc = tcase_create("pact");

	tcase_add_test(tc, none_takes_before_all_see_room_and_none_runs_before_all_are_whole);
	tcase_add_test(tc, one_that_gives_up_stops_all);
	tcase_add_test(tc, one_that_runs_already_is_not_waited_for);
	tcase_add_test(tc, a_call_back_begins_a_new_round);
	tcase_add_test(tc, one_that_has_lacked_its_memory_does_not_take_it_for_the_others);
	tcase_add_test(tc, one_that_could_not_try_yet_is_waited_for);
	tcase_add_test(tc, needs_are_known_when_all_have_spoken);
	tcase_add_test(tc, one_that_is_silent_stops_all);
	tcase_add_test(tc, one_that_never_joins_stops_all);
	tcase_add_test(tc, time_in_which_all_were_stopped_does_not_count);
	tcase_add_test(tc, there_are_no_more_members_than_it_has);
	tcase_add_test(tc, later_ones_are_known);
	tcase_add_test(tc, other_files_are_no_pacts);
	tcase_add_test(tc, its_file_cannot_be_executed);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
