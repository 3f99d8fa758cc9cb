/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw restore: a job goes on from a snapshot, in new processes. */
#include "tools/command/tools.h"

#include "common/nvml.h"
#include "checkpoint/snapshot/dir.h"
#include "tools/job/outcome.h"
#include "tools/process/criu.h"
#include "tools/process/criu_files.h"
#include "common/text.h"
#include "common/proc.h"
#include "checkpoint/snapshot/host_image.h"
#include "tools/process/needs.h"
#include "tools/command/output.h"
#include "checkpoint/snapshot/manifest_read.h"
#include "tools/process/tree.h"
#include "tools/command/verify.h"
#include "tools/command/opened.h"
#include "common/clock.h"
#include "common/gpu.h"

#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 10000 /* for a restored process to take its first request */
#define PARENT_MS 3000  /* for a parent to wait for a process that has ended */
#define RETRY_US  20000

const char help_restore[] =
	"Usage: cudaw restore [OPTION]... DIR\n"
	"\n"
	"Start the job in the snapshot DIR again, where it was: with its process ids, files,\n"
	"working directory and GPU memory. Before anything is started, this checks every byte of the\n"
	"snapshot, the driver, the GPUs, and the programs and libraries that the job uses.\n"
	"\n"
	"  -g, --gpu OLD=NEW  put what was on the GPU OLD, an index as 'cudaw inspect' shows it or a\n"
	"                     UUID, on the GPU NEW, an index or UUID here; may be repeated. Without\n"
	"                     it a job stays on its GPUs, or, on another machine, takes the first\n"
	"                     ones of the same kind\n"
	"      --no-verify    do not read the GPU memory twice: it is checked only as the job takes\n"
	"                     it, and damage ends the new processes before they go on\n"
	"      --paused       leave the job paused; 'cudaw resume' lets it go on\n"
	"  -j, --json         what was done, as a JSON object\n"
	"  -h, --help         this text\n"
	"\n"
	"CRIU 4.1 or later is 'criu' in PATH, or CUDAW_CRIU, and wants root.\n"
	"\n"
	"Exit codes: 0 done; 1 failed, or no snapshot, or a damaged one; 2 wrong usage; 6 not\n"
	"supported here, or newer than this cudaw.\n";

struct restoring {
	char path[PATH_MAX];
	char *choices[GPU_MAX];
	size_t nchoices;
	bool paused, unverified, json;
	bool left; /* somebody has paused it before it went on */
	int64_t began;
	double check_ms, verify_ms, criu_ms, start_ms;
	struct snapshot snapshot;
	struct needs needs;
	struct criu_files files;
	char runtime_dir[PATH_MAX]; /* of the job's socket */
	uid_t uid;                  /* whose that is */
	struct criu criu;
	bool refused; /* there is no use in reading the process image */
	int image;    /* what came of reading it: 0 or a negative errno, with image_error */
	struct snapshot_error image_error;
};

/*
 * An id must be free: CRIU makes the processes and threads with the ids that they had. The parent
 * of one that has just ended, as by 'snapshot --stop', may take a moment to wait for it.
 */
static int check_id(const struct restoring *r, pid_t id)
{
	bool whole = id == r->snapshot.manifest.pid;
	char path[64], name[64] = "another process", why[80] = "";
	int64_t begin = clock_ms();
	pid_t parent;
	char state;

	while ((state = host_process(id, &parent)) == 'Z' && clock_ms() - begin < PARENT_MS)
		usleep(RETRY_US);
	if (kill(id, 0) < 0 && errno == ESRCH)
		return EXIT_DONE;
	snprintf(path, sizeof(path), "/proc/%d/comm", id);
	host_read_line(path, name, sizeof(name));
	if (state == 'Z')
		snprintf(why, sizeof(why),
			 "; it has ended, and its parent %d has yet to wait for it", parent);
	else if (state == 'T')
		snprintf(why, sizeof(why), "; it is stopped");
	complain("%s: %s %d, which '%s' has now%s", r->path,
		 whole ? "the job had the process id" : "a child or thread of the job had the id",
		 id, name, why);
	return EXIT_FAILED;
}

static void *read_image(void *arg)
{
	struct restoring *r = arg;
	size_t bytes;

	r->image = host_image_check(r->snapshot.dir, r->snapshot.manifest.index, &r->refused,
				    &bytes, &r->image_error);
	return NULL;
}

