/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tree.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 3000

/* The parent of a process by /proc/PID/stat; 0 where it is gone. proc(5) has the format. */
static pid_t parent_of(const char *pid)
{
	char path[64], line[512];
	FILE *file;
	int parent = 0;
	char *end;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* The name, in brackets, may have brackets and spaces itself. */
	if (fgets(line, sizeof(line), file) && (end = strrchr(line, ')')) &&
	    sscanf(end + 1, " %*c %d", &parent) != 1)
		parent = 0;
	fclose(file);
	return parent;
}

/* Add the children of the process at @at. */
static void add_children(struct tree *tree, pid_t of)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc)) && tree->n < TREE_MAX)
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
		    parent_of(entry->d_name) == of)
			tree->pids[tree->n++] = atoi(entry->d_name);
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
