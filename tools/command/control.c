/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw pause, resume and trim: which processes are meant, the request to all, the outcome. */
#include "tools/command/control.h"

#include "tools/command/tools.h"

#include "tools/job/coordinate.h"
#include "common/text.h"
#include "common/proc.h"
#include "common/settings.h"
#include "tools/job/jobs.h"
#include "tools/report/progress.h"
#include "tools/job/select.h"
#include "tools/process/tree.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * How long a job may stay silent before we give it up: one that pauses or resumes reports ten times
 * a second, a trim does not. A --timeout is kept by the job itself, and needs no more than some
 * grace.
 */
#define SILENCE_MS      10000
#define TRIM_SILENCE_MS 60000
#define GRACE_MS        2000

#define IS_STOPPED "it is stopped; SIGCONT or 'cudaw resume' continues it"

#define OPTIONS_HELP(timeout, as)                                                                 \
	"  -a, --all              all jobs of the user; of all users for root\n" timeout          \
	"      --no-wait          return as soon as the jobs have taken the request\n"            \
	"  -h, --help             this text\n"                                                    \
	"\n"                                                                                      \
	"An ID or NAME means every process of the job. A number means the process of that PID,\n" \
	"if it runs under cudaw. What takes longer than a second shows its progress on a\n"       \
	"terminal. Interrupting this command does not undo what it asked for.\n"                  \
	"\n"                                                                                      \
	"Exit codes: 0 done; 1 failed, " as "; 2 wrong usage; 3 no such job;\n"                   \
	"4 not permitted; 5 timed out; 6 not supported. Of several failures, the first decides.\n"

const char help_pause[] =
	"Usage: cudaw pause [OPTION]... ID|NAME|PID...\n"
	"\n"
	"Move the GPU memory of jobs to host memory, give it back to the GPU, and hold the jobs\n"
	"until 'cudaw resume'. To a job this looks like GPU calls that take long.\n"
	"\n"
	"Several processes of one job, which may wait for each other on the GPU, pause together or\n"
	"not at all; interrupted before they have come to rest, they run on.\n"
	"\n" OPTIONS_HELP(
		"  -t, --timeout SECONDS  let the job run on if its kernels do not end in time (30)\n"
		"      --release WHAT     'all' (the whole GPU) or 'memory' (leave the CUDA context and\n"
		"                         what cudaw does not move); else as CUDAW_RELEASE says\n",
		"and the job runs on");

const char help_resume[] =
	"Usage: cudaw resume [OPTION]... ID|NAME|PID...\n"
	"\n"
	"Give paused jobs their GPU memory back, at the same addresses and with the same contents,\n"
	"and let them go on. Where the GPU is full, this waits until there is room.\n"
	"\n" OPTIONS_HELP(
		"  -t, --timeout SECONDS  leave the job paused if the GPU has no room in time (no limit)\n",
		"and the job stays paused");

const char help_trim[] =
	"Usage: cudaw trim [OPTION]... ID|NAME|PID...\n"
	"\n"
	"Give back what running jobs keep for later: the host memory of the last pause, pinned or\n"
	"not, and GPU memory that was freed and is kept for the next allocation. The next pause,\n"
	"or the next allocations, are slower for it once.\n"
	"\n" OPTIONS_HELP("", "and the job is as it was");

static const struct verb {
	const char *name, *doing, *done;
	int silence_ms;
	const char *together; /* what processes of one job are asked instead; or NULL */
	const char *spared;   /* what is so of one where another one of its job fails */
} pause_verb = {"pause",    "pausing", "paused",
		SILENCE_MS, "hold",    "it runs on, as not all of its job could be paused"},
  resume_verb = {"resume",   "resuming", "resumed",
		 SILENCE_MS, "regain",   "it stays paused, as not all of its job could be resumed"},
  trim_verb = {"trim", "trimming", "trimmed", TRIM_SILENCE_MS, NULL, NULL};

struct control {
	const struct verb *verb;
	bool all, no_wait;
	long timeout_ms;     /* 0: none given */
	const char *release; /* NULL: none given */
	struct job_list list;
	int code; /* of the first failure */
};

