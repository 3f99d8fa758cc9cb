/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of host memory: what several processes see of each other's. */
#include "checkpoint/host/claims.h"
#include "common/system/hostmem.h"

#include "tests/check_suite.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNCLAIMED (64UL << 30) /* what there is without regard to claims */

static char base[64];
static size_t in_machine, in_group;

/* The linker puts these in the place of hostmem.c's: other programs take memory, and give it. */
size_t __wrap_hostmem_machine_available(void);
size_t __wrap_hostmem_cgroup_available(void);

size_t __wrap_hostmem_machine_available(void)
{
	return in_machine;
}

size_t __wrap_hostmem_cgroup_available(void)
{
	return in_group;
}

static void setup(void)
{
	strcpy(base, "/tmp/test-claims-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	setenv("CUDAW_RUNTIME_DIR", base, 1);
	in_machine = in_group = UNCLAIMED;
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", base);
	ck_assert_int_eq(system(command), 0);
}

struct other {
	pid_t pid;
	int to, from;
};

static void follow(char order, size_t bytes, size_t reserve)
{
	switch (order) {
	case 'm':
		claims_make(bytes, reserve);
		break;
	case 't':
		claims_take(bytes / 2);
		break;
	case 'd':
		claims_drop();
		break;
	case 'f':
		if (!fork())
			pause();
		break;
	}
}

/* Into a PID namespace, whose /proc shows no other; false where none can be made. */
static bool go_apart(void)
{
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	if (fork()) {
		wait(NULL);
		_exit(0);
	}
	return !mount("proc", "/proc", "proc", 0, NULL);
}

/*
 * Another process, which does what the bytes that it is told say: make a claim, take half of it,
 * drop it, fork. It is in a PID namespace of its own where @apart, or it has ended if none can be
 * had.
 */
static struct other start_somewhere(size_t bytes, size_t reserve, bool apart)
{
	int to[2], from[2];
	struct other other;
	char order;

	ck_assert_int_eq(pipe(to) | pipe(from), 0);
	other = (struct other){fork(), to[1], from[0]};
	ck_assert_int_ge(other.pid, 0);
	if (other.pid) {
		close(from[1]);
		return other;
	}
	if (apart && !go_apart())
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(to[0], &order, 1) == 1) {
		follow(order, bytes, reserve);
		if (write(from[1], &order, 1) != 1)
			break;
	}
	_exit(0);
}

static struct other start_other(size_t bytes, size_t reserve)
{
	return start_somewhere(bytes, reserve, false);
}

static void tell(const struct other *other, char order)
{
	ck_assert_int_eq(write(other->to, &order, 1), 1);
	ck_assert_int_eq(read(other->from, &order, 1), 1);
}

static void end(const struct other *other)
{
	kill(other->pid, SIGKILL);
	ck_assert_int_eq(waitpid(other->pid, NULL, 0), other->pid);
}

/* What this process finds available. */
static size_t available(void)
{
	return claims_make(0, 0);
}

START_TEST(the_lesser_of_machine_and_group_is_available)
{
	in_machine = UNCLAIMED / 2;
	ck_assert_uint_eq(available(), UNCLAIMED / 2);
	in_machine = UNCLAIMED;
	in_group = UNCLAIMED / 4;
	ck_assert_uint_eq(available(), UNCLAIMED / 4);
}
END_TEST

START_TEST(what_others_claim_is_not_available)
{
	size_t before = available(), bytes = before / 2;
	struct other one = start_other(bytes, 0);

	ck_assert_uint_eq(before, UNCLAIMED);
	tell(&one, 'm');
	ck_assert_uint_eq(available(), before - bytes);
	/* Its own claim is no other's. */
	tell(&one, 'm');
	ck_assert_uint_eq(available(), before - bytes);
	tell(&one, 't');
	ck_assert_uint_eq(available(), before - bytes / 2);
	tell(&one, 't');
	tell(&one, 't');
	ck_assert_uint_eq(available(), before);
	tell(&one, 'm');
	tell(&one, 'd');
	ck_assert_uint_eq(available(), before);
	end(&one);
}
END_TEST

START_TEST(two_do_not_claim_the_same)
{
	size_t before = available(), bytes = before / 4 * 3;
	struct other one = start_other(bytes, 0), two = start_other(bytes, 0);

	tell(&one, 'm');
	ck_assert_uint_eq(claims_make(bytes, 0), before / 4);
	claims_drop();
	/* The second one claims what is there, and no more. */
	tell(&two, 'm');
	ck_assert_uint_eq(available(), 0);
	tell(&one, 'd');
	ck_assert_uint_eq(available(), before / 4 * 3);
	end(&one);
	end(&two);
}
END_TEST

START_TEST(who_is_dead_claims_nothing)
{
	size_t before = available();

	for (int i = 0; i < 4; i++) {
		struct other one = start_other(before / 4 * 3, 0);

		tell(&one, 'm');
		ck_assert_uint_eq(available(), before / 4);
		end(&one);
		ck_assert_uint_eq(available(), before);
	}
}
END_TEST

/* What a fork leaves behind has no part in the claim. */
START_TEST(a_child_does_not_keep_the_claim)
{
	size_t before = available();
	struct other one = start_other(before / 2, 0);

	setpgid(one.pid, one.pid);
	tell(&one, 'm');
	tell(&one, 'f');
	ck_assert_uint_eq(available(), before / 2);
	end(&one);
	ck_assert_uint_eq(available(), before);
	kill(-one.pid, SIGKILL);
}
END_TEST

