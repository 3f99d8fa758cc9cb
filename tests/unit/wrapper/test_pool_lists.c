/* SPDX-License-Identifier: Apache-2.0 */
/* The free memory of pools, by size. */
#include "tests/check_suite.h"
#include "vmem/vmem.h"
#include "wrapper/hooks/ordered/pool_lists.h"

#define KB (1UL << 10)
#define MB (1UL << 20)

static struct pool_list list;

static struct pool_block *put(struct pool_block *b, size_t room)
{
	b->room = room;
	pool_list_put(&list, b);
	return b;
}

START_TEST(the_last_one_of_a_size_comes_first)
{
	struct pool_block a = {0}, b = {0}, c = {0};

	ck_assert_ptr_null(pool_list_find(&list, 1));
	put(&a, 64 * KB);
	put(&b, 64 * KB);
	put(&c, 64 * KB);
	ck_assert_ptr_eq(list.first, &a);
	ck_assert_ptr_eq(pool_list_find(&list, 64 * KB), &c);
	pool_list_remove(&c);
	ck_assert_ptr_null(c.list);
	ck_assert_ptr_eq(pool_list_find(&list, 64 * KB - 1), &b);
	pool_list_remove(&a);
	ck_assert_ptr_eq(list.first, &b);
	pool_list_remove(&b);
	ck_assert_ptr_null(list.first);
	ck_assert_ptr_null(pool_list_find(&list, 64 * KB));
}
END_TEST

START_TEST(the_list_is_in_the_order_of_frees)
{
	struct pool_block a = {.serial = 1}, b = {.serial = 3}, c = {.serial = 3},
			  d = {.serial = 7};

	put(&b, MB);
	put(&d, MB);
	put(&a, MB);
	put(&c, MB);
	ck_assert_ptr_eq(list.first, &a);
	ck_assert_ptr_eq(a.next, &b);
	ck_assert_ptr_eq(b.next, &c);
	ck_assert_ptr_eq(c.next, &d);
	ck_assert_ptr_null(d.next);
	ck_assert_ptr_eq(a.prev, &d);
	while (list.first)
		pool_list_remove(list.first);
	ck_assert_ptr_null(pool_list_find(&list, MB));
}
END_TEST

/* Whatever the sizes, a block is large enough, and at most an eighth larger. */
START_TEST(a_block_fits)
{
	static const size_t rooms[] = {512,         1024,        8 * KB,           9 * KB,
				       100 * KB,    2 * MB,      66 * MB,          1UL << 30,
				       300UL << 30, 512UL << 30, (1UL << 30) + 512};

	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
		struct pool_block b = {0};
		size_t room = rooms[i];

		put(&b, room);
		ck_assert_ptr_eq(pool_list_find(&list, room), &b);
		ck_assert_ptr_null(pool_list_find(&list, room + 1));
		ck_assert_ptr_null(pool_list_find_any(&list, room + 1));
		if (room < 8 * KB)
			ck_assert_ptr_null(pool_list_find(&list, room - 512));
		else if (room <= 256UL << 30)
			ck_assert_ptr_null(pool_list_find(&list, room / 8 * 7 - 512));
		ck_assert_ptr_null(pool_list_find(&list, SIZE_MAX));
		pool_list_remove(&b);
	}
}
END_TEST

/* vmem gives an allocation more room than it asked for: another one of its size finds the block. */
START_TEST(an_allocation_finds_the_block_of_its_size)
{
	static const size_t sizes[] = {
		1,          511,         512,     513,        8000,
		9 * KB + 1, 2 * MB - 1,  2 * MB,  2 * MB + 1, 3 * MB + 5,
		5 * MB,     30 * MB + 1, 33 * MB, 35 * MB,    (1UL << 30) + 1,
		300UL << 30};

	if (_i)
		vmem_watch();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct pool_block b = {0};

		put(&b, vmem_room_for(sizes[i]));
		ck_assert_uint_ge(b.room, sizes[i]);
		ck_assert_ptr_eq(pool_list_find(&list, sizes[i]), &b);
		ck_assert_ptr_eq(pool_list_find(&list, b.room), &b);
		ck_assert_ptr_eq(pool_list_find_any(&list, sizes[i]), &b);
		pool_list_remove(&b);
	}
}
END_TEST

/* Blocks of the size's own bin that are too small hide those of the next one for a while only. */
START_TEST(the_next_bin_serves)
{
	struct pool_block small[20] = {0}, large = {0};

	put(&large, 68 * MB);
	for (size_t i = 0; i < 20; i++)
		put(&small[i], 64 * MB);
	ck_assert_ptr_eq(pool_list_find(&list, 66 * MB), &large);
	for (size_t i = 0; i < 20; i++)
		pool_list_remove(&small[i]);
	pool_list_remove(&large);
}
END_TEST

/* On a full GPU the smallest bin with a block that is large enough serves, also the one of the size. */
START_TEST(any_larger_block_serves)
{
	struct pool_block small[20] = {0}, right = {0}, larger = {0}, largest = {0};

	put(&right, 66 * MB);
	for (size_t i = 0; i < 20; i++)
		put(&small[i], 64 * MB);
	put(&largest, 600UL << 30);
	put(&larger, 4096 * MB);
	ck_assert_ptr_eq(pool_list_find_any(&list, 1), &small[19]);
	ck_assert_ptr_null(pool_list_find(&list, 66 * MB));
	ck_assert_ptr_eq(pool_list_find_any(&list, 66 * MB), &right);
	ck_assert_ptr_eq(pool_list_find_any(&list, 68 * MB), &larger);
	ck_assert_ptr_eq(pool_list_find_any(&list, 600UL << 30), &largest);
	ck_assert_ptr_null(pool_list_find_any(&list, (600UL << 30) + 1));
	ck_assert_ptr_null(pool_list_find_any(&list, SIZE_MAX));
	for (size_t i = 0; i < 20; i++)
		pool_list_remove(&small[i]);
	pool_list_remove(&right);
	pool_list_remove(&larger);
	pool_list_remove(&largest);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("free memory of pools");
	TCase *tc = tcase_create("lists");

	tcase_add_test(tc, the_last_one_of_a_size_comes_first);
	tcase_add_test(tc, the_list_is_in_the_order_of_frees);
	tcase_add_test(tc, a_block_fits);
	tcase_add_loop_test(tc, an_allocation_finds_the_block_of_its_size, 0, 2); /* 1: with gaps */
	tcase_add_test(tc, the_next_bin_serves);
	tcase_add_test(tc, any_larger_block_serves);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
