/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw snapshot: a job's GPU memory and processes into a directory. */
#include "tools/command/tools.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/manifest_read.h"
#include "common/text.h"
#include "tools/command/snapshot/opened.h"
#include "tools/command/output.h"
#include "tools/command/paused_by_driver.h"
#include "tools/command/snapshot/taking.h"
#include "tools/job/targets.h"
#include "tools/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char help_snapshot[] =
	"Usage: cudaw snapshot [OPTION]... ID|NAME|PID DIR\n"
	"       cudaw snapshot --check ID|NAME|PID [DIR]\n"
	"\n"
	"Write a job to the directory DIR, from which 'cudaw restore' starts it again, here or on\n"
	"another machine: its GPU memory, and by CRIU its processes. The job is paused meanwhile\n"
	"and runs on afterwards, unless it was paused before, or somebody pauses it meanwhile. A\n"
	"snapshot in DIR is replaced only when the new one is complete.\n"
	"\n"
	"  -s, --stop             end the job when the snapshot is safe\n"
	"  -i, --incremental      do not write memory again that the snapshot in DIR holds\n"
	"  -c, --compress CODEC   'zstd', 'lz4' or 'none' (none). Memory is compressed only\n"
	"                         as far as this does not make the snapshot slower than the disk\n"
	"      --gpu-only         only the GPU memory, without CRIU; 'cudaw restore' cannot use it\n"
	"      --close-outside    close the job's TCP connections to other processes, as those to\n"
	"                         clients of a server; otherwise they are in the way. They stay\n"
	"                         closed if the snapshot fails after that\n"
	"      --check            take none, and list all reasons for which none could be taken now,\n"
	"                         except those that only the pause finds\n"
	"  -t, --timeout SECONDS  let the job run on if its kernels do not end in time (30)\n"
	"  -j, --json             the result as a JSON object\n"
	"  -h, --help             this text\n"
	"\n"
	"The snapshot has all processes of the job, from the one that 'cudaw run' became on. Those\n"
	"that use the GPU pause together. CRIU 4.1 or later ('criu' in PATH, or CUDAW_CRIU) is\n"
	"needed, and root, or a CRIU whose file has capabilities (docs/slurm.md).\n"
	"\n"
	"Exit codes: 0 done; 1 failed, the job is unchanged; 2 wrong usage; 3 no such job;\n"
	"4 not permitted; 5 timed out; 6 not supported, or CRIU is missing.\n";

/* The absolute path of a directory that may not exist yet. 0 or a negative errno. */
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

/* The phases of the manifest, then CRIU's. */
static json_t *phases_of(const struct taking *t, const struct snapshot_manifest *m)
{
	json_t *phases = json_deep_copy(json_object_get(m->root, "phases"));

	if (!t->gpu_only)
		json_array_append_new(phases, json_pack("{s:s, s:o}", "name", "criu", "ms",
							output_ms(t->criu_ms)));
	return phases;
}

/* The phases of the resume of @job. Without one its figures are of an earlier resume. */
static json_t *resume_of(const struct taking *t, const struct job *job)
{
	json_t *phases = json_array();

	if (!t->stop && job->status.resume.known)
		output_phases(phases, &job->status.resume);
	return phases;
}

/* Without the lock, which others may have by now, as for a backup: the manifest came there in one step. */
static int load_manifest(const char *path, struct snapshot_manifest *m)
{
	struct snapshot_error error;
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret = dir < 0 ? snapshot_fail(&error, -errno, "%s", strerror(errno))
			  : snapshot_manifest_load(dir, SNAPSHOT_MANIFEST, m, &error);

	if (dir >= 0)
		close(dir);
	return ret ? opened_refuse(path, ret, &error) : EXIT_DONE;
}

/* With the totals of all parts; the figures of those beside the first one are appended to @further. An exit code. */
static int load_all(const struct taking *t, struct snapshot_manifest *m, json_t *further)
{
	int ret = load_manifest(t->path, m);

	for (size_t i = 1; i < t->nparts && !ret; i++) {
		struct snapshot_manifest part;
		const char *key;
		json_t *value;

		ret = load_manifest(t->parts[i].path, &part);
		if (ret) {
			snapshot_manifest_free(m);
			return ret;
		}
		json_object_foreach(json_object_get(m->root, "totals"), key, value)
			json_integer_set(
				value, json_integer_value(value) +
					       json_integer_value(json_object_get(
						       json_object_get(part.root, "totals"), key)));
		m->totals.bytes += part.totals.bytes;
		m->totals.written += part.totals.written;
		m->totals.stored += part.totals.stored;
		json_array_append_new(further,
				      json_pack("{s:i, s:O, s:o}", "pid", t->parts[i].job->pid,
						"phases", json_object_get(part.root, "phases"),
						"resume", resume_of(t, t->parts[i].job)));
		snapshot_manifest_free(&part);
	}
	return ret;
}

