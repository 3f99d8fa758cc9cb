/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/taking.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/manifest_read.h"
#include "common/patience.h"
#include "common/processes/proc.h"
#include "tools/job/targets.h"
#include "tools/job/whole.h"
#include "tools/process/criu/outside.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define END_MS  3000 /* for an unresponsive job to exit */
#define LOOK_MS 20

int taking_fail(const struct taking *t, const char *why)
{
	complain("snapshot %d: %s", t->job->pid, why);
	return EXIT_FAILED;
}

bool taking_has_ended(const struct job *job)
{
	/* Only the socket tells whether a job that is not visible here has ended. */
	if (!job->seen)
		return job_is_gone(job);
	return (job_is_gone(job) || job->error == -ECONNRESET) && host_await_end(job->pid, END_MS);
}

int taking_name_part(const struct taking *t, size_t i, int ret, struct snapshot_error *error)
{
	struct snapshot_error of_part;

	if (!ret || !i)
		return ret;
	snapshot_fail(&of_part, ret, "its process %d: %.300s", t->parts[i].job->pid, error->text);
	*error = of_part;
	return ret;
}

int taking_check_tree(const struct taking *t, const struct tree *tree, struct snapshot_error *error)
{
	char name[PROCESS_NAME], id[RUNDIR_ID_SIZE];
	pid_t stray;
	int ret;

	if (tree->foreign)
		return snapshot_fail(error, -ENOTSUP,
				     "its process %d runs as another user, as under sudo",
				     tree->foreign);
	if (tree->cut)
		return snapshot_fail(error, -ENOTSUP, "it has more than %d processes", TREE_MAX);
	if (tree_has(tree, getpid()))
		return snapshot_fail(
			error, -ENOTSUP,
			"this command is a process of the job, below its first process %d: "
			"run it elsewhere",
			t->root.pid);
	if (tree_has(tree, 1))
		return snapshot_fail(
			error, -ENOTSUP,
			"its process 1 is the init of a container, whose id no restore can give: "
			"start the job below an init of its own (docker run --init)");
	if (t->unknown)
		return snapshot_fail(
			error, -ENOTSUP,
			"process %d (%s) has overwritten its environment, by which the processes of a "
			"job are found: start the program so that it does not (SPT_NOENV=1)",
			t->unknown, process_name(t->unknown, name));
	targets_id(t->job, id);
	ret = whole_stray(t->job, id, tree, &stray);
	if (ret)
		return snapshot_fail(error, ret, "its processes cannot be found: %s",
				     strerror(-ret));
	if (!stray)
		return 0;
	return snapshot_fail(
		error, -ENOTSUP,
		"%d (%s) belongs to the job, but is not below its first process %d: end it first",
		stray, process_name(stray, name), t->root.pid);
}

bool taking_stops(const struct taking *t)
{
	return t->stop || t->memory_files.n || t->maps || t->root.pid != t->job->pid ||
	       t->nparts > 1 || t->monitors.n || t->outside.n || tcp_are_connected(&t->ports);
}

static bool has_part(const struct taking *t, pid_t pid)
{
	for (size_t i = 0; i < t->nparts; i++)
		if (t->parts[i].job->pid == pid)
			return true;
	return false;
}

static struct job *find_job(const struct taking *t, pid_t pid)
{
	for (struct job *job = t->list.jobs; job < t->list.jobs + t->list.n; job++)
		if (job->seen && job->pid == pid)
			return job;
	return NULL;
}

/* The processes of the tree that use CUDA under cudaw, in the tree's order. 0 or a negative errno. */
static int find_parts(struct taking *t, const struct tree *tree)
{
	struct job *jobs[TREE_MAX];

	for (size_t i = 0; i < tree->n; i++) {
		struct job *job = find_job(t, tree->pids[i]);

		if (job)
			jobs[t->nparts++] = job;
	}
	if (!t->nparts)
		return tree->cut ? 0 : -ESRCH;
	t->parts = calloc(t->nparts + 1, sizeof(*t->parts));
	if (!t->parts)
		return -ENOMEM;
	jobs_describe(jobs, t->nparts);
	for (size_t i = 0; i < t->nparts; i++)
		t->parts[i] = (struct taking_part){.job = jobs[i], .dir = -1, .memory = -1};
	t->job = jobs[0];
	strcpy(t->parts[0].path, t->path);
	return 0;
}

