/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw pause, resume and trim: the request to all processes that are meant, and the outcome. */
#include "tools/command/tools.h"

#include "common/protocol/pact.h"
#include "common/size.h"
#include "common/text.h"
#include "tools/command/paused_by_driver.h"
#include "tools/command/result.h"
#include "tools/job/party/coordinate.h"
#include "tools/job/outcome.h"
#include "tools/command/output.h"
#include "tools/job/targets.h"
#include "tools/job/party/together.h"
#include "tools/report/progress.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIM_SILENCE_MS 60000

#define OPTIONS_HELP(timeout, as)                                                                   \
	"  -a, --all              all jobs of the user; for root, of all users\n"                   \
	"      --gpu N|UUID       all jobs that use this GPU, numbered as by nvidia-smi\n"          \
	"      --user USER        all jobs of this user, for root; with --gpu, those on this GPU\n" \
	"      --dry-run          only print which processes are meant\n" timeout                   \
	"      --no-wait          return as soon as the jobs have accepted the request\n"           \
	"  -j, --json             the outcome for each process, as a JSON array\n"                  \
	"  -h, --help             this text\n"                                                      \
	"\n"                                                                                        \
	"An ID or NAME means every process of the job. So does the PID of a process that belongs\n" \
	"to the job without using the GPU: a wrapper script, a launcher, a child. The PID of a\n"   \
	"process that uses the GPU means this process alone. If no process has the PID here, a\n"   \
	"PID of another PID namespace is meant. After a second a terminal shows the progress.\n"    \
	"\n"                                                                                        \
	"Exit codes: 0 done; 1 failed, " as "; 2 wrong usage; 3 no such job, or it\n"               \
	"is starting; 4 not permitted; 5 timed out; 6 not supported.\n"                             \
	"Of several failures, the first decides.\n"

const char help_pause[] =
	"Usage: cudaw pause [OPTION]... ID|NAME|PID...\n"
	"\n"
	"Move the GPU memory of jobs to host memory, give it back to the GPU, and hold the jobs\n"
	"until 'cudaw resume'. To a job this looks like GPU calls that take long.\n"
	"\n"
	"Processes of one job may wait for each other on the GPU, so they pause together or not at\n"
	"all. If you interrupt this command before all are at rest, the processes run on. The pause\n"
	"of a single process goes on if you interrupt the command.\n"
	"\n" OPTIONS_HELP(
		"  -t, --timeout SECONDS  let the job run on if its kernels do not end in time (30)\n"
		"      --release WHAT     'all': leave nothing on the GPU; 'memory': leave the CUDA\n"
		"                         context and the memory left to the driver there. The default\n"
		"                         is CUDAW_RELEASE of the job. With 'all', a job that is\n"
		"                         paused already gives back the rest, too\n"
		"      --driver           pause single processes that do not run under cudaw, by PID: by\n"
		"                         the driver's own checkpoint, which is slower and has none of the\n"
		"                         guarantees above; 'cudaw resume PID' restores them\n",
		"and the job runs on");

const char help_resume[] =
	"Usage: cudaw resume [OPTION]... ID|NAME|PID...\n"
	"\n"
	"Give paused jobs their GPU memory back, at the same addresses and with the same contents,\n"
	"and let them run on. If the GPU is full, this waits until enough memory is free. A job\n"
	"that takes turns waits for its turn. Processes of one job run when all have their memory.\n"
	"Interrupting this command does not cancel the request.\n"
	"\n" OPTIONS_HELP(
		"  -t, --timeout SECONDS  leave the job paused if the GPU stays full so long (no limit)\n"
		"      --need SIZE        for a process that the driver's checkpoint has paused: wait until\n"
		"                         SIZE bytes (or with K, M, G or T) are free on each GPU that it\n"
		"                         used. The default is what 'cudaw pause --driver' has noted, or\n"
		"                         a guess if another tool has paused the process\n",
		"and the job stays paused");

