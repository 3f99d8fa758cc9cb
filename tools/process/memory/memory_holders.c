/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/memory/memory_holders.h"

#include "common/processes/maps.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct memory_file *memory_holders_file(const struct memory_files *files, dev_t dev, ino_t ino)
{
	for (size_t i = 0; i < files->n; i++)
		if (dev && files->list[i].dev == dev && files->list[i].ino == ino)
			return &files->list[i];
	return NULL;
}

/* Note that @pid has the file, if it is one of the list. */
static void note_holder(const struct memory_files *files, dev_t dev, ino_t ino, pid_t pid)
{
	struct memory_file *f = memory_holders_file(files, dev, ino);

	if (f)
		f->holder = pid;
}

/* The lines of proc_pid_maps(5) have the file systems and inodes of the files: the files need not be looked at. */
static void note_mapped(const struct memory_files *files, pid_t pid)
{
	struct maps maps;

	maps_open(&maps, pid);
	while (maps_next(&maps))
		note_holder(files, maps.device, maps.inode, pid);
	maps_close(&maps);
}

/*
 * Whether a descriptor may be of one of the files, by proc_pid_fdinfo(5). Its file system is not asked: that of another
 * user, or of a server that is away, may not answer. Linux before 5.14 does not say the inode.
 */
static bool may_be_one(const struct memory_files *files, pid_t pid, const char *fd)
{
	unsigned long long ino = 0;
	char path[NAME_MAX + 32], line[128];
	bool known = false, may_be = false;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%s", pid, fd);
	info = fopen(path, "re");
	while (info && !known && fgets(line, sizeof(line), info))
		known = sscanf(line, "ino: %llu", &ino) == 1;
	if (info)
		fclose(info);
	for (size_t i = 0; i < files->n && known; i++)
		may_be |= files->list[i].ino == ino;
	return may_be || !known;
}

static void note_opened(const struct memory_files *files, pid_t pid)
{
	char path[32];
	struct dirent *entry;
	struct statx st;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	while (fds && (entry = readdir(fds)))
		if (*entry->d_name != '.' && may_be_one(files, pid, entry->d_name) &&
		    !statx(dirfd(fds), entry->d_name, AT_STATX_DONT_SYNC, STATX_INO, &st))
			note_holder(files, makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino,
				    pid);
	if (fds)
		closedir(fds);
}

const struct memory_file *memory_holders_find(const struct memory_files *files,
					      const struct tree *tree)
{
	DIR *proc = files->n ? opendir("/proc") : NULL;
	struct dirent *entry;

	for (size_t i = 0; i < files->n; i++)
		files->list[i].holder = 0;
	while (proc && (entry = readdir(proc))) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;

		if (!pid || pid == getpid() || (tree && !tree_lacks(tree, pid)))
			continue;
		note_mapped(files, pid);
		note_opened(files, pid);
	}
	if (proc)
		closedir(proc);
	for (size_t i = 0; i < files->n; i++)
		if (files->list[i].holder)
			return &files->list[i];
	return NULL;
}
