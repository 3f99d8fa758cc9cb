/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw restore: a job runs on from a snapshot, in new processes. */
#include "tools/command/tools.h"

#include "common/clock.h"
#include "common/text.h"
#include "tools/command/snapshot/opened.h"
#include "tools/command/output.h"
#include "tools/command/snapshot/restoring.h"
#include "tools/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char help_restore[] =
	"Usage: cudaw restore [OPTION]... DIR\n"
	"\n"
	"Start the job of the snapshot DIR again, from where it was: with its process ids, files,\n"
	"working directory and GPU memory. Before anything of the job runs, this checks every byte of\n"
	"the snapshot, the driver, the GPUs, and the programs and libraries that the job uses.\n"
	"\n"
	"  -g, --gpu OLD=NEW  put the contents of the GPU OLD, an index as 'cudaw inspect' shows it,\n"
	"                     or a UUID, on the GPU NEW, an index or UUID of this machine; may be\n"
	"                     repeated. Without it a job stays on its GPUs, or, on another machine,\n"
	"                     takes the first ones of the same kind\n"
	"      --no-verify    do not check the GPU memory before the job runs: the job checks it when\n"
	"                     it reads it, and the new processes are killed if it is damaged\n"
	"      --check        start nothing, and list all reasons for which the restore would fail;\n"
	"                     'cudaw verify' checks the GPU memory\n"
	"      --paused       leave the job paused; 'cudaw resume' lets it run on\n"
	"      --wait         stay until the job ends: the exit code is the job's then, or 128 and\n"
	"                     the signal that has ended it; SIGINT, SIGTERM, SIGHUP and SIGQUIT go to\n"
	"                     the job\n"
	"  -j, --json         the result as a JSON object\n"
	"  -h, --help         this text\n"
	"\n"
	"CRIU 4.1 or later ('criu' in PATH, or CUDAW_CRIU) is needed, and root, or a CRIU whose file\n"
	"has capabilities (docs/slurm.md).\n"
	"\n"
	"Exit codes: 0 done; 1 failed, or no snapshot, or a damaged one; 2 wrong usage; 6 not\n"
	"supported on this machine, or newer than this cudaw. With --wait: the job's; 2 wrong usage;\n"
	"125 the restore failed.\n";

static void add_phase(json_t *phases, const char *name, double ms)
{
	json_array_append_new(phases, json_pack("{s:s, s:o}", "name", name, "ms", output_ms(ms)));
}

static double verify_ms(const struct restoring *r)
{
	double ms = 0;

	for (size_t i = 0; i < r->opened.n; i++)
		if (r->readings[i].ms > ms)
			ms = r->readings[i].ms;
	return ms;
}

/* The resumes of the further parts. */
static json_t *further_of(const struct restoring *r, const struct job_transfer *resume)
{
	json_t *further = json_array();

	for (size_t i = 1; i < r->opened.n; i++) {
		json_t *phases = json_array();

		output_phases(phases, &resume[i]);
		json_array_append_new(further, json_pack("{s:i, s:o}", "pid",
							 r->opened.parts[i].snapshot.manifest.pid,
							 "phases", phases));
	}
	return further;
}

/* The phases in their order: ours, and those of the first part's resume. */
static void report_json(const struct restoring *r, const struct job_transfer *resume, double ms)
{
	json_t *object, *phases = json_array();

	add_phase(phases, "check", r->check_ms);
	if (!r->unverified)
		add_phase(phases, "verify", verify_ms(r));
	add_phase(phases, "criu", r->criu_ms);
	add_phase(phases, "start", r->start_ms);
	output_phases(phases, resume);
	object = json_pack("{s:i, s:o, s:b, s:I, s:o, s:o, s:o}", "pid",
			   r->opened.parts->snapshot.manifest.pid, "path", output_text(r->path),
			   "paused", (int)r->paused, "bytes", (json_int_t)opened_bytes(&r->opened),
			   "ms", output_ms(ms), "phases", phases, "further", further_of(r, resume));
	output_json(object);
	json_decref(object);
}

