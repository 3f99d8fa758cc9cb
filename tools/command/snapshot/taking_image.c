/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/taking.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/host_image.h"
#include "common/clock.h"
#include "common/patience.h"
#include "common/processes/proc.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RETRIES   50  /* of CRIU, while others ask the job something */
#define STOPS     5   /* the most of them that stop the job: whoever watches it sees each */
#define ANSWER_MS 100 /* for the job to answer them, which it does not while it is stopped */

int taking_check_stopped(const struct taking *t, struct tree *tree, struct snapshot_error *error)
{
	if (!t->stopped || tree_stayed_stopped(tree))
		return 0;
	return snapshot_fail(error, -EBUSY,
			     "it was continued meanwhile (SIGCONT or 'cudaw resume') and runs on");
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
 * processes of @tree run; whether they have run since is for taking_check_stopped(). 0 or a negative errno.
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
		ret = taking_check_stopped(t, tree, error);
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

bool taking_continue(struct taking *t, const struct tree *tree)
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
		    !taking_continue(t, tree) || t->blind)
			return ret;
		usleep(ANSWER_MS * 1000);
	}
}

int taking_make_image(struct taking *t, int dir, uint32_t index, struct tree *tree,
		      struct snapshot_error *error)
{
	double begin = clock_ms();
	int ret = settle_and_dump(t, dir, index, tree, error);
	struct tree after;

	t->criu_ms = clock_ms() - begin;
	if (ret)
		return ret;
	tree_find(&after, &t->root, t->job->directory->owner);
	return check_unchanged(t, &after, error);
}
