/* SPDX-License-Identifier: Apache-2.0 */
/* Members that say they have more than NVML shows. */
#include "tests/unit/daemon/turns_world.h"
#include "tools/daemon/turns/books.h"
#include "tests/check_suite.h"

#define NOW      1000000.0
#define CAPACITY (100 * GIB)

static struct turns *t;
static struct turns_order orders[64];
static size_t norders;

static void setup(void)
{
	const struct turns_settings settings = {
		.quantum_ms = 10000, .idle_ms = 500, .rest_ms = 16000, .takes_ms = 30000};

	t = turns_new(&settings);
	ck_assert_ptr_nonnull(t);
	for (int g = 0; g < 2; g++)
		turns_capacity(t, g, CAPACITY);
	t->now = NOW;
}

static void teardown(void)
{
	turns_free(t);
}

/* It runs, and says that it has @gib GiB. */
static struct account *runs(uint64_t gib)
{
	struct account *m = books_find(t, turns_join(t, TURNS_BATCH, 1, NOW));

	turns_need(t, m->id, 0, gib * GIB, gib * GIB, NOW);
	return m;
}

/* It has nothing on the GPU, and waits for @gib GiB. */
static struct account *waits(uint64_t gib)
{
	struct account *m = books_find(t, turns_join(t, TURNS_BATCH, 1, NOW));

	turns_need(t, m->id, 0, 0, gib * GIB, NOW);
	m->phase = PHASE_OUT;
	turns_want(t, m->id, NOW);
	return m;
}

/* NVML was asked for it at @asked. */
static void shows_late(const struct account *m, uint64_t gib, double asked, double now)
{
	turns_shown(t, m->id, 0, gib * GIB, asked, now);
}

static void shows(const struct account *m, uint64_t gib, double now)
{
	shows_late(m, gib, now, now);
}

static void decide(double now)
{
	norders = turns_decide(t, now, orders, 64);
	ck_assert_uint_lt(norders, 64);
	turns_check(t);
}

/* The bytes of the order of @kind that @m gets; -1: it gets none. */
static int64_t ordered(enum turns_order_kind kind, const struct account *m)
{
	for (size_t i = 0; i < norders; i++)
		if (orders[i].kind == kind && orders[i].id == m->id)
			return (int64_t)orders[i].bytes;
	return -1;
}

START_TEST(what_is_not_shown_counts_as_nothing)
{
	struct account *liar = runs(90), *next = waits(60);

	liar->phase_since = NOW;
	decide(NOW + 20);
	ck_assert_int_eq(ordered(TURNS_ROOM, next), -1);
	shows(liar, 1, NOW + 40);
	decide(NOW + 40);
	ck_assert_int_eq(ordered(TURNS_ROOM, next), 60 * GIB);
	ck_assert_int_eq(ordered(TURNS_YIELD, liar), -1);
	ck_assert_int_eq(books_free(t, 0), 39 * GIB);
}
END_TEST

/* It could give it away again and again, and who needs memory would ask nobody else. */
START_TEST(nobody_is_asked_for_what_is_not_shown)
{
	struct account *liar = runs(90), *first = runs(90), *next = waits(60);

	liar->vtime = 1e6;
	first->vtime = 1e5;
	liar->phase_since = first->phase_since = 0;
	shows(liar, 0, NOW);
	shows(first, 91, NOW);
	decide(NOW + 20);
	ck_assert_int_eq(ordered(TURNS_YIELD, liar), -1);
	ck_assert_int_eq(ordered(TURNS_YIELD, first), 50 * GIB);
	ck_assert_uint_eq(first->leaves_for, next->id);
}
END_TEST

START_TEST(what_is_shown_is_no_claim)
{
	struct account *small = runs(10);

	shows(small, 50, NOW);
	ck_assert_int_eq(books_free(t, 0), 90 * GIB);
}
END_TEST

