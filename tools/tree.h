/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TREE_H
#define CUDAW_TREE_H
/* A process and all that descends from it. */
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TREE_MAX 4096

struct tree {
	pid_t pids[TREE_MAX];
	size_t n;
	bool cut;               /* there are more */
	int64_t runs[TREE_MAX]; /* since tree_await_stop(): how often each had run by then */
};

/* Those that there are now; of processes that are stopped, or frozen, none is missed. */
void tree_find(struct tree *tree, pid_t root);

bool tree_has(const struct tree *tree, pid_t pid);

/* Send all of them a signal, the children first. */
void tree_signal(const struct tree *tree, int signal);

/* Wait until all of them are stopped, or have ended. False where one does not stop in time. */
bool tree_await_stop(struct tree *tree);

/* Whether none has run since tree_await_stop(), but perhaps to be killed; not where that was false. */
bool tree_stayed_stopped(const struct tree *tree);

/*
 * Kill all of them, and wait until the first has ended, whether its parent has waited(2) for it or
 * not, and the ids of the others are free: init waits for those, though perhaps not at once.
 */
void tree_kill(const struct tree *tree);

#endif