/* The driver, the GPUs, and the process image, which is read while the driver is asked. */
static int check_gpus_and_image(struct restoring *r)
{
	int ret = needs_ask(&r->needs);
	pthread_t reader;
	bool reads;

	if (ret)
		return ret;
	reads = !pthread_create(&reader, NULL, read_image, r);
	ret = needs_gpus(&r->snapshot, r->choices, r->nchoices, &r->needs);
	if (!ret && !r->paused)
		ret = needs_memory(&r->snapshot, &r->needs);
	__atomic_store_n(&r->refused, ret != EXIT_DONE, __ATOMIC_RELAXED);
	if (reads)
		pthread_join(reader, NULL);
	else if (!ret)
		read_image(r);
	if (!ret && r->image)
		ret = opened_refuse(r->path, r->image, &r->image_error);
	return ret;
}

/* The ids of all processes and threads: CRIU's image has a file for each, and for the job's. */
static int check_ids(const struct restoring *r, int directory)
{
	DIR *dir = snapshot_dir_list(directory);
	struct dirent *found;
	int ret = EXIT_DONE;
	bool whole = false;
	pid_t id;

	if (!dir) {
		complain("%s: %s", r->path, strerror(errno));
		return EXIT_FAILED;
	}
	while (!ret && (found = readdir(dir)))
		if (sscanf(found->d_name, "core-%d.img", &id) == 1) {
			whole |= id == r->snapshot.manifest.pid;
			ret = check_id(r, id);
		}
	closedir(dir);
	if (ret || whole)
		return ret;
	complain("%s: host-%u: expected the process %d, found others", r->path,
		 r->snapshot.manifest.index, r->snapshot.manifest.pid);
	return EXIT_FAILED;
}

static int check_opened(struct restoring *r)
{
	uint32_t index = r->snapshot.manifest.index;
	struct snapshot_error error;
	int ret, directory = host_image_open(r->snapshot.dir, index, &error);

	if (directory < 0)
		return opened_refuse(r->path, directory, &error);
	ret = check_ids(r, directory);
	if (ret) {
		close(directory);
		return ret;
	}
	ret = criu_files_read(directory, &r->files);
	close(directory);
	if (ret) {
		snapshot_fail(&error, ret, "host-%u: files.img: %s", index, strerror(-ret));
		return opened_refuse(r->path, ret, &error);
	}
	return needs_opened(&r->snapshot, &r->files);
}

/* That make_request() can name the directory. */
static int check_path(const struct restoring *r)
{
	size_t pairs = r->needs.moved ? r->snapshot.manifest.ndevices : 0;
	struct snapshot_error error;
	int ret = snapshot_dir_check_path(r->path, pairs * 2 * NVML_UUID_SIZE, &error);

	return ret ? opened_refuse(r->path, ret, &error) : EXIT_DONE;
}

/* All that can be found out before anything is started. */
static int check(struct restoring *r)
{
	int ret;

	if (!r->snapshot.manifest.image) {
		complain("%s has no process image; it was made with --gpu-only or by a signal",
			 r->path);
		return EXIT_FAILED;
	}
	if (!criu_find(&r->criu)) {
		complain("%s", r->criu.why);
		return EXIT_UNSUPPORTED;
	}
	ret = check_id(r, r->snapshot.manifest.pid);
	if (!ret)
		ret = needs_files(&r->snapshot);
	if (!ret)
		ret = check_gpus_and_image(r);
	if (!ret)
		ret = check_path(r);
	return ret ? ret : check_opened(r);
}

/*
 * The directories of sockets that the processes listen on, as Python's data loaders do in one of
 * their own in /tmp. They remove it when they end.
 */
static int make_socket_directories(const struct restoring *r)
{
	for (size_t i = 0; i < r->files.n; i++) {
		const struct criu_file *file = &r->files.list[i];
		char path[PATH_MAX], *directory;

		snprintf(path, sizeof(path), "%s", file->path);
		directory = dirname(path);
		if (!file->socket || !access(directory, F_OK))
			continue;
		if (mkdir(directory, 0700) || chown(directory, file->uid, -1)) {
			complain("%s: %s", directory, strerror(errno));
			return EXIT_FAILED;
		}
	}
	return EXIT_DONE;
}

