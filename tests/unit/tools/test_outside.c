/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the way of an image of processes, where the jobs of tests/jobs cannot have it: too many, open files. */
#include "tools/process/criu/descriptors.h"

#include "tests/unit/tools/outside_world.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

#define STACK 16384

/*
 * Children that share this process's memory: they are cheap. False where the system has not as
 * many.
 */
static bool have_children(size_t count)
{
	char *stacks = malloc(count * STACK);

	ck_assert_ptr_nonnull(stacks);
	for (size_t i = 0; i < count; i++)
		if (clone(wait_for_signal, stacks + (i + 1) * STACK, CLONE_VM | SIGCHLD, NULL) < 0)
			return false;
	return true;
}

START_TEST(a_tree_that_is_too_large_is_not_cut_in_silence)
{
	if (!have_children(TREE_MAX - 1)) {
		printf("# there cannot be as many processes\n");
	} else {
		ck_assert(!is_refused_for("processes"));
		ck_assert_uint_eq(tree.n, TREE_MAX);
		ck_assert(have_children(1));
		ck_assert_msg(is_refused_for("it has more than 4096 processes"), "%s", why);
	}
	find_tree();
	end_children();
	find_tree();
	end_children();
}
END_TEST

/* A child with an id below that of this process, as there is when ids begin anew. It takes root. */
static pid_t fork_below(void)
{
	pid_t id = getpid(), child;

	do {
		struct clone_args args = {
			.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&id, .set_tid_size = 1};

		id--;
		child = syscall(SYS_clone3, &args, sizeof(args));
	} while (child < 0 && errno == EEXIST);
	return child;
}

START_TEST(children_of_any_id_are_found)
{
	pid_t child, grandchild;
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	child = fork();
	if (!child) {
		grandchild = fork_below();
		if (grandchild)
			ck_assert_int_eq(write(fds[1], &grandchild, sizeof(pid_t)), sizeof(pid_t));
		wait_for_signal(NULL);
	}
	ck_assert_int_eq(read(fds[0], &grandchild, sizeof(pid_t)), sizeof(pid_t));
	find_tree();
	ck_assert(tree_has(&tree, child));
	if (grandchild < 0)
		printf("# no process can have a given id here (it takes root)\n");
	else
		ck_assert(grandchild < child && tree_has(&tree, grandchild));
	end_children();
}
END_TEST

static size_t address_space(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%zu", &pages), 1);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

/* As many descriptors as need more memory than there is. */
START_TEST(too_little_memory_is_said)
{
	struct rlimit files, memory = {.rlim_max = RLIM_INFINITY};
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	for (int i = 0; i < 3000; i++)
		if (dup(fds[0]) < 0) {
			printf("# a process cannot have as many descriptors\n");
			return;
		}
	ck_assert(!is_refused_for("memory"));
	memory.rlim_cur = address_space() + 150 * 1024;
	setrlimit(RLIMIT_AS, &memory);
	ck_assert_msg(is_refused_for("out of memory or descriptors for the list"), "%s", why);
}
END_TEST

START_TEST(too_few_descriptors_are_said)
{
	struct descriptors one = {0};
	struct rlimit limit, less;
	int next = dup(0);

	ck_assert_int_ge(next, 0);
	close(next);
	find_tree();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	less = limit;
	less.rlim_cur = next;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &less), 0);
	outside_find(&tree, NULL, 0, &ports, NULL, keep_first, NULL);
	ck_assert_str_eq(why, "out of memory or descriptors for the list of its open files");
	descriptors_add_process(&one, getpid());
	ck_assert(one.short_of_memory);
	ck_assert_int_eq(tcp_rest(&tree, &ports), -ENOMEM);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(tcp_rest(&tree, &ports), 0);
}
END_TEST

