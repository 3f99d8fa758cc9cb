/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of host memory: what several processes see of each other's. */
#include "checkpoint/claims.h"
#include "checkpoint/hostmem.h"

#include "tests/check_suite.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char base[64];
static size_t noise; /* how much other programs may take or give while a test runs */

static void setup(void)
{
	strcpy(base, "/tmp/test-claims-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	setenv("CUDAW_RUNTIME_DIR", base, 1);
	noise = hostmem_available() / 10;
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

/* Another process, which does what its first byte says: make, take half, drop. */
static struct other start_other(size_t bytes, size_t reserve)
{
	int to[2], from[2];
	struct other other;
	char order;

	ck_assert_int_eq(pipe(to) | pipe(from), 0);
	other = (struct other){fork(), to[1], from[0]};
	ck_assert_int_ge(other.pid, 0);
	if (other.pid)
		return other;
	while (read(to[0], &order, 1) == 1) {
		if (order == 'm')
			claims_make(bytes, reserve);
		else if (order == 't')
			claims_take(bytes / 2);
		else if (order == 'd')
			claims_drop();
		if (write(from[1], &order, 1) != 1)
			break;
	}
	_exit(0);
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

static bool near(size_t found, size_t wanted)
{
	return found + noise > wanted && found < wanted + noise;
}

START_TEST(what_others_claim_is_not_available)
{
	size_t before = available(), bytes = before / 2;
	struct other one = start_other(bytes, 0);

	ck_assert(near(before, hostmem_available()));
	tell(&one, 'm');
	ck_assert(near(available(), before - bytes));
	/* Its own claim is no other's. */
	tell(&one, 'm');
	ck_assert(near(available(), before - bytes));
	tell(&one, 't');
	ck_assert(near(available(), before - bytes / 2));
	tell(&one, 't');
	tell(&one, 't');
	ck_assert(near(available(), before));
	tell(&one, 'm');
	tell(&one, 'd');
	ck_assert(near(available(), before));
	end(&one);
}
END_TEST

START_TEST(two_do_not_claim_the_same)
{
	size_t before = available(), bytes = before / 4 * 3;
	struct other one = start_other(bytes, 0), two = start_other(bytes, 0);

	tell(&one, 'm');
	ck_assert(near(claims_make(bytes, 0), before / 4));
	claims_drop();
	/* The second one claims what is there, and no more. */
	tell(&two, 'm');
	ck_assert(near(available(), 0));
	tell(&one, 'd');
	ck_assert(near(available(), before / 4 * 3));
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
		ck_assert(near(available(), before / 4));
		end(&one);
		ck_assert(near(available(), before));
	}
}
END_TEST

START_TEST(the_reserve_is_not_claimed)
{
	size_t before = available();
	struct other one = start_other(SIZE_MAX, before / 2);

	tell(&one, 'm');
	ck_assert(near(available(), before / 2));
	end(&one);
}
END_TEST

START_TEST(without_a_folder_each_counts_for_itself)
{
	size_t before;
	struct other one;

	setenv("CUDAW_RUNTIME_DIR", "not/absolute", 1);
	before = available();
	one = start_other(before / 2, 0);
	tell(&one, 'm');
	ck_assert(near(available(), before));
	claims_take(5);
	end(&one);
}
END_TEST

START_TEST(the_file_is_the_users_alone)
{
	char path[128];
	struct stat st;

	available();
	snprintf(path, sizeof(path), "%s/host-memory.claims", base);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("claims");
	TCase *tc = tcase_create("claims");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, what_others_claim_is_not_available);
	tcase_add_test(tc, two_do_not_claim_the_same);
	tcase_add_test(tc, who_is_dead_claims_nothing);
	tcase_add_test(tc, the_reserve_is_not_claimed);
	tcase_add_test(tc, without_a_folder_each_counts_for_itself);
	tcase_add_test(tc, the_file_is_the_users_alone);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