/* The directory of the job's socket, which CRIU binds again. 0 or a negative errno. */
static int make_runtime_dir(struct restoring *r)
{
	const json_t *process = json_object_get(r->snapshot.manifest.root, "process");
	/* Root may bring back another user's job. */
	uid_t uid = geteuid() ? geteuid() : json_integer_value(json_object_get(process, "uid"));
	char *path = r->runtime_dir, usual[PATH_MAX];
	const char *why;
	struct stat st;
	int dir;

	/* Whose job it is, is said by a manifest that the directory's owner may have written. */
	if (!geteuid() && !fstat(r->snapshot.dir, &st) && st.st_uid && st.st_uid != uid) {
		complain("%s: it belongs to user %u, and says that its job is user %u's", r->path,
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
	 * Of directories of others the usual one is made: the manifest may be anybody's, and say
	 * anything.
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

/* "moved GPU-A=GPU-B ... DIR", with pairs for all GPUs where one has changed. */
static void make_request(const struct restoring *r, char *text, size_t size)
{
	const struct snapshot_manifest *m = &r->snapshot.manifest;
	size_t len = snprintf(text, size, "moved ");

	for (size_t i = 0; i < m->ndevices && r->needs.moved && len < size; i++)
		len += snprintf(text + len, size - len, "%s=%s ", m->devices[i].uuid,
				r->needs.probe.devices[r->needs.map[i]].uuid);
	if (len < size)
		snprintf(text + len, size - len, "%s", r->path);
}

static bool answers(struct job *job)
{
	for (int64_t begin = clock_ms(); clock_ms() - begin < ANSWER_MS; usleep(RETRY_US)) {
		jobs_describe(&job, 1);
		if (job->described)
			return true;
	}
	complain("restore %d: its processes are there, but it does not answer", job->pid);
	return false;
}

static void add_phase(json_t *phases, const char *name, double ms)
{
	json_array_append_new(phases, json_pack("{s:s, s:f}", "name", name, "ms", ms));
}

/* The phases in their order: ours, and those of the job's resume. */
static void report_json(const struct restoring *r, const struct job_transfer *resume, double ms)
{
	json_t *object, *phases = json_array();

	add_phase(phases, "check", r->check_ms);
	if (!r->unverified)
		add_phase(phases, "verify", r->verify_ms);
	add_phase(phases, "criu", r->criu_ms);
	add_phase(phases, "start", r->start_ms);
	for (int i = 0; i < resume->nphases; i++)
		add_phase(phases, resume->phases[i].name, resume->phases[i].ms);
	object = json_pack("{s:i, s:o, s:b, s:I, s:f, s:o}", "pid", r->snapshot.manifest.pid,
			   "path", output_text(r->path), "paused", (int)r->paused, "bytes",
			   (json_int_t)r->snapshot.manifest.totals.bytes, "ms", ms, "phases",
			   phases);
	output_json(object);
	json_decref(object);
}

static void report(const struct restoring *r, const struct job *job)
{
	char took[FORMAT_SIZE], bytes[FORMAT_SIZE];
	double ms = clock_ms() - r->began;

	if (r->json)
		report_json(r, &job->status.resume, ms);
	else
		printf("%d %s: %s of GPU memory in %s\n", job->pid,
		       r->paused ? "is there, paused" : "goes on",
		       format_bytes(bytes, r->snapshot.manifest.totals.bytes),
		       format_duration(took, ms));
}

/* The processes are there: tell the job where it is, and let it go on. */
static int go_on(struct restoring *r, const struct job_directory *directory)
{
	pid_t pid = r->snapshot.manifest.pid;
	struct job job = {.own_pid = pid, .pid = pid, .directory = directory, .fd = -1};
	char request[PROTOCOL_LINE];
	int64_t begin = clock_ms();
	int ret;

	make_request(r, request, sizeof(request));
	ret = answers(&job) ? outcome_ask(&job, "restore", "restoring", request) : EXIT_FAILED;
	if (!ret)
		criu_hold_signals(false);
	r->start_ms = clock_ms() - begin;
	/* What it knows is of an earlier resume. */
	job.status.resume = (struct job_transfer){0};
	if (!ret && !r->paused)
		ret = outcome_ask(&job, "restore", "restoring", "resume");
	r->left = ret && !job.error && !strcmp(job.end, END_BUSY);
	if (r->left)
		complain("%d stays paused", job.pid);
	if (!ret)
		report(r, &job);
	return ret;
}

/* Every byte of the GPU memory; the job checks it again as it takes it. */
static int check_memory(struct restoring *r)
{
	struct snapshot_error error;
	int64_t begin = clock_ms();
	int ret = verify_memory(&r->snapshot, r->path, &error);

	r->verify_ms = clock_ms() - begin;
	return ret ? opened_refuse(r->path, ret, &error) : EXIT_DONE;
}

/* The clock of struct process's start. */
static uint64_t boot_ticks(void)
{
	uint64_t hz = sysconf(_SC_CLK_TCK);
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec * hz + ts.tv_nsec * hz / 1000000000;
}

/*
 * End the new processes. The manifest, which anybody may have written, has their number: only what
 * was started since then is one of them.
 */
static void end_processes(const struct restoring *r, const struct job_directory *directory,
			  uint64_t since)
{
	const struct job job = {.own_pid = r->snapshot.manifest.pid, .directory = directory};
	struct process process;
	struct tree tree;

	if (process_find(job.own_pid, &process) && process.start >= since) {
		tree_find(&tree, &process, 0);
		tree_kill(&tree);
	}
	job_unlink(&job);
	complain("%s: the new processes were ended; the snapshot is as it was", r->path);
}

static int restore(struct restoring *r)
{
	char path[PATH_MAX + SNAPSHOT_NAME_SIZE + 1], name[SNAPSHOT_NAME_SIZE];
	uint32_t index = r->snapshot.manifest.index;
	struct snapshot_error error;
	struct job_directory directory;
	uint64_t since = boot_ticks();
	int64_t begin = clock_ms();
	int ret, images;

	if (make_runtime_dir(r) || make_socket_directories(r))
		return EXIT_FAILED;
	directory = (struct job_directory){r->runtime_dir, r->uid};
	images = host_image_open(r->snapshot.dir, index, &error);
	if (images < 0)
		return opened_refuse(r->path, images, &error);
	snapshot_name(SNAPSHOT_HOST, index, name);
	snprintf(path, sizeof(path), "%s/%s", r->path, name);
	/* Processes that do not know where the snapshot is now are of no use to anybody. */
	criu_hold_signals(true);
	ret = criu_restore(&r->criu, images, path) ? EXIT_DONE : EXIT_FAILED;
	close(images);
	if (ret) {
		complain("%s: %s", r->path, r->criu.why);
		return ret;
	}
	r->criu_ms = clock_ms() - begin;
	ret = go_on(r, &directory);
	if (ret && !r->left)
		end_processes(r, &directory, since);
	return ret;
}

static int run(struct restoring *r, const char *path)
{
	int ret;

	r->began = clock_ms();
	if (!realpath(path, r->path)) {
		complain("%s: %s", path, strerror(errno));
		return EXIT_FAILED;
	}
	ret = opened_open(r->path, &r->snapshot);
	if (ret)
		return ret;
	ret = check(r);
	r->check_ms = clock_ms() - r->began;
	if (!ret && !r->unverified)
		ret = check_memory(r);
	if (!ret)
		ret = restore(r);
	criu_files_free(&r->files);
	snapshot_close(&r->snapshot);
	return ret;
}

int cmd_restore(int argc, char **argv)
{
	static const struct option options[] = {
		{"gpu", required_argument, NULL, 'g'}, {"no-verify", no_argument, NULL, 'n'},
		{"paused", no_argument, NULL, 'p'},    {"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},      {NULL, 0, NULL, 0},
	};
	struct restoring r = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, "g:jh", options, NULL)) != -1) {
		switch (opt) {
		case 'g':
			if (r.nchoices == GPU_MAX) {
				complain("more than %d GPUs", GPU_MAX);
				return usage_error("restore");
			}
			r.choices[r.nchoices++] = optarg;
			break;
		case 'n':
			r.unverified = true;
			break;
		case 'p':
			r.paused = true;
			break;
		case 'j':
			r.json = true;
			break;
		case 'h':
			fputs(help_restore, stdout);
			return EXIT_DONE;
		default:
			return usage_error("restore");
		}
	}
	if (!names_given(argc, argv, "directory", true))
		return usage_error("restore");
	return run(&r, argv[optind]);
}
