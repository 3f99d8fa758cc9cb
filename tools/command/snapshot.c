/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw snapshot: a job's GPU memory and processes into a directory. */
#include "tools/command/tools.h"

#include "common/protocol.h"
#include "checkpoint/snapshot/codec.h"
#include "checkpoint/snapshot/dir.h"
#include "tools/job/outcome.h"
#include "tools/job/targets.h"
#include "tools/process/criu.h"
#include "common/text.h"
#include "common/proc.h"
#include "checkpoint/snapshot/host_image.h"
#include "tools/command/output.h"
#include "tools/command/opened.h"
#include "tools/process/outside.h"
#include "checkpoint/snapshot/manifest_read.h"
#include "tools/process/tree.h"
#include "common/clock.h"

#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define END_MS   3000 /* for a job that answers no more to be gone */
#define LOCK_MS  5000 /* for others to have read what is in the directory */
#define RETRY_MS 20

const char help_snapshot[] =
	"Usage: cudaw snapshot [OPTION]... ID|NAME|PID DIR\n"
	"\n"
	"Write a job to the directory DIR, from which 'cudaw restore' starts it again, here or on\n"
	"another machine: its GPU memory, and by CRIU its processes. The job is paused meanwhile\n"
	"and goes on afterwards, or stays paused if it was, or is asked to meanwhile. A snapshot\n"
	"that DIR has is replaced when the new one is whole, and not before.\n"
	"\n"
	"  -s, --stop             end the job when the snapshot is safe\n"
	"  -i, --incremental      do not write what the snapshot in DIR has already\n"
	"  -c, --compress CODEC   zstd, lz4 or none (none): memory that shrinks, as far as that costs\n"
	"                         no time beside the disk's\n"
	"      --gpu-only         only the GPU memory, without CRIU; 'cudaw restore' cannot use it\n"
	"  -t, --timeout SECONDS  let the job run on if its kernels do not end in time (30)\n"
	"  -j, --json             what was done, as a JSON object\n"
	"  -h, --help             this text\n"
	"\n"
	"The job must have one process that uses the GPU; others, as data loaders, may be its\n"
	"children. CRIU 4.1 or later is 'criu' in PATH, or CUDAW_CRIU, and wants root.\n"
	"\n"
	"Exit codes: 0 done; 1 failed, the job is as it was; 2 wrong usage; 3 no such job;\n"
	"4 not permitted; 5 timed out; 6 not supported, as where CRIU is missing.\n";

struct taking {
	const char *target;
	char path[PATH_MAX];
	bool stop, incremental, gpu_only, json;
	enum snapshot_codec codec;
	long timeout_ms;

	struct job_list list;
	struct job *job;
	bool stays_paused;
	struct criu criu;
	double criu_ms, ms; /* CRIU, and all from the request on */
	size_t image_bytes;
};

/* The absolute path of a directory that may not be there yet. 0 or a negative errno. */
static int absolute(const char *path, char *result, struct snapshot_error *error)
{
	char parent[PATH_MAX], name[PATH_MAX], real[PATH_MAX];

	if (!realpath(path, result)) {
		if (snprintf(parent, sizeof(parent), "%s", path) >= (int)sizeof(parent))
			return snapshot_fail(error, -ENAMETOOLONG, "%s", strerror(ENAMETOOLONG));
		strcpy(name, parent);
		if (!realpath(dirname(parent), real))
			return snapshot_fail(error, -errno, "%s", strerror(errno));
		if (snprintf(result, PATH_MAX, "%s/%s", strcmp(real, "/") ? real : "",
			     basename(name)) >= PATH_MAX)
			return snapshot_fail(error, -ENAMETOOLONG, "%s", strerror(ENAMETOOLONG));
	}
	return snapshot_dir_check_path(result, 0, error);
}

static int fail(const struct taking *t, const char *why)
{
	complain("snapshot %d: %s", t->job->pid, why);
	return EXIT_FAILED;
}

/*
 * Another process of the job uses the GPU, and the two may wait for each other. 0 or a negative
 * errno.
 */