static void report(const struct restoring *r, const struct job_transfer *resume)
{
	char took[FORMAT_SIZE], bytes[FORMAT_SIZE];
	double ms = clock_ms() - r->began;

	if (r->json)
		report_json(r, resume, ms);
	else
		printf("%d %s: %s of GPU memory in %s\n", r->opened.parts->snapshot.manifest.pid,
		       r->paused ? "is restored, paused" : "goes on",
		       format_bytes(bytes, opened_bytes(&r->opened)), format_duration(took, ms));
}

/*
 * Ctrl-Z has stopped the job, whose process group has the terminal. The shell has another one, this command's, for its
 * job: that stops as well, and its "fg" gives the terminal back, and lets the job go on.
 */
static void stop_with(pid_t job)
{
	int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
	pid_t group = getpgid(job);

	if (terminal >= 0 && group > 0 && tcgetpgrp(terminal) == group && group != getpgrp()) {
		kill(0, SIGTSTP);
		if (tcgetpgrp(terminal) == getpgrp())
			tcsetpgrp(terminal, group);
		kill(-group, SIGCONT);
	}
	if (terminal >= 0)
		close(terminal);
}

/* The job, and those of its processes that outlive their parents, are our children. Returns an exit code. */
static int await_end(pid_t job)
{
	pid_t ended;
	int status;

	fflush(stdout);
	while ((ended = waitpid(-1, &status, WUNTRACED)) != job || WIFSTOPPED(status)) {
		if (ended == job && WSTOPSIG(status) == SIGTSTP)
			stop_with(job);
		if (ended >= 0 || errno == EINTR)
			continue;
		complain("restore %d: its end cannot be seen: %s", job, strerror(errno));
		return EXIT_NOT_RESTORED;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* With --wait the exit code is the job's, and a failure of ours must not look like one. */
static int end_of(const struct restoring *r, int ret)
{
	if (!r->wait || r->check)
		return ret;
	return !ret || r->left ? await_end(r->first) : EXIT_NOT_RESTORED;
}

static int run(struct restoring *r, const char *path)
{
	struct job_transfer resume[SNAPSHOT_PARTS_MAX];
	int ret;

	r->began = clock_ms();
	if (!realpath(path, r->path)) {
		complain("%s: %s", path, strerror(errno));
		return end_of(r, EXIT_FAILED);
	}
	for (size_t i = 0; i < SNAPSHOT_PARTS_MAX; i++)
		r->readings[i].memory = -1;
	ret = opened_open(r->path, &r->opened);
	if (!ret)
		ret = opened_unite(&r->opened, &r->whole, r->devices);
	if (!ret)
		ret = restoring_check(r);
	r->check_ms = clock_ms() - r->began;
	if (!ret && r->check) {
		printf("%s can be restored here\n", r->path);
	} else if (!ret) {
		ret = restoring_run(r, resume);
		if (!ret)
			report(r, resume);
	}
	criu_files_free(&r->files);
	memory_files_free(&r->memory_files);
	free(r->ports.all);
	json_decref(r->facts);
	free(r->whole.manifest.devices);
	free(r->whole.manifest.regions);
	opened_close(&r->opened);
	return end_of(r, ret);
}

int cmd_restore(int argc, char **argv)
{
	static const struct option options[] = {
		{"gpu", required_argument, NULL, 'g'}, {"no-verify", no_argument, NULL, 'n'},
		{"paused", no_argument, NULL, 'p'},    {"json", no_argument, NULL, 'j'},
		{"wait", no_argument, NULL, 'w'},      {"check", no_argument, NULL, 'C'},
		{"help", no_argument, NULL, 'h'},      {NULL, 0, NULL, 0},
	};
	struct restoring r = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, "g:jh", options, NULL)) != -1) {
		switch (opt) {
		case 'g':
			if (r.nchoices == GPU_MAX) {
				complain("--gpu: expected at most %d", GPU_MAX);
				return usage_error("restore");
			}
			r.choices[r.nchoices++] = optarg;
			break;
		case 'n':
			r.unverified = true;
			break;
		case 'C':
			r.check = true;
			break;
		case 'p':
			r.paused = true;
			break;
		case 'w':
			r.wait = true;
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
	if (r.check && r.json) {
		complain("--check has no --json");
		return usage_error("restore");
	}
	if (!r.check)
		report_by_code();
	process_allow_descriptors();
	return run(&r, argv[optind]);
}
