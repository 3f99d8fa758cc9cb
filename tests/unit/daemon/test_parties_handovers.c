/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-overs of jobs of several processes, by hand: what the processes say, and what they are asked for. */
#include "tests/unit/daemon/parties_world.h"
#include "tools/daemon/turns/books.h"

#include "tests/check_suite.h"

/* What it has on each of them is known at the end of a yield and of a fill, before it says so. */
START_TEST(one_on_two_gpus_takes_turns)
{
	uint32_t two, one;

	two = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	need_two(two, 60 * MIB, 60 * MIB);
	one = join_on("one", 0, 40, 40);
	parties_grow(w.parties, one, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, two);
	end_move(two, 0);
	ck_assert(!is_ordered(PARTY_YIELD, two));
	need_two(two, 0, 60 * MIB);
	parties_need(w.parties, one, 0, 70 * MIB, 70 * MIB, w.now);
	parties_want(w.parties, two, w.now);
	wait_for_order(PARTY_YIELD, one);
	parties_freed(w.parties, one, 30 * MIB, w.now);
	end_move(one, 40 * MIB);
	parties_want(w.parties, one, w.now);
	ck_assert(is_ordered(PARTY_ROOM, two));
	end_move(two, 120 * MIB);
	/* The other one's turn has not come. */
	ck_assert(!is_ordered(PARTY_ROOM, one));
	parties_check(w.parties);
}
END_TEST

/* Another process of its job waits for an allocation of the same number. */
START_TEST(an_allocation_that_waits_no_more)
{
	uint32_t waits[2];
	struct turns_view view;

	join_on("other", 0, 80, 80);
	for (int i = 0; i < 2; i++) {
		waits[i] = join_on("waits", 0, 10, 10);
		parties_grow(w.parties, waits[i], 1, 0, 30 * MIB, w.now);
	}
	for (int i = 0; i < 2; i++) {
		parties_look(w.parties, waits[1], w.now, &view);
		ck_assert_str_eq(view.state, "waits");
		parties_forget(w.parties, waits[0], 2, w.now);
		parties_forget(w.parties, waits[i], 1, w.now);
	}
	parties_look(w.parties, waits[1], w.now, &view);
	ck_assert_str_eq(view.state, "runs");
	parties_check(w.parties);
}
END_TEST

/* 30 MiB are missing on the first GPU: of its two processes each gives its part, and that on the other GPU nothing. */
START_TEST(each_gives_what_its_gpu_lacks)
{
	uint32_t large, small, far, one;

	large = join_on("many", 0, 40, 40);
	small = join_on("many", 0, 20, 20);
	far = join_on("many", 1, 60, 60);
	one = join_on("one", 0, 40, 40);
	parties_grow(w.parties, one, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, large);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, large) >> 20, 20);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, small) >> 20, 10);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, far), 0);
}
END_TEST

/* Two jobs of two processes, each with a GPU: the second one gets room on both while the first one still gives. */
START_TEST(room_comes_while_others_give)
{
	uint32_t giver[2], taker[2];

	for (int g = 0; g < 2; g++)
		giver[g] = join_on("gives", g, 70, 70);
	for (int g = 0; g < 2; g++) {
		taker[g] = join_on("takes", g, 0, 60);
		parties_paused(w.parties, taker[g], false, true, w.now);
	}
	wait_for_order(PARTY_YIELD, taker[0]);
	for (int g = 0; g < 2; g++) {
		end_pause(taker[g]);
	}
	wait_for_order(PARTY_YIELD, giver[0]);
	for (int g = 0; g < 2; g++)
		is_drained(giver[g]);
	wait_for_order(PARTY_SAY, giver[0]);
	parties_freed(w.parties, giver[0], 10 * MIB, w.now);
	/* The other one may fail, so that both run on. */
	ck_assert(!is_ordered(PARTY_ROOM, taker[0]));
	parties_freed(w.parties, giver[1], 20 * MIB, w.now);
	wait_for_order(PARTY_ROOM, taker[0]);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, taker[0]) >> 20, 40);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, taker[1]) >> 20, 50);
	parties_freed(w.parties, giver[0], 30 * MIB, w.now);
	wait_for_order(PARTY_ROOM, taker[0]);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, taker[0]) >> 20, 60);
	/* That fails late: it is out all the same, since others have what it has freed. */
	parties_mapped(w.parties, giver[1], 50 * MIB, w.now);
	parties_ended(w.parties, giver[1], TURNS_FAILED, w.now);
	ck_assert(!is_ordered(PARTY_ROOM, giver[0]));
	ck_assert(parties_is_out(w.parties, giver[1]));
	parties_check(w.parties);
}
END_TEST

