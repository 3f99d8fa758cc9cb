/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/taking.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/host_image.h"
#include "checkpoint/snapshot/in_use.h"
#include "checkpoint/snapshot/manifest_read.h"
#include "common/clock.h"
#include "common/patience.h"
#include "common/processes/proc.h"
#include "common/protocol/journal.h"
#include "common/protocol/protocol.h"
#include "common/system/memfd.h"
#include "common/system/memory_fs.h"
#include "tools/job/outcome.h"
#include "tools/job/party/together.h"
#include "tools/process/criu/ports.h"
#include "tools/process/program.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCK_MS   5000 /* for other processes to finish reading the directory */
#define RETRY_MS  20
#define RETRIES   50  /* of CRIU, while others ask the job something */
#define STOPS     5   /* the most of them that stop the job: whoever watches it sees each */
#define ANSWER_MS 100 /* for the job to answer them, which it does not while it is stopped */

/* The jobs of the parts that have not ended. Returns how many there are. */
static size_t find_living(const struct taking *t, struct job *jobs[SNAPSHOT_PARTS_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < t->nparts; i++)
		if (!host_await_end(t->parts[i].job->pid, 0))
			jobs[n++] = t->parts[i].job;
	return n;
}

/* It has refused, as another snapshot or a resume of it is under way, which is not ours to end. */
static bool is_of_others(const struct job *job)
{
	return !job->error && (job->end == END_BUSY || job->end == END_INVALID);
}

/*
 * "@request DIRECTORY" as the request of each of @n parts, from @first on, that has not ended, and their jobs in @jobs.
 * Returns how many there are.
 */
static size_t make_requests(const struct taking *t, size_t first, size_t n, const char *request,
			    struct job *jobs[SNAPSHOT_PARTS_MAX])
{
	size_t count = 0;

	for (struct taking_part *part = t->parts + first; part < t->parts + first + n; part++) {
		if (host_await_end(part->job->pid, 0))
			continue;
		snprintf(part->request, sizeof(part->request), "%s %s", request,
			 *part->path ? part->path : t->path);
		part->job->request = part->request;
		jobs[count++] = part->job;
	}
	return count;
}

/*
 * The directory, or the one that it is to be made in. What is there in memory is read as fast as it is kept in memory
 * once more.
 */
static bool is_in_memory(const struct taking *t)
{
	char parent[PATH_MAX];

	strcpy(parent, t->path);
	return memory_fs(access(t->path, F_OK) ? dirname(parent) : t->path);
}

/*
 * CRIU's image must not have what the job has saved, and so the job gives it back. If the job is to run on, it is in
 * memory files meanwhile, which this command has. A job without one reads the snapshot. As large as the machine's
 * memory: it is as little as is written.
 */
static void make_memory(const struct taking *t)
{
	size_t size = (size_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);

	if (t->stop || t->gpu_only || is_in_memory(t))
		return;
	for (size_t i = 0; i < t->nparts; i++)
		t->parts[i].memory = memfd_make_sized("cudaw-snapshot", size);
}

/* With the next request to each. */
static void lend_memory(const struct taking *t)
{
	for (size_t i = 0; i < t->nparts; i++)
		if (t->parts[i].memory >= 0)
			job_give_memory(t->parts[i].job,
					fcntl(t->parts[i].memory, F_DUPFD_CLOEXEC, 3));
}

/* Likewise. A job that does not take it back needs the room. */
static void give_memory(const struct taking *t)
{
	for (size_t i = 0; i < t->nparts; i++) {
		job_give_memory(t->parts[i].job, t->parts[i].memory);
		t->parts[i].memory = -1;
	}
}

static void drop_memory(const struct taking *t)
{
	for (size_t i = 0; i < t->nparts; i++) {
		job_give_memory(t->parts[i].job, -1);
		if (t->parts[i].memory >= 0)
			close(t->parts[i].memory);
		t->parts[i].memory = -1;
	}
}

