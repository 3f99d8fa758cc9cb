/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tree.h"

#include "tools/host.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE_MS 3000

/* Add the children of the process at @at. */
static void add_children(struct tree *tree, pid_t of)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t parent;

	while (proc && (entry = readdir(proc)) && tree->n < TREE_MAX) {
		pid_t pid = atoi(entry->d_name);

		if (pid > 0 && host_process(pid, &parent) && parent == of)
			tree->pids[tree->n++] = pid;
	}
	if (proc)
		closedir(proc);
}

void tree_find(struct tree *tree, pid_t root)
{
	tree->n = 1;
	tree->pids[0] = root;
	for (size_t i = 0; i < tree->n; i++)
		add_children(tree, tree->pids[i]);
}

void tree_signal(const struct tree *tree, int signal)
{
	for (size_t i = tree->n; i-- > 0;)
		kill(tree->pids[i], signal);
}

void tree_kill(const struct tree *tree)
{
	tree_signal(tree, SIGKILL);
	for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
		size_t left = 0;

		for (size_t i = 0; i < tree->n; i++)
			left += !kill(tree->pids[i], 0);
		if (!left)
			return;
		usleep(10000);
	}
}
