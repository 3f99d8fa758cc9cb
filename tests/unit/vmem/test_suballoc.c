/* SPDX-License-Identifier: Apache-2.0 */
/* The suballocator against a model that marks every unit, and its corner cases by hand. */
#include "vmem/suballoc.h"

#include "tests/check_suite.h"

#include <check.h>

#define BASE     0x600000000000UL
#define NSLABS   3
#define MAX_LIVE 4096

/* Slabs far apart, so that a block that leaves its slab is seen. */
static const size_t slab_sizes[NSLABS] = {2UL << 20, 4UL << 20, 2UL << 20};

static uint64_t slab_start(int i)
{
	return BASE + (uint64_t)i * (64UL << 20);
}

struct live {
	struct slab *slab;
	uint64_t addr;
	size_t size;
	uint64_t id;
};

static struct suballoc sa;
static struct slab *slabs[NSLABS];
static struct live live[MAX_LIVE];
static int nlive;
static bool taken[NSLABS][SLAB_UNITS];
static uint64_t seed = 0x9e3779b97f4a7c15;

/* Check notes every assertion that holds in a file: too slow for the million operations. */
#define MUST_EQ(a, b)                                                              \
	do {                                                                       \
		unsigned long long a_ = (a), b_ = (b);                             \
		if (a_ != b_)                                                      \
			ck_abort_msg("%s is %llu, not %s (%llu)", #a, a_, #b, b_); \
	} while (0)

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static size_t units_of(size_t size)
{
	return (size + SUBALLOC_UNIT - 1) / SUBALLOC_UNIT;
}

static int slab_index(const struct slab *slab)
{
	for (int i = 0; i < NSLABS; i++)
		if (slabs[i] == slab)
			return i;
	ck_abort_msg("an allocation in no slab of ours");
	return -1;
}

static void mark(const struct live *l, bool value)
{
	int s = slab_index(l->slab);
	size_t first = (l->addr - slab_start(s)) / SUBALLOC_UNIT;

	MUST_EQ(l->addr % SUBALLOC_UNIT, 0);
	MUST_EQ(l->addr >= slab_start(s), true);
	MUST_EQ(l->addr + l->size <= slab_start(s) + slab_sizes[s], true);
	for (size_t i = first; i < first + units_of(l->size); i++) {
		MUST_EQ(taken[s][i], !value);
		taken[s][i] = value;
	}
}

/* The longest run of free units that the model knows. */
static size_t longest_free(void)
{
	size_t best = 0;

	for (int s = 0; s < NSLABS; s++) {
		size_t run = 0;

		for (size_t i = 0; i < slab_sizes[s] / SUBALLOC_UNIT; i++) {
			run = taken[s][i] ? 0 : run + 1;
			if (run > best)
				best = run;
		}
	}
	return best;
}

static void check_lookup(const struct live *l)
{
	uint64_t offset = l->addr - slab_start(slab_index(l->slab));
	uint64_t at[] = {0, l->size - 1, rnd() % l->size};
	struct suballoc_info info;

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		MUST_EQ(slab_lookup(l->slab, offset + at[i], &info), true);
		MUST_EQ(info.offset, offset);
		MUST_EQ(info.size, l->size);
		MUST_EQ(info.id, l->id);
	}
	/* Behind the size asked for there is nothing, up to the next unit. */
	if (l->size % SUBALLOC_UNIT)
		MUST_EQ(slab_lookup(l->slab, offset + l->size, &info), false);
}

static size_t random_size(void)
{
	switch (rnd() % 8) {
	case 0:
		return 1 + rnd() % (256UL << 10);
	case 1:
	case 2:
		return 1 + rnd() % (32UL << 10);
	default:
		return 1 + rnd() % (4UL << 10);
	}
}

static void one_alloc(uint64_t id)
{
	struct live *l = &live[nlive];
	size_t size = random_size();
	size_t units = units_of(size);

	l->slab = suballoc_alloc(&sa, size, id, &l->addr);
	if (!l->slab) {
		size_t longest = longest_free();

		/* It may miss a block that is less than a sixteenth larger, no other. */
		ck_assert_uint_lt(longest, units + units / 16);
		l->slab = suballoc_alloc_any(&sa, size, id, &l->addr);
		MUST_EQ(l->slab != NULL, longest >= units);
	}
	if (!l->slab)
		return;
	l->size = size;
	l->id = id;
	mark(l, true);
	nlive++;
}

static void one_free(int i)
{
	struct live l = live[i];
	struct suballoc_info info;
	uint64_t offset = l.addr - slab_start(slab_index(l.slab));

	check_lookup(&l);
	MUST_EQ(suballoc_free(&sa, l.slab, l.addr), l.size);
	MUST_EQ(slab_lookup(l.slab, offset, &info), false);
	MUST_EQ(suballoc_free(&sa, l.slab, l.addr), 0);
	mark(&l, false);
	live[i] = live[--nlive];
}

static void add_slabs(void)
{
	for (int i = 0; i < NSLABS; i++) {
		slabs[i] = suballoc_add(&sa, slab_start(i), slab_sizes[i]);
		ck_assert_ptr_nonnull(slabs[i]);
	}
}

