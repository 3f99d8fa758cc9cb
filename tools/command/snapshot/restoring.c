/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/restoring.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/host_image.h"
#include "common/clock.h"
#include "common/gpu/nvml.h"
#include "common/patience.h"
#include "common/protocol/protocol.h"
#include "common/protocol/rundir.h"
#include "common/system/memory_fs.h"
#include "common/system/private_dir.h"
#include "tools/command/snapshot/opened.h"
#include "tools/job/outcome.h"
#include "tools/job/party/together.h"
#include "tools/process/criu/tree.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 10000 /* for a restored process to take its first request */
#define RETRY_MS  20

/* Whether the user @uid may make directories in @dir: it is the user's, or as /tmp. */
static bool is_for(int dir, uid_t uid)
{
	struct stat st;

	return !fstat(dir, &st) && (st.st_uid == uid || (st.st_uid == 0 && st.st_mode & S_ISVTX));
}

/* By mkdir(2), as the user @uid: the directory is never root's. 0 or a negative errno. */
static int make_as(int dir, const char *name, uid_t uid)
{
	int error;

	if (!process_act_as(uid))
		return -EPERM;
	error = private_dir_make(dir, name);
	process_act_as(geteuid());
	return error;
}

/*
 * Make a directory for the user @uid, who may have put links in the way of root. 0 or a negative errno. The
 * path is absolute.
 */