static void fail(struct control *control, int code)
{
	if (!control->code)
		control->code = code;
}

/* "1234 (train)" */
static const char *label(const struct job *job)
{
	static char buf[160];

	if (job->status.name[0])
		snprintf(buf, sizeof(buf), "%d (%s)", job->pid, job->status.name);
	else
		snprintf(buf, sizeof(buf), "%d", job->pid);
	return buf;
}

/* The selected jobs, or all: an array of *@n, to be freed. NULL: out of memory. */
static struct job **pick(struct job_list *list, bool all, size_t *n)
{
	struct job **jobs = calloc(list->n + 1, sizeof(*jobs));

	*n = 0;
	for (size_t i = 0; jobs && i < list->n; i++)
		if (all || list->jobs[i].selected)
			jobs[(*n)++] = &list->jobs[i];
	return jobs;
}

/* Ask jobs for their status: all where a target has to be looked up, or those of given PIDs. */
static void describe(struct control *control, bool all)
{
	size_t n;
	struct job **jobs = pick(&control->list, all, &n);

	if (jobs)
		jobs_describe(jobs, n);
	free(jobs);
}

/* A word of the environment that @job was started with; empty where it is not seen. */
static void environment_of(const struct job *job, const char *name, char *buf, size_t size)
{
	buf[0] = '\0';
	if (!job->seen)
		return;
	host_environment(job->pid, name, buf, size);
	if (!process_is_there(&job->process))
		buf[0] = '\0';
}

/* It was started as a process of one of the jobs that @targets name. */
static bool is_part(const struct job *job, char **targets, int n)
{
	char id[RUNDIR_ID_SIZE], name[sizeof(job->status.name)];

	environment_of(job, settings[SETTING_JOB].name, id, sizeof(id));
	environment_of(job, settings[SETTING_NAME].name, name, sizeof(name));
	for (int i = 0; i < n; i++)
		if (*targets[i] && (!strcmp(targets[i], id) || !strcmp(targets[i], name)))
			return true;
	return false;
}

/*
 * What is stopped answers nobody: a resume continues it, with its children, as a snapshot that was
 * broken off stops them all; anything else cannot be asked of it.
 */
static void wake_stopped(struct control *control, char **targets, int n)
{
	struct tree tree;

	for (size_t i = 0; i < control->list.n; i++) {
		struct job *job = &control->list.jobs[i];

		if (!job_is_stopped(job) ||
		    !(job->selected || control->all || is_part(job, targets, n)))
			continue;
		if (control->verb == &resume_verb) {
			tree_find(&tree, &job->process, job->directory->owner);
			tree_signal(&tree, SIGCONT);
			if (process_can_signal())
				continue;
		}
		complain("%s %d: " IS_STOPPED, control->verb->name, job->pid);
		fail(control, EXIT_FAILED);
		job->left_out = true;
	}
}

/* Why what @target names is not there has been said: it is stopped. */
static bool is_left_out(const struct job_list *list, char **target)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->jobs[i].left_out && is_part(&list->jobs[i], target, 1))
			return true;
	return false;
}

void control_id(const struct job *job, char id[RUNDIR_ID_SIZE])
{
	if (job->described)
		snprintf(id, RUNDIR_ID_SIZE, "%s", job->status.id);
	else
		environment_of(job, settings[SETTING_JOB].name, id, RUNDIR_ID_SIZE);
}

/* By its PID, alone. */
static bool is_named(const struct job_list *list, const struct job *job, char **targets, int n)
{
	for (int i = 0; i < n; i++)
		if (select_find_pid(list, select_pid_of(targets[i])) == job)
			return true;
	return false;
}

/*
 * Of a job of which one process gives no answer the others are not to pause or resume without it.
 */
