/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/descriptors.h"

#include "common/processes/maps.h"
#include "common/system/shortage.h"
#include "common/text.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define QUEUES 0x19800202 /* MQUEUE_MAGIC of the kernel's ipc/mqueue.c */

static enum descriptor_kind find_kind(const char *target)
{
	static const struct {
		const char *target;
		enum descriptor_kind kind;
	} kinds[] = {
		{"anon_inode:[timerfd]", DESCRIPTOR_TIMER},
		{"anon_inode:[pidfd]", DESCRIPTOR_PROCESS},
		{"anon_inode:[io_uring]", DESCRIPTOR_REFUSED},
		{"anon_inode:[userfaultfd]", DESCRIPTOR_REFUSED},
		{"anon_inode:[perf_event]", DESCRIPTOR_REFUSED},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(target, kinds[i].target))
			return kinds[i].kind;
	return DESCRIPTOR_OTHER;
}

/* mq_overview(7): a queue has a path in a file system of its own, whether that is mounted or not. */
static bool is_queue(const char *target, const struct descriptor *opened)
{
	struct statfs found;
	char path[64];

	/* So no other file system is asked, which may not answer. */
	if (*target != '/' || strchr(target + 1, '/'))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", opened->pid, opened->fd);
	return !statfs(path, &found) && found.f_type == QUEUES;
}

/* Whether the file is at its path, though that ends as that of a deleted one. */
static bool is_there(const char *target, const struct descriptor *opened, const struct statx *st)
{
	char path[PATH_MAX + 32];
	struct statx found;

	snprintf(path, sizeof(path), "/proc/%d/root%s", opened->pid, target);
	return !statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &found) &&
	       found.stx_ino == st->stx_ino && found.stx_dev_major == st->stx_dev_major &&
	       found.stx_dev_minor == st->stx_dev_minor;
}

/* proc_pid_fd(5); and NFS keeps a file that was removed under such a name while it is open. */
static bool has_lost_name(const char *target, const struct descriptor *opened,
			  const struct statx *st)
{
	static const char nfs[] = "/.nfs";
	struct statfs found;
	char path[64];

	if (!st->stx_nlink)
		return false;
	if (maps_is_former(target))
		return !is_there(target, opened, st);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", opened->pid, opened->fd);
	return !strncmp(strrchr(target, '/'), nfs, strlen(nfs)) && !statfs(path, &found) &&
	       found.f_type == NFS_SUPER_MAGIC;
}

/* Its file system answers from what it knows, as it may be away. */
static enum descriptor_kind find_kind_of_file(const char *target, struct descriptor *opened)
{
	struct statx st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", opened->pid, opened->fd);
	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO | STATX_NLINK, &st))
		return DESCRIPTOR_OTHER;
	if (S_ISREG(st.stx_mode) && has_lost_name(target, opened, &st))
		return DESCRIPTOR_RENAMED;
	if (!S_ISFIFO(st.stx_mode))
		return DESCRIPTOR_OTHER;
	opened->device = makedev(st.stx_dev_major, st.stx_dev_minor);
	opened->inode = st.stx_ino;
	return DESCRIPTOR_PIPE;
}

static bool classify(const char *target, struct descriptor *opened)
{
	unsigned long inode = 0;

	if (sscanf(target, "pipe:[%lu]", &inode) == 1)
		opened->kind = DESCRIPTOR_PIPE;
	else if (sscanf(target, "socket:[%lu]", &inode) == 1)
		opened->kind = DESCRIPTOR_SOCKET;
	else if (!strncmp(target, DESCRIPTOR_GPU_PATH, strlen(DESCRIPTOR_GPU_PATH)))
		opened->kind = DESCRIPTOR_GPU;
	else
		opened->kind = find_kind(target);
	opened->inode = inode;
	if (opened->kind == DESCRIPTOR_OTHER && *target == '/')
		opened->kind = find_kind_of_file(target, opened);
	if (opened->kind == DESCRIPTOR_OTHER && is_queue(target, opened)) {
		opened->kind = DESCRIPTOR_REFUSED;
		target = "a POSIX message queue";
	}
	format_copy(opened->target, sizeof(opened->target), target);
	return opened->kind != DESCRIPTOR_OTHER;
}

static void add(struct descriptors *list, const struct descriptor *opened)
{
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct descriptor *all = realloc(list->all, room * sizeof(*all));

		list->short_of_memory |= !all;
		if (!all)
			return;
		list->all = all;
		list->room = room;
	}
	list->all[list->n++] = *opened;
}

void descriptors_add_process(struct descriptors *list, pid_t pid)
{
	char path[64], target[PATH_MAX];
	struct dirent *entry;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	list->short_of_memory |= !fds && is_shortage(-errno);
	while (fds && (entry = readdir(fds))) {
		struct descriptor opened = {.pid = pid, .fd = atoi(entry->d_name)};
		ssize_t len = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1);
		struct stat st;

		if (len < 0 || fstatat(dirfd(fds), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		target[len] = '\0';
		opened.reads = st.st_mode & S_IRUSR;
		opened.writes = st.st_mode & S_IWUSR;
		if (classify(target, &opened))
			add(list, &opened);
	}
	if (fds)
		closedir(fds);
}

void descriptors_add_tree(struct descriptors *list, const struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		descriptors_add_process(list, tree->pids[i]);
}

void descriptors_add_others(struct descriptors *list, const struct tree *tree)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	list->short_of_memory |= !proc;
	while (proc && (entry = readdir(proc))) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;

		if (pid && pid != getpid() && tree_lacks(tree, pid))
			descriptors_add_process(list, pid);
	}
	if (proc)
		closedir(proc);
}

const struct descriptor *descriptors_far_end(const struct descriptors *list,
					     const struct descriptor *end)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct descriptor *o = &list->all[i];

		if (o->kind == DESCRIPTOR_PIPE && o->device == end->device &&
		    o->inode == end->inode && (end->reads || o->reads) &&
		    (end->writes || o->writes))
			return o;
	}
	return NULL;
}

const struct descriptor *descriptors_socket(const struct descriptors *list, ino_t inode)
{
	for (size_t i = 0; i < list->n && inode; i++)
		if (list->all[i].kind == DESCRIPTOR_SOCKET && list->all[i].inode == inode)
			return &list->all[i];
	return NULL;
}

const struct descriptor *descriptors_of(const struct descriptors *list, enum descriptor_kind kind,
					pid_t pid)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->all[i].kind == kind && list->all[i].pid == pid)
			return &list->all[i];
	return NULL;
}