/* NVML may have said what it shows before the last of it was there. */
START_TEST(memory_that_has_just_come_back_counts)
{
	struct account *next = waits(60);

	shows(next, 1, NOW);
	decide(NOW);
	ck_assert_int_eq(ordered(TURNS_ROOM, next), 60 * GIB);
	turns_mapped(t, next->id, 60 * GIB, NOW + 100);
	ck_assert_int_eq(books_free(t, 0), 40 * GIB);
	turns_ended(t, next->id, TURNS_OK, NOW + 100);
	turns_need(t, next->id, 0, 60 * GIB, 60 * GIB, NOW + 100);
	ck_assert_int_eq(books_free(t, 0), 40 * GIB);
	shows_late(next, 1, NOW + 2000, NOW + 60000);
	ck_assert_int_eq(books_free(t, 0), 40 * GIB);
	shows_late(next, 1, NOW + 2200, NOW + 60000);
	ck_assert_int_eq(books_free(t, 0), 99 * GIB);
	turns_check(t);
	shows(next, 60, NOW + 60000);
	ck_assert_int_eq(books_free(t, 0), 40 * GIB);
}
END_TEST

/* Decisions go on without NVML if it blocks; what it says then of what was before counts for nobody's memory. */
START_TEST(an_answer_that_comes_late)
{
	struct account *grows = runs(10);

	shows(grows, 10, NOW);
	turns_shown(t, grows->id, 0, TURNS_NO_LIMIT, 0, NOW + 3000);
	turns_grow(t, grows->id, 1, 0, 20 * GIB, NOW + 3000);
	decide(NOW + 3000);
	ck_assert_int_eq(ordered(TURNS_TRY, grows), 0);
	turns_need(t, grows->id, 0, 30 * GIB, 30 * GIB, NOW + 3100);
	turns_shown(t, grows->id, 0, TURNS_NO_LIMIT, 0, NOW + 9000);
	shows_late(grows, 10, NOW + 3000, NOW + 9000);
	ck_assert_int_eq(books_free(t, 0), 70 * GIB);
	/* What it does not have in spite of that counts no longer. */
	shows(grows, 10, NOW + 9000);
	ck_assert_int_eq(books_free(t, 0), 90 * GIB);
}
END_TEST

/* What it says it has given is of all that it has said it has, whatever NVML shows already. */
START_TEST(one_that_gives_before_all_is_shown)
{
	struct account *first = runs(90);

	waits(60);
	first->vtime = 1e5;
	first->phase_since = 0;
	shows(first, 60, NOW);
	turns_capacity(t, 0, 70 * GIB); /* others have the rest */
	decide(NOW + 20);
	ck_assert_int_eq(ordered(TURNS_YIELD, first), 50 * GIB);
	shows(first, 91, NOW + 40);
	turns_capacity(t, 0, CAPACITY);
	turns_freed(t, first->id, 50 * GIB, NOW + 60);
	ck_assert_uint_eq(books_mapped(first), 40 * GIB);
}
END_TEST

START_TEST(an_allocation_is_promised_its_memory_until_it_is_shown)
{
	struct account *grows = runs(10);

	shows(grows, 10, NOW);
	turns_grow(t, grows->id, 1, 0, 20 * GIB, NOW);
	decide(NOW);
	ck_assert_int_eq(books_free(t, 0), 70 * GIB);
	/* Of the rest it keeps its promise. */
	turns_need(t, grows->id, 0, 20 * GIB, 20 * GIB, NOW + 50);
	ck_assert_int_eq(books_free(t, 0), 70 * GIB);
	turns_need(t, grows->id, 0, 30 * GIB, 30 * GIB, NOW + 100);
	ck_assert_int_eq(books_free(t, 0), 70 * GIB);
	shows(grows, 15, NOW + 150);
	ck_assert_int_eq(books_free(t, 0), 70 * GIB);
	shows(grows, 31, NOW + 200);
	ck_assert_int_eq(books_free(t, 0), 70 * GIB);
	turns_need(t, grows->id, 0, 10 * GIB, 10 * GIB, NOW + 300);
	ck_assert_int_eq(books_free(t, 0), 90 * GIB);
}
END_TEST

