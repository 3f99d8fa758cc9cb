/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/taking.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/host_image.h"
#include "checkpoint/snapshot/in_use.h"
#include "common/processes/proc.h"
#include "common/protocol/journal.h"
#include "tools/process/criu/ports.h"

#include <unistd.h>

/* What restore and inspect need to know of the processes, as keys of host.json. */
static struct {
	const struct taking *t;
	const struct tree *tree;
	struct {
		pid_t session, group;
		char command[PROCESS_NAME];
	} processes[TREE_MAX];
} facts;

void taking_find_facts(const struct taking *t, const struct tree *tree)
{
	facts.t = t;
	facts.tree = tree;
	for (size_t i = 0; i < tree->n; i++) {
		facts.processes[i].session = getsid(tree->pids[i]);
		facts.processes[i].group = getpgid(tree->pids[i]);
		process_name(tree->pids[i], facts.processes[i].command);
	}
}

/* 0: the process has ended meanwhile, or this is not visible in its container. */
static void put_id(struct json_out *out, const char *key, pid_t id)
{
	json_number(out, key, id > 0 ? id : 0);
}

static void put_facts(struct json_out *out)
{
	memory_files_put(out, &facts.t->memory_files);
	json_number(out, "root", facts.t->root.pid);
	json_open(out, "processes", '[');
	for (size_t i = 0; i < facts.tree->n; i++) {
		json_open(out, NULL, '{');
		json_number(out, "pid", facts.tree->pids[i]);
		json_text(out, "command", facts.processes[i].command);
		put_id(out, "session", facts.processes[i].session);
		put_id(out, "group", facts.processes[i].group);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_open(out, "parts", '[');
	for (size_t i = 1; i < facts.t->nparts; i++) {
		json_open(out, NULL, '{');
		json_number(out, "pid", facts.t->parts[i].job->pid);
		json_text(out, "id", facts.t->parts[i].id);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_open(out, "monitors", '[');
	for (size_t i = 0; i < facts.t->monitors.n; i++)
		json_number(out, NULL, facts.t->monitors.pids[i]);
	json_close(out, ']');
	ports_put(out, &facts.t->ports);
}

/* The parts' own manifests, before the one that makes them a snapshot. 0 or a negative errno. */
static int commit_parts(const struct taking *t, struct snapshot_error *error)
{
	int ret = 0;

	for (size_t i = 1; i < t->nparts && !ret; i++) {
		ret = snapshot_dir_commit(t->parts[i].dir, error);
		if (!ret)
			ret = snapshot_dir_sync(t->parts[i].dir, error);
		taking_name_part(t, i, ret, error);
	}
	return ret;
}

/*
 * Make the image complete, and commit the snapshot, in the directory open as @dir. 0 or a negative
 * errno.
 */
static int seal(struct taking *t, int dir, const struct snapshot_manifest *m, struct tree *tree,
		struct snapshot_error *error)
{
	pid_t stopped[TREE_MAX];
	struct host_facts host = {.ms = t->criu_ms, .stopped = stopped, .put = put_facts};
	int ret;

	for (size_t i = 0; i < tree->n; i++)
		if (tree->halted[i])
			stopped[host.nstopped++] = tree->pids[i];
	t->nprocesses = tree->n;
	ret = commit_parts(t, error);
	if (!ret)
		ret = host_image_seal(dir, m->index, &host, &t->image_bytes, error);
	if (!ret)
		ret = taking_check_stopped(t, tree, error);
	if (!ret)
		ret = snapshot_dir_commit(dir, error);
	if (!ret)
		ret = snapshot_dir_sync(dir, error);
	/* Once more, as a sync may take long. */
	return ret ? ret : taking_check_stopped(t, tree, error);
}

/* Whoever waits for that learns it from the journal. */
static void tell_saved(const struct taking *t, const struct job *job)
{
	const struct journal_event event = {.kind = JOURNAL_SAVED,
					    .pid = job->own_pid,
					    .id = job->status.id,
					    .name = *job->status.name ? job->status.name : NULL,
					    .ran = t->went,
					    .text = t->path};
	int dir = job_open_directory(job);

	if (dir < 0)
		return;
	journal_append(dir, job->directory->owner, &event);
	close(dir);
}

/* Kill the job, which is safe in the snapshot of the directory @dir. */
static void end_job(const struct taking *t, int dir, const struct tree *tree)
{
	/* The connections among them end without a word, so that their ports are free at once. */
	if (tcp_are_connected(&t->ports))
		tcp_repair(tree, true);
	tree_kill(tree);
	memory_files_remove(&t->memory_files);
	for (size_t i = 0; i < t->nparts; i++) {
		snapshot_in_use_clear(i ? t->parts[i].dir : dir, t->parts[i].job->own_pid);
		job_unlink(t->parts[i].job);
	}
}

/* Remove what the new snapshot does not need; a part has the files of the previous one if it is incremental. */
static void clean_all(const struct taking *t, int dir, const struct snapshot_manifest *m)
{
	struct snapshot_manifest part;
	struct snapshot_error ignored;

	for (size_t i = 1; i < t->nparts; i++)
		if (!snapshot_manifest_load(t->parts[i].dir, SNAPSHOT_MANIFEST, &part, &ignored)) {
			snapshot_dir_clean(t->parts[i].dir, snapshot_manifest_names, &part);
			snapshot_manifest_free(&part);
		}
	snapshot_dir_clean(dir, snapshot_manifest_names, m);
}

int taking_commit(struct taking *t, int dir, const struct snapshot_manifest *m, struct tree *tree,
		  struct snapshot_error *error)
{
	int ret = seal(t, dir, m, tree, error);

	if (ret)
		return ret;
	for (size_t i = 0; i < t->nparts; i++)
		tell_saved(t, t->parts[i].job);
	if (t->stop)
		end_job(t, dir, tree);
	clean_all(t, dir, m);
	return 0;
}