/* It waits for the others before it says that it is out, if they share memory. */
START_TEST(one_that_gives_nothing_keeps_no_room_back)
{
	uint32_t giver[2], other;

	give_two(giver, 1, &other);
	parties_freed(w.parties, giver[0], 30 * MIB, w.now);
	ck_assert(is_ordered(PARTY_TRY, other));
}
END_TEST

/* The other one has freed all, and says nothing more: it waits for this one. */
START_TEST(one_that_is_left_alone_keeps_no_room_back)
{
	uint32_t giver[2], other;

	give_two(giver, 0, &other);
	parties_freed(w.parties, giver[0], 20 * MIB, w.now);
	ck_assert(!is_ordered(PARTY_TRY, other));
	parties_leave(w.parties, giver[1], w.now);
	ck_assert(is_ordered(PARTY_TRY, other));
}
END_TEST

/* The place of an order in the last decision, which has it. */
static size_t place_of(enum party_order_kind kind, uint32_t id)
{
	size_t i = 0;

	while (w.queue[i].order.kind != kind || w.queue[i].order.id != id)
		ck_assert_uint_lt(++i, w.n);
	return i;
}

static void check_pact(const uint32_t *ids, size_t n)
{
	size_t fresh = 0;

	for (size_t i = 0; i < n; i++) {
		const struct party_order *order = &w.queue[place_of(PARTY_PACT, ids[i])].order;

		ck_assert_uint_eq(order->bytes, n);
		fresh += order->on;
	}
	ck_assert_uint_eq(fresh, 1);
}

/* All that are in a job when it is out have one pact, from before they are out, in case the daemon ends. */
START_TEST(those_that_are_out_can_resume_without_a_daemon)
{
	uint32_t ids[3], other;

	ids[0] = join_on("two", 0, 30, 30);
	ids[1] = join_on("two", 0, 30, 30);
	other = join_on("other", 0, 40, 40);
	ck_assert(!is_ordered(PARTY_PACT, ids[0]));
	parties_grow(w.parties, other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, ids[0]);
	check_pact(ids, 2);
	ck_assert_uint_lt(place_of(PARTY_PACT, ids[1]), place_of(PARTY_YIELD, ids[0]));
	for (int i = 0; i < 2; i++)
		end_move(ids[i], 0);
	ck_assert(!is_ordered(PARTY_PACT, ids[0]));
	/* One did not get it. */
	parties_lacks_pact(w.parties, ids[1]);
	ck_assert(!is_ordered(PARTY_PACT, ids[0]));
	w.now += 1000;
	parties_decide_now();
	check_pact(ids, 2);
	ck_assert(!is_ordered(PARTY_PACT, ids[0]));
	ids[2] = join_on("two", 0, 0, 10);
	parties_decide_now();
	check_pact(ids, 3);
	for (int i = 2; i > 0; i--) {
		parties_leave(w.parties, ids[i], w.now);
		parties_decide_now();
		check_pact(ids, i);
	}
}
END_TEST

/* A third of what it has on the first GPU is missing there: it gives as much of all that it has. */
START_TEST(one_with_two_gpus_gives_the_same_part_of_each)
{
	uint32_t two = join_on("two", 0, 30, 30), other = join_on("other", 0, 40, 40);

	parties_need(w.parties, two, 1, 60 * MIB, 60 * MIB, w.now);
	parties_grow(w.parties, other, 1, 0, 40 * MIB, w.now);
	wait_for_order(PARTY_YIELD, two);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, two) >> 20, 30);
	parties_need(w.parties, two, 0, 20 * MIB, 30 * MIB, w.now);
	parties_need(w.parties, two, 1, 40 * MIB, 60 * MIB, w.now);
	end_move(two, 60 * MIB);
	ck_assert(is_ordered(PARTY_TRY, other));
	ck_assert(!is_ordered(PARTY_YIELD, two));
}
END_TEST

