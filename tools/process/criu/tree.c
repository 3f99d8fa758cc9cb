/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/tree.h"

#include "common/protocol/rundir.h"
#include "common/processes/proc.h"
#include "common/system/shortage.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 3000
#define LOOK_MS     10
#define PATH_SIZE   320

bool tree_has(const struct tree *tree, pid_t pid)
{
	return process_is_among(pid, tree->pids, tree->n);
}

static void add(struct tree *tree, pid_t pid, uint64_t start)
{
	struct process process;

	bool found = process_find(pid, &process);

	tree->halted[tree->n] = found && process.state == 'T';
	tree->runs[tree->n] = -1;
	tree->pids[tree->n] = pid;
	tree->starts[tree->n++] = start;
	if (found && !process_is_of(&process, tree->owner))
		tree->foreign = pid;
}

/*
 * Add the children of the processes in @tree. True if there may be more: some were added, and all
 * had room.
 */
static bool add_children(struct tree *tree)
{
	DIR *proc = opendir("/proc");
	size_t before = tree->n;
	struct rundir_process process;
	struct dirent *entry;

	while (proc && (entry = readdir(proc)) && !tree->cut) {
		pid_t pid = atoi(entry->d_name);

		if (pid <= 0 || tree_has(tree, pid) || !rundir_process(pid, &process) ||
		    (process.parent != tree->above && !tree_has(tree, process.parent)))
			continue;
		tree->cut = tree->n == TREE_MAX;
		if (!tree->cut)
			add(tree, pid, process.start);
	}
	if (proc)
		closedir(proc);
	return tree->n > before && !tree->cut;
}

static void begin(struct tree *tree, pid_t above, uid_t owner)
{
	tree->above = above;
	tree->n = 0;
	tree->cut = false;
	tree->owner = owner;
	tree->foreign = 0;
}

void tree_find(struct tree *tree, const struct process *root, uid_t owner)
{
	begin(tree, -1, owner);
	add(tree, root->pid, root->start);
	while (process_is_there(root) && add_children(tree))
		;
}

void tree_find_below(struct tree *tree, pid_t above, uid_t owner)
{
	begin(tree, above, owner);
	while (add_children(tree))
		;
}

bool tree_is_below(pid_t pid, pid_t ancestor)
{
	struct rundir_process process;

	/* PIDs that are taken again meanwhile could make a circle. */
	for (int depth = 0; depth < TREE_MAX && rundir_process(pid, &process); depth++) {
		pid = process.parent;
		if (pid == ancestor)
			return true;
	}
	return false;
}

bool tree_lacks(const struct tree *tree, pid_t pid)
{
	pid_t top = tree->above > 0 ? tree->above : tree->n ? tree->pids[0] : 0;
	struct rundir_process process;

	/* Twice, as one between them may have ended meanwhile. */
	if (tree_has(tree, pid) || (top && (tree_is_below(pid, top) || tree_is_below(pid, top))))
		return false;
	return rundir_process(pid, &process) && !process.ended;
}

bool tree_waits_for(const struct tree *tree, pid_t pid)
{
	bool are_above = tree->pids[0] != pid, any = false;
	struct process process;

	for (size_t i = 0; i < tree->n; i++) {
		if (tree->pids[i] == pid || (are_above && tree_is_below(tree->pids[i], pid)) ||
		    !process_find(tree->pids[i], &process))
			continue;
		if (process.state != 'T')
			return false;
		any = true;
	}
	return any;
}

static void signal_one(const struct tree *tree, size_t i, int signal)
{
	struct process process = {.pid = tree->pids[i], .start = tree->starts[i]};

	/* Without a descriptor nobody can make sure that the PID is still its own: as good as certain, among our own. */
	if (is_shortage(process_signal(&process, tree->owner, signal)))
		kill(process.pid, signal);
}

/* Send it to the processes from @first on, except those that were stopped already if @all is false. */
static void signal_from(const struct tree *tree, size_t first, int signal, bool all)
{
	/* To kill it last would let it run: its group is continued when its parent ends. */
	pid_t head = signal == SIGKILL ? 0 : tree->head;

	for (int turn = 0; turn < 2; turn++)
		for (size_t i = tree->n; i-- > first;)
			if ((all || !tree->halted[i]) &&
			    (tree->pids[i] == head) == (turn == (signal != SIGSTOP)))
				signal_one(tree, i, signal);
}

void tree_signal(const struct tree *tree, int signal)
{
	signal_from(tree, 0, signal, true);
}

void tree_continue(const struct tree *tree)
{
	signal_from(tree, 0, SIGCONT, false);
}

