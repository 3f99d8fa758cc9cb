/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TESTS_OUTSIDE_WORLD_H
#define CUDAW_TESTS_OUTSIDE_WORLD_H
/* What is in the way of an image of this process and its children. */
#include "tools/process/criu/outside.h"

#include "tests/check_suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tree tree;
static char why[512];
static bool may_pass __attribute__((unused)); /* what @why says */
static struct tcp_sockets ports;

/* Of this process. */
static inline void find_tree(void)
{
	struct process self;

	ck_assert(process_find(getpid(), &self));
	tree_find(&tree, &self, getuid());
}

static inline bool keep_first(void *arg, const char *text, bool passes)
{
	(void)arg;
	may_pass = passes;
	snprintf(why, sizeof(why), "%s", text);
	return false;
}

/*
 * Whether @text is why this process and its children cannot be carried. They have pipes to the
 * test's runner, which are looked at last.
 */
static inline bool is_refused_for(const char *text)
{
	find_tree();
	*why = '\0';
	outside_find(&tree, (pid_t[]){getpid()}, 1, &ports, NULL, keep_first, NULL);
	return strstr(why, text);
}

struct wanted {
	const char *text;
	bool found;
};

static inline bool find_wanted(void *arg, const char *text, bool passes)
{
	struct wanted *wanted = arg;

	(void)passes;
	wanted->found |= strstr(text, wanted->text) != NULL;
	return true;
}

/* Whether @text is among the reasons if @job is the process that uses CUDA. */
static inline bool is_a_reason(const char *text, pid_t job, struct tcp_sockets *closable)
{
	struct wanted wanted = {.text = text};

	find_tree();
	outside_find(&tree, &job, 1, &ports, closable, find_wanted, &wanted);
	return wanted.found;
}

static inline int wait_for_signal(void *arg)
{
	(void)arg;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (pause())
		;
	return 0;
}

static inline void end_children(void)
{
	for (size_t i = 1; i < tree.n; i++)
		kill(tree.pids[i], SIGKILL);
}

/* A process with another parent has the second end, and if @both, the first one, too. */
static inline void share(const int ends[2], bool both)
{
	if (!fork()) {
		if (!both)
			close(ends[0]);
		if (!fork())
			while (pause())
				;
		_exit(0);
	}
	wait(NULL);
}

#endif