const char help_trim[] =
	"Usage: cudaw trim [OPTION]... ID|NAME|PID...\n"
	"\n"
	"Release memory that running jobs keep for reuse: the host memory of the last pause,\n"
	"pinned or not, and GPU memory that was freed and is kept for the next allocation. The\n"
	"next pause, or the next allocations, are slower once. Interrupting this command does not\n"
	"cancel the request.\n"
	"\n" OPTIONS_HELP("", "and the job is unchanged");

struct verb {
	enum together_what what;
	const struct result_verb *words;
	bool mute;          /* it says nothing before its end */
	const char *spared; /* the outcome for a process whose job failed in another one */
	/* What an interrupt of this command leaves: of requests that need it no more, and of the others. */
	const char *goes_on, *given_up;
};

static const struct verb pause_verb = {
	.what = TOGETHER_PAUSE,
	.words = &result_pause,
	.spared = "it goes on, as not all of its job could be paused",
	.goes_on = "the pause goes on; 'cudaw resume' takes it back",
	.given_up = "jobs whose processes were not all at rest run on",
};

static const struct verb resume_verb = {
	.what = TOGETHER_RESUME,
	.words = &result_resume,
	.spared = "it stays paused, as not all of its job could be resumed",
	.goes_on = "the resume goes on; 'cudaw pause' takes it back",
	.given_up = "jobs whose processes did not all have their memory stay paused",
};

static const struct verb trim_verb = {
	.what = TOGETHER_TRIM,
	.words = &result_trim,
	.mute = true,
	.goes_on = "the trim goes on",
};

struct control {
	const struct verb *verb;
	bool no_wait, json;
	bool driver;         /* processes that do not run under cudaw */
	double timeout_ms;   /* 0: none given */
	size_t need;         /* BY_DRIVER_GUESS: none given */
	const char *release; /* NULL: none given */
	struct targets targets;
	json_t *rows; /* for --json */
};

static int first_line(struct job *job, const struct line *line)
{
	int err = outcome_line(job, line);

	return err ? err : coordinate_is_over(job);
}

static const struct verb *asked; /* of the request under way */

/* Of the jobs that are asked: their request needs this command, or goes on without it. */
static void expect_interrupt(struct job **jobs, size_t n)
{
	const char *goes_on = NULL, *given_up = NULL;

	for (size_t i = 0; i < n; i++) {
		if (jobs[i]->fd < 0)
			continue;
		if (coordinate_is_over(jobs[i]))
			goes_on = asked->goes_on;
		else
			given_up = asked->given_up;
	}
	progress_on_interrupt(goes_on, given_up);
}

static double control_tick(struct job **jobs, size_t n)
{
	expect_interrupt(jobs, n);
	return together_tick(jobs, n);
}

/*
 * With --no-wait, a job that accepted the request and still works on it is a success. One that is silent
 * has accepted nothing, unless the verb is mute; but a process that was told to commit does so by itself.
 */
static bool under_way(const struct control *control, const struct job *job)
{
	bool by_itself = control->verb->mute || coordinate_has_agreed(job);

	return control->no_wait && !job->end &&
	       (!job->error || (job->error == -ETIMEDOUT && by_itself));
}

static void explain_spared(const struct verb *verb, const struct job *job, char *why, size_t size)
{
	int pid = coordinate_awaited(job);

	if (pid)
		snprintf(why, size,
			 "it goes on when process %d answers; if that takes %d s, it stays paused",
			 pid, PACT_SILENCE_MS / 1000);
	else
		snprintf(why, size, "%s", verb->spared);
}

static struct result judge(const struct control *control, struct job *job)
{
	const struct verb *verb = control->verb;
	struct result r = {.verb = verb->words,
			   .pid = job->pid,
			   .label = outcome_label(job),
			   .id = job->status.id,
			   .name = job->status.name,
			   .word = "done",
			   .moved = *together_moved(verb->what, job),
			   .ended = job->error != 0};

