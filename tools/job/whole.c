/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/whole.h"

#include "common/settings.h"
#include "common/processes/proc.h"
#include "common/system/memfd.h"
#include "tools/job/scan.h"
#include "tools/process/limited.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void whole_root(const struct job *job, const char *id, struct process *root, pid_t *unknown)
{
	bool overwritten = scan_is_overwritten(&job->process);
	char its[2 * RUNDIR_ID_SIZE];
	struct process above = job->process;
	struct rundir_process p;

	*root = job->process;
	*unknown = 0;
	for (int depth = 0; *id && depth < TREE_MAX && rundir_process(above.pid, &p); depth++) {
		if (!process_find(p.parent, &above))
			return;
		if (above.uid != job->directory->owner || !process_is_of(&above, above.uid))
			continue;
		scan_environment(&above, settings[SETTING_JOB].name, its, sizeof(its));
		if (!strcmp(its, id)) {
			*root = above;
			*unknown = overwritten ? job->pid : 0;
		} else if (!*its && scan_is_overwritten(&above)) {
			*unknown = above.pid;
		}
	}
}

struct search {
	const struct tree *tree;
	const char *id;
	uid_t owner;
	pid_t command;
};

static bool is_stray(const struct search *search, pid_t pid)
{
	char its[2 * RUNDIR_ID_SIZE];
	struct process process;

	if (pid <= 0 || pid == search->command || pid == getpid() || !process_find(pid, &process) ||
	    process.uid != search->owner || !tree_lacks(search->tree, pid))
		return false;
	/* Not by scan_environment(), which makes a child for each process that may hang: this is one for all of them. */
	host_environment(pid, settings[SETTING_JOB].name, its, sizeof(its));
	return !strcmp(its, search->id) && process_is_there(&process);
}

/* In a child. The result is the contents of a file in memory. */
static int search_in_child(void *arg)
{
	int fd = memfd_make("stray");
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t stray = 0;

	if (fd < 0 || !proc)
		return -errno;
	while (!stray && (entry = readdir(proc)))
		if (is_stray(arg, atoi(entry->d_name)))
			stray = atoi(entry->d_name);
	return pwrite(fd, &stray, sizeof(stray), 0) == sizeof(stray) ? fd : -EIO;
}

int whole_stray(const struct job *job, const char *id, const struct tree *tree, pid_t *stray)
{
	struct search search = {
		.tree = tree, .id = id, .owner = job->directory->owner, .command = getpid()};
	int fd, ret = 0;

	*stray = 0;
	if (!*id)
		return 0;
	fd = limited_open(search_in_child, &search);
	if (fd < 0)
		return fd;
	if (pread(fd, stray, sizeof(*stray), 0) != sizeof(*stray))
		ret = -EIO;
	close(fd);
	return ret;
}