START_TEST(what_a_try_did_not_find_is_no_memory_of_its_member)
{
	struct account *grows = runs(10);

	shows(grows, 10, NOW);
	for (int i = 1; i <= 3; i++) {
		turns_grow(t, grows->id, i, 0, 20 * GIB, NOW);
		ck_assert_int_eq(books_free(t, 0), 90 * GIB);
		decide(NOW);
		ck_assert_int_eq(books_free(t, 0), 70 * GIB);
	}
	turns_need(t, grows->id, 0, 70 * GIB, 70 * GIB, NOW + 50);
	ck_assert_int_eq(books_free(t, 0), 70 * GIB);
}
END_TEST

/* Until @ms have passed, it says that it takes memory, and NVML shows @gib GiB of it. */
static void says_it_fills(const struct account *m, uint64_t gib, double *now, double ms)
{
	for (double end = *now + ms; *now < end;) {
		*now += 100;
		turns_mapped(t, m->id, gib * GIB, *now);
		shows(m, gib, *now);
		decide(*now);
	}
}

START_TEST(room_that_is_not_taken_is_there_for_others)
{
	struct account *liar = waits(90), *next;
	double now = NOW;

	shows(liar, 0, now);
	decide(now);
	ck_assert_int_eq(ordered(TURNS_ROOM, liar), 90 * GIB);
	says_it_fills(liar, 0, &now, 29000);
	ck_assert_int_eq(books_free(t, 0), 10 * GIB);
	says_it_fills(liar, 0, &now, 1500);
	next = waits(60);
	says_it_fills(liar, 0, &now, 500);
	ck_assert_int_eq(next->phase, PHASE_ENTERS);
	ck_assert_uint_eq(books_room(next), 60 * GIB);
	ck_assert_int_eq(books_free(t, 0), 40 * GIB);
	/* It had the GPU. */
	ck_assert_double_ge(liar->vtime, 30000);
	ck_assert_double_lt(liar->vtime, 31000);
	/* It waits anew, and longer each time until it has run. */
	ck_assert_double_gt(liar->wait_since, NOW + 30000);
	ck_assert_double_ge(liar->unused.until, NOW + 40000);
	/* It takes its memory after all, and runs. */
	shows(liar, 90, now);
	turns_mapped(t, liar->id, 90 * GIB, now);
	turns_ended(t, liar->id, TURNS_OK, now);
	ck_assert_int_eq(liar->phase, PHASE_RUNS);
	ck_assert_int_eq(books_free(t, 0), -50 * (int64_t)GIB);
	turns_check(t);
}
END_TEST

/* Words that tell of no more keep no hand-over: its room goes to the next one, and that was its turn. */
START_TEST(a_hand_over_is_kept_by_memory)
{
	struct account *liar = waits(90), *next = waits(60);
	double now = NOW;

	decide(now);
	says_it_fills(liar, 0, &now, 5000);
	ck_assert(liar->slot);
	says_it_fills(liar, 0, &now, 200);
	ck_assert_int_eq(liar->phase, PHASE_LEAVING);
	ck_assert_uint_eq(liar->leaves_for, next->id);
	ck_assert_double_ge(liar->vtime, 5000);
	ck_assert_double_gt(liar->wait_since, NOW + 5000);
	turns_ended(t, liar->id, TURNS_OK, now);
	decide(now);
	ck_assert_int_eq(ordered(TURNS_ROOM, next), 60 * GIB);
	turns_need(t, next->id, 0, 60 * GIB, 60 * GIB, now);
	turns_ended(t, next->id, TURNS_OK, now);
	turns_give(t, next->id, now);
	decide(now + 9000);
	ck_assert_int_eq(ordered(TURNS_YIELD, next), -1);
	decide(now + 10100);
	ck_assert_int_eq(ordered(TURNS_YIELD, next), 50 * GIB);
}
END_TEST

/* Words alone: of a little more each time, and where NVML shows nothing of them. */
START_TEST(words_that_take_little_keep_no_hand_over)
{
	struct account *liar = waits(90);
	const uint64_t step[] = {1, GIB, 90 * GIB};
	double now = NOW;

	waits(60);
	if (_i)
		shows(liar, 1, now);
	decide(now);
	for (int i = 1; i <= 52; i++) {
		now += 100;
		turns_mapped(t, liar->id, (uint64_t)i * step[_i], now);
		decide(now);
		ck_assert(liar->slot || i > 50);
	}
	ck_assert_int_eq(liar->phase, PHASE_LEAVING);
}
END_TEST