/* The processes found, and those that are made meanwhile, while the process @top is there. */
static bool stop_all(struct tree *tree, const struct process *top)
{
	size_t stopped = 0;
	bool good = true;

	/* A process that is stopped makes no other. */
	while (good && stopped < tree->n) {
		signal_from(tree, stopped, SIGSTOP, false);
		stopped = tree->n;
		good = tree_await_stop(tree);
		while (good && process_is_there(top) && add_children(tree))
			;
	}
	return good;
}

bool tree_stop(struct tree *tree, const struct process *root, uid_t owner)
{
	tree_find(tree, root, owner);
	return stop_all(tree, root);
}

bool tree_stop_below(struct tree *tree, const struct process *above, uid_t owner)
{
	tree_find_below(tree, above->pid, owner);
	return stop_all(tree, above);
}

/* The state of a thread, 'X' if it is gone, '?' if nobody knows; and how often it has left the processor. */
static char thread_state(pid_t pid, const char *thread, int64_t *runs)
{
	char path[PATH_SIZE], line[256], state;
	int64_t n;
	FILE *status;

	*runs = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, thread);
	status = fopen(path, "re");
	state = status || errno == ENOENT ? 'X' : '?';
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "voluntary_ctxt_switches: %" SCNd64, &n) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %" SCNd64, &n) == 1)
			*runs += n;
		else
			sscanf(line, "State: %c", &state);
	if (status)
		fclose(status);
	return state;
}

/*
 * Before the kernel shows the system call of a stopped thread, it waits until the thread has left the processor
 * (wait_task_inactive()). Only who may trace the thread, as CRIU must, can ask for that.
 */
static bool has_left_processor(pid_t pid, const char *thread)
{
	char path[PATH_SIZE], line[32];

	snprintf(path, sizeof(path), "/proc/%d/task/%s/syscall", pid, thread);
	return host_read_line(path, line, sizeof(line)) || strcmp(line, "running") != 0;
}

/*
 * How often a thread has run; -1 if it is not stopped or cannot be looked at, 0 if it has ended. It is shown as stopped
 * a moment before it leaves the processor. Only then its last run counts.
 */
static int64_t thread_runs(pid_t pid, const char *thread)
{
	int64_t runs;
	char state = thread_state(pid, thread, &runs);

	if (state == 'T')
		state = has_left_processor(pid, thread) ? thread_state(pid, thread, &runs) : 'R';
	if (state == 'X' || state == 'Z')
		return 0;
	return state == 'T' ? runs : -1;
}

/* The same for all threads of a process. */
static int64_t process_runs(pid_t pid)
{
	int64_t runs = 0, n = 0;
	char path[PATH_SIZE];
	struct dirent *entry;
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	if (!threads)
		return errno == ENOENT ? 0 : -1;
	while (n >= 0 && (entry = readdir(threads))) {
		n = atoi(entry->d_name) > 0 ? thread_runs(pid, entry->d_name) : 0;
		runs += n;
	}
	closedir(threads);
	return n < 0 ? -1 : runs;
}

bool tree_await_stop(struct tree *tree)
{
	int left = PATIENCE_MS;

	for (size_t i = 0; i < tree->n; i++)
		for (; (tree->runs[i] = process_runs(tree->pids[i])) < 0; left -= LOOK_MS) {
			if (left <= 0)
				return false;
			usleep(LOOK_MS * 1000);
		}
	return true;
}

bool tree_was_continued(const struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++) {
		int64_t runs = tree->runs[i] < 0 ? 0 : process_runs(tree->pids[i]);

		if (runs && runs != tree->runs[i])
			return true;
	}
	return false;
}

bool tree_stayed_stopped(const struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		if (tree->runs[i] < 0)
			return false;
	return !tree_was_continued(tree);
}

/*
 * The process still has its PID: it runs, or its parent has not called wait(2). Without a descriptor it may be another
 * process that has it.
 */
static bool has_its_number(const struct tree *tree, size_t i)
{
	struct rundir_process process;

	errno = 0;
	if (rundir_process(tree->pids[i], &process))
		return process.start == tree->starts[i];
	return is_shortage(-errno) && !host_id_is_free(tree->pids[i]);
}

bool tree_kill(const struct tree *tree)
{
	bool ended = true;
	int left = PATIENCE_MS;

	tree_signal(tree, SIGKILL);
	host_await_end(tree->pids[0], PATIENCE_MS);
	for (size_t i = 0; i < tree->n; i++) {
		for (; i && left > 0 && has_its_number(tree, i); left -= LOOK_MS)
			usleep(LOOK_MS * 1000);
		ended &= !has_its_number(tree, i) || host_await_end(tree->pids[i], 0);
	}
	return ended;
}