static int report(const struct taking *t)
{
	char bytes[FORMAT_SIZE], written[FORMAT_SIZE], stored[FORMAT_SIZE], image[2 * FORMAT_SIZE];
	char closed[64] = "";
	json_t *further = json_array();
	struct snapshot_manifest m;
	int ret = load_all(t, &m, further);

	if (ret) {
		json_decref(further);
		return ret;
	}
	if (t->json) {
		json_t *object = json_pack(
			"{s:i, s:o, s:b, s:b, s:I, s:o, s:O, s:I, s:I, s:o, s:o, s:O}", "pid",
			t->job->pid, "path", output_text(t->path), "stopped", (int)t->stop,
			"paused", (int)t->stays_paused, "closed", (json_int_t)t->nclosed, "ms",
			output_ms(t->ms), "totals", json_object_get(m.root, "totals"), "image",
			(json_int_t)t->image_bytes, "processes", (json_int_t)t->nprocesses,
			"phases", phases_of(t, &m), "resume", resume_of(t, t->job), "further",
			further);

		output_json(object);
		json_decref(object);
	} else {
		snprintf(image, sizeof(image), "%s of %zu process%s",
			 format_bytes(bytes, t->image_bytes), t->nprocesses,
			 t->nprocesses == 1 ? "" : "es");
		if (t->nclosed)
			snprintf(closed, sizeof(closed), "; connections to others closed: %zu",
				 t->nclosed);
		printf("%d is in %s: %s of GPU memory, %s of it written as %s, %s%s%s%s\n",
		       t->job->pid, t->path, format_bytes(bytes, m.totals.bytes),
		       format_bytes(written, m.totals.written),
		       format_bytes(stored, m.totals.stored),
		       t->gpu_only ? "and no process, so 'cudaw restore' cannot start it from there"
				   : image,
		       t->stop           ? "; it is stopped"
		       : t->stays_paused ? "; it stays paused"
					 : "",
		       t->stays_paused && *t->job->status.snapshot
			       ? ", and only the snapshot has its memory"
			       : "",
		       closed);
	}
	snapshot_manifest_free(&m);
	json_decref(further);
	return EXIT_DONE;
}

/* Whether this machine has what the snapshot needs; else messages. */
static bool can_take(struct taking *t)
{
	bool can = true;

	if (t->job->directory->inside) {
		complain("snapshot %d: its files are in another mount namespace, or it has another "
			 "CUDAW_RUNTIME_DIR: %s; run the command as the job was run",
			 t->job->pid, t->job->directory->path);
		can = false;
	}
	if (!t->gpu_only && !criu_find(&t->criu)) {
		complain("%s", t->criu.why);
		can = false;
	}
	return can;
}

/* Whether the directory can be written to, unless it is to be made, or the job has its memory there already. */
static int check_directory(struct taking *t)
{
	struct snapshot_error error;
	struct stat st;
	int ret, dir;

	if (!*t->path || lstat(t->path, &st))
		return EXIT_DONE;
	ret = taking_check_directory(t);
	if (ret || *t->job->status.snapshot)
		return ret;
	dir = snapshot_dir_create(t->path, t->job->uid, t->job->own_pid, &error);
	if (dir < 0) {
		complain("snapshot %d: %s: %s", t->job->pid, t->path, error.text);
		return EXIT_FAILED;
	}
	snapshot_dir_close(dir);
	return EXIT_DONE;
}

/* With --check. Nothing is asked of the job. */
static int check(struct taking *t)
{
	struct snapshot_error error = {""};
	struct tree tree;
	int ret = can_take(t) ? EXIT_DONE : EXIT_UNSUPPORTED;

	if (taking_check_processes(t, &tree, false, &error)) {
		if (*error.text)
			taking_fail(t, error.text);
		ret = EXIT_UNSUPPORTED;
	}
	if (check_directory(t))
		ret = ret ? ret : EXIT_FAILED;
	if (!ret)
		printf("%d can be put into a snapshot\n", t->job->pid);
	return ret;
}