/* Whatever it says, and whoever ends: it gets its turn 10 s later, and its end comes first once. */
START_TEST(who_left_room_gets_no_turn_by_words)
{
	struct account *other = runs(1), *liar = waits(90);
	double now = NOW;

	waits(60);
	decide(now);
	says_it_fills(liar, 0, &now, 5200);
	ck_assert_int_eq(liar->phase, PHASE_LEAVING);
	turns_ended(t, liar->id, TURNS_OK, now);
	turns_leave(t, other->id, now);
	turns_ends(t, liar->id, now);
	decide(now + 9000);
	ck_assert(!liar->slot && liar->ending);
	decide(now + 13000);
	turns_ends(t, liar->id, now + 13000);
	ck_assert(!liar->ending);
	/* It has run. */
	turns_ended(t, liar->id, TURNS_OK, now + 14000);
	ck_assert_double_le(liar->unused.ms, 0);
	liar->phase = PHASE_OUT;
	turns_ends(t, liar->id, now + 15000);
	ck_assert(liar->ending);
}
END_TEST

/* Has room for all its memory from NOW on, and NVML shows that it has none yet. */
static struct account *has_room(void)
{
	struct account *m = waits(90), *kept = runs(1);

	shows(m, 0, NOW);
	shows(kept, 1, NOW);
	decide(NOW);
	ck_assert_int_eq(ordered(TURNS_ROOM, m), 90 * GIB);
	return m;
}

static void is_not_charged(const struct account *m)
{
	ck_assert_double_le(m->vtime, 0);
	ck_assert_double_le(m->unused.until, 0);
}

/* A process outside has it: before it is asked for its room, and when nobody asks. */
START_TEST(room_that_is_not_there_is_not_left)
{
	struct account *first = has_room();
	double now = NOW;

	if (!_i)
		waits(30);
	says_it_fills(first, 0, &now, 4000);
	turns_capacity(t, 0, 40 * GIB);
	for (double end = now + (_i ? 28000 : 1000); now < end; now += 100)
		decide(now);
	ck_assert_int_eq(first->phase, _i ? PHASE_OUT : PHASE_LEAVING);
	is_not_charged(first);
	ck_assert_double_le(first->wait_since, NOW);
}
END_TEST

/* It may still be at it. One whose context comes back shows nothing meanwhile. */
START_TEST(one_that_is_slow_is_asked_and_not_charged)
{
	struct account *slow = waits(90);
	double now = NOW;

	waits(60);
	if (_i) {
		turns_restored(t, slow->id, true, now);
		turns_need(t, slow->id, 0, 0, 91 * GIB, now);
	}
	decide(now);
	for (uint64_t gib = 1; gib <= 10 && !_i; gib++)
		says_it_fills(slow, gib, &now, 4000);
	says_it_fills(slow, _i ? 0 : 10, &now, 6000);
	ck_assert_int_eq(slow->phase, PHASE_LEAVING);
	is_not_charged(slow);
}
END_TEST

/* Its room is taken back, as it shows no more of it for 30 s. */
START_TEST(one_that_has_taken_some_is_not_charged)
{
	struct account *slow = has_room();
	double now = NOW;
	bool back = false;

	says_it_fills(slow, 10, &now, 1000);
	shows(slow, 10, now);
	for (double end = now + 32000; now < end; now += 100) {
		decide(now);
		back |= slow->phase == PHASE_OUT;
	}
	ck_assert(back);
	is_not_charged(slow);
}
END_TEST

/* Somebody else has come to have it before the next one waits. */
START_TEST(one_that_could_not_take_it_is_not_charged)
{
	struct account *slow = has_room();
	double now = NOW;

	says_it_fills(slow, 0, &now, 6000);
	turns_capacity(t, 0, 40 * GIB);
	waits(20);
	says_it_fills(slow, 0, &now, 6000);
	is_not_charged(slow);
}
END_TEST