/* It has said how much it has taken back, but not where. */
START_TEST(one_with_two_gpus_that_takes_its_memory_back_gives_all)
{
	uint32_t two, one;

	two = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	need_two(two, 60 * MIB, 60 * MIB);
	one = join_on("one", 0, 40, 40);
	parties_grow(w.parties, one, 1, 0, 60 * MIB, w.now);
	wait_for_order(PARTY_YIELD, two);
	need_two(two, 0, 60 * MIB);
	end_move(two, 0);
	parties_need(w.parties, one, 0, 100 * MIB, 100 * MIB, w.now);
	parties_want(w.parties, two, w.now);
	wait_for_order(PARTY_YIELD, one);
	end_move(one, 40 * MIB);
	parties_want(w.parties, one, w.now);
	ck_assert(is_ordered(PARTY_ROOM, two));
	parties_mapped(w.parties, two, 100 * MIB, w.now);
	wait_for_order(PARTY_YIELD, two);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, two), TURNS_ALL);
}
END_TEST

/* Of a few bytes at a time. */
START_TEST(words_of_several_that_free_little_keep_no_gpu)
{
	struct turns *t = parties_turns(w.parties);
	uint32_t giver[2], other;
	double until;

	turns_capacity(t, 0, (70 << 10) * MIB);
	for (int i = 0; i < 2; i++)
		giver[i] = join_on("gives", 0, 30 << 10, 30 << 10);
	other = join_on("other", 0, 10 << 10, 10 << 10);
	parties_grow(w.parties, other, 1, 0, (30 << 10) * MIB, w.now);
	wait_for_order(PARTY_YIELD, giver[0]);
	for (int i = 0; i < 2; i++)
		is_drained(giver[i]);
	wait_for_order(PARTY_SAY, giver[0]);
	ck_assert_uint_ne(t->slot[0], 0);
	until = w.now + 8000;
	for (uint64_t bytes = 1; w.now < until; bytes++, w.now += 100) {
		parties_freed(w.parties, giver[0], bytes, w.now);
		parties_decide_now();
	}
	ck_assert_uint_eq(t->slot[0], 0);
}
END_TEST

/* All that is said of its bytes is of both. */
START_TEST(one_with_two_gpus_keeps_its_memory_until_it_is_out)
{
	struct turns *t;
	uint32_t wide, narrow, other;

	t = parties_turns(w.parties);
	wide = join_on("gives", 0, 30, 30);
	parties_need(w.parties, wide, 1, 30 * MIB, 30 * MIB, w.now);
	narrow = join_on("gives", 0, 20, 20);
	other = join_on("other", 0, 40, 40);
	parties_grow(w.parties, other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, wide);
	is_drained(wide);
	is_drained(narrow);
	wait_for_order(PARTY_SAY, wide);
	parties_freed(w.parties, wide, 30 * MIB, w.now);
	parties_freed(w.parties, narrow, 10 * MIB, w.now);
	ck_assert(!is_ordered(PARTY_TRY, other));
	ck_assert_int_eq(books_free(t, 0), 20 * MIB);
	ck_assert_int_eq(books_free(t, 1), 70 * MIB);
	end_move(narrow, 10 * MIB);
	end_move(wide, 0);
	ck_assert(is_ordered(PARTY_TRY, other));
}
END_TEST

/* Both are out, and the other job still gives the last of the memory that they need. */
static void begin_to_fill(uint32_t *first, uint32_t *second, uint32_t *other)
{
	begin_two(first, second, other, TURNS_OK);
	end_move(*second, 0);
	wait_for_order(PARTY_TRY, *other);
	parties_need(w.parties, *other, 0, 70 * MIB, 70 * MIB, w.now);
	parties_want(w.parties, *first, w.now);
	wait_for_order(PARTY_YIELD, *other);
	parties_freed(w.parties, *other, 20 * MIB, w.now);
	wait_for_order(PARTY_ROOM, *second);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, *second) >> 20, 20);
}

/* It needs memory, too, and the job gets no more than there is. */
START_TEST(one_joins_while_room_comes)
{
	uint32_t first, second, third, other;

	begin_to_fill(&first, &second, &other);
	third = join_on("two", 0, 0, 10);
	ck_assert(!is_ordered(PARTY_ROOM, second));
	ck_assert_int_eq(books_free(parties_turns(w.parties), 0), 0);
	parties_leave(w.parties, third, w.now);
}
END_TEST