int taking_check_processes(struct taking *t, struct tree *tree, bool patient,
			   struct snapshot_error *error)
{
	struct patience patience = {0};
	char id[RUNDIR_ID_SIZE];
	int ret;

	if (!t->job->seen || !host_same_ids(t->job->pid))
		return snapshot_fail(error, -ENOTSUP,
				     "it is in another PID namespace (a container), where it is "
				     "process %d: run 'cudaw snapshot' there",
				     t->job->own_pid);
	targets_id(t->job, id);
	whole_root(t->job, id, &t->root, &t->unknown);
	for (;;) {
		tree_find(tree, &t->root, t->job->directory->owner);
		ret = t->parts ? 0 : find_parts(t, tree);
		if (ret)
			return snapshot_fail(error, ret, "%s",
					     ret == -ESRCH ? "it has ended" : "out of memory");
		tree->head = t->job->pid;
		ret = taking_check_found(t, tree, error);
		if (ret != -EAGAIN || !patient || patience_ms(&patience) >= TAKING_AGAIN_MS)
			return ret;
		usleep(LOOK_MS * 1000);
	}
}

/* Several parts are asked together, by one directory of sockets. 0 or a negative errno. */
static int check_parts(const struct taking *t, struct snapshot_error *error)
{
	char id[RUNDIR_ID_SIZE], other[RUNDIR_ID_SIZE];

	if (t->nparts > SNAPSHOT_PARTS_MAX)
		return snapshot_fail(error, -ENOTSUP,
				     "expected at most %d processes that use the GPU, found %zu",
				     SNAPSHOT_PARTS_MAX, t->nparts);
	if (t->nparts > 1 && *t->path && snapshot_dir_check_path(t->path, TAKING_PARTS, error))
		return -ENOTSUP;
	targets_id(t->job, id);
	for (size_t i = 1; i < t->nparts; i++) {
		const struct job *job = t->parts[i].job;

		targets_id(job, other);
		if (strcmp(id, other) != 0 || strcmp(job->directory->path, t->job->directory->path))
			return snapshot_fail(
				error, -ENOTSUP,
				"its process %d uses the GPU, too, but as another job, "
				"or with another CUDAW_RUNTIME_DIR",
				job->pid);
		if (job->error)
			return taking_name_part(
				t, i,
				snapshot_fail(error, job->error, "%s", job_error_text(job->error)),
				error);
	}
	return 0;
}

/* Other processes of the tree that are in the list of those that use the GPU. */
static int check_users(const struct taking *t, const struct tree *tree,
		       struct snapshot_error *error)
{
	int directory = job_open_directory(t->job), ret = check_parts(t, error);
	char name[32];

	for (size_t i = 0; i < tree->n && directory >= 0 && !ret; i++) {
		snprintf(name, sizeof(name), "%d" RUNDIR_SUFFIX, tree->pids[i]);
		if (!has_part(t, tree->pids[i]) && !faccessat(directory, name, F_OK, 0))
			ret = snapshot_fail(error, -ENOTSUP,
					    "its process %d has begun to use the GPU meanwhile",
					    tree->pids[i]);
	}
	for (size_t i = 0; i < t->nparts && !ret; i++)
		if (!tree_has(tree, t->parts[i].job->pid))
			ret = snapshot_fail(error, -ESRCH, "its process %d has ended",
					    t->parts[i].job->pid);
	if (directory >= 0)
		close(directory);
	return ret;
}

static int check_namespaces(const struct tree *tree, struct snapshot_error *error)
{
	struct process process;

	for (size_t i = 0; i < tree->n; i++)
		if (process_find(tree->pids[i], &process) && process.own_pid != process.pid)
			return snapshot_fail(error, -ENOTSUP,
					     "its process %d is in a PID namespace of its own",
					     tree->pids[i]);
	return 0;
}

