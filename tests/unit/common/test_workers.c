/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share a list, where not all of them can be had. */
#include "common/system/workers.h"

#include "tests/check_suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ITEMS 1000

static int done[ITEMS];

static void *do_items(void *arg)
{
	struct workers *w = arg;
	size_t i;

	while (workers_next(w, &i))
		__atomic_fetch_add(&done[i], 1, __ATOMIC_RELAXED);
	return NULL;
}

/* The stack of one more thread than there is does not fit. */
static void have_no_threads(void)
{
	struct rlimit limit;
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%zu", &pages), 1);
	fclose(file);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = pages * sysconf(_SC_PAGESIZE) + (1 << 20);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

static void have_threads(void)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

START_TEST(every_item_is_done_once)
{
	struct workers w = {.count = ITEMS};

	ck_assert_int_eq(workers_run(&w, 4, do_items, &w), 0);
	for (int i = 0; i < ITEMS; i++)
		ck_assert_int_eq(done[i], 1);
}
END_TEST

START_TEST(without_threads_the_work_is_done_and_it_is_said)
{
	struct workers w = {.count = ITEMS};
	char log[] = "/tmp/test-workers-XXXXXX", line[256] = "";
	FILE *file;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	printf("# sanitizers do not work under a limit to addresses\n");
	return;
#endif
	ck_assert_int_ge(mkstemp(log), 0);
	setenv("CUDAW_LOG", "warn", 1);
	setenv("CUDAW_LOG_FILE", log, 1);
	have_no_threads();
	ck_assert_int_eq(workers_run(&w, 4, do_items, &w), 0);
	have_threads();
	for (int i = 0; i < ITEMS; i++)
		ck_assert_int_eq(done[i], 1);
	file = fopen(log, "r");
	ck_assert_ptr_nonnull(file);
	if (workers_threads(&w, 4) > 1) {
		ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
		ck_assert_msg(strstr(line, "workers: only 1 of "), "%s", line);
	}
	ck_assert_ptr_null(fgets(line, sizeof(line), file));
	fclose(file);
	unlink(log);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("workers");
	TCase *tc = tcase_create("workers");

	tcase_add_test(tc, every_item_is_done_once);
	tcase_add_test(tc, without_threads_the_work_is_done_and_it_is_said);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
