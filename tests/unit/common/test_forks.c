/* SPDX-License-Identifier: Apache-2.0 */
/* Whose memory it is, and what the child of a fork has of its parent's locks. */
#include "common/system/forks.h"

#include "tests/check_suite.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

FORKS_LOCK(held);
static struct {
	int other;
	pthread_mutex_t lock;
} inside = {.lock = PTHREAD_MUTEX_INITIALIZER};
FORKS_LOCK_IN(inside, lock);

static int calls; /* one for the process of the test itself */

static void count_child(void)
{
	calls++;
}
FORKS_CHILD(count_child);

static void check_ends_well(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static int is_new(void)
{
	return pthread_mutex_trylock(&held) == 0 && pthread_mutex_trylock(&inside.lock) == 0 &&
	       calls == 2;
}

START_TEST(a_child_of_fork_has_new_locks)
{
	pid_t pid;

	pthread_mutex_lock(&held);
	pthread_mutex_lock(&inside.lock);
	pid = fork();
	if (!pid)
		_exit(!is_new() || !forks_is_ours());
	check_ends_well(pid);
	ck_assert(forks_is_ours());
	ck_assert_int_ne(pthread_mutex_trylock(&held), 0);
	ck_assert_int_eq(calls, 1);
}
END_TEST

START_TEST(a_copy_made_without_fork_is_adopted)
{
	pid_t pid;

	pthread_mutex_lock(&held);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!pid)
		_exit(forks_is_ours() || !forks_adopt() || !forks_is_ours() || !is_new());
	check_ends_well(pid);
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* which does not follow a child that shares the memory */
static int shares(void *unused)
{
	(void)unused;
	return forks_is_ours() || forks_adopt();
}

START_TEST(who_shares_the_memory_does_not_own_it)
{
	size_t size = 256 << 10;
	char *stack = malloc(size);

	check_ends_well(clone(shares, stack + size, CLONE_VM | SIGCHLD, NULL));
	ck_assert_int_eq(calls, 1);
	ck_assert(forks_adopt());
	free(stack);
}
END_TEST
#endif

START_TEST(forks_are_noticed)
{
	unsigned long mark = forks_mark();
	pid_t pid;

	ck_assert(!forks_came_since(mark));
	pid = fork();
	if (!pid)
		_exit(forks_came_since(forks_mark()));
	check_ends_well(pid);
	ck_assert(forks_came_since(mark));
	ck_assert(!forks_came_since(forks_mark()));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("forks");
	TCase *tcase = tcase_create("forks");

	tcase_add_test(tcase, a_child_of_fork_has_new_locks);
	tcase_add_test(tcase, a_copy_made_without_fork_is_adopted);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tcase, who_shares_the_memory_does_not_own_it);
#endif
	tcase_add_test(tcase, forks_are_noticed);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