static void spare_parts(struct control *control, char **targets, int n)
{
	struct job_list *list = &control->list;
	char id[RUNDIR_ID_SIZE], other[RUNDIR_ID_SIZE];

	for (size_t i = 0; i < list->n; i++) {
		struct job *silent = &list->jobs[i];
		bool any = false;

		if (silent->described || job_is_gone(silent) || is_named(list, silent, targets, n))
			continue;
		control_id(silent, id);
		for (size_t k = 0; k < list->n && *id; k++) {
			struct job *job = &list->jobs[k];

			/* An ID is a claim of its user. */
			if (k == i || !job->selected || is_named(list, job, targets, n) ||
			    job->directory->owner != silent->directory->owner)
				continue;
			control_id(job, other);
			if (strcmp(other, id))
				continue;
			job->selected = false;
			any = true;
		}
		if (!any)
			continue;
		silent->selected = false;
		if (!silent->left_out)
			complain("%s %s: its process %d is not heard from: %s", control->verb->name,
				 id, silent->pid, job_error_text(silent->error));
		fail(control, job_is_silent(silent) ? EXIT_TIMEOUT : EXIT_FAILED);
	}
}

/* Mark what the command line means as selected; say what means nothing. */
static void select_targets(struct control *control, char **targets, int n)
{
	struct job_list *list = &control->list;
	bool look_up = control->all;

	for (int i = 0; i < n; i++)
		look_up |= !select_pid(list, select_pid_of(targets[i]));
	wake_stopped(control, targets, n);
	describe(control, look_up);
	for (int i = 0; i < n; i++)
		if (!select_pid(list, select_pid_of(targets[i])) && !select_job(list, targets[i]) &&
		    !is_left_out(list, targets + i))
			fail(control, select_explain(list, targets[i]));
	for (size_t i = 0; i < list->n; i++) {
		struct job *job = &list->jobs[i];

		if (control->all)
			job->selected = true;
		job->selected &= !job->left_out;
		if (!job->selected || !job_is_gone(job))
			continue;
		job->selected = false;
		if (!control->all)
			fail(control, select_explain_pid(list, job->pid));
	}
	if (look_up)
		spare_parts(control, targets, n);
}

static int control_line(struct job *job, const char *key, char *value)
{
	if (!strcmp(key, "progress"))
		return job_progress_take(job, value);
	if (!strcmp(key, "held"))
		return coordinate_take(job, value);
	if (!strcmp(key, "ready")) {
		job->ready = true;
		strcpy(job->status.state, "running");
		return 0;
	}
	if (!strcmp(key, "note")) {
		format_copy(job->note, sizeof(job->note), value);
		return 0;
	}
	return job_take_field(job, key, value);
}

static int first_line(struct job *job, const char *key, char *value)
{
	int err = control_line(job, key, value);

	return err ? err : coordinate_is_over(job);
}

static int control_tick(struct job **jobs, size_t n)
{
	return coordinate_tick(jobs, n, jobs_show_progress(jobs, n));
}

/* The figures of @job that are @verb's; a trim has none, and leaves those of a resume unknown. */
static struct job_transfer *transfer_of(const struct verb *verb, struct job *job)
{
	return verb == &pause_verb ? &job->status.pause : &job->status.resume;
}

static void send_request(const struct control *control, struct job **jobs, size_t n)
{
	char text[64], party_text[64], timeout[32] = "", release[16] = "";
	struct job_request request = {.text = text, .line = control_line, .tick = control_tick};

	if (control->timeout_ms)
		snprintf(timeout, sizeof(timeout), " %ld", control->timeout_ms);
	if (control->release)
		snprintf(release, sizeof(release), " %s", control->release);
	snprintf(text, sizeof(text), "%s%s%s", control->verb->name, timeout, release);
	if (control->verb->together) {
		snprintf(party_text, sizeof(party_text), "%s%s%s", control->verb->together, timeout,
			 release);
		request.party_text = party_text;
	}
	request.limit_ms = control->verb->silence_ms;
	if (control->timeout_ms && control->timeout_ms + GRACE_MS < request.limit_ms)
		request.limit_ms = control->timeout_ms + GRACE_MS;
	request.silence = true;
	if (control->no_wait) {
		request.line = first_line;
		request.limit_ms = JOBS_STATUS_MS;
	}
	/* What they know of an earlier time is not the outcome of this one. */
	for (size_t i = 0; i < n; i++)
		*transfer_of(control->verb, jobs[i]) = (struct job_transfer){0};
	progress_begin(control->verb->doing);
	jobs_ask(jobs, n, &request);
	progress_end();
}

