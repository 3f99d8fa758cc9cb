/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TREE_H
#define CUDAW_TREE_H
/*
 * A process and all that descends from it. A number that another process has by now is not
 * signalled, nor is a process of another user (tools/process/process.h), as one that sudo(8) has
 * started.
 */
#include "tools/process/process.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TREE_MAX 4096

struct tree {
	pid_t pids[TREE_MAX];
	uint64_t starts[TREE_MAX]; /* of each, as in struct process */
	size_t n;
	uid_t owner;
	pid_t foreign;          /* one that is not of @owner, or 0 */
	bool cut;               /* there are more */
	int64_t runs[TREE_MAX]; /* since tree_await_stop(): how often each had run by then */
};

/*
 * Those that there are now, @root being one of @owner; of processes that are stopped, or frozen,
 * none is missed.
 */
void tree_find(struct tree *tree, const struct process *root, uid_t owner);

bool tree_has(const struct tree *tree, pid_t pid);

/* Send a signal to all of them that are of the owner, the children first. */
void tree_signal(const struct tree *tree, int signal);

/* Wait until all of them are stopped, or have ended. False where one does not stop in time. */
bool tree_await_stop(struct tree *tree);

/*
 * Whether none has run since tree_await_stop(), but perhaps to be killed; not where that was false.
 */
bool tree_stayed_stopped(const struct tree *tree);

/*
 * Kill all of them, and wait until the first has ended, whether its parent has waited(2) for it or
 * not, and the ids of the others are free: init waits for those, though perhaps not at once.
 */
void tree_kill(const struct tree *tree);

#endif
