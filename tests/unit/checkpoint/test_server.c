/* SPDX-License-Identifier: Apache-2.0 */
/* What a client gets that does not read for a while. */
#include "checkpoint/control/answers.h"
#include "checkpoint/control/server.h"
#include "checkpoint/engine/engine.h"

#include "tests/check_suite.h"
#include "tests/unit/without_main.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPORTS 10000 /* a quarter of an hour of them */

/* Whether @fd's last line is "end ok"; *@nlines: all that came before. */
static bool read_answer(int fd, int *nlines)
{
	char line[256] = "";
	FILE *file = fdopen(fd, "r");

	for (*nlines = -1; fgets(line, sizeof(line), file); ++*nlines)
		;
	fclose(file);
	return !strcmp(line, "end ok\n");
}

START_TEST(who_does_not_read_gets_the_answer)
{
	struct engine_progress progress = {.phase = "copy", .done = 1, .total = 2};
	struct client *c;
	int ends[2], nlines;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	c = server_adopt(ends[0]);
	ck_assert_ptr_nonnull(c);
	c->waits = WAITS_PAUSED;
	for (int i = 0; i < REPORTS; i++)
		answers_progress(&progress);
	ck_assert(!c->gone);
	ck_assert(c->joined);
	server_answer(c, END_OK, NULL);
	ck_assert(!c->gone);
	server_sweep();
	ck_assert(read_answer(ends[1], &nlines));
	ck_assert_int_gt(nlines, 10);
	ck_assert_int_lt(nlines, REPORTS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("server");
	TCase *tc = tcase_create("server");

	tcase_add_test(tc, who_does_not_read_gets_the_answer);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