static int exit_code_of(const char *end)
{
	static const struct {
		const char *end;
		int code;
	} codes[] = {
		{END_TIMEOUT, EXIT_TIMEOUT},
		{END_DENIED, EXIT_DENIED},
		{END_UNSUPPORTED, EXIT_UNSUPPORTED},
	};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (!strcmp(end, codes[i].end))
			return codes[i].code;
	return EXIT_FAILED;
}

/* With --no-wait, a job that took the request and did not end at once is what was asked for. */
static bool under_way(const struct control *control, const struct job *job)
{
	return control->no_wait && !job->end[0] && (!job->error || job->error == -ETIMEDOUT);
}

/* It does what it was asked for; or did, and has ended since. */
static bool is_done(const struct job *job)
{
	return job->error ? job->error == -ECONNRESET && job->ready : !strcmp(job->end, END_OK);
}

/* A job that did not end as it should: one line, and the exit code. */
static void report_failure(struct control *control, const struct job *job)
{
	const char *verb = control->verb->name;

	if (job_is_silent(job) && job_is_stopped(job)) {
		complain("%s %s: " IS_STOPPED, verb, label(job));
		fail(control, EXIT_FAILED);
	} else if (job->error == -ETIMEDOUT) {
		complain("%s %s: no answer; it may do so yet, 'cudaw ps' will tell", verb,
			 label(job));
		fail(control, EXIT_TIMEOUT);
	} else if (job->error == -EACCES || job->error == -EPERM) {
		complain("%s %s: not permitted", verb, label(job));
		fail(control, EXIT_DENIED);
	} else if (job->error) {
		complain("%s %s: %s", verb, label(job), job_error_text(job->error));
		fail(control, job_is_silent(job) ? EXIT_TIMEOUT : EXIT_FAILED);
	} else {
		complain("%s %s: %s", verb, label(job), job->message[0] ? job->message : job->end);
		fail(control, exit_code_of(job->end));
	}
}

/* "paused 1234 (train): 31.2 GiB in 1.1 s, 28.3 GB/s" */
static void report_success(const struct verb *verb, struct job *job)
{
	const struct job_transfer *moved = transfer_of(verb, job);
	char bytes[FORMAT_SIZE], took[FORMAT_SIZE], rate[FORMAT_SIZE];

	printf("%s %s", verb->done, label(job));
	if (moved->known)
		printf(": %s in %s, %s", format_bytes(bytes, moved->bytes),
		       format_duration(took, moved->ms),
		       format_rate(rate, moved->bytes, moved->ms));
	if (job->note[0])
		printf("%s%s", moved->known ? "; " : ": ", job->note);
	if (job->error)
		printf("; it has ended since");
	putchar('\n');
}

static void report(struct control *control, struct job **jobs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (under_way(control, jobs[i]))
			printf("%s %s\n", control->verb->doing, label(jobs[i]));
		else if (coordinate_gave_up(jobs[i]))
			complain("%s %s: %s", control->verb->name, label(jobs[i]),
				 control->verb->spared);
		else if (!is_done(jobs[i]))
			report_failure(control, jobs[i]);
		else
			report_success(control->verb, jobs[i]);
	}
}

/* A resume that nobody waits for is each process's own. */
static bool goes_together(const struct control *control)
{
	return control->verb->together && !(control->verb == &resume_verb && control->no_wait);
}