/* The second one does not take its room, so that others have it, and not what the first one has taken. */
START_TEST(what_was_taken_of_room_counts_when_that_is_taken_back)
{
	struct turns *t;
	uint32_t first, second;

	t = parties_turns(w.parties);
	have_room(&first, &second);
	parties_shown(w.parties, second, 0, 0, w.now, w.now);
	parties_mapped(w.parties, first, 30 * MIB, w.now);
	parties_shown(w.parties, first, 0, 30 * MIB, w.now, w.now);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	ck_assert_int_eq(books_free(t, 0), 40 * MIB);
	w.now += 31000;
	ck_assert(!is_ordered(PARTY_ROOM, first));
	ck_assert_int_eq(books_free(t, 0), 70 * MIB);
}
END_TEST

/* It waits for the rest of its memory by itself, as after the end of a daemon. */
static uint32_t wait_alone(int far, uint32_t *other)
{
	uint32_t id = join_on("alone", 0, 20, 60);

	*other = join_on("other", 0, 70, 70);
	if (far)
		parties_need(w.parties, id, 1, 20 * MIB, 60 * MIB, w.now);
	parties_paused(w.parties, id, false, true, w.now);
	wait_for_order(PARTY_YIELD, id);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, id), 0);
	return id;
}

/* What it says it has while its lease is taken is all that it has. */
START_TEST(a_lone_one_that_waits_has_what_it_says)
{
	uint32_t id = join_on("lone", 0, 20, 60);

	parties_paused(w.parties, id, false, true, w.now);
	wait_for_order(PARTY_YIELD, id);
	parties_need(w.parties, id, 0, 20 * MIB, 60 * MIB, w.now);
	ck_assert_uint_eq(books_said(parties_turns(w.parties)->members), 20 * MIB);
}
END_TEST

/* It only waits for its turn from then on. Another process of its job that comes gives what it has. */
START_TEST(one_that_waits_alone_keeps_what_it_has)
{
	uint32_t other, joins, id = wait_alone(_i, &other);

	end_move(id, 20 * MIB);
	ck_assert(!is_ordered(PARTY_YIELD, id));
	parties_paused(w.parties, id, false, false, w.now);
	joins = join_on("alone", 0, 1, 1);
	wait_for_order(PARTY_YIELD, joins);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, joins), TURNS_ALL);
	end_move(joins, 0);
	parties_want(w.parties, id, w.now);
	wait_for_order(PARTY_YIELD, other);
}
END_TEST

/* Or it is to stop; before it has come to rest, or after that. */
START_TEST(one_that_is_paused_while_it_waits_alone_gives_all)
{
	uint32_t other, id = wait_alone(0, &other);

	if (_i & 1) {
		end_move(id, 20 * MIB);
		ck_assert(!is_ordered(PARTY_YIELD, id));
	}
	if (_i & 2)
		parties_stops(w.parties, id, true, w.now);
	else
		parties_paused(w.parties, id, true, false, w.now);
	if (!(_i & 1))
		end_move(id, 20 * MIB);
	ck_assert(is_ordered(PARTY_YIELD, id));
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, id), TURNS_ALL);
}
END_TEST

/* Neither takes its room, and both say so again and again. */
START_TEST(words_of_several_that_take_nothing_keep_no_hand_over)
{
	struct turns *t = parties_turns(w.parties);
	uint32_t id[2];

	have_room(&id[0], &id[1]);
	ck_assert_uint_ne(t->slot[0], 0);
	for (int i = 0; i < 52; i++) {
		w.now += 100;
		parties_mapped(w.parties, id[i % 2], i % 4 < 2 ? MIB : 0, w.now);
		parties_decide_now();
	}
	ck_assert_uint_eq(t->slot[0], 0);
}
END_TEST

/* Of those with several GPUs no line says where it is. */
START_TEST(what_each_process_has_taken_counts)
{
	struct turns *t = parties_turns(w.parties);
	uint32_t id[2];

	have_room(&id[0], &id[1]);
	for (int i = 0; i < 2; i++) {
		parties_need(w.parties, id[i], 1, 0, MIB, w.now);
		parties_mapped(w.parties, id[i], 9 * MIB, w.now);
	}
	ck_assert_uint_eq(books_find(t, t->slot[0])->said, 18 * MIB);
}
END_TEST