/* Ask @n parts, from @first on, to write. Returns an exit code. */
static int ask_to_write(const struct taking *t, size_t first, size_t n, const char *request)
{
	struct job *jobs[SNAPSHOT_PARTS_MAX];
	size_t count = make_requests(t, first, n, request, jobs);

	return outcome_ask_each(jobs, count, "snapshot", "writing", outcome_line);
}

/* What restore and inspect need to know of the processes, as keys of host.json. */
struct facts {
	const struct taking *t;
	const struct tree *tree;
	struct {
		pid_t session, group;
		char command[PROCESS_NAME];
	} processes[TREE_MAX];
};

/* The snapshot that is to be committed, in the directory open and locked as dir. */
static struct {
	struct taking *t;
	int dir;
	const struct snapshot_manifest *m;
	struct tree *tree;
	struct facts facts;
	struct snapshot_error *error;
	bool done;
	int ret; /* how; 0 or a negative errno */
} last;

static void commit(void);

static struct {
	struct job *jobs[SNAPSHOT_PARTS_MAX];
	size_t n;
} resuming;

/*
 * Once all are asked to resume, they do so without this command. If they have their memory back, it commits meanwhile.
 * Then an interrupt may end it, except where it has to tidy up after one process.
 */
static int resume_line(struct job *job, const struct line *line)
{
	bool went = last.t && last.t->went;

	if (jobs_are_asked(resuming.jobs, resuming.n)) {
		if (went && !last.done)
			commit();
		if (went || resuming.n > 1)
			criu_hold_signals(false);
	}
	return outcome_line(job, line);
}

/* They resume together; if they take turns, when they get theirs. */
static int let_all_go(struct taking *t)
{
	struct job **jobs = resuming.jobs;
	size_t n = make_requests(t, 0, t->nparts, "done", jobs);
	int ret;

	for (size_t i = 0; i < n; i++)
		jobs[i]->status.resume = (struct job_transfer){0};
	resuming.n = n;
	give_memory(t);
	ret = n ? together_resume(jobs, n, "snapshot", "resuming", false, resume_line) : EXIT_DONE;
	for (size_t i = 0; i < n; i++)
		jobs[i]->request = NULL;
	t->stays_paused = !ret && n && job_is_in(jobs[0], STATE_PAUSED);
	return ret;
}

static int let_one_go(struct taking *t)
{
	char request[PATH_MAX + PROTOCOL_WORDS];
	int ret;

	t->job->status.resume = (struct job_transfer){0};
	snprintf(request, sizeof(request), "done %s", t->path);
	t->job->request = request;
	resuming.jobs[0] = t->job;
	resuming.n = 1;
	give_memory(t);
	ret = outcome_ask_each(&t->job, 1, "snapshot", "resuming", resume_line);
	t->stays_paused = !ret && !job_is_in(t->job, STATE_RUNNING);
	return ret;
}

/* End the snapshot's pause: the job resumes, or stays paused if a pause was requested. Where its memory is then, it says. */
static int let_go(struct taking *t)
{
	int ret = t->nparts > 1 ? let_all_go(t) : let_one_go(t);

	if (!t->stays_paused)
		return ret;
	jobs_describe(&t->job, 1);
	t->job->status.resume = (struct job_transfer){0}; /* an earlier one */
	return ret;
}

static bool have_memory(const struct taking *t)
{
	for (size_t i = 0; i < t->nparts; i++)
		if (t->parts[i].memory < 0)
			return false;
	return true;
}

/* Whether all have got their memory back, and do not need the directory any more. */
static bool recall(const struct taking *t)
{
	struct job *jobs[SNAPSHOT_PARTS_MAX];
	size_t n = make_requests(t, 0, t->nparts, "recall", jobs);

	if (n < t->nparts)
		return false;
	lend_memory(t);
	if (outcome_ask_each(jobs, n, NULL, "resuming", outcome_line))
		return false;
	drop_memory(t);
	return true;
}