START_TEST(room_that_is_taken_slowly_is_kept)
{
	struct account *slow = waits(90);
	double now = NOW;

	waits(60);
	if (_i) /* else NVML says nothing of it yet */
		shows(slow, 0, now);
	slow->said = slow->filled = 90 * GIB; /* in the turn before */
	decide(now);
	for (uint64_t gib = 1; gib <= 90; gib++) {
		says_it_fills(slow, gib, &now, 4000);
		ck_assert(slow->slot);
		ck_assert_int_eq(books_free(t, 0), 10 * GIB);
	}
	/* It has all, and copies. */
	says_it_fills(slow, 90, &now, 60000);
	ck_assert_int_eq(slow->phase, PHASE_ENTERS);
}
END_TEST

/* It says so before NVML shows it. */
START_TEST(room_that_is_shown_late_is_kept)
{
	struct account *slow = waits(90);
	double now = NOW;

	waits(60);
	decide(now);
	turns_mapped(t, slow->id, 90 * GIB, now);
	for (uint64_t gib = 1; gib < 10; gib++, now += 4000) {
		shows(slow, gib, now);
		decide(now + 3900);
		ck_assert(slow->slot);
	}
}
END_TEST

/* One large allocation, or one and a context, is taken at once, and nothing is told of the copy. That counts as its turn after minutes. */
START_TEST(room_that_is_taken_is_kept)
{
	struct account *slow = waits(90);
	double now = NOW;

	waits(60);
	if (_i) { /* which comes back first, and it does not count */
		turns_restored(t, slow->id, true, now);
		turns_need(t, slow->id, 0, 0, 91 * GIB, now);
	}
	decide(now);
	turns_mapped(t, slow->id, 90 * GIB, now);
	shows(slow, 91, now);
	for (; now < NOW + 300000; now += 1000)
		decide(now);
	ck_assert(slow->slot);
	for (; now < NOW + 303000; now += 1000)
		decide(now);
	ck_assert_int_eq(slow->phase, PHASE_LEAVING);
	ck_assert_double_ge(slow->vtime, 300000);
}
END_TEST

START_TEST(room_is_kept_longer_while_others_give)
{
	struct account *first = runs(90), *next = waits(60);
	uint64_t freed = 0;
	double now = NOW;

	first->vtime = 1e5;
	first->phase_since = 0;
	shows(next, 0, now);
	decide(now);
	ck_assert_int_eq(ordered(TURNS_YIELD, first), 50 * GIB);
	ck_assert_uint_eq(books_room(next), 10 * GIB);
	for (; now < NOW + 290000; now += 1000) {
		turns_frees(t, first->id, freed += BOOKS_STEP, now);
		decide(now);
		ck_assert_int_eq(next->phase, PHASE_ENTERS);
	}
	for (; now < NOW + 302000; now += 1000) {
		turns_frees(t, first->id, freed += BOOKS_STEP, now);
		decide(now);
	}
	ck_assert_int_eq(next->phase, PHASE_OUT);
}
END_TEST

/* Others may have their turns after a while. Nothing, a byte each time, or more than there was. */
START_TEST(words_that_free_nothing_keep_no_gpu)
{
	const uint64_t step[] = {0, 1, 10 * GIB};
	struct account *first = runs(60), *next = waits(60);
	double now = NOW;

	first->vtime = 1e5;
	first->phase_since = 0;
	decide(now);
	ck_assert_int_eq(ordered(TURNS_YIELD, first), 20 * GIB);
	for (uint64_t i = 0; now < NOW + 8000; now += 100) {
		turns_freed(t, first->id, step[_i] * i++, now);
		turns_mapped(t, first->id, 60 * GIB + (uint64_t)(now - NOW) * GIB, now);
		decide(now);
	}
	ck_assert(!next->slot);
	ck_assert_int_eq(first->phase, PHASE_LEAVING);
}
END_TEST