/* They are called off, and may have taken their room by then. */
START_TEST(room_counts_until_it_is_given_back)
{
	struct turns *t;
	uint32_t first, second;

	t = parties_turns(w.parties);
	have_room(&first, &second);
	parties_need(w.parties, first, 0, 0, 30 * MIB, w.now);
	parties_paused(w.parties, first, true, false, w.now);
	wait_for_order(PARTY_YIELD, second);
	parties_freed(w.parties, first, 10 * MIB, w.now);
	parties_freed(w.parties, second, 10 * MIB, w.now);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	ck_assert_int_le(books_free(t, 0), CAPACITY - 40 * MIB);
	end_move(first, 0);
	end_move(second, 0);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	ck_assert_int_eq(books_free(t, 0), CAPACITY);
}
END_TEST

/* It did not take its room, so that others have it; it has begun to take it, and may have less now. */
START_TEST(one_is_told_that_it_has_less_room)
{
	uint32_t one, other;

	join_one_paused(&one, "one", 60, &other, "other");
	wait_for_order(PARTY_YIELD, one);
	parties_shown(w.parties, one, 0, 0, w.now, w.now);
	end_pause(one);
	wait_for_order(PARTY_ROOM, one);
	w.now += 31000;
	parties_grow(w.parties, other, 1, 0, 20 * MIB, w.now);
	wait_for_order(PARTY_TRY, other);
	parties_need(w.parties, other, 0, 50 * MIB, 50 * MIB, w.now);
	wait_for_order(PARTY_ROOM, one);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, one) >> 20, 50);
}
END_TEST

/* Neither has taken its room, and others have come to have most of it. */
START_TEST(two_are_told_that_they_have_less_room)
{
	uint32_t first, second;

	have_room(&first, &second);
	parties_shown(w.parties, first, 0, 0, w.now, w.now);
	parties_shown(w.parties, second, 0, 0, w.now, w.now);
	w.now += 31000;
	join_on("other", 0, 80, 80);
	wait_for_order(PARTY_ROOM, first);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, first) >> 20, 0);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, second) >> 20, 20);
}
END_TEST

/*
 * On the other GPU the first one was let allocate. It may have memory there for a while; later it has nothing: the
 * driver had no memory after all, say.
 */
static void give_after_growth(double later_ms, uint64_t bytes)
{
	uint32_t first, second, other;

	first = join_on("two", 0, 40, 40);
	second = join_on("two", 0, 20, 20);
	parties_grow(w.parties, first, 1, 1, 10 * MIB, w.now);
	wait_for_order(PARTY_TRY, first);
	w.now += later_ms;
	other = join_on("other", 0, 40, 40);
	parties_grow(w.parties, other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, first);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, first), bytes);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, second) >> 20, 10);
}

START_TEST(one_whose_growth_failed_gives_its_part)
{
	give_after_growth(_i ? 3000 : 0, _i ? 20 * MIB : TURNS_ALL);
}
END_TEST

/* It has less room than it needs, and a process that joins is to go out as well: that gives it no more room. */
START_TEST(one_joins_while_the_job_has_too_little_room)
{
	uint32_t first, second, other, third, fourth;

	begin_two(&first, &second, &other, TURNS_OK);
	end_move(second, 0);
	parties_need(w.parties, first, 0, 0, 30 * MIB, w.now);
	parties_need(w.parties, second, 0, 0, 30 * MIB, w.now);
	/* With two GPUs it gets its room at once. */
	parties_need(w.parties, second, 1, 0, 1 * MIB, w.now);
	wait_for_order(PARTY_TRY, other);
	third = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	wait_for_order(PARTY_YIELD, third);
	ck_assert_uint_eq(ordered_bytes(PARTY_YIELD, third), TURNS_ALL);
	parties_leave(w.parties, other, w.now);
	join_on("other", 0, 10, 10);
	parties_want(w.parties, first, w.now);
	/* There is room for the three, but not for the next one, which follows. */
	ck_assert(!is_ordered(PARTY_ROOM, first));
	end_move(third, 0);
	fourth = join_on("two", 0, 50, 50);
	wait_for_order(PARTY_YIELD, fourth);
	end_move(fourth, 0);
	ck_assert(!is_ordered(PARTY_ROOM, first));
	parties_check(w.parties);
}
END_TEST

/*
 * Its room is for two, of which one has two GPUs. A third one joins on the second GPU, where another job has memory,
 * and the first one ends, and in the second run both: as many bytes as the job needs now, but not on that GPU.
 */