void taking_clean(const struct taking *t)
{
	struct snapshot_manifest manifest = {0};
	struct snapshot_error error;
	int dir = access(t->path, F_OK) ? -ENOENT
					: snapshot_dir_create(t->path, t->job->uid, 0, &error);

	if (dir < 0)
		return;
	/* A manifest that we do not understand may name anything. */
	if ((!snapshot_manifest_load(dir, SNAPSHOT_MANIFEST, &manifest, &error) ||
	     faccessat(dir, SNAPSHOT_MANIFEST, F_OK, 0)) &&
	    !snapshot_dir_sync(dir, &error))
		snapshot_dir_clean(dir, snapshot_manifest_names, &manifest);
	snapshot_manifest_free(&manifest);
	snapshot_dir_close(dir);
}

/*
 * The snapshot failed while the directory holds the job's memory. A job that ran gets it back and
 * runs on; a job that was paused stays paused, with its memory in the directory alone; a job that
 * has ended needs none.
 */
static void give_up(struct taking *t)
{
	if (t->went)
		return;
	if (t->nparts < 2 && taking_has_ended(t->job)) {
		taking_clean(t);
		return;
	}
	if (t->stopped) {
		complain("%d stays stopped, and %s holds its memory: CRIU was killed, and its TCP "
			 "connections may be unusable until root has continued it: "
			 "'cudaw resume %d' as root",
			 t->job->pid, t->path, t->job->pid);
		return;
	}
	if (let_go(t))
		return;
	/* The job may have begun to resume, and hold its memory again. */
	if (!t->stays_paused || (!t->job->error && strcmp(t->job->status.snapshot, t->path) != 0))
		taking_clean(t);
	else
		complain("%d stays paused; %s holds its memory until it is resumed", t->job->pid,
			 t->path);
}

/* Before the job goes on: its processes may end then. */
static void find_facts(struct facts *facts, const struct taking *t, const struct tree *tree)
{
	facts->t = t;
	facts->tree = tree;
	for (size_t i = 0; i < tree->n; i++) {
		facts->processes[i].session = getsid(tree->pids[i]);
		facts->processes[i].group = getpgid(tree->pids[i]);
		process_name(tree->pids[i], facts->processes[i].command);
	}
}

/* 0: the process has ended meanwhile, or this is not visible in its container. */
static void put_id(struct json_out *out, const char *key, pid_t id)
{
	json_number(out, key, id > 0 ? id : 0);
}

