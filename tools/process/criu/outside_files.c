/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/outside_parts.h"

#include "common/processes/maps.h"
#include "common/system/memory_fs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CRIU_S 10 /* from the look at a timer to CRIU's, at most */

static bool is_same(const char *path, const struct stat *st)
{
	struct stat found;

	return !stat(path, &found) && found.st_dev == st->st_dev && found.st_ino == st->st_ino;
}

void outside_look_at_directories(const struct tree *tree, struct reasons *reasons)
{
	char link[64], path[PATH_MAX], name[REASONS_LABEL];
	struct stat st;

	for (size_t i = 0; i < tree->n && !reasons->over; i++) {
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/%d/cwd", tree->pids[i]);
		len = readlink(link, path, sizeof(path) - 1);
		path[len > 0 ? len : 0] = '\0';
		if (!maps_is_former(path) || stat(link, &st) || is_same(path, &st))
			continue;
		path[len - strlen(MAPS_FORMER)] = '\0';
		reasons_give(reasons, "the working directory of %s was removed: %s",
			     reasons_label(tree->pids[i], name), path);
	}
}

/* The process that a descriptor of pidfd_open(2) is of; it may have ended (-1). 0: not known. */
static pid_t process_of(const struct descriptor *o)
{
	char path[64], line[128];
	pid_t pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", o->pid, o->fd);
	file = fopen(path, "re");
	while (file && !pid && fgets(line, sizeof(line), file))
		sscanf(line, "Pid: %d", &pid);
	if (file)
		fclose(file);
	return pid;
}

/* What CRIU would refuse only once the job is paused. */
void outside_look_at_kinds(const struct tree *tree, const struct descriptors *mine,
			   struct reasons *reasons)
{
	char name[REASONS_LABEL], other[REASONS_LABEL];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i];
		pid_t pid = o->kind == DESCRIPTOR_PROCESS ? process_of(o) : 0;

		if (o->kind == DESCRIPTOR_REFUSED)
			reasons_give(reasons, "descriptor %d of %s is %s, which CRIU does not take",
				     o->fd, reasons_label(o->pid, name), o->target);
		else if (pid > 0 && tree_lacks(tree, pid))
			reasons_give(
				reasons,
				"descriptor %d of %s is a pidfd of %s, which is not part of the job",
				o->fd, reasons_label(o->pid, name), reasons_label(pid, other));
	}
}

/* Whether memory_files.h gives the file the name back while CRIU works. */
static bool is_carried(const struct tree *tree, const char *link, const char *name)
{
	bool is_mapped = false;
	char path[PATH_MAX];

	for (size_t i = 0; i < tree->n && !is_mapped; i++)
		is_mapped = maps_find(tree->pids[i], name, path) > 0;
	return is_mapped && memory_fs(link);
}

/* CRIU would make a name for such a file, which would stay (--link-remap). */
void outside_look_at_names(const struct tree *tree, const struct descriptors *mine,
			   struct reasons *reasons)
{
	char link[64], path[PATH_MAX], name[REASONS_LABEL];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i];
		ssize_t len;

		if (o->kind != DESCRIPTOR_RENAMED)
			continue;
		snprintf(link, sizeof(link), "/proc/%d/fd/%d", o->pid, o->fd);
		len = readlink(link, path, sizeof(path) - 1);
		path[len > 0 ? len : 0] = '\0';
		if (len > 0 && !is_carried(tree, link, path))
			reasons_give(
				reasons,
				"descriptor %d of %s is a file that has lost its name, and has another one: "
				"close it, or remove its other name: %s",
				o->fd, reasons_label(o->pid, name), path);
	}
}

/* Whether a file is mapped that has lost its name and has another. memory_files.h has those that are shared memory. */
static bool has_lost_name(pid_t pid, const struct maps *maps)
{
	char path[PATH_MAX + 32];
	struct stat st;

	if (!maps->path || !maps_is_former(maps->path))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/map_files/%lx-%lx", pid, maps->begin, maps->end);
	if (stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_nlink ||
	    (maps->rights[1] == 'w' && maps->rights[3] == 's' && memory_fs(path)))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/root%s", pid, maps->path);
	return !is_same(path, &st);
}

/* As a library that was replaced, of which a package manager has another link. */
void outside_look_at_mapped_names(const struct tree *tree, struct reasons *reasons)
{
	char name[REASONS_LABEL];

	for (size_t i = 0; i < tree->n && !reasons->over; i++) {
		struct maps maps;
		ino_t last = 0;

		maps_open(&maps, tree->pids[i]);
		while (!reasons->over && maps_next(&maps)) {
			if (maps.inode == last || !has_lost_name(tree->pids[i], &maps))
				continue;
			last = maps.inode;
			reasons_give(
				reasons,
				"%s maps a file that has lost its name, and has another one: remove its other name, "
				"or start the job anew: %s",
				reasons_label(tree->pids[i], name), maps.path);
		}
		maps_close(&maps);
	}
}

/* The driver's checkpoint takes the GPU files of the jobs. */
void outside_look_at_gpus(const struct tree *tree, const struct descriptors *mine,
			  struct reasons *reasons)
{
	char name[REASONS_LABEL], path[PATH_MAX];

	for (size_t i = 0; i < tree->n && !reasons->over; i++) {
		pid_t pid = tree->pids[i];
		const struct descriptor *gpu = descriptors_of(mine, DESCRIPTOR_GPU, pid);

		if (reasons_is_job(reasons, pid) ||
		    (!gpu && maps_find(pid, DESCRIPTOR_GPU_PATH, path) <= 0))
			continue;
		reasons_give(reasons,
			     "its process %s has %s open, and does not use CUDA under cudaw",
			     reasons_label(pid, name), gpu ? gpu->target : path);
	}
}

/*
 * CRIU restores a periodic timer disarmed if nobody has read its expiry when CRIU reads it
 * [CRIU 4.2, seen]. proc_pid_fdinfo(5) has the format.
 */
static bool may_be_lost(const struct descriptor *timer)
{
	unsigned long long ticks = 0, left = 0, left_ns = 0, period = 0, period_ns = 0;
	char path[64], line[128];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", timer->pid, timer->fd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "ticks: %llu", &ticks) != 1 &&
		    sscanf(line, "it_value: (%llu, %llu)", &left, &left_ns) != 2)
			sscanf(line, "it_interval: (%llu, %llu)", &period, &period_ns);
	if (file)
		fclose(file);
	return (period || period_ns) && (ticks || ((left || left_ns) && left < CRIU_S));
}

void outside_look_at_timers(const struct descriptors *mine, struct reasons *reasons)
{
	char name[REASONS_LABEL];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i];

		if (o->kind != DESCRIPTOR_TIMER || !may_be_lost(o))
			continue;
		reasons_give(reasons,
			     "descriptor %d of %s is a periodic timer that expires too soon: CRIU "
			     "would restore it disarmed",
			     o->fd, reasons_label(o->pid, name));
	}
}