START_TEST(room_on_one_gpu_is_not_given_on_another)
{
	uint32_t first, second, third, other, far;

	begin_two(&first, &second, &other, TURNS_OK);
	end_move(second, 0);
	parties_need(w.parties, first, 0, 0, 60 * MIB, w.now);
	parties_need(w.parties, second, 0, 0, 10 * MIB, w.now);
	parties_need(w.parties, second, 1, 0, 10 * MIB, w.now);
	wait_for_order(PARTY_TRY, other);
	third = parties_join(w.parties, 1000, "two", TURNS_BATCH, 1, w.now);
	wait_for_order(PARTY_YIELD, third);
	parties_leave(w.parties, other, w.now);
	far = join_on("far", 1, 80, 80);
	parties_want(w.parties, first, w.now);
	/* There is room for the two. */
	ck_assert(!is_ordered(PARTY_ROOM, first));
	parties_need(w.parties, third, 1, 0, 60 * MIB, w.now);
	end_move(third, 0);
	parties_leave(w.parties, first, w.now);
	if (_i)
		parties_leave(w.parties, second, w.now);
	if (is_ordered(PARTY_ROOM, third))
		ck_assert_uint_le(ordered_bytes(PARTY_ROOM, third) >> 20, 20);
	ck_assert(_i || !is_ordered(PARTY_ROOM, third));
	parties_leave(w.parties, far, w.now);
	wait_for_order(PARTY_ROOM, third);
	ck_assert_uint_eq(ordered_bytes(PARTY_ROOM, third) >> 20, 60);
	parties_check(w.parties);
}
END_TEST

START_TEST(the_memory_of_one_that_joins_in_a_hand_over_counts)
{
	uint32_t first, second, other;

	begin_two(&first, &second, &other, TURNS_OK);
	join_on("two", 1, 60, 60);
	ck_assert_int_eq(books_free(parties_turns(w.parties), 1), 40 * MIB);
	/* What is out may have to come back. */
	parties_need(w.parties, first, 0, 0, 30 * MIB, w.now);
	ck_assert_int_eq(books_free(parties_turns(w.parties), 0), 0);
}
END_TEST

/* No call has come. */
START_TEST(others_of_its_job_end_no_gap_of_one)
{
	double limit;
	uint32_t idle;

	idle = join_on("job", 0, 60, 60);
	limit = parties_idle_limit(w.parties, idle);
	parties_idle(w.parties, idle, true, w.now);
	for (int i = 0; i < 10; i++) {
		w.now += 60000;
		parties_leave(w.parties,
			      parties_join(w.parties, 1000, "job", TURNS_BATCH, 1, w.now), w.now);
		ck_assert(!is_ordered(PARTY_LIMIT, idle));
	}
	for (int i = 0; i < 4; i++) {
		ck_assert_double_eq(parties_idle_limit(w.parties, idle), limit);
		w.now += 60000;
		parties_idle(w.parties, idle, false, w.now);
		parties_idle(w.parties, idle, true, w.now);
		ck_assert_int_eq(is_ordered(PARTY_LIMIT, idle), i == 3);
	}
}
END_TEST

/* It runs beside nobody then; two would run beside each other. */
START_TEST(the_context_of_one_process_may_go)
{
	uint32_t big, small[2];

	for (int i = 0; i < _i; i++) {
		small[i] = parties_join(w.parties, 1000, "small", TURNS_BATCH, 1, w.now);
		parties_context_after(w.parties, small[i], 100);
		parties_need(w.parties, small[i], 0, 10 * MIB, 10 * MIB, w.now);
		parties_context(w.parties, small[i], 0, 10 * MIB, w.now);
	}
	big = parties_join(w.parties, 1000, "big", TURNS_BATCH, 1, w.now);
	parties_need(w.parties, big, 0, 0, CAPACITY, w.now);
	parties_paused(w.parties, big, false, true, w.now);
	wait_for_order(PARTY_YIELD, big);
	end_pause(big);
	turns_there(parties_turns(w.parties), 0, CAPACITY - 5 * MIB);
	for (int i = 0; i < 1000 && !is_ordered(PARTY_YIELD, small[0]); i++)
		w.now += 10;
	ck_assert_int_eq(w.n > 0, _i == 1);
	ck_assert(_i == 2 || w.queue[0].order.context);
}
END_TEST

