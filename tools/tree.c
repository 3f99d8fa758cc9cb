/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tree.h"

#include "tools/host.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE_MS 3000
#define LOOK_MS     10

bool tree_has(const struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->n; i++)
		if (tree->pids[i] == pid)
			return true;
	return false;
}

/*
 * Add the children of those in @tree. Whether there may be more: some were added, and all had room.
 */
static bool add_children(struct tree *tree)
{
	DIR *proc = opendir("/proc");
	size_t before = tree->n;
	struct dirent *entry;
	pid_t parent;

	while (proc && (entry = readdir(proc)) && !tree->cut) {
		pid_t pid = atoi(entry->d_name);

		if (pid <= 0 || tree_has(tree, pid) || !host_process(pid, &parent) ||
		    !tree_has(tree, parent))
			continue;
		tree->cut = tree->n == TREE_MAX;
		if (!tree->cut)
			tree->pids[tree->n++] = pid;
	}
	if (proc)
		closedir(proc);
	return tree->n > before && !tree->cut;
}

void tree_find(struct tree *tree, pid_t root)
{
	tree->n = 1;
	tree->cut = false;
	tree->pids[0] = root;
	while (add_children(tree))
		;
}

void tree_signal(const struct tree *tree, int signal)
{
	for (size_t i = tree->n; i-- > 0;)
		kill(tree->pids[i], signal);
}

void tree_kill(const struct tree *tree)
{
	int left = PATIENCE_MS;

	tree_signal(tree, SIGKILL);
	host_await_end(tree->pids[0], PATIENCE_MS);
	for (size_t i = 1; i < tree->n; i++)
		for (; left > 0 && !kill(tree->pids[i], 0); left -= LOOK_MS)
			usleep(LOOK_MS * 1000);
}