	snprintf(r.note, sizeof(r.note), "%s", job->note);
	if (under_way(control, job)) {
		r.word = "begun";
	} else if (together_waits_for_turn(job)) {
		r.word = "begun";
		outcome_explain(job, r.why, sizeof(r.why));
	} else if (coordinate_gave_up(job)) {
		r.word = "spared";
		r.code = EXIT_FAILED;
		explain_spared(verb, job, r.why, sizeof(r.why));
	} else if (!outcome_is_good(job)) {
		r.word = "failed";
		r.code = outcome_explain(job, r.why, sizeof(r.why));
	} else if (job->continued && !r.moved.known) {
		r.word = "continued";
		snprintf(r.why, sizeof(r.why), "it was stopped by a signal, not paused");
	}
	return r;
}

static void report(void *arg, struct job **jobs, size_t n)
{
	struct control *control = arg;

	for (size_t i = 0; i < n; i++) {
		const struct result r = judge(control, jobs[i]);

		if (!strcmp(r.word, "failed"))
			targets_fail(&control->targets, r.code);
		result_print(&r, control->rows);
	}
}

/* Returns 0, or a negative errno after a message. The order of @jobs changes. */
static int ask_and_report(struct control *control, struct job **jobs, size_t n)
{
	const struct verb *verb = control->verb;
	const struct together how = {.what = verb->what,
				     .doing = verb->words->doing,
				     .release = control->release,
				     .timeout_ms = control->timeout_ms,
				     .silence_ms = verb->mute ? control->no_wait ? JOBS_STATUS_MS
										 : TRIM_SILENCE_MS
							      : OUTCOME_SILENCE_MS,
				     .once = control->no_wait,
				     .line = control->no_wait ? first_line : outcome_line,
				     .tick = control_tick,
				     .report = report,
				     .arg = control};

	asked = verb;
	return together_ask(jobs, n, &how);
}

static void report_targets(struct control *control, struct job **jobs, size_t n)
{
	/* Without figures: those are of an earlier operation. */
	for (size_t i = 0; i < n; i++)
		result_print(&(struct result){.verb = control->verb->words,
					      .pid = jobs[i]->pid,
					      .label = outcome_label(jobs[i]),
					      .id = jobs[i]->status.id,
					      .name = jobs[i]->status.name,
					      .word = "meant"},
			     control->rows);
}

/* Returns 0, or an exit code if jobs cannot be found. */
static int run_jobs(struct control *control)
{
	struct targets *targets = &control->targets;
	struct job **jobs;
	size_t n;
	int err = targets_find(targets);

	if (err)
		return err;
	jobs = targets_selected(targets, &n);
	if (jobs && n && targets->dry_run)
		report_targets(control, jobs, n);
	else if (!jobs || (n && ask_and_report(control, jobs, n))) {
		if (!jobs)
			complain("out of memory");
		targets_fail(targets, EXIT_FAILED);
	} else if (!n && targets->all) {
		targets_fail(targets, narrow_say_none(&targets->only));
	}
	free(jobs);
	jobs_free(&targets->list);
	return EXIT_DONE;
}

/* Jobs know what they need. */
static int refuse_need(const struct targets *targets)
{
	complain(
		"resume %s: --need is for processes that 'cudaw pause --driver' or another tool has "
		"paused",
		targets->words[0]);
	return EXIT_USAGE;
}

static int run_control(struct control *control)
{
	struct targets *targets = &control->targets;
	struct by_driver how = {.timeout_ms = control->timeout_ms,
				.no_wait = control->no_wait,
				.need = control->need};
	int err = EXIT_DONE;

	if (!targets->dry_run)
		report_by_code();
	control->rows = control->json ? json_array() : NULL;
	how.rows = control->rows;
	if (control->driver)
		paused_by_driver_pause(targets, &how);
	else if (control->verb != &resume_verb || paused_by_driver_resume(targets, &how))
		err = control->need == BY_DRIVER_GUESS ? run_jobs(control) : refuse_need(targets);
	if (control->rows && (!err || json_array_size(control->rows)))
		output_json(control->rows);
	json_decref(control->rows);
	targets_fail(targets, err);
	return targets->code;
}

/* Take the value of --gpu or --user, which mean all jobs that match. Returns an exit code. */
static int narrow_by(int opt, struct targets *targets)
{
	targets->all = true;
	return opt == 'g' ? narrow_to_gpu(&targets->only, optarg)
			  : narrow_to_user(&targets->only, optarg);
}

