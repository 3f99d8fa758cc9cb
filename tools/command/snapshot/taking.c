/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/taking.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/host_image.h"
#include "common/clock.h"
#include "common/processes/proc.h"
#include "common/protocol/protocol.h"
#include "common/system/memfd.h"
#include "common/system/memory_fs.h"
#include "tools/job/outcome.h"
#include "tools/job/party/together.h"
#include "tools/process/program.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOCK_MS  5000 /* for other processes to finish reading the directory */
#define RETRY_MS 20

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

/* The snapshot that is to be committed, in the directory open and locked as dir. */
static struct {
	struct taking *t;
	int dir;
	const struct snapshot_manifest *m;
	struct tree *tree;
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
	last.ret = taking_commit(t, last.dir, last.m, last.tree, last.error);
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
	int ret = early ? taking_check_stopped(t, last.tree, error) : 0;

	if (ret)
		return ret;
	last.error = error;
	taking_find_facts(t, last.tree);
	t->went = early && taking_continue(t, last.tree) && recall(t);
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
	struct tree tree;
	int ret = 0;

	for (size_t i = 0; i < t->nparts && !ret; i++)
		ret = taking_name_part(
			t, i, check_part(&t->parts[i], i ? t->parts[i].dir : dir, error), error);
	if (ret)
		return ret;
	ret = host_image_make(dir, m->index, error);
	if (ret)
		return ret;
	ret = taking_make_image(t, dir, m->index, &tree, error);
	last.t = t;
	last.dir = dir;
	last.m = m;
	last.tree = &tree;
	if (!ret)
		ret = complete(t, error);
	if (ret || !t->stop)
		taking_continue(t, &tree);
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
