/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-overs in which a process fails, by hand: who comes back, and who is let go. */
#include "tests/unit/daemon/parties_world.h"
#include "tools/daemon/turns/books.h"

#include "tests/check_suite.h"

static void fail_move(uint32_t id)
{
	wait_for_order(PARTY_YIELD, id);
	parties_ended(w.parties, id, TURNS_TIMEOUT, w.now);
}

/* On which of them it has what it took before it failed it says a moment later. */
START_TEST(one_on_two_gpus_keeps_what_a_failed_fill_took)
{
	struct turns *t;
	uint32_t two;

	t = parties_turns(w.parties);
	two = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	need_two(two, 0, 60 * MIB);
	parties_paused(w.parties, two, false, true, w.now);
	wait_for_order(PARTY_YIELD, two);
	end_pause(two);
	wait_for_order(PARTY_ROOM, two);
	parties_mapped(w.parties, two, 60 * MIB, w.now);
	parties_ended(w.parties, two, TURNS_FAILED, w.now);
	ck_assert(!is_ordered(PARTY_ROOM, two));
	for (int g = 0; g < 2; g++)
		ck_assert_int_eq(books_free(t, g), 40 * MIB);
	parties_need(w.parties, two, 0, 0, 60 * MIB, w.now);
	ck_assert_int_eq(books_free(t, 0), 100 * MIB);
}
END_TEST

/* The others are out, and have given memory. It runs on, or is at rest, and then those come back, and it does. */
START_TEST(one_that_fails_before_it_gives_brings_all_back)
{
	uint32_t giver[2], other;

	give_two(giver, 0, &other);
	parties_freed(w.parties, giver[0], 20 * MIB, w.now);
	if (_i)
		parties_mapped(w.parties, giver[1], 20 * MIB, w.now);
	parties_ended(w.parties, giver[1], TURNS_FAILED, w.now);
	ck_assert(!is_ordered(PARTY_TRY, other));
	ck_assert_int_eq(parties_is_out(w.parties, giver[1]), _i);
	end_move(giver[0], 20 * MIB);
	ck_assert(is_ordered(PARTY_ROOM, giver[0]));
	ck_assert_uint_eq(w.n, 1U + (unsigned int)_i);
}
END_TEST

/* What it takes back is its own, also when it is alone. */
START_TEST(one_that_is_left_of_two_comes_back)
{
	uint32_t giver[2], other;

	give_two(giver, 0, &other);
	parties_freed(w.parties, giver[0], 20 * MIB, w.now);
	parties_ended(w.parties, giver[1], TURNS_FAILED, w.now);
	end_move(giver[0], 20 * MIB);
	parties_leave(w.parties, giver[1], w.now);
	ck_assert(is_ordered(PARTY_ROOM, giver[0]));
	parties_mapped(w.parties, giver[0], 25 * MIB, w.now);
	ck_assert(!is_ordered(PARTY_TRY, other));
	ck_assert_int_eq(books_free(parties_turns(w.parties), 0), 20 * MIB);
}
END_TEST

/* It could not put back what it had unmapped: nobody has got anything, and it does not run. */
START_TEST(one_that_gives_nothing_and_rests_gets_its_turn)
{
	uint32_t one, other;

	one = join_on("one", 0, 60, 60);
	other = join_on("other", 0, 40, 40);
	parties_grow(w.parties, other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, one);
	parties_mapped(w.parties, one, 60 * MIB, w.now);
	parties_ended(w.parties, one, TURNS_FAILED, w.now);
	ck_assert(!is_ordered(PARTY_YIELD, one));
	parties_want(w.parties, one, w.now);
	parties_leave(w.parties, other, w.now);
	wait_for_order(PARTY_ROOM, one);
}
END_TEST

/* The one that is out already comes back at once, and nobody is let go. */
START_TEST(one_that_is_out_comes_back_if_the_other_one_fails)
{
	uint32_t first, second, other;

	begin_two(&first, &second, &other, TURNS_OK);
	parties_ended(w.parties, second, TURNS_NOMEM, w.now);
	ck_assert(is_ordered(PARTY_ROOM, first));
	for (size_t i = 0; i < w.n; i++)
		ck_assert_int_eq(w.queue[i].order.kind, PARTY_ROOM);
	end_move(first, 30 * MIB);
	ck_assert(!is_ordered(PARTY_LET_GO, second));
	ck_assert(!is_ordered(PARTY_YIELD, first));
	parties_check(w.parties);
}
END_TEST

/* Also if nobody else is out. */
START_TEST(one_that_fails_half_way_comes_back)
{
	uint32_t first, second, other;

	begin_two(&first, &second, &other, TURNS_NOMEM);
	parties_freed(w.parties, second, 10 * MIB, w.now);
	parties_mapped(w.parties, second, 20 * MIB, w.now);
	parties_ended(w.parties, second, TURNS_FAILED, w.now);
	ck_assert(is_ordered(PARTY_ROOM, second));
	end_move(second, 30 * MIB);
	ck_assert(!is_ordered(PARTY_LET_GO, first));
	parties_check(w.parties);
}
END_TEST