/* Not one that has no name, nor one that is called so; nor one in memory that is mapped: memory_files.h has it. */
START_TEST(files_that_have_another_name_are_found)
{
	char path[64], other[96], deleted[96];
	static const char text[] = " is a file that has lost its name, and has another one: ";
	static const char mapped[] = " maps a file that has lost its name, and has another one: ";
	int fd;

	snprintf(path, sizeof(path), "%s/test_outside-%d", _i ? "/dev/shm" : "/tmp", getpid());
	snprintf(other, sizeof(other), "%s-other", path);
	snprintf(deleted, sizeof(deleted), "%s (deleted)", path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(link(path, other), 0);
	ck_assert(!is_a_reason(text, getpid(), NULL));
	ck_assert_int_eq(unlink(path), 0);
	ck_assert(is_a_reason(text, getpid(), NULL));
	ck_assert(is_a_reason(deleted, getpid(), NULL));
	ck_assert_ptr_ne(mmap(NULL, 1, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_assert_int_eq(is_a_reason(text, getpid(), NULL), !_i);
	ck_assert_int_eq(is_a_reason(mapped, getpid(), NULL), !_i);
	ck_assert_int_eq(rename(other, deleted), 0);
	ck_assert(!is_a_reason(text, getpid(), NULL) && !is_a_reason(mapped, getpid(), NULL));
	ck_assert_int_eq(unlink(deleted), 0);
	ck_assert(!is_a_reason(text, getpid(), NULL) && !is_a_reason(mapped, getpid(), NULL));
}
END_TEST

static int open_ring(void)
{
	char ring[120] = {0};

	return syscall(SYS_io_uring_setup, 4, ring);
}

static int open_faults(void)
{
	return syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
}

static int open_counter(void)
{
	struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE,
					     .size = sizeof(attributes),
					     .config = PERF_COUNT_SW_TASK_CLOCK,
					     .exclude_kernel = 1};

	return syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
}

static int open_queue(void)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "/test_outside-%d", getpid());
	fd = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
	mq_unlink(name);
	return fd;
}

/* The kernel acknowledges a message that it has nothing to do for. */
static int open_netlink(void)
{
	const struct nlmsghdr nothing = {.nlmsg_len = sizeof(nothing),
					 .nlmsg_type = NLMSG_NOOP,
					 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK};
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	ck_assert_int_eq(send(fd, &nothing, sizeof(nothing), 0), sizeof(nothing));
	return fd;
}

static int open_process(void)
{
	return syscall(SYS_pidfd_open, getppid(), 0);
}

/* What CRIU says itself, but only after a pause, and with numbers. */
static const struct {
	int (*open)(void);
	const char *text;
} not_taken[] = {
	{open_ring, "is anon_inode:[io_uring], which CRIU does not take"},
	{open_faults, "is anon_inode:[userfaultfd], which CRIU does not take"},
	{open_counter, "is anon_inode:[perf_event], which CRIU does not take"},
	{open_queue, "is a POSIX message queue, which CRIU does not take"},
	{open_netlink, "is a netlink socket with messages that it has not read (try again)"},
	{open_process, "is a pidfd of "},
};

START_TEST(what_criu_does_not_take)
{
	int own = syscall(SYS_pidfd_open, getpid(), 0), quiet = socket(AF_NETLINK, SOCK_RAW, 0);
	int fd = not_taken[_i].open();

	if (fd < 0) {
		printf("# %m: nothing here that %s\n", not_taken[_i].text);
	} else {
		ck_assert(is_a_reason(not_taken[_i].text, getpid(), NULL));
		close(fd);
	}
	ck_assert(!is_a_reason(not_taken[_i].text, getpid(), NULL));
	close(own);
	close(quiet);
}
END_TEST

static int timer(time_t first_s, time_t period_s)
{
	const struct itimerspec when = {.it_value = {.tv_sec = first_s, .tv_nsec = !first_s},
					.it_interval.tv_sec = period_s};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(timerfd_settime(fd, 0, &when, NULL), 0);
	return fd;
}

START_TEST(periodic_timers_are_not_lost)
{
	static const struct {
		time_t first_s, period_s;
		bool refused;
	} timers[] = {{3600, 3600, false},
		      {0, 0, false},
		      {2, 0, false},
		      {0, 3600, true},
		      {2, 3600, true}};

	for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
		int fd = timer(timers[i].first_s, timers[i].period_s);
		struct pollfd ready = {.fd = fd, .events = POLLIN};

		/* An expiry that nobody reads. */
		if (!timers[i].first_s)
			ck_assert_int_eq(poll(&ready, 1, -1), 1);
		ck_assert_msg(is_refused_for("is a periodic timer") == timers[i].refused,
			      "timer %zu: %s", i, why);
		close(fd);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("outside");
	TCase *tc = tcase_create("outside");

	tcase_set_timeout(tc, 60);
	/* Sanitizers have memory of their own, and no idea of processes that share it. */
	if (!getenv("SANITIZE")) {
		tcase_add_test(tc, a_tree_that_is_too_large_is_not_cut_in_silence);
		tcase_add_test(tc, too_little_memory_is_said);
	}
	tcase_add_test(tc, too_few_descriptors_are_said);
	tcase_add_test(tc, children_of_any_id_are_found);
	tcase_add_loop_test(tc, files_that_have_another_name_are_found, 0, 2);
	tcase_add_loop_test(tc, what_criu_does_not_take, 0,
			    sizeof(not_taken) / sizeof(not_taken[0]));
	tcase_add_test(tc, periodic_timers_are_not_lost);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