static int check_alone(const struct taking *t, struct snapshot_error *error)
{
	char id[RUNDIR_ID_SIZE], other[RUNDIR_ID_SIZE];

	targets_id(t->job, id);
	for (struct job *job = t->list.jobs; job < t->list.jobs + t->list.n; job++) {
		if (job == t->job)
			continue;
		/*
		 * Once: the job may be paused by now, and one that gives no answer takes a second.
		 */
		if (!job->described && !job->error)
			jobs_describe(&job, 1);
		targets_id(job, other);
		if (job->directory->owner == t->job->directory->owner && !job_is_gone(job) && *id &&
		    !strcmp(id, other))
			return snapshot_fail(
				error, -ENOTSUP,
				"the process %d of the same job, %s, uses the GPU as well; "
				"a snapshot takes one process that does",
				job->pid, id);
	}
	return 0;
}

/* Name what an image of the job's processes cannot have. 0 or a negative errno. */
static int check_carried(const struct taking *t, struct tree *tree, struct snapshot_error *error)
{
	char why[sizeof(error->text)], name[32];

	int directory;
	bool uses;

	if (!t->job->seen || !host_same_ids(t->job->pid))
		return snapshot_fail(error, -ENOTSUP,
				     "it is in another PID namespace, as a container has, where it "
				     "is process %d, and can be taken from there",
				     t->job->own_pid);
	tree_find(tree, &t->job->process, t->job->directory->owner);
	if (tree->foreign)
		return snapshot_fail(error, -ENOTSUP,
				     "its process %d runs as another user, as one that sudo starts",
				     tree->foreign);
	for (size_t i = 1; i < tree->n; i++) {
		snprintf(name, sizeof(name), "%d" RUNDIR_SUFFIX, tree->pids[i]);
		directory = job_open_directory(t->job);
		uses = directory >= 0 && !faccessat(directory, name, F_OK, 0);
		if (directory >= 0)
			close(directory);
		if (uses)
			return snapshot_fail(error, -ENOTSUP,
					     "its child %d uses the GPU as well; a snapshot takes "
					     "one process that does",
					     tree->pids[i]);
	}
	if (check_alone(t, error))
		return -ENOTSUP;
	return outside_none(tree, why, sizeof(why)) ? 0 : snapshot_fail(error, -ENOTSUP, "%s", why);
}

/* The job resumes from a pause that was the snapshot's, or stays paused, as somebody wants it. */
static int let_go(struct taking *t)
{
	char request[PATH_MAX + PROTOCOL_WORDS];
	int ret;

	t->job->status.resume = (struct job_transfer){0};
	snprintf(request, sizeof(request), "done %s", t->path);
	ret = outcome_ask(t->job, "snapshot", "resuming", request);
	t->stays_paused = !ret && strcmp(t->job->status.state, "running") != 0;
	return ret;
}

/*
 * Remove what is of no snapshot: that of an attempt that failed, or was killed. Not where a process
 * that is there has its memory in it, the job itself first of all, which may not have said so yet.
 */
static void clean(const struct taking *t)
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

/* As the last that was asked of it shows; then nothing of it is in our way any more. */
static bool has_ended(const struct job *job)
{
	/* Whether one that is not seen from here has ended, its socket alone tells. */
	if (!job->seen)
		return job_is_gone(job);
	return (job_is_gone(job) || job->error == -ECONNRESET) && host_await_end(job->pid, END_MS);
}

/*
 * The job's memory is in a snapshot that is not to be. One that ran gets it back and runs on; one
 * that was paused stays so, and the directory is all that has its memory; one that has ended needs
 * none.
 */
static void give_up(struct taking *t)
{
	if (has_ended(t->job)) {
		clean(t);
		return;
	}
	if (let_go(t))
		return;
	if (t->stays_paused)
		jobs_describe(&t->job, 1);
	/* It may have begun to resume, and have it again. */
	if (!t->stays_paused || (!t->job->error && strcmp(t->job->status.snapshot, t->path) != 0))
		clean(t);
	else
		complain("%d stays paused, and %s has its memory until it is resumed", t->job->pid,
			 t->path);
}

/* One that is to end has not run on since its image was made. 0 or a negative errno. */
static int check_stopped(const struct taking *t, struct tree *tree, struct snapshot_error *error)
{
	if (!t->stop || tree_stayed_stopped(tree))
		return 0;
	return snapshot_fail(error, -EBUSY,
			     "somebody has continued it (SIGCONT, 'cudaw resume'), and it runs on");
}