/* The reasons: the first one, and with --check all, which are printed. */
struct finding {
	const struct taking *t;
	struct snapshot_error *error;
	bool any, lasts; /* lasts: one that will not be over a moment later */
};

/* True if the others are to be found, too. */
static bool take_reason(void *arg, const char *why, bool passes)
{
	struct finding *f = arg;

	if (f->t->check)
		taking_fail(f->t, why);
	else
		snapshot_fail(f->error, -ENOTSUP, "%s", why);
	f->any = true;
	f->lasts |= !passes;
	return f->t->check;
}

int taking_check_found(struct taking *t, const struct tree *tree, struct snapshot_error *error)
{
	struct finding f = {.t = t, .error = error};
	struct snapshot_error one;
	pid_t pids[SNAPSHOT_PARTS_MAX + MONITORS_MAX];
	size_t n = 0;
	bool goes_on = !taking_check_tree(t, tree, &one) || take_reason(&f, one.text, false);

	if (goes_on && check_users(t, tree, &one))
		goes_on = take_reason(&f, one.text, false);
	if (goes_on && check_namespaces(tree, &one))
		goes_on = take_reason(&f, one.text, false);
	memory_files_free(&t->memory_files);
	if (goes_on && !memory_files_find(&t->memory_files, tree, one.text, sizeof(one.text)))
		goes_on = take_reason(&f, one.text, false);
	for (; n < t->nparts && n < SNAPSHOT_PARTS_MAX; n++)
		pids[n] = t->parts[n].job->pid;
	/*
	 * Stopped processes do not answer, and the driver has taken the files of those that were found before. One that
	 * was opened since is not taken.
	 */
	if (goes_on && !t->stopped) {
		if (!monitors_find(&t->monitors, tree, pids, n, one.text, sizeof(one.text)))
			goes_on = take_reason(&f, one.text, true);
		memcpy(pids + n, t->monitors.pids, t->monitors.n * sizeof(*pids));
		n += t->monitors.n;
	}
	if (goes_on)
		outside_find(tree, pids, n, &t->ports,
			     t->close_outside && !t->closed ? &t->outside : NULL, take_reason, &f);
	goes_on = !f.any || t->check;
	if (goes_on && taking_stops(t) && !process_can_signal())
		goes_on = take_reason(&f, PROCESS_CANNOT_SIGNAL, false);
	if (goes_on && !criu_may_take(&t->criu, tree))
		goes_on = take_reason(&f, t->criu.why, false);
	if (goes_on && tcp_are_connected(&t->ports) && !criu_may_repair(&t->criu))
		take_reason(&f, t->criu.why, false);
	return !f.any ? 0 : f.lasts ? -ENOTSUP : -EAGAIN;
}

/*
 * Whether the memory of another job may be in the snapshot of @manifest in the directory @dir.
 */
static bool has_another(struct taking *t, int dir, const char *manifest)
{
	struct snapshot_manifest m = {0};
	struct snapshot_error ignored;
	bool has = false;

	if (!snapshot_manifest_load(dir, manifest, &m, &ignored))
		for (struct job *job = t->list.jobs; job < t->list.jobs + t->list.n; job++) {
			if (job->own_pid != m.pid || has_part(t, job->pid) || job == t->job)
				continue;
			jobs_describe(&job, 1);
			has = job->error ? !job_is_gone(job) && !taking_has_ended(job)
					 : !strcmp(job->status.snapshot, t->path);
			if (has)
				complain(
					"%s: %d may have its memory in it; 'cudaw resume %d' first",
					t->path, job->pid, job->pid);
			break;
		}
	snapshot_manifest_free(&m);
	return has;
}

int taking_check_directory(struct taking *t)
{
	struct snapshot_error ignored;
	int dir = snapshot_dir_open(t->path, &ignored);
	bool has;

	if (dir < 0)
		return EXIT_DONE;
	has = has_another(t, dir, SNAPSHOT_MANIFEST_NEW) || has_another(t, dir, SNAPSHOT_MANIFEST);
	snapshot_dir_close(dir);
	return has ? EXIT_FAILED : EXIT_DONE;
}