static void put_facts(struct json_out *out, const void *arg)
{
	const struct facts *facts = arg;

	memory_files_put(out, &facts->t->memory_files);
	json_number(out, "root", facts->t->root.pid);
	json_open(out, "processes", '[');
	for (size_t i = 0; i < facts->tree->n; i++) {
		json_open(out, NULL, '{');
		json_number(out, "pid", facts->tree->pids[i]);
		json_text(out, "command", facts->processes[i].command);
		put_id(out, "session", facts->processes[i].session);
		put_id(out, "group", facts->processes[i].group);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_open(out, "parts", '[');
	for (size_t i = 1; i < facts->t->nparts; i++) {
		json_open(out, NULL, '{');
		json_number(out, "pid", facts->t->parts[i].job->pid);
		json_text(out, "id", facts->t->parts[i].id);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_open(out, "monitors", '[');
	for (size_t i = 0; i < facts->t->monitors.n; i++)
		json_number(out, NULL, facts->t->monitors.pids[i]);
	json_close(out, ']');
	ports_put(out, &facts->t->ports);
}

/* If we have stopped the processes: none has run since the image was made. 0 or a negative errno. */
static int check_stopped(const struct taking *t, struct tree *tree, struct snapshot_error *error)
{
	if (!t->stopped || tree_stayed_stopped(tree))
		return 0;
	return snapshot_fail(error, -EBUSY,
			     "it was continued meanwhile (SIGCONT or 'cudaw resume') and runs on");
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
		const struct facts *more, struct snapshot_error *error)
{
	pid_t stopped[TREE_MAX];
	struct host_facts facts = {
		.ms = t->criu_ms, .stopped = stopped, .put = put_facts, .arg = more};
	int ret;

	for (size_t i = 0; i < tree->n; i++)
		if (tree->halted[i])
			stopped[facts.nstopped++] = tree->pids[i];
	t->nprocesses = tree->n;
	ret = commit_parts(t, error);
	if (!ret)
		ret = host_image_seal(dir, m->index, &facts, &t->image_bytes, error);
	if (!ret)
		ret = check_stopped(t, tree, error);
	if (!ret)
		ret = snapshot_dir_commit(dir, error);
	if (!ret)
		ret = snapshot_dir_sync(dir, error);
	/* Once more, as a sync may take long. */
	return ret ? ret : check_stopped(t, tree, error);
}

/*
 * If nothing is stopped: whether a process maps a file in memory that settle() has not seen. CRIU's image has its path
 * alone.
 */
static bool maps_since(const struct taking *t)
{
	struct memory_files files;
	struct tree tree;
	char why[256];
	bool maps;

	if (t->stopped)
		return false;
	tree_find(&tree, &t->root, t->job->directory->owner);
	maps = !memory_files_find(&files, &tree, why, sizeof(why)) || files.n;
	memory_files_free(&files);
	return maps;
}

/*
 * CRIU, into the directory that host_image_make() has made in @dir, and the files in memory beside it. CRIU makes the
 * processes of @tree run; whether they have run since is for check_stopped(). 0 or a negative errno.
 */
static int dump(struct taking *t, int dir, uint32_t index, struct tree *tree,
		struct snapshot_error *error)
{
	char path[PATH_MAX + SNAPSHOT_NAME_SIZE + 1], name[SNAPSHOT_NAME_SIZE], core[32];
	const struct criu_what what = {.root = t->root.pid,
				       .stopped = t->stopped ? tree : NULL,
				       .job = t->job->pid,
				       .connected = tcp_are_connected(&t->ports)};
	int images = host_image_open(dir, index, error), ret;
	struct snapshot_error ignored;

	if (images < 0)
		return images;
	snapshot_name(SNAPSHOT_HOST, index, name);
	snprintf(path, sizeof(path), "%s/%s", t->path, name);
	ret = memory_files_name(&t->memory_files, true, error);
	if (!ret && !criu_dump(&t->criu, images, path, &what))
		ret = snapshot_fail(error, t->criu.again ? -EAGAIN : -EIO, "%s", t->criu.why);
	memory_files_name(&t->memory_files, false, &ignored);
	t->maps = !ret && maps_since(t);
	if (t->maps) {
		ret = snapshot_fail(error, -EAGAIN, "it has mapped a file in memory meanwhile");
		snapshot_dir_empty(images);
	}
	if (!ret && t->stopped && !tree_await_stop(tree))
		ret = check_stopped(t, tree, error);
	if (!ret)
		ret = memory_files_save(&t->memory_files, images, error);
	/* CRIU's exit status alone does not prove that there is an image of the job. */
	for (size_t i = 0; i < t->nparts + t->monitors.n && !ret; i++) {
		snprintf(core, sizeof(core), "core-%d.img",
			 i < t->nparts ? t->parts[i].job->pid : t->monitors.pids[i - t->nparts]);
		if (faccessat(images, core, F_OK, 0))
			ret = snapshot_fail(error, -EIO, "CRIU succeeded, but wrote no %s", core);
	}
	close(images);
	return ret;
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

static int check_program(const struct taking_part *part, struct snapshot_error *error)
{
	struct program now;
	int ret = program_find(part->job->pid, &now);

	/* If it still runs, the PID was its all the time. */
	if (!process_is_there(&part->job->process))
		return snapshot_fail(error, -ESRCH, "it has ended");
	if (ret)
		return snapshot_fail(error, ret, "the program that it runs cannot be found: %s",
				     strerror(-ret));
	if (!program_is_same(&part->program, &now))
		return snapshot_fail(error, -EBUSY,
				     "it has started another program meanwhile (execve), and its "
				     "GPU memory is lost");
	return 0;
}

/*
 * After CRIU, which goes by the PID: whether the processes of @tree, found now, are those that the
 * image is to have, and each part's still runs the program whose memory its directory has.
 * 0 or a negative errno.
 */
static int check_unchanged(const struct taking *t, const struct tree *tree,
			   struct snapshot_error *error)
{
	char why[sizeof(error->text)];
	int ret = 0;

	for (size_t i = 0; i < t->nparts && !ret; i++)
		ret = taking_name_part(t, i, check_program(&t->parts[i], error), error);
	if (ret)
		return ret;
	if (!process_is_there(&t->root))
		return snapshot_fail(error, -ESRCH, "its first process %d has ended", t->root.pid);
	if (!memory_files_alone(&t->memory_files, tree, why, sizeof(why)))
		return snapshot_fail(error, -EBUSY, "%s", why);
	return taking_check_tree(t, tree, error);
}

/* Nothing may be on its way in the connections that stay. 0 or a negative errno. */
static int rest(const struct taking *t, const struct tree *tree, struct snapshot_error *error)
{
	int ret = tcp_rest(tree, &t->ports);

	if (ret == -EAGAIN)
		return snapshot_fail(
			error, ret,
			"a process has not read what another one has sent to it by TCP, and there is "
			"no room for more (try again)");
	return ret ? snapshot_fail(error, ret, "%s", strerror(-ret)) : 0;
}

/* All are stopped, and nothing else is in the way: close the connections to others. 0 or a negative errno. */
static int close_outside(struct taking *t, const struct tree *tree, struct snapshot_error *error)
{
	int ret = tcp_end(tree, &t->outside, &t->nclosed);

	if (ret == -EAGAIN)
		return snapshot_fail(
			error, ret,
			"a TCP connection of it was closed by the other end meanwhile, and is not "
			"read yet (try again)");
	if (ret)
		return snapshot_fail(error, ret, "its TCP connections cannot be closed: %s",
				     strerror(-ret));
	t->closed = true;
	return taking_check_found(t, tree, error);
}

/* Check once more what CRIU cannot take, if need be with the processes stopped. 0 or a negative errno. */
static int settle(struct taking *t, struct tree *tree, struct snapshot_error *error)
{
	int ret;
	char why[256];

	t->closed = false;
	ret = taking_check_processes(t, tree, false, error);
	if (ret || !taking_stops(t))
		return ret;
	if (!monitors_keep(&t->monitors, false, why, sizeof(why)))
		return snapshot_fail(error, -EIO, "%s", why);
	t->stopped = true;
	if (!tree_stop(tree, &t->root, t->job->directory->owner))
		return tree_was_continued(tree)
			       ? snapshot_fail(error, -EBUSY,
					       "a process of it was continued (SIGCONT)")
			       : snapshot_fail(error, -EAGAIN,
					       "a process of it does not stop (try again)");
	monitors_drop(&t->monitors, tree);
	ret = taking_check_found(t, tree, error);
	if (!ret && tcp_are_connected(&t->ports))
		ret = rest(t, tree, error);
	return ret || !t->outside.n ? ret : close_outside(t, tree, error);
}

/* False, and they stay stopped, if a CRIU that was killed has left a connection unusable, or may have. */
static bool let_continue(struct taking *t, const struct tree *tree)
{
	int err = t->stopped ? tcp_repair(tree, false) : 0;
	char why[256];

	if (err == -EPERM || (err && t->criu.killed))
		return false;
	if (t->stopped)
		tree_continue(tree);
	t->stopped = false;
	if (!monitors_let_go(&t->monitors, true, why, sizeof(why))) {
		complain("snapshot %d: %s; NVML stays blocked there", t->job->pid, why);
		t->blind = true;
	}
	return true;
}

/* CRIU, with the processes as they are to stay. 0 or a negative errno. */
static int settle_and_dump(struct taking *t, int dir, uint32_t index, struct tree *tree,
			   struct snapshot_error *error)
{
	struct patience patience = {0};

	for (int left = RETRIES;;) {
		int ret = settle(t, tree, error);

		/* The job's pause itself may keep what passes from passing. */
		if (ret == -EAGAIN && patience_ms(&patience) >= TAKING_AGAIN_MS)
			return ret;
		if (!ret)
			ret = dump(t, dir, index, tree, error);
		left -= t->stopped ? RETRIES / STOPS : 1;
		if (ret != -EAGAIN || left <= 0 || criu_is_interrupted() ||
		    !let_continue(t, tree) || t->blind)
			return ret;
		usleep(ANSWER_MS * 1000);
	}
}

/*
 * Whether the part has written its memory to its directory, open and locked as @dir, and nowhere else since. 0 or a
 * negative errno.
 */
static int check_part(struct taking_part *part, int dir, struct snapshot_error *error)
{
	struct snapshot_manifest m;
	int ret = snapshot_manifest_load(dir, SNAPSHOT_MANIFEST_NEW, &m, error);

	if (ret)
		return ret;
	if (m.pid != part->job->own_pid || !m.image)
		ret = snapshot_fail(error, -EBUSY, "another snapshot was written there meanwhile");
	snapshot_manifest_text(m.root, "id", part->id, sizeof(part->id));
	snapshot_manifest_free(&m);
	if (!ret) {
		ret = program_find(part->job->pid, &part->program);
		if (ret)
			snapshot_fail(error, ret, "the program that it runs cannot be found: %s",
				      strerror(-ret));
	}
	if (ret)
		return ret;
	/*
	 * A job whose memory is in the directory cannot resume while the directory is locked; it may
	 * have resumed before. Its answer also shows that this was its program.
	 */
	jobs_describe(&part->job, 1);
	if (part->job->error)
		return snapshot_fail(error, part->job->error, "%s",
				     job_error_text(part->job->error));
	if (strcmp(part->job->status.snapshot, part->path) != 0)
		return snapshot_fail(error, -EBUSY, "it was resumed meanwhile");
	return 0;
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

static void unlock_all(struct taking *t)
{
	for (size_t i = 0; i < t->nparts; i++) {
		if (t->parts[i].dir >= 0)
			snapshot_dir_close(t->parts[i].dir);
		t->parts[i].dir = -1;
	}
}

/* Then nothing of it needs the directory. If the job goes on already, a failure is told, and tidied up, at once. */
static void commit(void)
{
	struct taking *t = last.t;

	last.done = true;
	last.ret = seal(t, last.dir, last.m, last.tree, &last.facts, last.error);
	for (size_t i = 0; i < t->nparts && !last.ret; i++)
		tell_saved(t, t->parts[i].job);
	if (t->stop && !last.ret)
		end_job(t, last.dir, last.tree);
	if (!last.ret)
		clean_all(t, last.dir, last.m);
	unlock_all(t);
	if (last.ret && t->went) {
		taking_fail(t, last.error->text);
		taking_clean(t);
	}
}

/* The image is made: the job goes on now if it can, else once all is committed. 0 or a negative errno. */
static int complete(struct taking *t, struct snapshot_error *error)
{
	bool early = !t->stop && have_memory(t);
	int ret = early ? check_stopped(t, last.tree, error) : 0;

	if (ret)
		return ret;
	last.error = error;
	find_facts(&last.facts, t, last.tree);
	t->went = early && let_continue(t, last.tree) && recall(t);
	if (t->went)
		t->gone = let_go(t);
	if (!last.done)
		commit();
	return last.ret;
}

/* Write the image and commit, in the directory open and locked as @dir. 0 or a negative errno. */
static int add_image(struct taking *t, int dir, const struct snapshot_manifest *m,
		     struct snapshot_error *error)
{
	double begin = clock_ms();
	struct tree tree, after;
	int ret = 0;

	for (size_t i = 0; i < t->nparts && !ret; i++)
		ret = taking_name_part(
			t, i, check_part(&t->parts[i], i ? t->parts[i].dir : dir, error), error);
	if (ret)
		return ret;
	ret = host_image_make(dir, m->index, error);
	if (ret)
		return ret;
	ret = settle_and_dump(t, dir, m->index, &tree, error);
	t->criu_ms = clock_ms() - begin;
	tree_find(&after, &t->root, t->job->directory->owner);
	if (!ret)
		ret = check_unchanged(t, &after, error);
	last.t = t;
	last.dir = dir;
	last.m = m;
	last.tree = &tree;
	if (!ret)
		ret = complete(t, error);
	if (ret || !t->stop)
		let_continue(t, &tree);
	/* Those that stay stopped have it once somebody continues them. */
	monitors_let_go(&t->monitors, false, NULL, 0);
	return ret;
}

/*
 * Open and lock the part's directory. A process that reads it between the job's writing and ours gets a
 * moment to finish.
 */
static int lock_directory(const struct taking *t, size_t i, struct snapshot_error *error)
{
	const struct job *job = t->parts[i].job;
	int left = LOCK_MS, dir;

	while ((dir = i ? snapshot_dir_take_part(t->parts[0].dir, t->index, job->own_pid, job->uid,
						 error)
			: snapshot_dir_create(t->path, job->uid, job->own_pid, error)) ==
		       -EWOULDBLOCK &&
	       left > 0) {
		usleep(RETRY_MS * 1000);
		left -= RETRY_MS;
	}
	return dir;
}

/* The directories of all parts. 0 or a negative errno. */
static int lock_all(struct taking *t, struct snapshot_error *error)
{
	for (size_t i = 0; i < t->nparts; i++) {
		t->parts[i].dir = lock_directory(t, i, error);
		if (t->parts[i].dir < 0)
			return taking_name_part(t, i, t->parts[i].dir, error);
	}
	return 0;
}

#define ENDED (TAKING_PARTS + 64)

/* The parts that have ended, in @text. False: there is none. */
static bool say_ended(const struct taking *t, char text[ENDED])
{
	char pids[TAKING_PARTS];
	size_t n = 0, len = 0;
	bool first = false;

	for (size_t i = 0; i < t->nparts; i++) {
		struct job *job = t->parts[i].job;

		jobs_describe(&job, 1);
		if (!taking_has_ended(job))
			continue;
		len += snprintf(pids + len, sizeof(pids) - len, n++ ? ", %d" : "%d", job->pid);
		first |= !i;
	}
	if (n == 1 && first)
		strcpy(text, "it has ended");
	else if (n)
		snprintf(text, ENDED,
			 n > 1 ? "its processes %s have ended" : "its process %s has ended", pids);
	return n;
}

static int finish(struct taking *t)
{
	struct snapshot_manifest manifest;
	struct snapshot_error error;
	char ended[ENDED];
	int ret = lock_all(t, &error);

	if (!ret)
		ret = snapshot_manifest_load(t->parts[0].dir, SNAPSHOT_MANIFEST_NEW, &manifest,
					     &error);
	if (!ret) {
		ret = add_image(t, t->parts[0].dir, &manifest, &error);
		snapshot_manifest_free(&manifest);
	}
	unlock_all(t);
	if (!ret || t->went)
		return ret ? EXIT_FAILED : EXIT_DONE;
	/* Other errors are only consequences. */
	return taking_fail(t, say_ended(t, ended) ? ended : error.text);
}

/* Of the snapshot that the first part has written. 0 or a negative errno. */
static int find_index(const struct taking *t, uint32_t *index, struct snapshot_error *error)
{
	int dir = snapshot_dir_open(t->path, error), ret = dir;
	struct snapshot_manifest m;

	if (dir >= 0)
		ret = snapshot_manifest_load(dir, SNAPSHOT_MANIFEST_NEW, &m, error);
	if (dir >= 0)
		snapshot_dir_close(dir);
	if (ret)
		return ret;
	*index = m.index;
	snapshot_manifest_free(&m);
	return 0;
}

/* All parts are paused: the first one makes the directory, then the others write beside it, at once. An exit code. */
static int write_parts(struct taking *t)
{
	char request[PROTOCOL_WORDS + TAKING_PARTS], name[SNAPSHOT_PART_SIZE];
	struct snapshot_error error;
	size_t len = snprintf(request, sizeof(request), "snapshot %shold image parts ",
			      t->incremental ? "incremental " : "");
	int ret;

	for (size_t i = 0; i < t->nparts; i++)
		len += snprintf(request + len, sizeof(request) - len, "%d ",
				t->parts[i].job->own_pid);
	snprintf(request + len, sizeof(request) - len, "%s", snapshot_codec_name(t->codec));
	ret = ask_to_write(t, 0, 1, request);
	if (ret)
		return ret;
	ret = find_index(t, &t->index, &error);
	if (ret)
		return taking_fail(t, error.text);
	for (size_t i = 1; i < t->nparts; i++) {
		snapshot_part_name(t->index, t->parts[i].job->own_pid, name);
		snprintf(t->parts[i].path, sizeof(t->parts[i].path), "%s/%s", t->path, name);
	}
	return ask_to_write(t, 1, t->nparts - 1, request);
}

/* Whether all parts, which are @n jobs, are paused, or none: somebody may have changed that since the checks. */
static int see_states(struct taking *t, struct job **jobs, size_t n)
{
	struct snapshot_error error;
	int ret = n < t->nparts ? snapshot_fail(&error, -ESRCH, "a process of it has ended") : 0;
	size_t paused = 0;

	jobs_describe(jobs, n);
	for (size_t i = 0; i < n && !ret; i++) {
		if (jobs[i]->error)
			ret = snapshot_fail(&error, jobs[i]->error, "%s",
					    job_error_text(jobs[i]->error));
		taking_name_part(t, i, ret, &error);
		paused += job_is_in(jobs[i], STATE_PAUSED);
	}
	if (ret)
		return taking_fail(t, error.text);
	if (paused && paused < n)
		return taking_fail(
			t,
			"some of its processes are paused, and others are not: pause or resume all");
	return EXIT_DONE;
}

/* All processes that use CUDA pause together, with nothing left on the GPU, and write. Returns an exit code. */
static int pause_and_write(struct taking *t)
{
	struct job *jobs[SNAPSHOT_PARTS_MAX];
	size_t n = find_living(t, jobs);
	int ret = see_states(t, jobs, n);

	if (ret)
		return ret;
	lend_memory(t);
	/* A Ctrl-C must not leave it so. */
	ret = together_pause(jobs, n, "snapshot", t->timeout_ms, criu_hold_signals);
	if (ret)
		return ret;
	criu_hold_signals(true);
	ret = criu_is_interrupted() ? EXIT_DONE : write_parts(t);
	if (!ret && criu_is_interrupted())
		ret = taking_fail(t, "interrupted");
	if (!ret)
		return EXIT_DONE;
	give_up(t);
	return ret;
}

/* The one process that uses CUDA is written while it pauses. Returns an exit code. */
static int write_one(struct taking *t)
{
	char request[PATH_MAX + PROTOCOL_WORDS], timeout[32] = "";
	int ret;

	if (t->timeout_ms)
		snprintf(timeout, sizeof(timeout), "%.0f ", t->timeout_ms);
	snprintf(request, sizeof(request), "snapshot pause %s%s%s%s %s", timeout,
		 t->incremental ? "incremental " : "", t->gpu_only ? "" : "hold image ",
		 snapshot_codec_name(t->codec), t->path);
	lend_memory(t);
	ret = outcome_ask(t->job, "snapshot", "writing", request);
	if (!ret)
		return EXIT_DONE;
	/* The job resumes by itself. Another snapshot, or a resume, is not ours to wait for. */
	if (taking_has_ended(t->job))
		taking_clean(t);
	else if (!is_of_others(t->job))
		let_go(t);
	return ret;
}

static int run(struct taking *t)
{
	double begin = clock_ms();
	int ret;

	ret = t->nparts > 1 ? pause_and_write(t) : write_one(t);
	if (ret)
		return ret;
	if (!t->gpu_only) {
		/* Only the directory holds the job's memory: a Ctrl-C must not leave the job so. */
		criu_hold_signals(true);
		ret = finish(t);
		if (ret) {
			give_up(t);
			return ret;
		}
	}
	/*
	 * The snapshot is complete. If this command is ended now, one process runs on by itself, and several once they
	 * are asked to; if the job has ended, let_go() says so.
	 */
	if (!t->stop) {
		if (t->nparts < 2)
			criu_hold_signals(false);
		ret = t->went ? t->gone : let_go(t);
		criu_hold_signals(false);
	}
	t->ms = clock_ms() - begin;
	return ret;
}

int taking_run(struct taking *t)
{
	int ret;

	make_memory(t);
	ret = run(t);
	drop_memory(t);
	return ret;
}
