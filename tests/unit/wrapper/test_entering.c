/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits until other threads are inside the driver: over threads whose state and time the test sets. */
#include "common/processes/proc.h"
#include "wrapper/hooks/ordered/entering.h"

#include "tests/check_suite.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000UL

static char state;          /* of each thread */
static uint64_t used_ns;    /* its processor time; 0: not known */
static unsigned int looks;  /* so many there were */
static unsigned int change; /* at this look what follows happens */
static char next_state;
static uint64_t next_used;

/* Each look asks for it once. */
char __wrap_host_process(pid_t tid, pid_t *parent);
char __wrap_host_process(pid_t tid, pid_t *parent)
{
	ck_assert_int_eq(tid, gettid());
	*parent = 1;
	if (__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED) == change) {
		state = next_state;
		used_ns = next_used;
	}
	return state;
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	clockid_t own;

	ck_assert_int_eq(pthread_getcpuclockid(pthread_self(), &own), 0);
	if (clock >= 0)
		return __real_clock_gettime(clock, now);
	/* By the number of the thread, or as the caller's: the kernel takes both for the same clock. */
	ck_assert(clock == own || clock == (clockid_t)(~(unsigned int)gettid() << 3 | 6));
	if (!used_ns)
		return -1;
	now->tv_sec = (time_t)(used_ns / (1000 * MS));
	now->tv_nsec = (long)(used_ns % (1000 * MS));
	return 0;
}

/* entering_wait() goes on looking until the thread is so, and then returns. */
static void expect(char state_then, uint64_t used_then)
{
	looks = 0;
	change = 100;
	next_state = state_then;
	next_used = used_then;
	entering_wait();
	ck_assert_uint_ge(looks, change);
	ck_assert_uint_le(looks, change + 1); /* the time is asked for before the state */
}

static struct entering self;

static void set_up(void)
{
	state = 'R';
	used_ns = 5000 * MS;
	looks = change = 0;
	entering_begin(&self);
}

START_TEST(nobody_waits_for_nobody)
{
	entering_end(&self);
	entering_wait();
	ck_assert_uint_eq(looks, 0);
}
END_TEST

START_TEST(a_thread_without_a_processor_is_waited_for)
{
	expect('R', used_ns + 1 * MS);
}
END_TEST

START_TEST(its_time_counts_from_the_first_look)
{
	used_ns += 60 * MS;
	expect('R', used_ns + 1 * MS);
}
END_TEST

START_TEST(a_thread_that_waits_for_its_page_is_waited_for)
{
	state = 'D';
	expect('S', used_ns);
}
END_TEST

START_TEST(a_thread_that_sleeps_is_inside)
{
	state = 'S';
	entering_wait();
	ck_assert_uint_eq(looks, 1);
}
END_TEST

static void *come_out(void *unused)
{
	(void)unused;
	while (__atomic_load_n(&looks, __ATOMIC_RELAXED) < 3)
		usleep(50);
	entering_end(&self);
	return NULL;
}

START_TEST(a_thread_that_comes_out_is_not_waited_for)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, come_out, NULL), 0);
	entering_wait();
	ck_assert_uint_ge(looks, 3);
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_thread_of_which_nothing_is_known_is_not_waited_for)
{
	state = 0;
	entering_wait();
	state = 'R';
	used_ns = 0;
	entering_wait();
	ck_assert_uint_eq(looks, 2);
}
END_TEST

START_TEST(the_second_thread_is_waited_for_too)
{
	struct entering second;

	entering_begin(&second);
	entering_end(&self);
	expect('R', used_ns + 1 * MS);
	entering_end(&second);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("threads that enter the driver");
	TCase *tc = tcase_create("a wait");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, nobody_waits_for_nobody);
	tcase_add_test(tc, a_thread_without_a_processor_is_waited_for);
	tcase_add_test(tc, its_time_counts_from_the_first_look);
	tcase_add_test(tc, a_thread_that_waits_for_its_page_is_waited_for);
	tcase_add_test(tc, a_thread_that_sleeps_is_inside);
	tcase_add_test(tc, a_thread_that_comes_out_is_not_waited_for);
	tcase_add_test(tc, a_thread_of_which_nothing_is_known_is_not_waited_for);
	tcase_add_test(tc, the_second_thread_is_waited_for_too);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
