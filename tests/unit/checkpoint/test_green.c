/* SPDX-License-Identifier: Apache-2.0 */
/* Which context owns the memory that is allocated in a green one. */
#include "checkpoint/ledger/green.h"
#include "tests/check_suite.h"
#include "vmem/context_gone.h"

#include <stdint.h>

#define MANY 20

static const CUcontext primary = (CUcontext)1000, other = (CUcontext)2000;

static CUgreenCtx handle(uintptr_t n)
{
	return (CUgreenCtx)n;
}

static CUcontext context(uintptr_t n)
{
	return (CUcontext)(n + 100);
}

static void setup(void)
{
	for (uintptr_t n = 1; n <= MANY; n++) {
		ck_assert(green_reserve());
		green_add(handle(n), n % 2 ? primary : other, n % 2 ? 0 : 1);
		green_set_context(handle(n), context(n));
	}
}

START_TEST(memory_is_the_primary_contexts)
{
	struct green g;

	for (uintptr_t n = 1; n <= MANY; n++)
		ck_assert_ptr_eq(green_owner(context(n)), n % 2 ? primary : other);
	ck_assert_ptr_eq(green_owner(primary), primary);
	ck_assert_ptr_eq(green_owner(context(0)), context(0));
	ck_assert_ptr_null(green_owner(NULL));
	ck_assert(green_get(handle(2), &g));
	ck_assert_ptr_eq(g.ctx, context(2));
	ck_assert_ptr_eq(g.primary, other);
	ck_assert_int_eq(g.dev, 1);
	ck_assert(!green_get(handle(MANY + 1), &g));
}
END_TEST

START_TEST(it_ends)
{
	struct green g;

	green_remove(handle(3));
	green_remove(handle(3));
	ck_assert(!green_get(handle(3), &g));
	ck_assert_ptr_eq(green_owner(context(3)), context(3));
	ck_assert_ptr_eq(green_owner(context(MANY)), other);
	/* Without cuCtxFromGreenCtx() there is no context to ask for. */
	ck_assert(green_reserve());
	green_add(handle(3), primary, 0);
	ck_assert_ptr_eq(green_owner(context(3)), context(3));
}
END_TEST

START_TEST(it_ends_with_the_primary_context)
{
	struct green g;

	context_gone(primary);
	for (uintptr_t n = 1; n <= MANY; n++)
		ck_assert_int_eq(green_get(handle(n), &g), n % 2 == 0);
	ck_assert_ptr_eq(green_owner(context(1)), context(1));
	ck_assert_ptr_eq(green_owner(context(2)), other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("green contexts");
	TCase *tc = tcase_create("green contexts");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, memory_is_the_primary_contexts);
	tcase_add_test(tc, it_ends);
	tcase_add_test(tc, it_ends_with_the_primary_context);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