/*
 * The image is whole, and the snapshot with it, in the directory open as @dir. 0 or a negative
 * errno.
 */
static int seal(struct taking *t, int dir, const struct snapshot_manifest *m, struct tree *tree,
		struct snapshot_error *error)
{
	int ret = t->stop && !tree_await_stop(tree)
			  ? 0
			  : host_image_seal(dir, m->index, t->criu_ms, &t->image_bytes, error);

	if (!ret)
		ret = check_stopped(t, tree, error);
	if (!ret)
		ret = snapshot_dir_commit(dir, error);
	if (!ret)
		ret = snapshot_dir_sync(dir, error);
	/* Once more, as a disk takes its time for that. */
	return ret ? ret : check_stopped(t, tree, error);
}

/* CRIU, into the directory that host_image_make() has made in @dir. 0 or a negative errno. */
static int dump(struct taking *t, int dir, uint32_t index, struct snapshot_error *error)
{
	char path[PATH_MAX + SNAPSHOT_NAME_SIZE + 1], name[SNAPSHOT_NAME_SIZE];
	int images = host_image_open(dir, index, error), ret = 0;

	if (images < 0)
		return images;
	snapshot_name(SNAPSHOT_HOST, index, name);
	snprintf(path, sizeof(path), "%s/%s", t->path, name);
	if (!criu_dump(&t->criu, images, path, t->job->pid, t->stop))
		ret = snapshot_fail(error, -EIO, "%s", t->criu.why);
	/* What the job is to be started from again is worth a look. */
	snprintf(name, sizeof(name), "core-%d.img", t->job->pid);
	if (!ret && faccessat(images, name, F_OK, 0))
		ret = snapshot_fail(error, -EIO, "CRIU: it was done, and has made no %s", name);
	close(images);
	return ret;
}

/* It is in the snapshot that the directory @dir has, and nowhere else. */
static void end_job(const struct taking *t, int dir, const struct tree *tree)
{
	tree_kill(tree);
	snapshot_dir_vacate(dir, t->job->own_pid);
	job_unlink(t->job);
}

/*
 * The image, and the commit, in the directory that is open and locked as @dir. 0 or a negative
 * errno.
 */
static int add_image(struct taking *t, int dir, const struct snapshot_manifest *m,
		     struct snapshot_error *error)
{
	int64_t begin = clock_ms();
	struct tree tree;
	int ret;

	if (m->pid != t->job->own_pid || !m->image)
		return snapshot_fail(error, -EBUSY, "somebody else has written there");
	/*
	 * A job that is in the directory stays there while that is locked; it may have left before.
	 */
	jobs_describe(&t->job, 1);
	if (t->job->error)
		return snapshot_fail(error, t->job->error, "%s", job_error_text(t->job->error));
	if (strcmp(t->job->status.snapshot, t->path) != 0)
		return snapshot_fail(error, -EBUSY, "somebody has resumed it");
	ret = host_image_make(dir, m->index, error);
	if (!ret)
		ret = check_carried(t, &tree, error);
	if (ret)
		return ret;
	ret = dump(t, dir, m->index, error);
	t->criu_ms = clock_ms() - begin;
	/* CRIU goes by the number. What it has looked at was the job if that is there still. */
	if (!ret && !process_is_there(&t->job->process))
		ret = snapshot_fail(error, -ESRCH, "it has ended");
	tree_find(&tree, &t->job->process, t->job->directory->owner);
	if (!ret)
		ret = seal(t, dir, m, &tree, error);
	/* CRIU may have failed after it had stopped them. */
	if (t->stop && ret)
		tree_signal(&tree, SIGCONT);
	if (t->stop && !ret)
		end_job(t, dir, &tree);
	if (!ret)
		snapshot_dir_clean(dir, snapshot_manifest_names, m);
	return ret;
}

/*
 * The directory, locked: one who reads there between the job's writing and ours has a moment to
 * end.
 */
static int lock_directory(const struct taking *t, struct snapshot_error *error)
{
	int left = LOCK_MS, dir;

	while ((dir = snapshot_dir_create(t->path, t->job->uid, t->job->own_pid, error)) ==
		       -EWOULDBLOCK &&
	       left > 0) {
		usleep(RETRY_MS * 1000);
		left -= RETRY_MS;
	}
	return dir;
}

