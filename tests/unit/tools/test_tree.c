/* SPDX-License-Identifier: Apache-2.0 */
/* Whether processes that were stopped have run meanwhile. */
#include "tools/process/criu/tree.h"

#include "tests/check_suite.h"
#include "common/processes/proc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tree tree, vforks;
static pid_t signalled[8]; /* in that order */
static size_t nsignalled;

int __real_process_signal(const struct process *process, uid_t owner, int signal);
int __wrap_process_signal(const struct process *process, uid_t owner, int signal);

int __wrap_process_signal(const struct process *process, uid_t owner, int signal)
{
	signalled[nsignalled++ % 8] = process->pid;
	return __real_process_signal(process, owner, signal);
}

/* What the kernel shows of each thread of a process; the real files if not @faked. All are stopped. */
static struct {
	bool faked;
	int switches;
	bool leaves;      /* one leaves the processor before its system call is shown */
	const char *call; /* NULL: none is shown */
} shown;

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
	static char text[128];

	if (!shown.faked || !strstr(path, "/task/"))
		return __real_fopen(path, mode);
	if (!strstr(path, "/syscall")) {
		snprintf(text, sizeof(text),
			 "State:\tT (stopped)\nvoluntary_ctxt_switches:\t%d\n"
			 "nonvoluntary_ctxt_switches:\t1\n",
			 shown.switches);
		return fmemopen(text, strlen(text), "r");
	}
	if (!shown.call) {
		errno = EACCES;
		return NULL;
	}
	shown.switches += shown.leaves;
	shown.leaves = false;
	strcpy(text, shown.call);
	return fmemopen(text, strlen(text), "r");
}

static void *wait_for_signal(void *arg)
{
	while (!arg)
		pause();
	return NULL;
}

/* A process with a second thread, and a child of its own. */
static void setup(void)
{
	struct process process;
	int ready[2];
	pthread_t thread;
	pid_t root;
	char byte;

	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	ck_assert_int_eq(pipe(ready), 0);
	root = fork();
	ck_assert_int_ge(root, 0);
	if (!root) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fork())
			pthread_create(&thread, NULL, wait_for_signal, NULL);
		else
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (write(ready[1], "", 1) == 1)
			wait_for_signal(NULL);
		_exit(1);
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	ck_assert(process_find(root, &process));
	tree_find(&tree, &process, getuid());
	ck_assert_uint_eq(tree.n, 2);
	tree_signal(&tree, SIGSTOP);
	ck_assert(tree_await_stop(&tree));
	ck_assert(tree_stayed_stopped(&tree));
}

/*
 * The child becomes ours when its parent has ended, and tree_kill() waits until it is waited for: by
 * init, which in many containers waits for nobody.
 */
static void *reap_child(void *over)
{
	while (waitpid(tree.pids[1], NULL, 0) < 0 &&
	       !__atomic_load_n((bool *)over, __ATOMIC_RELAXED))
		usleep(1000);
	return NULL;
}

static void teardown(void)
{
	pthread_t reaper;
	bool over = false;

	ck_assert_int_eq(pthread_create(&reaper, NULL, reap_child, &over), 0);
	tree_kill(&tree);
	waitpid(tree.pids[0], NULL, 0);
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	pthread_join(reaper, NULL);
}

START_TEST(one_that_does_not_stop)
{
	ck_assert_int_eq(kill(tree.pids[_i], SIGCONT), 0);
	ck_assert(!tree_stayed_stopped(&tree));
	ck_assert(!tree_await_stop(&tree));
}
END_TEST

START_TEST(one_that_is_stopped_again)
{
	struct tree again = tree;

	ck_assert_int_eq(kill(tree.pids[_i], SIGCONT), 0);
	while (tree_stayed_stopped(&again))
		usleep(1000);
	ck_assert_int_eq(kill(tree.pids[_i], SIGSTOP), 0);
	ck_assert(tree_await_stop(&again));
	ck_assert(tree_stayed_stopped(&again));
	ck_assert(!tree_stayed_stopped(&tree));
}
END_TEST

/*
 * A thread is shown as stopped before it leaves the processor, by which its last run counts: no run is seen where there
 * is none, and none is missed.
 */
START_TEST(one_that_has_not_left_the_processor)
{
	shown.faked = true;
	shown.call = "34 0x0 0x7ffe 0x7f01\n";
	shown.leaves = true;
	ck_assert(tree_await_stop(&tree));
	shown.switches += shown.leaves;
	shown.leaves = false;
	ck_assert(tree_stayed_stopped(&tree));
	/* It is stopped again. */
	shown.leaves = true;
	ck_assert(tree_was_continued(&tree));
	ck_assert(tree_await_stop(&tree));
	/* It runs again when it is looked at a second time. */
	shown.call = "running\n";
	ck_assert(tree_was_continued(&tree));
	/* Whoever may not see the system call goes by the rest. */
	shown.call = NULL;
	ck_assert(tree_stayed_stopped(&tree));
	shown.faked = false;
}
END_TEST

/* With fewer descriptors than a look takes, nobody knows whether one has run. */
START_TEST(one_that_cannot_be_looked_at)
{
	struct rlimit limit, less;
	int next = dup(0);

	ck_assert_int_ge(next, 0);
	close(next);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	less = limit;
	less.rlim_cur = next + _i;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &less), 0);
	ck_assert(!tree_stayed_stopped(&tree));
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(tree_stayed_stopped(&tree));
}
END_TEST