/* The option is for this verb, and has a good value. False after a message. */
static bool take_timeout(struct control *control)
{
	if (control->verb == &trim_verb) {
		complain("trim takes no --timeout");
		return false;
	}
	return seconds_given("--timeout", optarg, &control->timeout_ms);
}

static bool take_driver(struct control *control)
{
	control->driver = control->verb == &pause_verb;
	if (!control->driver)
		complain("--driver is an option of pause only");
	return control->driver;
}

static bool take_release(struct control *control)
{
	if (control->verb != &pause_verb || (strcmp(optarg, "all") && strcmp(optarg, "memory"))) {
		complain(control->verb == &pause_verb ? "--release takes 'all' or 'memory'"
						      : "--release is an option of pause only");
		return false;
	}
	control->release = optarg;
	return true;
}

static bool take_need(struct control *control)
{
	if (control->verb != &resume_verb || !size_parse(optarg, &control->need)) {
		complain(control->verb == &resume_verb
				 ? "--need takes a number of bytes, with or without K, M, G or T"
				 : "--need is an option of resume only");
		return false;
	}
	return true;
}

/* Returns 0, or an exit code after a message. */
static int take_option(struct control *control, int opt)
{
	switch (opt) {
	case 'a':
		control->targets.all = true;
		return 0;
	case 'g':
	case 'u':
		return narrow_by(opt, &control->targets);
	case 'd':
		control->targets.dry_run = true;
		return 0;
	case 't':
		return take_timeout(control) ? 0 : EXIT_USAGE;
	case 'r':
		return take_release(control) ? 0 : EXIT_USAGE;
	case 'D':
		return take_driver(control) ? 0 : EXIT_USAGE;
	case 'N':
		return take_need(control) ? 0 : EXIT_USAGE;
	case 'n':
		control->no_wait = true;
		return 0;
	case 'j':
		control->json = true;
		return 0;
	default:
		return EXIT_USAGE;
	}
}

/* Whether the options and names fit together. False after a message. */
static bool check_options(const struct control *control)
{
	bool all = control->targets.all,
	     to_memory = control->release && !strcmp(control->release, "memory");

	if (all == (control->targets.nwords > 0)) {
		complain(all ? "--all, --gpu and --user take no ID, NAME or PID"
			     : "expected an ID, NAME or PID, or --all");
		return false;
	}
	if (control->driver && (all || to_memory)) {
		complain("--driver takes no --all, --gpu, --user and --release memory");
		return false;
	}
	if (control->need != BY_DRIVER_GUESS && all) {
		complain("--need takes no --all, --gpu and --user");
		return false;
	}
	return true;
}

static int cmd_control(int argc, char **argv, const struct verb *verb, const char *help)
{
	static const struct option options[] = {
		{"all", no_argument, NULL, 'a'},
		{"gpu", required_argument, NULL, 'g'},
		{"user", required_argument, NULL, 'u'},
		{"dry-run", no_argument, NULL, 'd'},
		{"timeout", required_argument, NULL, 't'},
		{"release", required_argument, NULL, 'r'},
		{"driver", no_argument, NULL, 'D'},
		{"need", required_argument, NULL, 'N'},
		{"no-wait", no_argument, NULL, 'n'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct control control = {
		.verb = verb,
		.need = BY_DRIVER_GUESS,
		.targets = {.verb = verb->words->name, .continues = verb == &resume_verb}};
	int opt, err;

	while ((opt = getopt_long(argc, argv, "at:jh", options, NULL)) != -1) {
		if (opt == 'h') {
			fputs(help, stdout);
			return EXIT_DONE;
		}
		err = take_option(&control, opt);
		if (err)
			return err == EXIT_USAGE ? usage_error(verb->words->name) : err;
	}
	control.targets.words = argv + optind;
	control.targets.nwords = argc - optind;
	return check_options(&control) ? run_control(&control) : usage_error(verb->words->name);
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