static int make_directory(const char *path, uid_t uid)
{
	const char *name = strrchr(path, '/') + 1;
	char parent[PATH_MAX];
	int dir, error;

	snprintf(parent, sizeof(parent), "%s", path);
	dir = open(dirname(parent), O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	error = is_for(dir, uid) ? make_as(dir, name, uid) : -EACCES;
	close(dir);
	return error;
}

/*
 * Make the directories of sockets that the processes listen on. Python's data loaders have one of
 * their own in /tmp, which they remove when they end.
 */
static int make_socket_directories(const struct restoring *r)
{
	for (size_t i = 0; i < r->files.n; i++) {
		const struct criu_file *file = &r->files.list[i];
		char path[PATH_MAX], *directory;
		int error;

		snprintf(path, sizeof(path), "%s", file->path);
		directory = dirname(path);
		if (!file->socket || !access(directory, F_OK))
			continue;
		error = make_directory(directory, file->uid);
		if (error) {
			complain("%s: %s", directory, strerror(-error));
			return EXIT_FAILED;
		}
	}
	return EXIT_DONE;
}

/* Make the directory of the job's socket, which CRIU binds again. 0 or a negative errno. */
static int make_runtime_dir(struct restoring *r)
{
	const json_t *process = json_object_get(r->opened.parts->snapshot.manifest.root, "process");
	/* Root may restore another user's job. */
	uid_t uid = geteuid() ? geteuid() : json_integer_value(json_object_get(process, "uid"));
	char *path = r->runtime_dir, usual[PATH_MAX];
	const char *why;
	struct stat st;
	int dir;

	/* The manifest names the job's user, and the directory's owner may have written it. */
	if (!geteuid() && !fstat(r->opened.parts->snapshot.dir, &st) && st.st_uid &&
	    st.st_uid != uid) {
		complain("%s: it belongs to user %u, but its manifest names user %u", r->path,
			 st.st_uid, uid);
		return -EPERM;
	}
	r->uid = uid;
	snapshot_manifest_bytes(process, "runtime_dir", path, PATH_MAX);
	if (*path != '/') {
		complain("%s: the job had no runtime directory", r->path);
		return -EINVAL;
	}
	dir = rundir_open(path, uid, &why);
	/*
	 * For another user only the default directory is made: anybody may have written the
	 * manifest.
	 */
	if (dir == -ENOENT && (uid == geteuid() || (!rundir_path(uid, usual, sizeof(usual), &why) &&
						    !strcmp(path, usual)))) {
		dir = rundir_create(path, geteuid(), &why);
		if (dir >= 0 && fchown(dir, uid, -1)) {
			why = strerror(errno);
			close(dir);
			dir = -EPERM;
		}
	}
	if (dir < 0) {
		complain("%s cannot be used: %s", path, why);
		return dir;
	}
	close(dir);
	return 0;
}

/* "moved GPU-A=GPU-B ... DIR", with pairs for all GPUs if one has changed; for those of the part, if no more are known. */
static void make_request(const struct restoring *r, size_t part, char *text, size_t size)
{
	const struct snapshot_manifest *m = &r->opened.parts[part].snapshot.manifest;
	const char *path = r->opened.parts[part].path;
	size_t len = snprintf(text, size, "moved ");

	for (size_t i = 0; i < r->needs.npairs && len < size; i++)
		len += snprintf(text + len, size - len, "%s=%s ", r->needs.pairs[i].from,
				r->needs.pairs[i].to);
	for (size_t i = 0; i < m->ndevices && r->needs.moved && !r->needs.npairs && len < size; i++)
		len += snprintf(text + len, size - len, "%s=%s ", m->devices[i].uuid,
				r->needs.probe.devices[r->needs.map[r->devices[part][i]]].uuid);
	if (len + strlen(path) < size)
		strcpy(text + len, path);
}

static bool answers(struct job *job, const struct process *process)
{
	struct patience patience = {0};

	while (process_is_there(process) &&
	       patience_slice_ms(&patience, JOBS_STATUS_MS + RETRY_MS) < ANSWER_MS) {
		jobs_describe(&job, 1);
		if (job->described)
			return true;
		usleep(RETRY_MS * 1000);
	}
	complain("restore %d: the processes were started, but the job does not answer", job->pid);
	return false;
}

/* Early writers did not name it: theirs was the one that uses CUDA. */
static pid_t find_first(const struct restoring *r)
{
	json_int_t root = json_integer_value(json_object_get(r->facts, "root"));

	return root > 0 && root <= INT_MAX ? root : r->opened.parts->snapshot.manifest.pid;
}

static int ward = -1; /* a descriptor of the first process */

static void pass_on(int signal)
{
	int error = errno;

	syscall(SYS_pidfd_send_signal, ward, signal, NULL, 0);
	errno = error;
}

/* Whoever ends a command that waits for a job means the job, as of timeout(1). */
static void pass_signals_on(const struct restoring *r)
{
	ward = syscall(SYS_pidfd_open, r->first, 0);
	criu_handle_signals(pass_on);
}

static void drop_readings(struct restoring *r)
{
	for (size_t i = 0; i < r->opened.n && !r->unverified; i++)
		reading_drop(&r->readings[i]);
}

static struct {
	const struct tree *tree; /* what is to run once the job has its memory */
	struct job **jobs;       /* who has it */
	size_t njobs;
} held_back;

/*
 * Once all are asked to resume, they do so without this command: an interrupt ends that, but must not leave the others
 * stopped.
 */
static int resume_line(struct job *job, const struct line *line)
{
	if (criu_is_interrupted() && jobs_are_asked(held_back.jobs, held_back.njobs)) {
		tree_continue(held_back.tree);
		criu_hold_signals(false);
	}
	return outcome_line(job, line);
}

static int fail_for_memory(void)
{
	complain("out of memory");
	return EXIT_FAILED;
}

/* Tell all parts where their memory is. Returns an exit code. */
static int tell_moved(struct restoring *r, struct job **jobs)
{
	char(*requests)[PROTOCOL_LINE] = calloc(r->opened.n, sizeof(*requests));
	int ret = requests ? EXIT_DONE : fail_for_memory();

	for (size_t i = 0; i < r->opened.n && !ret; i++)
		ret = answers(jobs[i], &jobs[i]->process) ? EXIT_DONE : EXIT_FAILED;
	for (size_t i = 0; i < r->opened.n && !ret; i++) {
		make_request(r, i, requests[i], sizeof(requests[i]));
		jobs[i]->request = requests[i];
		jobs[i]->token = r->unverified ? 0 : r->readings[i].memory;
	}
	if (!ret)
		ret = outcome_ask_each(jobs, r->opened.n, "restore", "restoring", outcome_line);
	for (size_t i = 0; i < r->opened.n; i++)
		jobs[i]->token = 0;
	free(requests);
	return ret;
}

/* Whether it has ended so because somebody wants it paused, or because of one that has. */
static bool stays_paused(const struct job *job)
{
	return !job->error && (job->end == END_BUSY || job->end == END_TURN);
}

/* The job's processes that use CUDA have their memory: resume them. Returns an exit code. */
static int resume_all(struct restoring *r, struct job **jobs)
{
	bool stays = true;
	int ret;

	ret = together_resume(jobs, r->opened.n, "restore", "restoring", true, resume_line);
	for (size_t i = 0; i < r->opened.n; i++)
		stays &= stays_paused(jobs[i]) || outcome_is_good(jobs[i]);
	r->left = ret && stays;
	for (size_t i = 0; i < r->opened.n && r->left; i++)
		if (!jobs[i]->error && jobs[i]->end == END_BUSY)
			complain("%d stays paused", jobs[i]->pid);
	return ret;
}

/* The job's processes run: tell them the paths of their snapshots, and resume the job. */
static int go_on(struct restoring *r, struct job **jobs, struct job_transfer *resume)
{
	double begin = clock_ms();
	int ret = tell_moved(r, jobs);

	/* A job that has not taken the memory reads the snapshot, and needs the room. */
	drop_readings(r);
	if (!ret && r->wait)
		pass_signals_on(r);
	r->start_ms = clock_ms() - begin;
	/* Their answers have the resumes before the snapshot. */
	for (size_t i = 0; i < r->opened.n; i++)
		jobs[i]->status.resume = (struct job_transfer){0};
	if (!ret && !r->paused)
		ret = resume_all(r, jobs);
	for (size_t i = 0; i < r->opened.n; i++)
		resume[i] = jobs[i]->status.resume;
	/* It is the restore that failed, whatever the job says. */
	return !ret || ret == EXIT_UNSUPPORTED ? ret : EXIT_FAILED;
}

/* Nobody waits for the new processes. */
static void disown(void)
{
	signal(SIGCHLD, SIG_IGN);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

/*
 * All that is there now: the job's process may have run, and made others; or there was no descriptor to find them with.
 * Stopped first, none sees another one end.
 */
static void end_processes(struct restoring *r, const struct job_directory *directory,
			  struct tree *tree)
{
	bool any = tree->n;
	struct process self;

	/* They have descriptors, too. */
	drop_readings(r);
	disown();
	if (process_find(getpid(), &self))
		tree_stop_below(tree, &self, 0);
	if (!any && !tree->n)
		return;
	if (tree_kill(tree))
		complain("%s: the new processes were killed; the snapshot is unchanged", r->path);
	else
		complain(
			"%s: the new processes, %d and its children, do not end; the snapshot is unchanged",
			r->path, r->opened.parts->snapshot.manifest.pid);
	for (size_t i = 0; i < r->opened.n; i++)
		job_unlink(&(struct job){.own_pid = r->opened.parts[i].snapshot.manifest.pid,
					 .directory = directory});
}

static void begin_readings(struct restoring *r)
{
	size_t beside = r->image_bytes;
	/*
	 * What is read from memory the job may read once more: it mostly has huge pages for it, which come several
	 * times as fast as those of a memory file. Not one of several, which may wait for the others with nothing read.
	 */
	bool keep = !r->paused && (r->opened.n > 1 || !memory_fs(r->opened.parts->path));

	for (size_t i = 0; i < r->opened.n; i++)
		beside += r->opened.parts[i].snapshot.index.nplaces * SNAPSHOT_CHUNK;
	/* Of the first ones the memory may not be taken yet when the last one looks how much there is. */
	for (size_t i = 0; i < r->opened.n; i++)
		reading_begin(&r->readings[i], &r->opened.parts[i].snapshot, keep,
			      beside - r->opened.parts[i].snapshot.index.nplaces * SNAPSHOT_CHUNK);
}

/* Wait for all, and refuse the first one that is damaged. Returns an exit code. */
static int end_readings(struct restoring *r)
{
	for (size_t i = 0; i < r->opened.n; i++) {
		struct reading *reading = &r->readings[i];
		const char *path = r->opened.parts[i].path;
		int ret = reading_end(reading, path);

		/* From here on an interrupt waits until the job knows where its snapshot is. */
		if (criu_is_interrupted()) {
			complain("%s: interrupted", r->path);
			return EXIT_FAILED;
		}
		if (ret)
			return opened_refuse(path, ret, &reading->error);
	}
	return EXIT_DONE;
}

/*
 * CRIU starts the processes, stopped, while the GPU memory is read. *@tree has them then, also after a failure: a CRIU
 * that is killed leaves them. Returns an exit code.
 */
static int start_stopped(struct restoring *r, int images, struct tree *tree)
{
	char path[PATH_MAX + SNAPSHOT_NAME_SIZE + 1], name[SNAPSHOT_NAME_SIZE];
	uint32_t index = r->opened.parts->snapshot.manifest.index;
	double begin = clock_ms();
	bool started;

	/* What CRIU leaves, whether it ends well or is killed, becomes our children. */
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	snapshot_name(SNAPSHOT_HOST, index, name);
	snprintf(path, sizeof(path), "%s/%s", r->path, name);
	/* With --paused the job's memory stays in the snapshot. */
	if (!r->unverified)
		begin_readings(r);
	started = criu_restore(&r->criu, images, path, tcp_are_connected(&r->ports));
	r->criu_ms = clock_ms() - begin;
	if (!r->wait)
		disown();
	r->first = find_first(r);
	tree_find_below(tree, getpid(), 0);
	if (!started)
		complain("%s: %s", r->path, r->criu.why);
	return started ? EXIT_DONE : EXIT_FAILED;
}

/* Which of the processes, all stopped now, were so before the snapshot. */
static void keep_stopped(const struct restoring *r, struct tree *tree)
{
	json_t *id;
	size_t at;

	for (size_t i = 0; i < tree->n; i++) {
		tree->halted[i] = false;
		json_array_foreach(json_object_get(r->facts, "stopped"), at, id)
			tree->halted[i] |= json_integer_value(id) == tree->pids[i];
	}
}

/* Those that the driver's checkpoint has of processes which only look at GPUs. Returns an exit code. */
static int find_monitors(struct restoring *r, const struct tree *tree)
{
	struct monitors *m = &r->monitors;
	json_t *id;
	size_t at;

	json_array_foreach(json_object_get(r->facts, "monitors"), at, id) {
		pid_t pid = json_integer_value(id);

		if (m->n < MONITORS_MAX && tree_has(tree, pid))
			m->pids[m->n++] = pid;
	}
	if (m->n != json_array_size(json_object_get(r->facts, "monitors"))) {
		complain("%s: CRIU succeeded, but a process is missing that uses NVML", r->path);
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < r->needs.npairs; i++, m->npairs++)
		if (!nvml_uuid_parse(r->needs.pairs[i].from, &m->pairs[i].oldUuid) ||
		    !nvml_uuid_parse(r->needs.pairs[i].to, &m->pairs[i].newUuid)) {
			complain("%s: '%s' or '%s' is not the UUID of a GPU", r->path,
				 r->needs.pairs[i].from, r->needs.pairs[i].to);
			return EXIT_FAILED;
		}
	return EXIT_DONE;
}

/* The job has its GPU memory, or stays paused: the others run. Returns an exit code; they run on. */
static int let_others_run(struct restoring *r, const struct tree *tree)
{
	char why[256];

	tree_continue(tree);
	if (monitors_let_go(&r->monitors, true, why, sizeof(why)))
		return EXIT_DONE;
	complain("%s: %s; NVML stays blocked there", r->path, why);
	r->left = true;
	return EXIT_FAILED;
}

/* The processes that use CUDA, in @all, and in @jobs. Returns an exit code. */
static int find_jobs(const struct restoring *r, const struct job_directory *directory,
		     const struct tree *tree, struct job *all, struct job **jobs)
{
	for (size_t i = 0; i < r->opened.n; i++) {
		pid_t pid = r->opened.parts[i].snapshot.manifest.pid;

		all[i] = (struct job){.own_pid = pid, .pid = pid, .directory = directory, .fd = -1};
		jobs[i] = &all[i];
		if (tree_has(tree, pid) && process_find(pid, &all[i].process))
			continue;
		complain("%s: CRIU succeeded, but there is no process %d", r->path, pid);
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

/*
 * Every byte is checked: let the processes that use CUDA run, and resume them; then let the others run, so that they
 * have not if that fails. Returns an exit code.
 */
static int let_run(struct restoring *r, const struct job_directory *directory, struct tree *tree,
		   struct job_transfer *resume)
{
	struct job *all = calloc(r->opened.n, sizeof(*all)), *jobs[SNAPSHOT_PARTS_MAX];
	struct snapshot_error error;
	int ret = all ? EXIT_DONE : fail_for_memory();

	if (!ret && !r->unverified)
		ret = end_readings(r);
	else if (!ret && criu_is_interrupted()) {
		complain("%s: interrupted", r->path);
		ret = EXIT_FAILED;
	}
	if (!ret)
		ret = find_jobs(r, directory, tree, all, jobs);
	if (!ret)
		ret = find_monitors(r, tree);
	/* From here on they get NVML back also if this command is killed, once somebody continues them. */
	if (!ret && !monitors_keep(&r->monitors, true, error.text, sizeof(error.text))) {
		complain("%s: %s", r->path, error.text);
		ret = EXIT_FAILED;
	}
	if (!ret && memory_files_give(&r->memory_files, &error)) {
		complain("%s: %s", r->path, error.text);
		ret = EXIT_FAILED;
	}
	if (!ret) {
		keep_stopped(r, tree);
		held_back.tree = tree;
		held_back.jobs = jobs;
		held_back.njobs = r->opened.n;
		for (size_t i = 0; i < r->opened.n; i++)
			process_signal(&all[i].process, 0, SIGCONT);
		ret = go_on(r, jobs, resume);
		if (!ret || r->left)
			ret = let_others_run(r, tree) ? EXIT_FAILED : ret;
	}
	free(all);
	return ret;
}

int restoring_run(struct restoring *r, struct job_transfer *resume)
{
	struct snapshot_error error;
	struct job_directory directory;
	struct tree tree = {.n = 0};
	int ret, images;
	bool started;

	if (make_runtime_dir(r) || make_socket_directories(r))
		return EXIT_FAILED;
	directory = (struct job_directory){.path = r->runtime_dir, .owner = r->uid};
	images = host_image_open_own(r->opened.parts->snapshot.dir,
				     r->opened.parts->snapshot.manifest.index, &error);
	if (images < 0)
		return opened_refuse(r->path, images, &error);
	/* A Ctrl-C must not leave processes that are stopped, or do not know where the snapshot is now. */
	criu_hold_signals(true);
	ret = memory_files_make(&r->memory_files, images, &error);
	started = !ret;
	ret = ret ? opened_refuse(r->path, ret, &error) : start_stopped(r, images, &tree);
	close(images);
	if (!ret)
		ret = let_run(r, &directory, &tree, resume);
	if (ret && !r->left && started)
		end_processes(r, &directory, &tree);
	if (ret && !r->left)
		memory_files_unmake(&r->memory_files);
	drop_readings(r);
	criu_hold_signals(false);
	return ret;
}