/* Not without a descriptor either, nor with one or two. */
START_TEST(none_is_killed_in_words_only)
{
	struct rlimit limit, less;
	bool killed;
	int next = dup(0);

	close(next);
	signal(SIGCHLD, SIG_IGN);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	less = limit;
	less.rlim_cur = next + _i;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &less), 0);
	killed = tree_kill(&tree);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(killed, kill(tree.pids[i], 0) && errno == ESRCH);
	ck_assert(killed);
}
END_TEST

/* What was killed while it was stopped, as for memory, has an image that nothing is missing in. */
START_TEST(one_that_is_killed)
{
	ck_assert_int_eq(kill(tree.pids[_i], SIGKILL), 0);
	/* The child ends with its parent. */
	for (int i = _i; i < 2; i++)
		ck_assert(host_await_end(tree.pids[i], 10000));
	ck_assert(tree_stayed_stopped(&tree));
}
END_TEST

/*
 * Its number is another process's by now; the other process of the tree is signalled all the same.
 */
START_TEST(one_whose_number_is_reused)
{
	tree.starts[0]++;
	tree_signal(&tree, SIGKILL);
	tree.starts[0]--;
	ck_assert(host_await_end(tree.pids[1], 10000));
	ck_assert(!host_await_end(tree.pids[0], 0));
}
END_TEST

/* As if all were: who is not the owner's is named, and not signalled. */
START_TEST(one_of_another_user)
{
	struct process process;

	ck_assert(process_find(tree.pids[0], &process));
	ck_assert_int_eq(tree.foreign, 0);
	tree_find(&tree, &process, getuid() + 1);
	ck_assert_uint_eq(tree.n, 2);
	ck_assert_int_eq(tree.foreign, tree.pids[1]);
	tree_signal(&tree, SIGKILL);
	ck_assert(!host_await_end(tree.pids[0], 500) && !host_await_end(tree.pids[1], 0));
	tree.owner = getuid();
}
END_TEST

/* Whoever had stopped one has to continue it. */
START_TEST(one_that_was_stopped_before_stays_so)
{
	struct process root;

	ck_assert_int_eq(kill(tree.pids[!_i], SIGCONT), 0);
	ck_assert(process_find(tree.pids[0], &root));
	ck_assert(tree_stop(&tree, &root, getuid()));
	ck_assert_uint_eq(tree.n, 2);
	ck_assert(tree.halted[_i] && !tree.halted[!_i]);
	tree_continue(&tree);
	while (tree_stayed_stopped(&tree))
		usleep(1000);
	ck_assert(process_find(tree.pids[_i], &root));
	ck_assert_int_eq(root.state, 'T');
	ck_assert(process_find(tree.pids[!_i], &root));
	ck_assert_int_ne(root.state, 'T');
}
END_TEST

/* Except to be killed: whoever outlives its parent may run again. */
START_TEST(the_head_is_stopped_first_and_continued_last)
{
	struct process root;

	ck_assert(process_find(tree.pids[0], &root));
	tree_signal(&tree, SIGCONT);
	tree.head = tree.pids[_i];
	nsignalled = 0;
	ck_assert(tree_stop(&tree, &root, getuid()));
	ck_assert_int_eq(signalled[0], tree.pids[_i]);
	ck_assert_int_eq(signalled[1], tree.pids[!_i]);
	tree_continue(&tree);
	ck_assert_int_eq(signalled[2], tree.pids[!_i]);
	ck_assert_int_eq(signalled[3], tree.pids[_i]);
	tree_signal(&tree, SIGKILL);
	ck_assert_int_eq(signalled[4], tree.pids[1]);
	ck_assert_int_eq(signalled[5], tree.pids[0]);
}
END_TEST

/* Such a process cannot be stopped before its child has gone its own way, which passes. */
START_TEST(one_whose_child_has_its_memory)
{
	struct process root;
	int began[2], end[2];
	char byte;
	pid_t parent;

	ck_assert_int_eq(pipe(began), 0);
	ck_assert_int_eq(pipe(end), 0);
	parent = fork();
	if (!parent) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!vfork()) {
			if (write(began[1], "", 1) == 1)
				read(end[0], &byte, 1);
			_exit(0);
		}
		if (write(began[1], "", 1) == 1)
			wait_for_signal(NULL);
	}
	ck_assert_int_eq(read(began[0], &byte, 1), 1);
	ck_assert(process_find(parent, &root));
	ck_assert(!tree_stop(&vforks, &root, getuid()));
	ck_assert(!tree_was_continued(&vforks));
	tree_continue(&vforks);
	ck_assert_int_eq(write(end[1], "", 1), 1);
	ck_assert_int_eq(read(began[0], &byte, 1), 1);
	ck_assert(tree_stop(&vforks, &root, getuid()));
	ck_assert(!tree_was_continued(&vforks));
	tree_continue(&vforks);
	while (!tree_was_continued(&vforks))
		usleep(1000);
	kill(parent, SIGKILL);
	waitpid(parent, NULL, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tools_tree");
	TCase *tc = tcase_create("tools_tree");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, one_that_does_not_stop, 0, 2);
	tcase_add_loop_test(tc, one_that_is_stopped_again, 0, 2);
	tcase_add_test(tc, one_that_has_not_left_the_processor);
	tcase_add_loop_test(tc, one_that_cannot_be_looked_at, 0, 2);
	tcase_add_loop_test(tc, none_is_killed_in_words_only, 0, 3);
	tcase_add_loop_test(tc, one_that_is_killed, 0, 2);
	tcase_add_test(tc, one_whose_number_is_reused);
	tcase_add_test(tc, one_of_another_user);
	tcase_add_loop_test(tc, one_that_was_stopped_before_stays_so, 0, 2);
	tcase_add_loop_test(tc, the_head_is_stopped_first_and_continued_last, 0, 2);
	tcase_add_test(tc, one_whose_child_has_its_memory);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