static int take(struct taking *t)
{
	struct snapshot_error error;
	struct tree tree;
	int ret;

	if (!can_take(t))
		return EXIT_UNSUPPORTED;
	if (!t->gpu_only && taking_check_processes(t, &tree, true, &error)) {
		taking_fail(t, error.text);
		return EXIT_UNSUPPORTED;
	}
	ret = taking_check_directory(t);
	if (ret)
		return ret;
	/* The writer needs the room. A job with its memory there holds the lock. */
	if (!t->job->error && !*t->job->status.snapshot)
		taking_clean(t);
	ret = taking_run(t);
	if (!ret)
		ret = report(t);
	if (ret && t->nclosed)
		complain("snapshot %d: connections to others closed: %zu", t->job->pid, t->nclosed);
	/* There is a snapshot, and not all is as it was. */
	return !ret && t->blind ? EXIT_FAILED : ret;
}

static int run(struct taking *t, const char *path)
{
	struct snapshot_error error;
	int ret = path ? absolute(path, t->path, &error) : 0;

	if (ret)
		return opened_refuse(path, ret, &error);
	if (paused_by_driver_refuse("snapshot", t->target))
		return EXIT_UNSUPPORTED;
	t->job = targets_find_one("snapshot", t->target, t->gpu_only, &t->list, &ret);
	if (t->job)
		jobs_describe(&t->job, 1);
	if (t->job && t->check)
		ret = check(t);
	else if (t->job)
		ret = take(t);
	free(t->parts);
	memory_files_free(&t->memory_files);
	free(t->ports.all);
	free(t->outside.all);
	jobs_free(&t->list);
	return ret;
}
/* False after a message, or without one of an option that is unknown. */
static bool take_option(struct taking *t, int opt)
{
	switch (opt) {
	case 's':
		t->stop = true;
		return true;
	case 'i':
		t->incremental = true;
		return true;
	case 'c':
		if (snapshot_codec_parse(optarg, &t->codec))
			return true;
		complain("--compress %s: expected zstd, lz4 or none", optarg);
		return false;
	case 'g':
		t->gpu_only = true;
		return true;
	case 'o':
		t->close_outside = true;
		return true;
	case 'C':
		t->check = true;
		return true;
	case 't':
		return seconds_given("--timeout", optarg, &t->timeout_ms);
	case 'j':
		t->json = true;
		return true;
	default:
		return false;
	}
}

/* Whether the options fit together. False after a message. */
static bool check_options(const struct taking *t)
{
	if (t->check && (t->json || t->gpu_only)) {
		complain("--check has no --json, and is for snapshots with processes");
		return false;
	}
	if (t->close_outside && t->gpu_only) {
		complain("--close-outside is for snapshots with processes");
		return false;
	}
	if (t->stop && t->gpu_only) {
		complain("--stop with --gpu-only would end a job that cannot be restored");
		return false;
	}
	return true;
}

int cmd_snapshot(int argc, char **argv)
{
	static const struct option options[] = {
		{"stop", no_argument, NULL, 's'},           {"incremental", no_argument, NULL, 'i'},
		{"compress", required_argument, NULL, 'c'}, {"gpu-only", no_argument, NULL, 'g'},
		{"close-outside", no_argument, NULL, 'o'},  {"check", no_argument, NULL, 'C'},
		{"timeout", required_argument, NULL, 't'},  {"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
	};
	struct taking t = {.codec = SNAPSHOT_RAW};
	int opt;

	while ((opt = getopt_long(argc, argv, "sic:t:jh", options, NULL)) != -1) {
		if (opt == 'h') {
			fputs(help_snapshot, stdout);
			return EXIT_DONE;
		}
		if (!take_option(&t, opt))
			return usage_error("snapshot");
	}
	if (argc - optind != 2 && !(t.check && argc - optind == 1)) {
		complain("expected a job and a directory");
		return usage_error("snapshot");
	}
	if (!names_given(argc, argv, "job or directory", false) || !check_options(&t))
		return usage_error("snapshot");
	t.target = argv[optind];
	if (!t.check)
		report_by_code();
	/* A write beyond the limit of the file size fails: the job is to run on then. */
	signal(SIGXFSZ, SIG_IGN);
	process_allow_descriptors();
	return run(&t, argc - optind > 1 ? argv[optind + 1] : NULL);
}