static int finish(struct taking *t)
{
	struct snapshot_manifest manifest;
	struct snapshot_error error;
	int dir = lock_directory(t, &error), ret = dir;

	if (dir >= 0)
		ret = snapshot_manifest_load(dir, SNAPSHOT_MANIFEST_NEW, &manifest, &error);
	if (!ret) {
		ret = add_image(t, dir, &manifest, &error);
		snapshot_manifest_free(&manifest);
	}
	if (dir >= 0)
		snapshot_dir_close(dir);
	if (!ret)
		return EXIT_DONE;
	/* What became of the others when it ended is no reason. */
	jobs_describe(&t->job, 1);
	return fail(t, has_ended(t->job) ? "it has ended" : error.text);
}

static int take(struct taking *t)
{
	char request[PATH_MAX + PROTOCOL_WORDS], timeout[32] = "";
	int64_t begin = clock_ms();
	int ret;

	if (t->timeout_ms)
		snprintf(timeout, sizeof(timeout), "%ld ", t->timeout_ms);
	snprintf(request, sizeof(request), "snapshot pause %s%s%s%s %s", timeout,
		 t->incremental ? "incremental " : "", t->gpu_only ? "" : "hold image ",
		 snapshot_codec_name(t->codec), t->path);
	ret = outcome_ask(t->job, "snapshot", "writing", request);
	if (ret) {
		/* It resumes by itself; another snapshot, or a resume, is not ours to wait for. */
		if (has_ended(t->job))
			clean(t);
		else if (!t->job->error && strcmp(t->job->end, END_BUSY) != 0 &&
			 strcmp(t->job->end, END_INVALID) != 0)
			let_go(t);
		return ret;
	}
	if (!t->gpu_only) {
		/* The directory alone has the job's memory: the job is not left so by a Ctrl-C. */
		criu_hold_signals(true);
		ret = finish(t);
		if (ret) {
			give_up(t);
			return ret;
		}
	}
	/*
	 * The snapshot is whole. A job that is left now goes on by itself; that one has ended is
	 * told.
	 */
	if (!t->stop) {
		criu_hold_signals(false);
		ret = let_go(t);
	}
	t->ms = clock_ms() - begin;
	return ret;
}

/* All that it took: as the manifest says, then CRIU. */
static json_t *phases_of(const struct taking *t, const struct snapshot *s)
{
	json_t *phases = json_deep_copy(json_object_get(s->manifest.root, "phases"));

	if (!t->gpu_only)
		json_array_append_new(phases,
				      json_pack("{s:s, s:f}", "name", "criu", "ms", t->criu_ms));
	return phases;
}

/* And going on afterwards; nothing where it did not, whatever it had told of an earlier time. */
static json_t *resume_of(const struct taking *t)
{
	const struct job_transfer *resumed = &t->job->status.resume;
	json_t *phases = json_array();

	for (int i = 0; !t->stop && resumed->known && i < resumed->nphases; i++)
		json_array_append_new(phases,
				      json_pack("{s:s, s:f}", "name", resumed->phases[i].name, "ms",
						resumed->phases[i].ms));
	return phases;
}

static int report(const struct taking *t)
{
	char bytes[FORMAT_SIZE], written[FORMAT_SIZE], stored[FORMAT_SIZE], image[FORMAT_SIZE];
	struct snapshot s;
	int ret = opened_open(t->path, &s);

	if (ret)
		return ret;
	if (t->json) {
		json_t *object =
			json_pack("{s:i, s:o, s:b, s:b, s:f, s:O, s:I, s:o, s:o}", "pid",
				  t->job->pid, "path", output_text(t->path), "stopped",
				  (int)t->stop, "paused", (int)t->stays_paused, "ms", t->ms,
				  "totals", json_object_get(s.manifest.root, "totals"), "image",
				  (json_int_t)t->image_bytes, "phases", phases_of(t, &s), "resume",
				  resume_of(t));

		output_json(object);
		json_decref(object);
	} else {
		printf("%d is in %s: %s of GPU memory, %s of it written as %s, %s of processes%s\n",
		       t->job->pid, t->path, format_bytes(bytes, s.manifest.totals.bytes),
		       format_bytes(written, s.manifest.totals.written),
		       format_bytes(stored, s.manifest.totals.stored),
		       format_bytes(image, t->image_bytes),
		       t->stop           ? "; it is stopped"
		       : t->stays_paused ? "; it stays paused, and has its memory there alone"
					 : "");
	}
	snapshot_close(&s);
	return EXIT_DONE;
}