START_TEST(random_operations_match_the_model)
{
	int target = MAX_LIVE;

	add_slabs();
	for (uint64_t op = 1; op <= 1000000; op++) {
		/* Swing between nearly empty and too full for large sizes. */
		if (op % 20000 == 0)
			target = (int)(rnd() % MAX_LIVE);
		if (nlive < target && (!nlive || rnd() % 8))
			one_alloc(op);
		else if (nlive)
			one_free((int)(rnd() % (uint64_t)nlive));
	}
	ck_assert_int_gt(nlive, 0);
	while (nlive)
		one_free(nlive - 1);
	/* All free blocks have merged: each slab can be had as a whole, the largest first. */
	for (int i = 0; i < NSLABS; i++)
		ck_assert_uint_eq(slab_live(slabs[i], NULL), 0);
	for (int i = 0; i < NSLABS; i++) {
		uint64_t addr;

		ck_assert_ptr_nonnull(suballoc_alloc(&sa, i ? 2UL << 20 : 4UL << 20, 1, &addr));
	}
}
END_TEST

START_TEST(freeing_in_any_order_merges)
{
	static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
					{1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	struct slab *slab = suballoc_add(&sa, BASE, 2UL << 20);
	uint64_t addr[3], whole;

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		for (int j = 0; j < 3; j++)
			ck_assert_ptr_eq(suballoc_alloc(&sa, 4096, 1, &addr[j]), slab);
		ck_assert_ptr_null(suballoc_alloc(&sa, 2UL << 20, 1, &whole));
		for (int j = 0; j < 3; j++)
			ck_assert_uint_eq(suballoc_free(&sa, slab, addr[orders[i][j]]), 4096);
		ck_assert_ptr_eq(suballoc_alloc(&sa, 2UL << 20, 1, &whole), slab);
		ck_assert_uint_eq(whole, BASE);
		ck_assert_uint_eq(suballoc_free(&sa, slab, whole), 2UL << 20);
	}
}
END_TEST

START_TEST(a_fresh_slab_has_room_for_every_size)
{
	for (size_t size = 1; size < 2UL << 20; size += 509) {
		struct slab *slab = suballoc_add(&sa, BASE, 2UL << 20);
		uint64_t addr;

		ck_assert_ptr_eq(suballoc_alloc(&sa, size, 1, &addr), slab);
		suballoc_remove(&sa, slab);
	}
}
END_TEST

/* Allocate in @slab until it is full; returns how many there are, and the addresses of the first. */
static size_t fill(struct slab *slab, size_t size, uint64_t *addrs, size_t max)
{
	size_t n = 0;
	uint64_t addr;

	while (suballoc_alloc(&sa, size, 1, &addr) == slab)
		if (n++ < max)
			addrs[n - 1] = addr;
	return n;
}

START_TEST(a_full_slab_has_room_for_what_was_freed)
{
	for (size_t size = SUBALLOC_UNIT; size < SLAB_MIN; size += SUBALLOC_UNIT) {
		struct slab *slab = suballoc_add(&sa, BASE, SLAB_MIN);
		uint64_t addrs[2] = {0}, again;

		MUST_EQ(fill(slab, size, addrs, 2), SLAB_MIN / size);
		/* The neighbours of the second live, unless it is the last. */
		for (int i = 0; i < 2 && addrs[i]; i++) {
			MUST_EQ(suballoc_free(&sa, slab, addrs[i]), size);
			MUST_EQ(suballoc_alloc(&sa, size, 1, &again) == slab, true);
			MUST_EQ(again, addrs[i]);
		}
		suballoc_remove(&sa, slab);
	}
}
END_TEST

/* Behind many holes of the same bin that are smaller. */
START_TEST(a_hole_behind_smaller_ones_is_found)
{
	const size_t small = 64 * SUBALLOC_UNIT, size = small + SUBALLOC_UNIT;
	struct slab *slab = suballoc_add(&sa, BASE, SLAB_MIN);
	uint64_t hole, holes[40], addr;

	suballoc_alloc(&sa, size, 1, &hole);
	for (int i = 0; i < 40; i++)
		suballoc_alloc(&sa, small, 1, &holes[i]);
	fill(slab, SUBALLOC_UNIT, NULL, 0);
	suballoc_free(&sa, slab, hole);
	for (int i = 1; i < 40; i += 2)
		suballoc_free(&sa, slab, holes[i]);
	ck_assert_ptr_null(suballoc_alloc(&sa, size, 1, &addr));
	ck_assert_ptr_eq(suballoc_alloc_any(&sa, size, 1, &addr), slab);
	ck_assert_uint_eq(addr, hole);
	ck_assert_ptr_null(suballoc_alloc_any(&sa, size, 1, &addr));
	ck_assert_ptr_eq(suballoc_alloc(&sa, small, 1, &addr), slab);
}
END_TEST