/* A trim has called off the fill of one that had its memory back, and the commit has come to nobody. */
START_TEST(one_that_is_held_again_runs_with_its_job)
{
	uint32_t first, second;

	have_room(&first, &second);
	is_drained(first);
	ck_assert(!is_ordered(PARTY_SAY, first));
	is_drained(second);
	ck_assert(is_ordered(PARTY_SAY, first));
	end_move(second, 30 * MIB);
	ck_assert(!is_ordered(PARTY_SAY, first));
	is_drained(first);
	ck_assert(is_ordered(PARTY_SAY, first));
	ck_assert_str_eq(w.queue[0].text, "commit");
	end_move(first, 30 * MIB);
	parties_check(w.parties);
}
END_TEST

/* It gives no end of its fill then. What both have got is taken back, and their turn comes when it may. */
START_TEST(one_that_is_paused_while_its_job_gets_room)
{
	uint32_t first, second, other;

	begin_two(&first, &second, &other, TURNS_OK);
	end_move(second, 0);
	parties_want(w.parties, first, w.now);
	parties_need(w.parties, other, 0, 70 * MIB, 70 * MIB, w.now);
	wait_for_order(PARTY_YIELD, other);
	parties_freed(w.parties, other, 70 * MIB, w.now);
	end_move(other, 0);
	parties_need(w.parties, other, 0, 0, 70 * MIB, w.now);
	parties_want(w.parties, other, w.now);
	wait_for_order(PARTY_ROOM, second);
	is_drained(second);
	parties_paused(w.parties, first, true, false, w.now);
	wait_for_order(PARTY_YIELD, second);
	end_move(first, 0);
	end_move(second, 0);
	wait_for_order(PARTY_ROOM, other);
	end_move(other, 70 * MIB);
	parties_paused(w.parties, first, false, false, w.now);
	parties_want(w.parties, first, w.now);
	parties_want(w.parties, second, w.now);
	wait_for_order(PARTY_YIELD, other);
	end_move(other, 0);
	wait_for_order(PARTY_ROOM, second);
	parties_check(w.parties);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("parties_handovers");
	TCase *cases = tcase_create("cases");

	tcase_add_checked_fixture(cases, parties_begin, parties_end);
	tcase_add_test(cases, one_on_two_gpus_takes_turns);
	tcase_add_test(cases, an_allocation_that_waits_no_more);
	tcase_add_test(cases, each_gives_what_its_gpu_lacks);
	tcase_add_test(cases, one_with_two_gpus_gives_the_same_part_of_each);
	tcase_add_test(cases, one_with_two_gpus_that_takes_its_memory_back_gives_all);
	tcase_add_loop_test(cases, one_whose_growth_failed_gives_its_part, 0, 2);
	tcase_add_test(cases, room_comes_while_others_give);
	tcase_add_test(cases, one_that_gives_nothing_keeps_no_room_back);
	tcase_add_test(cases, one_that_is_left_alone_keeps_no_room_back);
	tcase_add_test(cases, those_that_are_out_can_resume_without_a_daemon);
	tcase_add_test(cases, words_of_several_that_free_little_keep_no_gpu);
	tcase_add_test(cases, one_with_two_gpus_keeps_its_memory_until_it_is_out);
	tcase_add_test(cases, one_joins_while_room_comes);
	tcase_add_test(cases, what_was_taken_of_room_counts_when_that_is_taken_back);
	tcase_add_test(cases, a_lone_one_that_waits_has_what_it_says);
	tcase_add_loop_test(cases, one_that_waits_alone_keeps_what_it_has, 0, 2);
	tcase_add_loop_test(cases, one_that_is_paused_while_it_waits_alone_gives_all, 0, 4);
	tcase_add_test(cases, what_each_process_has_taken_counts);
	tcase_add_test(cases, words_of_several_that_take_nothing_keep_no_hand_over);
	tcase_add_test(cases, room_counts_until_it_is_given_back);
	tcase_add_test(cases, one_is_told_that_it_has_less_room);
	tcase_add_test(cases, two_are_told_that_they_have_less_room);
	tcase_add_test(cases, one_joins_while_the_job_has_too_little_room);
	tcase_add_loop_test(cases, room_on_one_gpu_is_not_given_on_another, 0, 2);
	tcase_add_test(cases, the_memory_of_one_that_joins_in_a_hand_over_counts);
	tcase_add_test(cases, others_of_its_job_end_no_gap_of_one);
	tcase_add_loop_test(cases, the_context_of_one_process_may_go, 1, 3);
	tcase_add_test(cases, one_that_is_paused_while_its_job_gets_room);
	tcase_add_test(cases, one_that_is_held_again_runs_with_its_job);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
