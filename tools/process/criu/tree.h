/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TREE_H
#define CUDAW_TREE_H
/*
 * A process and all its descendants. Signals go neither to another process that has got a PID of
 * theirs meanwhile, nor to a process of another user (tools/process/process.h), as under sudo(8).
 */
#include "tools/process/process.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TREE_MAX 4096

/* The functions that find the processes leave @head as it is. */
struct tree {
	pid_t pids[TREE_MAX];
	uint64_t starts[TREE_MAX]; /* of each, as in struct process */
	bool halted[TREE_MAX];     /* it was stopped when it was found */
	size_t n;
	pid_t above; /* set by tree_find_below(), or -1 */
	/*
	 * The caller's: stopped first and continued last, so that all others run while it runs, whenever the caller is
	 * killed. Not so for SIGKILL. 0: none.
	 */
	pid_t head;
	uid_t owner;
	pid_t foreign;          /* a process of another user than @owner, or 0 */
	bool cut;               /* there are more */
	int64_t runs[TREE_MAX]; /* set by tree_await_stop(): how often each has run */
};

/*
 * Find the processes that exist now; @root belongs to @owner. Of stopped or frozen processes none
 * is missed.
 */
void tree_find(struct tree *tree, const struct process *root, uid_t owner);

/* The same for all descendants of the process @above, without it. There may be none. */
void tree_find_below(struct tree *tree, pid_t above, uid_t owner);

bool tree_has(const struct tree *tree, pid_t pid);

/* Whether @ancestor is the parent of the process @pid, or of a parent of it, and so on. */
bool tree_is_below(pid_t pid, pid_t ancestor);

/*
 * Whether the process @pid lives outside of the tree, which may run: one that it has made since it was found is not
 * outside.
 */
bool tree_lacks(const struct tree *tree, pid_t pid);

/*
 * Whether all others are stopped than the process @pid and those below it; or, if it is the first one, all below it.
 * False if there are none.
 */
bool tree_waits_for(const struct tree *tree, pid_t pid);

/* Send a signal to all processes of the owner, the children first, except the head. */
void tree_signal(const struct tree *tree, int signal);

/*
 * Find the processes as tree_find() does, and stop all of them, also those that are made meanwhile. False
 * if one does not stop in time.
 */
bool tree_stop(struct tree *tree, const struct process *root, uid_t owner);

/* The same for all descendants of @above, without it. */
bool tree_stop_below(struct tree *tree, const struct process *above, uid_t owner);

/* Let all run on, except those that somebody else had stopped. */
void tree_continue(const struct tree *tree);

/* Wait until all are stopped or have ended. False if a process does not stop in time. */
bool tree_await_stop(struct tree *tree);

/* Whether one has run that was stopped in tree_await_stop(), which may have returned false. */
bool tree_was_continued(const struct tree *tree);

/*
 * Whether no process has run since tree_await_stop(), except to be killed. False if
 * tree_await_stop() returned false.
 */
bool tree_stayed_stopped(const struct tree *tree);

/*
 * Kill all, and wait until the first process has ended, whether its parent has called wait(2) or
 * not, and the ids of the others are free: init calls wait(2) for them, perhaps not at once. False
 * if one has not ended by then.
 */
bool tree_kill(const struct tree *tree);

#endif