/* A process of another PID namespace has a PID that means another one here. */
START_TEST(other_namespaces_claim_too)
{
	size_t before = available(), bytes = before / 2;
	struct other one = start_somewhere(bytes, 0, true), two = start_somewhere(bytes, 0, true);
	char order = 'm';

	if (write(one.to, &order, 1) != 1 || read(one.from, &order, 1) != 1) {
		printf("# no PID namespace can be made here (it takes root)\n");
		return;
	}
	ck_assert_uint_eq(available(), before - bytes);
	/* None takes the place of another. */
	tell(&two, 'm');
	ck_assert_uint_eq(available(), 0);
	tell(&one, 't');
	ck_assert_uint_eq(available(), bytes / 2);
	tell(&one, 'd');
	ck_assert_uint_eq(available(), bytes);
	tell(&two, 'd');
	ck_assert_uint_eq(available(), before);
	tell(&one, 'm');
	end(&one);
	end(&two);
	while (available() != before)
		usleep(1000);
}
END_TEST

/* Others wait for it a moment; then they count what is claimed all the same. */
START_TEST(one_that_is_stopped_with_the_lock_is_passed)
{
	size_t before = available();
	struct other one = start_other(before / 2, 0);
	struct flock first = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	char path[128];
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/host-memory.lock", base);
	pid = fork();
	if (!pid) {
		fcntl(open(path, O_RDWR), F_SETLK, &first);
		raise(SIGSTOP);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	tell(&one, 'm');
	ck_assert_uint_eq(available(), before / 2);
	kill(pid, SIGKILL);
	end(&one);
}
END_TEST

START_TEST(what_cannot_be_asked_for_is_not_available)
{
	int next = dup(STDIN_FILENO);
	struct rlimit saved, limit;
	size_t before, found[2];

	ck_assert_int_eq(close(next), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &saved), 0);
	before = available();
	limit = saved;
	/* None for the directory; none for the file in it. */
	for (int more = 0; more < 2; more++) {
		limit.rlim_cur = next + more;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		found[more] = claims_make(before / 2, 0);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &saved), 0);
	}
	ck_assert_uint_eq(found[0], 0);
	ck_assert_uint_eq(found[1], 0);
	ck_assert_uint_eq(available(), before);
}
END_TEST

/* Mount a file system on the directory, and fill it; false where none can be mounted. */
static bool fill_directory(void)
{
	static char block[4096];
	char path[128];
	int fd;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", base, "tmpfs", 0, "size=64k,mode=0700")) {
		printf("# no file system can be mounted here (it takes root)\n");
		return false;
	}
	snprintf(path, sizeof(path), "%s/full", base);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	while (write(fd, block, sizeof(block)) > 0)
		;
	close(fd);
	return true;
}

START_TEST(a_full_file_system_takes_claims)
{
	size_t before = UNCLAIMED;
	struct other one;

	if (!fill_directory())
		return;
	one = start_other(before / 2, 0);
	tell(&one, 'm');
	ck_assert_uint_eq(available(), before / 2);
	tell(&one, 't');
	ck_assert_uint_eq(available(), before / 4 * 3);
	end(&one);
	ck_assert_int_eq(umount(base), 0);
}
END_TEST

/* No signal for a file that would be too long: the program has not written to any. */
START_TEST(a_limit_to_the_size_of_files_is_none_to_claims)
{
	struct rlimit none = {0, 0};
	size_t before = available();
	struct other one;

	one = start_other(before / 2, 0);
	tell(&one, 'd'); /* it is there: Check itself writes to a file before */
	ck_assert_int_eq(prlimit(one.pid, RLIMIT_FSIZE, &none, NULL), 0);
	tell(&one, 'm');
	ck_assert_uint_eq(available(), before / 2);
	end(&one);
}
END_TEST

START_TEST(the_reserve_is_not_claimed)
{
	size_t before = available();
	struct other one = start_other(SIZE_MAX, before / 2);

	tell(&one, 'm');
	ck_assert_uint_eq(available(), before / 2);
	end(&one);
}
END_TEST

START_TEST(without_a_directory_each_counts_for_itself)
{
	size_t before;
	struct other one;

	setenv("CUDAW_RUNTIME_DIR", "not/absolute", 1);
	before = available();
	one = start_other(before / 2, 0);
	tell(&one, 'm');
	ck_assert_uint_eq(available(), before);
	claims_take(5);
	end(&one);
}
END_TEST

START_TEST(the_file_is_the_users_alone)
{
	char path[128];
	struct stat st;

	available();
	snprintf(path, sizeof(path), "%s/host-memory.lock", base);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(st.st_size, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("claims");
	TCase *tc = tcase_create("claims");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, the_lesser_of_machine_and_group_is_available);
	tcase_add_test(tc, what_others_claim_is_not_available);
	tcase_add_test(tc, two_do_not_claim_the_same);
	tcase_add_test(tc, who_is_dead_claims_nothing);
	tcase_add_test(tc, a_child_does_not_keep_the_claim);
	tcase_add_test(tc, other_namespaces_claim_too);
	tcase_add_test(tc, one_that_is_stopped_with_the_lock_is_passed);
	tcase_add_test(tc, what_cannot_be_asked_for_is_not_available);
	tcase_add_test(tc, a_full_file_system_takes_claims);
	tcase_add_test(tc, a_limit_to_the_size_of_files_is_none_to_claims);
	tcase_add_test(tc, the_reserve_is_not_claimed);
	tcase_add_test(tc, without_a_directory_each_counts_for_itself);
	tcase_add_test(tc, the_file_is_the_users_alone);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