/* At 20 MB/s; then it is frozen for half a minute, or copies one huge region, of which it says nothing. */
START_TEST(one_that_gives_slowly_loses_nothing)
{
	struct account *first = runs(60), *next = waits(60);
	double now = NOW, vtime;

	first->vtime = 1e5;
	first->phase_since = 0;
	decide(now);
	turns_freed(t, first->id, 1, now);
	vtime = first->vtime;
	for (uint64_t i = 1; i <= 10; i++) {
		for (double until = now + 6900; now < until; now += 100)
			decide(now);
		ck_assert(next->slot);
		turns_freed(t, first->id, i * BOOKS_STEP, now);
	}
	for (double until = now + 30000; now < until; now += 100)
		decide(now);
	ck_assert(!next->slot);
	turns_freed(t, first->id, 20 * GIB, now);
	turns_mapped(t, first->id, 40 * GIB, now);
	turns_ended(t, first->id, TURNS_OK, now);
	ck_assert_double_eq(first->vtime, vtime);
	ck_assert(first->giving.until <= now && first->taking.until <= now);
	decide(now);
	ck_assert(next->slot);
	ck_assert_int_eq(ordered(TURNS_ROOM, next), 60 * GIB);
}
END_TEST

/* What a member with several GPUs says after it was given room gives it no more. */
START_TEST(room_on_several_gpus_is_what_was_given)
{
	struct account *liar = waits(1), *other;

	turns_need(t, liar->id, 1, 0, GIB, NOW);
	shows(liar, 0, NOW);
	decide(NOW);
	ck_assert_int_eq(ordered(TURNS_ROOM, liar), 2 * GIB);
	turns_need(t, liar->id, 0, 0, 100 * GIB, NOW);
	turns_need(t, liar->id, 1, 0, 100 * GIB, NOW);
	ck_assert_int_eq(books_free(t, 0), 99 * GIB);
	ck_assert_int_eq(books_free(t, 1), 99 * GIB);
	/* Nor has it any after its fill has failed. */
	turns_need(t, liar->id, 0, GIB, 100 * GIB, NOW);
	turns_ended(t, liar->id, TURNS_FAILED, NOW);
	ck_assert_int_eq(books_free(t, 1), 100 * GIB);
	other = runs(10);
	shows(other, 10, NOW);
	decide(NOW + 20);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns_shown");
	TCase *cases = tcase_create("turns_shown");

	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_test(cases, what_is_not_shown_counts_as_nothing);
	tcase_add_test(cases, nobody_is_asked_for_what_is_not_shown);
	tcase_add_test(cases, what_is_shown_is_no_claim);
	tcase_add_test(cases, memory_that_has_just_come_back_counts);
	tcase_add_test(cases, an_answer_that_comes_late);
	tcase_add_test(cases, one_that_gives_before_all_is_shown);
	tcase_add_test(cases, an_allocation_is_promised_its_memory_until_it_is_shown);
	tcase_add_test(cases, what_a_try_did_not_find_is_no_memory_of_its_member);
	tcase_add_test(cases, room_that_is_not_taken_is_there_for_others);
	tcase_add_test(cases, a_hand_over_is_kept_by_memory);
	tcase_add_loop_test(cases, words_that_take_little_keep_no_hand_over, 0, 3);
	tcase_add_test(cases, who_left_room_gets_no_turn_by_words);
	tcase_add_loop_test(cases, room_that_is_not_there_is_not_left, 0, 2);
	tcase_add_loop_test(cases, one_that_is_slow_is_asked_and_not_charged, 0, 2);
	tcase_add_test(cases, one_that_has_taken_some_is_not_charged);
	tcase_add_test(cases, one_that_could_not_take_it_is_not_charged);
	tcase_add_loop_test(cases, room_that_is_taken_slowly_is_kept, 0, 2);
	tcase_add_test(cases, room_that_is_shown_late_is_kept);
	tcase_add_loop_test(cases, room_that_is_taken_is_kept, 0, 2);
	tcase_add_test(cases, room_is_kept_longer_while_others_give);
	tcase_add_loop_test(cases, words_that_free_nothing_keep_no_gpu, 0, 3);
	tcase_add_test(cases, one_that_gives_slowly_loses_nothing);
	tcase_add_test(cases, room_on_several_gpus_is_what_was_given);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