/* Objects of one size, whose neighbours live when they are replaced, take no more slabs in time. */
START_TEST(objects_that_are_replaced_at_random_need_no_more_slabs)
{
	const size_t size = 100000, per_slab = SLAB_MIN / (units_of(size) * SUBALLOC_UNIT);

	nlive = 200 * (int)per_slab;
	for (int i = 0; i < nlive; i++) {
		if (i % (int)per_slab == 0)
			suballoc_add(&sa, BASE + (uint64_t)i * SLAB_MIN, SLAB_MIN);
		live[i].slab = suballoc_alloc(&sa, size, 1, &live[i].addr);
		ck_assert_ptr_nonnull(live[i].slab);
	}
	for (int op = 0; op < 100000; op++) {
		struct live *l[] = {&live[rnd() % (uint64_t)nlive], &live[op % nlive]};
		int n = l[0] == l[1] ? 1 : 2;

		for (int i = 0; i < n; i++)
			MUST_EQ(suballoc_free(&sa, l[i]->slab, l[i]->addr), size);
		for (int i = 0; i < n; i++) {
			l[i]->slab = suballoc_alloc(&sa, size, 1, &l[i]->addr);
			MUST_EQ(l[i]->slab != NULL, true);
		}
	}
}
END_TEST

START_TEST(full_to_the_last_unit)
{
	struct slab *slab = suballoc_add(&sa, BASE, SLAB_MAX);
	struct suballoc_info info;
	uint64_t addr;
	size_t bytes;

	for (size_t i = 0; i < SLAB_UNITS; i++) {
		MUST_EQ(suballoc_alloc(&sa, 1, i, &addr) == slab, true);
		MUST_EQ(addr, BASE + i * SUBALLOC_UNIT);
	}
	ck_assert_ptr_null(suballoc_alloc(&sa, 1, 0, &addr));
	ck_assert_uint_eq(slab_live(slab, &bytes), SLAB_UNITS);
	ck_assert_uint_eq(bytes, SLAB_UNITS);
	ck_assert(slab_lookup(slab, SLAB_MAX - SUBALLOC_UNIT, &info));
	ck_assert_uint_eq(info.id, SLAB_UNITS - 1);
	ck_assert(!slab_lookup(slab, SLAB_MAX, &info));
	ck_assert(!slab_lookup(slab, UINT64_MAX, &info));
}
END_TEST

START_TEST(free_takes_only_starts)
{
	struct slab *slab = suballoc_add(&sa, BASE, 2UL << 20);
	uint64_t addr;

	suballoc_alloc(&sa, 4096, 1, &addr);
	ck_assert_uint_eq(suballoc_free(&sa, slab, addr + 1), 0);
	ck_assert_uint_eq(suballoc_free(&sa, slab, addr + SUBALLOC_UNIT), 0);
	ck_assert_uint_eq(suballoc_free(&sa, slab, addr + 4096), 0);
	ck_assert_uint_eq(suballoc_free(&sa, slab, BASE - SUBALLOC_UNIT), 0);
	ck_assert_uint_eq(suballoc_free(&sa, slab, BASE + (2UL << 20)), 0);
	ck_assert_uint_eq(suballoc_free(&sa, slab, addr), 4096);
}
END_TEST

START_TEST(a_removed_slab_leaves_nothing_behind)
{
	struct suballoc_info info;
	struct slab *slab = suballoc_add(&sa, BASE, 2UL << 20);
	uint64_t addr[3];

	for (int i = 0; i < 3; i++)
		suballoc_alloc(&sa, 4096, 1, &addr[i]);
	suballoc_free(&sa, slab, addr[1]);
	suballoc_remove(&sa, slab);
	ck_assert_ptr_null(suballoc_alloc(&sa, 1, 1, &addr[0]));
	ck_assert(!slab_lookup(slab, 0, &info));

	/* The next slab uses the same records, and sees none of the old ones. */
	ck_assert_ptr_eq(suballoc_add(&sa, BASE + SLAB_MAX, 2UL << 20), slab);
	ck_assert_uint_eq(slab_live(slab, NULL), 0);
	ck_assert_ptr_eq(suballoc_alloc(&sa, 2UL << 20, 2, &addr[0]), slab);
	ck_assert_uint_eq(addr[0], BASE + SLAB_MAX);
	/* One of another size does not. */
	suballoc_remove(&sa, slab);
	ck_assert_ptr_ne(suballoc_add(&sa, BASE, SLAB_MAX), slab);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("suballoc");
	TCase *tc = tcase_create("suballoc");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, random_operations_match_the_model);
	tcase_add_test(tc, freeing_in_any_order_merges);
	tcase_add_test(tc, a_fresh_slab_has_room_for_every_size);
	tcase_add_test(tc, a_full_slab_has_room_for_what_was_freed);
	tcase_add_test(tc, a_hole_behind_smaller_ones_is_found);
	tcase_add_test(tc, objects_that_are_replaced_at_random_need_no_more_slabs);
	tcase_add_test(tc, full_to_the_last_unit);
	tcase_add_test(tc, free_takes_only_starts);
	tcase_add_test(tc, a_removed_slab_leaves_nothing_behind);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
