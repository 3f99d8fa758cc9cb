/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a context that waits for threads which use its streams and memory. This one is all of them. */
#include "tests/unit/wrapper/pooling.h"

#include "vmem/context_gone.h"

static struct stream *in_use[2];
static unsigned int waits_for;

/* Instead of libc's: what is waited for has ended, and another use begins, after the end has found none there. */
int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	static struct pool_giver giver;

	(void)cond;
	(void)lock;
	switch (waits_for++) {
	case 0:
		in_use[0]->users--;
		in_use[1]->users++;
		break;
	case 1:
		in_use[1]->users--;
		pool_giver_begins(&giver, CONTEXT);
		break;
	case 2:
		pool_giver_ends(&giver);
		in_use[0]->users++;
		break;
	default:
		in_use[0]->users--;
	}
	return 0;
}

START_TEST(uses_begin_while_others_are_waited_for)
{
	for (int i = 0; i < 2; i++)
		in_use[i] = stream_of(STREAM(i));
	in_use[0]->users++;
	context_gone(CONTEXT);
	ck_assert_uint_eq(waits_for, 4);
	ck_assert_uint_eq(in_use[0]->users + in_use[1]->users, 0);
	ck_assert_ptr_null(in_use[0]->ctx);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ends of contexts with stream-ordered allocations");
	TCase *tc = tcase_create("ends");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, uses_begin_while_others_are_waited_for);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
