/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/outside_parts.h"

#include "common/processes/maps.h"
#include "common/processes/proc.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <unistd.h>

#define SYSV_PATH "/SYSV" /* the beginning of the path of attached memory: shmget(2) */

/* The one of the processes @one and @other that is of the tree, or 0. */
static pid_t of_tree(const struct tree *tree, pid_t one, pid_t other)
{
	if (tree_has(tree, one))
		return one;
	return tree_has(tree, other) ? other : 0;
}

static void look_at_memory(const struct tree *tree, const char *line, struct reasons *reasons)
{
	char name[REASONS_LABEL], path[PATH_MAX];
	pid_t maker, last, pid;
	int id;

	if (sscanf(line, "%*d %d %*o %*u %d %d", &id, &maker, &last) != 3)
		return;
	pid = of_tree(tree, maker, last);
	/* look_at_attached() has found what is attached. */
	if (pid && maps_find(pid, SYSV_PATH, path) <= 0)
		reasons_give(
			reasons,
			"%s has used the System V shared memory %d (shmget), which CRIU does not take",
			reasons_label(pid, name), id);
}

static void look_at_queue(const struct tree *tree, const char *line, struct reasons *reasons)
{
	pid_t sender, receiver, pid;
	char name[REASONS_LABEL];
	int id;

	if (sscanf(line, "%*d %d %*o %*u %*u %d %d", &id, &sender, &receiver) != 3)
		return;
	pid = of_tree(tree, sender, receiver);
	if (pid)
		reasons_give(
			reasons,
			"%s has used the System V message queue %d (msgget), which CRIU does not take",
			reasons_label(pid, name), id);
}

static void look_at_semaphores(const struct tree *tree, const char *line, struct reasons *reasons)
{
	char name[REASONS_LABEL];
	int id, count;
	uid_t owner;

	if (sscanf(line, "%*d %d %*o %d %u", &id, &count, &owner) != 3 || owner != tree->owner)
		return;
	for (int i = 0; i < count; i++) {
		pid_t pid = semctl(id, i, GETPID);

		if (!tree_has(tree, pid))
			continue;
		reasons_give(
			reasons,
			"%s has used the System V semaphores %d (semget), which CRIU does not take",
			reasons_label(pid, name), id);
		break;
	}
}

static void look_at_attached(const struct tree *tree, struct reasons *reasons)
{
	char name[REASONS_LABEL], path[PATH_MAX];

	for (size_t i = 0; i < tree->n && !reasons->over; i++)
		if (maps_find(tree->pids[i], SYSV_PATH, path) > 0)
			reasons_give(
				reasons,
				"%s has System V shared memory (shmget), which CRIU does not take",
				reasons_label(tree->pids[i], name));
}

/* Of a set of semaphores, a queue or memory that is not attached, the kernel knows only who has used it last. */
void outside_look_at_ipc(const struct tree *tree, struct reasons *reasons)
{
	static const struct {
		const char *path; /* proc_sysvipc(5) */
		void (*look)(const struct tree *tree, const char *line, struct reasons *reasons);
	} kinds[] = {{"/proc/sysvipc/shm", look_at_memory},
		     {"/proc/sysvipc/msg", look_at_queue},
		     {"/proc/sysvipc/sem", look_at_semaphores}};
	char line[512];

	look_at_attached(tree, reasons);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		FILE *file = fopen(kinds[i].path, "re");

		while (file && !reasons->over && fgets(line, sizeof(line), file))
			kinds[i].look(tree, line, reasons);
		if (file)
			fclose(file);
	}
}

/*
 * A new process is in the session of its parent, until it begins one: so CRIU makes them. A process may have left the
 * session since that its children are in, or have adopted one; CRIU finds out only for children of the first process,
 * and for what a process above has begun [CRIU 4.2, prepare_pstree_ids()].
 */
void outside_look_at_origins(const struct tree *tree, struct reasons *reasons)
{
	char name[REASONS_LABEL], other[REASONS_LABEL];

	for (size_t i = 1; i < tree->n && !reasons->over; i++) {
		pid_t pid = tree->pids[i], session = getsid(pid), parent;

		if (session <= 0 || session == pid || !host_process(pid, &parent) ||
		    parent == tree->pids[0] || getsid(parent) == session ||
		    (tree_has(tree, session) && tree_is_below(pid, session)))
			continue;
		reasons_give(
			reasons,
			"%s is in the session %d, which neither its parent %s is in nor a process above has "
			"begun: a restore could not put it there",
			reasons_label(pid, name), session, reasons_label(parent, other));
	}
}

/* Ids of sessions and process groups. */
struct groups {
	pid_t ids[2 * TREE_MAX];
	size_t n;
};

static void add_group(struct groups *groups, pid_t id)
{
	if (id > 0 && !process_is_among(id, groups->ids, groups->n))
		groups->ids[groups->n++] = id;
}

/*
 * Those that a restore makes: all of the tree, except those that its first process has not begun, as CRIU puts it into
 * the command's (--shell-job).
 */
static void find_groups(const struct tree *tree, struct groups *groups)
{
	const pid_t others[] = {getsid(tree->pids[0]), getpgid(tree->pids[0])};

	groups->n = 0;
	for (size_t i = 0; i < tree->n; i++) {
		const pid_t ids[] = {getsid(tree->pids[i]), getpgid(tree->pids[i])};

		for (size_t k = 0; k < 2; k++)
			if (tree_has(tree, ids[k]) || !process_is_among(ids[k], others, 2))
				add_group(groups, ids[k]);
	}
}

static bool is_made(const struct tree *tree, const struct groups *groups, pid_t id)
{
	return tree_has(tree, id) || process_is_among(id, groups->ids, groups->n);
}

/* While such a process lives, the id of its session or group is not free for a restore. */
void outside_look_at_sessions(const struct tree *tree, struct reasons *reasons)
{
	struct groups groups;
	char name[REASONS_LABEL];
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	find_groups(tree, &groups);
	while (proc && !reasons->over && (entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name), session = pid > 0 ? getsid(pid) : 0,
		      group = pid > 0 ? getpgid(pid) : 0;
		bool in_session = session > 0 && is_made(tree, &groups, session);

		/* One that has ended is gone once its parent has waited for it, as init does. */
		if (!(in_session || (group > 0 && is_made(tree, &groups, group))) ||
		    !tree_lacks(tree, pid))
			continue;
		reasons_give(
			reasons,
			"%s is in the %s %d, which the job has, but is not below its first process: a restore would "
			"fail while it lives",
			reasons_label(pid, name), in_session ? "session" : "process group",
			in_session ? session : group);
	}
	if (proc)
		closedir(proc);
}