/* Another one joined meanwhile, and cannot follow. What the first one has given is not its own any more. */
START_TEST(one_that_has_given_memory_does_not_come_back)
{
	uint32_t first, second, other;

	first = join_on("two", 0, 60, 60);
	other = join_on("other", 0, 40, 40);
	parties_grow(w.parties, other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, first);
	parties_freed(w.parties, first, 30 * MIB, w.now);
	wait_for_order(PARTY_TRY, other);
	second = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	end_move(first, 30 * MIB);
	fail_move(second);
	/* Once more, and nobody else is asked for anything. */
	ck_assert(is_ordered(PARTY_YIELD, second));
	ck_assert_uint_eq(w.n, 1);
	parties_ended(w.parties, second, TURNS_TIMEOUT, w.now);
	ck_assert(is_ordered(PARTY_LET_GO, second));
	parties_check(w.parties);
}
END_TEST

/*
 * One is out when it joins, as an earlier daemon has left it, and the other one runs, and cannot rest
 * without it. The first one gives nothing, and gets its turn all the same.
 */
START_TEST(one_that_was_out_gets_its_turn_when_the_other_is_let_go)
{
	uint32_t out, runs;

	join_one_paused(&out, "two", 30, &runs, "two");
	fail_move(runs);
	end_pause(out);
	fail_move(runs);
	end_move(out, 0);
	wait_for_order(PARTY_LET_GO, runs);
	parties_leave(w.parties, runs, w.now);
	wait_for_order(PARTY_ROOM, out);
	end_move(out, 30 * MIB);
	parties_check(w.parties);
}
END_TEST

/* A launcher without memory does so at the second request, and nothing is freed. */
START_TEST(one_that_was_out_gets_its_turn_when_the_other_follows)
{
	uint32_t out, runs;

	runs = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	out = join_on("two", 0, 0, 30);
	parties_paused(w.parties, out, false, true, w.now);
	fail_move(runs);
	end_pause(out);
	wait_for_order(PARTY_YIELD, runs);
	end_move(runs, 0);
	wait_for_order(PARTY_ROOM, out);
	parties_check(w.parties);
}
END_TEST

START_TEST(one_that_cannot_give_is_not_idle)
{
	struct turns_view view;
	uint32_t idle, grows;

	idle = parties_join(w.parties, 1000, "idle", TURNS_INTERACTIVE, 1, w.now);
	parties_need(w.parties, idle, 0, 60 * MIB, 60 * MIB, w.now);
	grows = join_on("grows", 0, 30, 30);
	parties_grow(w.parties, grows, 1, 0, 30 * MIB, w.now);
	parties_idle(w.parties, idle, true, w.now);
	fail_move(idle);
	w.now += 10;
	ck_assert(!is_ordered(PARTY_YIELD, idle));
	parties_look(w.parties, idle, w.now, &view);
	ck_assert_str_eq(view.state, "runs");
}
END_TEST

/* The first one has its memory, and gives it again. Meanwhile a third one joins, and there is room for it, too. */
START_TEST(room_does_not_stop_the_undoing_of_a_fill)
{
	uint32_t first, second;

	have_room(&first, &second);
	is_drained(first);
	parties_ended(w.parties, second, TURNS_FAILED, w.now);
	wait_for_order(PARTY_YIELD, first);
	join_on("two", 0, 10, 10);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	end_move(first, 0);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	parties_check(w.parties);
}
END_TEST

/* Its user pauses it while it has room. It is out as before, and gets room again. */
START_TEST(one_that_gives_nothing_while_it_has_room_gets_it_again)
{
	uint32_t one, other;

	join_one_paused(&one, "one", 60, &other, "other");
	wait_for_order(PARTY_YIELD, one);
	end_pause(one);
	wait_for_order(PARTY_ROOM, one);
	parties_paused(w.parties, one, true, false, w.now);
	wait_for_order(PARTY_YIELD, one);
	parties_ended(w.parties, one, TURNS_FAILED, w.now);
	parties_paused(w.parties, one, false, false, w.now);
	parties_want(w.parties, one, w.now);
	wait_for_order(PARTY_ROOM, one);
	parties_check(w.parties);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("parties_failures");
	TCase *cases = tcase_create("cases");

	tcase_add_checked_fixture(cases, parties_begin, parties_end);
	tcase_add_test(cases, one_on_two_gpus_keeps_what_a_failed_fill_took);
	tcase_add_loop_test(cases, one_that_fails_before_it_gives_brings_all_back, 0, 2);
	tcase_add_test(cases, one_that_is_left_of_two_comes_back);
	tcase_add_test(cases, one_that_gives_nothing_and_rests_gets_its_turn);
	tcase_add_test(cases, one_that_is_out_comes_back_if_the_other_one_fails);
	tcase_add_test(cases, one_that_fails_half_way_comes_back);
	tcase_add_test(cases, one_that_has_given_memory_does_not_come_back);
	tcase_add_test(cases, one_that_was_out_gets_its_turn_when_the_other_is_let_go);
	tcase_add_test(cases, one_that_was_out_gets_its_turn_when_the_other_follows);
	tcase_add_test(cases, one_that_cannot_give_is_not_idle);
	tcase_add_test(cases, room_does_not_stop_the_undoing_of_a_fill);
	tcase_add_test(cases, one_that_gives_nothing_while_it_has_room_gets_it_again);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
