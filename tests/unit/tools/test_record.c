/* SPDX-License-Identifier: Apache-2.0 */
/* How a command learns that another one has paused a process by the driver, or works on it. */
#include "tools/process/record.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRANGER 123456789

static const struct process process = {.pid = 4711, .start = 5};
static char directory[PATH_MAX], why[PATH_MAX];

static void setup(void)
{
	strcpy(directory, "/tmp/test-record-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	setenv("CUDAW_RUNTIME_DIR", directory, 1);
}

static void teardown(void)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", directory);
	ck_assert_int_eq(system(command), 0);
}

static int look(const struct process *at)
{
	struct record_claim claim;
	int err;

	*why = '\0';
	err = record_claim(&claim, at, why, sizeof(why));
	record_release(&claim);
	return err;
}

static void write_record(const struct held *held)
{
	struct record record;
	const char *reason;

	ck_assert_int_eq(record_open(&record, &process, &reason), 0);
	ck_assert_int_eq(look(&process), -EAGAIN);
	ck_assert_int_eq(record_write(&record, held), 0);
	record_close(&record, true);
}

/* Also if nobody knew what it held. */
START_TEST(one_that_is_paused_is_found)
{
	static const struct held unknown;
	struct process another = process;
	struct record record;
	const char *reason;
	struct held held;

	ck_assert_int_eq(look(&process), 0);
	write_record(&unknown);
	ck_assert_int_eq(look(&process), -EBUSY);
	ck_assert_str_eq(why, "'cudaw pause --driver' has paused it");
	ck_assert_int_eq(record_open(&record, &process, &reason), 0);
	ck_assert(record_read(&record, &held));
	ck_assert_int_eq(held.n, 0);
	record_remove(&record);
	record_close(&record, true);
	ck_assert_int_eq(look(&process), 0);
	/* One that had its number before. */
	another.start++;
	write_record(&unknown);
	ck_assert_int_eq(look(&another), 0);
}
END_TEST

/* From the look on until the work is done; nothing stays of it. */
START_TEST(one_that_is_claimed_is_left_alone)
{
	struct record_claim claim;
	struct record record;
	const char *reason;

	ck_assert_int_eq(record_claim(&claim, &process, why, sizeof(why)), 0);
	ck_assert_int_eq(record_open(&record, &process, &reason), -EAGAIN);
	ck_assert_int_eq(look(&process), -EAGAIN);
	record_release(&claim);
	ck_assert_int_eq(rmdir(directory), 0);
	ck_assert_int_eq(record_open(&record, &process, &reason), 0);
	record_close(&record, true);
}
END_TEST

START_TEST(what_cannot_be_known_is_an_error)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%d.driver", directory, process.pid);
	ck_assert_int_eq(symlink("/nowhere", path), 0);
	ck_assert_int_eq(look(&process), -ELOOP);
	ck_assert_ptr_nonnull(strstr(why, "4711.driver cannot be used: "));
	setenv("CUDAW_RUNTIME_DIR", "not/absolute", 1);
	ck_assert_int_eq(look(&process), -EINVAL);
	/* Where there can be no directory, nobody has a record. */
	snprintf(path, sizeof(path), "%s/none/none", directory);
	setenv("CUDAW_RUNTIME_DIR", path, 1);
	ck_assert_int_eq(look(&process), 0);
}
END_TEST

/* Its user has paused it, who keeps the record elsewhere. */
START_TEST(root_finds_what_a_user_has_paused)
{
	static const struct held unknown;
	struct process of_user = process;
	struct record_claim claim;
	char path[PATH_MAX + 32];
	struct stat st;
	int found;

	if (geteuid()) {
		printf("# it takes root\n");
		return;
	}
	of_user.uid = STRANGER;
	teardown();
	snprintf(directory, sizeof(directory), "/tmp/cudaw-%d", STRANGER);
	setenv("CUDAW_RUNTIME_DIR", directory, 1);
	write_record(&unknown);
	snprintf(path, sizeof(path), "%s/%d.driver", directory, process.pid);
	ck_assert_int_eq(chown(path, STRANGER, -1), 0);
	ck_assert_int_eq(chown(directory, STRANGER, -1), 0);
	unsetenv("CUDAW_RUNTIME_DIR");
	found = look(&of_user);
	of_user.pid++;
	/* What is made there keeps the user not out. */
	ck_assert_int_eq(record_claim(&claim, &of_user, why, sizeof(why)), 0);
	ck_assert_int_eq(claim.n, 2);
	ck_assert_int_eq(fstat(claim.records[1].fd, &st), 0);
	ck_assert_int_eq(st.st_uid, STRANGER);
	record_release(&claim);
	ck_assert_int_eq(found, -EBUSY);
	/* A directory of somebody else says nothing, also where root's own would be. */
	of_user.pid--;
	setenv("CUDAW_RUNTIME_DIR", directory, 1);
	of_user.uid++;
	ck_assert_int_eq(look(&of_user), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tools_record");
	TCase *tc = tcase_create("tools_record");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, one_that_is_paused_is_found);
	tcase_add_test(tc, one_that_is_claimed_is_left_alone);
	tcase_add_test(tc, what_cannot_be_known_is_an_error);
	tcase_add_test(tc, root_finds_what_a_user_has_paused);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
