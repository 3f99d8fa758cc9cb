/* SPDX-License-Identifier: Apache-2.0 */
/* That no two commands have the driver work on one process. The test plays the driver. */
#include "tools/process/monitors.h"

#include "common/processes/maps.h"
#include "tests/check_suite.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct process process;
static struct driver_answer done = {.kept = true};
static char directory[PATH_MAX];
static int others; /* what another command gets that opens the record while the driver works */
static int works;

int __wrap_maps_find(pid_t pid, const char *prefix, char *path);
bool __wrap_driver_child_find(const pid_t *pids, size_t n, double ms, struct driver_answer *answer);
bool __wrap_driver_child_begin(struct driver_work *work);
bool __wrap_driver_child_await(struct driver_work *work, double ms);
void __wrap_driver_child_end(struct driver_work *work);

int __wrap_maps_find(pid_t pid, const char *prefix, char *path)
{
	(void)pid, (void)prefix, (void)path;
	return 1;
}

/* A command that was killed has left it so. */
bool __wrap_driver_child_find(const pid_t *pids, size_t n, double ms, struct driver_answer *answer)
{
	(void)ms;
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(pids[0], process.pid);
	*answer = (struct driver_answer){.nlisted = 1};
	answer->listed[0].process = process;
	answer->listed[0].state = DRIVER_CHECKPOINTED;
	return true;
}

static int open_as_another(void)
{
	struct record record;
	const char *why;
	int err = record_open(&record, &process, &why);

	if (!err)
		record_close(&record, true);
	return err;
}

bool __wrap_driver_child_begin(struct driver_work *work)
{
	work->answer = &done;
	works++;
	others = open_as_another();
	return true;
}

bool __wrap_driver_child_await(struct driver_work *work, double ms)
{
	(void)work, (void)ms;
	return true;
}

void __wrap_driver_child_end(struct driver_work *work)
{
	(void)work;
}

static bool revive(void)
{
	static struct tree tree;
	char why[256];

	ck_assert(process_find(getpid(), &process));
	tree_find(&tree, &process, getuid());
	return monitors_revive(&tree, NULL, 0, why, sizeof(why));
}

START_TEST(no_other_command_works_on_it_meanwhile)
{
	struct record record;
	const char *why;

	strcpy(directory, "/tmp/test-monitors-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	setenv("CUDAW_RUNTIME_DIR", directory, 1);
	ck_assert(revive());
	ck_assert_int_eq(works, 1);
	ck_assert_int_eq(others, -EAGAIN);
	ck_assert_int_eq(open_as_another(), 0);
	/* Nor does this one while another does. */
	ck_assert_int_eq(record_open(&record, &process, &why), 0);
	ck_assert(revive());
	ck_assert_int_eq(works, 1);
	record_close(&record, true);
	ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tools_monitors");
	TCase *tc = tcase_create("tools_monitors");

	tcase_add_test(tc, no_other_command_works_on_it_meanwhile);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