static int run_control(struct control *control, char **targets, int ntargets)
{
	struct job **jobs;
	size_t n;
	int err = jobs_find(&control->list);

	if (err)
		return err;
	select_targets(control, targets, ntargets);
	jobs = pick(&control->list, false, &n);
	if (!jobs || (goes_together(control) && coordinate_begin(jobs, n))) {
		complain("out of memory");
		fail(control, EXIT_FAILED);
	} else if (n) {
		send_request(control, jobs, n);
		if (control->verb == &pause_verb && !control->no_wait)
			coordinate_mend(jobs, n, SILENCE_MS);
		report(control, jobs, n);
		coordinate_end(jobs, n);
	} else if (control->all) {
		complain("there are no jobs");
	}
	free(jobs);
	jobs_free(&control->list);
	return control->code;
}

bool control_seconds(const char *text, long *ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end != text && (!*end || !strcmp(end, "s")) && seconds >= 0.001 && seconds <= 1e6) {
		*ms = seconds * 1000 + 0.5;
		return true;
	}
	complain("'%s' is no number of seconds from 0.001 to 1000000", text);
	return false;
}

static int cmd_control(int argc, char **argv, const struct verb *verb, const char *help)
{
	static const struct option options[] = {
		{"all", no_argument, NULL, 'a'},
		{"timeout", required_argument, NULL, 't'},
		{"release", required_argument, NULL, 'r'},
		{"no-wait", no_argument, NULL, 'n'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct control control = {.verb = verb};
	int opt;

	while ((opt = getopt_long(argc, argv, "at:h", options, NULL)) != -1) {
		switch (opt) {
		case 'a':
			control.all = true;
			break;
		case 't':
			if (verb == &trim_verb) {
				complain("trim takes no --timeout");
				return usage_error(verb->name);
			}
			if (!control_seconds(optarg, &control.timeout_ms))
				return usage_error(verb->name);
			break;
		case 'r':
			if (verb != &pause_verb ||
			    (strcmp(optarg, "all") && strcmp(optarg, "memory"))) {
				complain(verb == &pause_verb ? "--release takes 'all' or 'memory'"
							     : "--release is for a pause");
				return usage_error(verb->name);
			}
			control.release = optarg;
			break;
		case 'n':
			control.no_wait = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_DONE;
		default:
			return usage_error(verb->name);
		}
	}
	if (control.all == (optind < argc)) {
		complain(control.all ? "--all takes no ID, NAME or PID"
				     : "which job? Give an ID, NAME or PID, or --all");
		return usage_error(verb->name);
	}
	return run_control(&control, argv + optind, argc - optind);
}

int cmd_pause(int argc, char **argv)
{
	return cmd_control(argc, argv, &pause_verb, help_pause);
}

int cmd_resume(int argc, char **argv)
{
	return cmd_control(argc, argv, &resume_verb, help_resume);
}

int cmd_trim(int argc, char **argv)
{
	return cmd_control(argc, argv, &trim_verb, help_trim);
}

struct job *control_find(struct job_list *list, const char *target, int *code)
{
	static const struct verb verb = {.name = "snapshot"};
	struct control control = {.verb = &verb};
	char *targets[] = {(char *)target};
	struct job *found = NULL;
	size_t n = 0;

	*code = jobs_find(list);
	if (*code)
		return NULL;
	control.list = *list;
	select_targets(&control, targets, 1);
	*code = control.code;
	for (size_t i = 0; i < list->n; i++)
		if (list->jobs[i].selected) {
			found = &list->jobs[i];
			n++;
		}
	if (n < 2)
		return found;
	complain("'%s' is %zu processes that use the GPU; expected one", target, n);
	*code = EXIT_UNSUPPORTED;
	return NULL;
}

int control_ask(struct job *job, const char *verb, const char *doing, const char *request)
{
	const struct verb words = {.name = verb, .doing = doing};
	struct control control = {.verb = &words};
	struct job_request ask = {
		.text = request,
		.line = control_line,
		.tick = jobs_show_progress,
		.limit_ms = SILENCE_MS,
		.silence = true,
	};

	job->note[0] = '\0';
	progress_begin(doing);
	jobs_ask(&job, 1, &ask);
	progress_end();
	if (!is_done(job))
		report_failure(&control, job);
	return control.code;
}