/*
 * Whether another job may have all that it has in the snapshot of @manifest, of the directory @dir.
 */
static bool has_another(struct taking *t, int dir, const char *manifest)
{
	struct snapshot_manifest m = {0};
	struct snapshot_error ignored;
	bool has = false;

	if (!snapshot_manifest_load(dir, manifest, &m, &ignored))
		for (struct job *job = t->list.jobs; job < t->list.jobs + t->list.n; job++) {
			if (job->own_pid != m.pid || job == t->job)
				continue;
			jobs_describe(&job, 1);
			has = job->error ? !job_is_gone(job) && !has_ended(job)
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

/*
 * Nobody holds the directory's lock between a job's writing and CRIU, nor for a job that is
 * stopped, which the writer refuses as well; here it is named before anything is asked of the other
 * job. An exit code; a directory that cannot be read is the writer's to refuse.
 */
static int check_directory(struct taking *t)
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

static int run(struct taking *t, const char *path)
{
	struct snapshot_error error;
	struct tree tree;
	int ret = absolute(path, t->path, &error);

	if (ret)
		return opened_refuse(path, ret, &error);
	if (!t->gpu_only && !criu_find(&t->criu)) {
		complain("%s; --gpu-only does without", t->criu.why);
		return EXIT_UNSUPPORTED;
	}
	if (t->stop && !process_can_signal()) {
		complain("--stop: processes cannot be signalled safely here: that needs /proc, and "
			 "Linux 5.3 or later (pidfd_open)");
		return EXIT_UNSUPPORTED;
	}
	t->job = targets_find_one("snapshot", t->target, &t->list, &ret);
	if (t->job)
		jobs_describe(&t->job, 1);
	if (t->job && !t->gpu_only && check_carried(t, &tree, &error)) {
		fail(t, error.text);
		ret = EXIT_UNSUPPORTED;
	}
	if (t->job && !ret)
		ret = check_directory(t);
	if (t->job && !ret) {
		/*
		 * Its writer needs the room. A job that has memory there keeps the directory
		 * locked.
		 */
		if (!t->job->error && !*t->job->status.snapshot)
			clean(t);
		ret = take(t);
	}
	if (!ret)
		ret = report(t);
	jobs_free(&t->list);
	return ret;
}

int cmd_snapshot(int argc, char **argv)
{
	static const struct option options[] = {
		{"stop", no_argument, NULL, 's'},           {"incremental", no_argument, NULL, 'i'},
		{"compress", required_argument, NULL, 'c'}, {"gpu-only", no_argument, NULL, 'g'},
		{"timeout", required_argument, NULL, 't'},  {"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
	};
	struct taking t = {.codec = SNAPSHOT_RAW};
	int opt;

	while ((opt = getopt_long(argc, argv, "sic:t:jh", options, NULL)) != -1) {
		switch (opt) {
		case 's':
			t.stop = true;
			break;
		case 'i':
			t.incremental = true;
			break;
		case 'c':
			if (!snapshot_codec_parse(optarg, &t.codec)) {
				complain("'%s' is none of zstd, lz4 and none", optarg);
				return usage_error("snapshot");
			}
			break;
		case 'g':
			t.gpu_only = true;
			break;
		case 't':
			if (!timeout_given(optarg, &t.timeout_ms))
				return usage_error("snapshot");
			break;
		case 'j':
			t.json = true;
			break;
		case 'h':
			fputs(help_snapshot, stdout);
			return EXIT_DONE;
		default:
			return usage_error("snapshot");
		}
	}
	if (argc - optind != 2) {
		complain("expected a job and a directory");
		return usage_error("snapshot");
	}
	if (!names_given(argc, argv, "job or directory", false))
		return usage_error("snapshot");
	if (t.stop && t.gpu_only) {
		complain("--stop with --gpu-only would end the job for good");
		return usage_error("snapshot");
	}
	t.target = argv[optind];
	return run(&t, argv[optind + 1]);
}
