/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw wait: until jobs are paused, have left the GPU, or are saved. */
#include "tools/command/tools.h"

#include "common/clock.h"
#include "common/protocol/protocol.h"
#include "common/text.h"
#include "tools/command/output.h"
#include "tools/job/journals.h"
#include "tools/job/targets.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char help_wait[] =
	"Usage: cudaw wait --for paused|freed|saved [OPTION]... ID|NAME|PID...\n"
	"\n"
	"Wait until jobs are in a state, whoever has asked for it. The command changes nothing, and\n"
	"does not wait for jobs that are already in the state.\n"
	"  paused  all processes of the job that use the GPU are paused\n"
	"  freed   these are paused, and nothing of them is left on the GPU\n"
	"  saved   a snapshot of the job is complete, and the job has not run since\n"
	"\n"
	"      --for STATE        the state: 'paused', 'freed' or 'saved'\n"
	"  -t, --timeout SECONDS  give up after this time (no limit)\n"
	"  -j, --json             the outcome for each job, as a JSON array\n"
	"  -h, --help             this text\n"
	"\n"
	"Exit codes: 0 all are in the state; 1 the pause or the snapshot of a job failed; 2 wrong\n"
	"usage; 3 no such job, or it ended first, so it has nothing on the GPU; 4 not permitted;\n"
	"5 the time is over; 6 no journal to be seen says what is saved.\n";

#define BLIND_MS  1000  /* between two looks if nothing says when to look */
#define LOOKS_MS  60000 /* in any case: an event may have been lost */
#define POLL_JOBS 256   /* whose ends are seen at once */

enum awaited { PAUSED, FREED, SAVED, AWAITED };

static const char *const words[AWAITED] = {"paused", "freed", "saved"};

/* A job, or the single process that a PID names. */
struct target {
	char id[RUNDIR_ID_SIZE], name[128];
	uid_t owner;
	struct job process; /* whole: one of its processes */
	bool whole;
	bool is_there, reached, saved;
	pid_t stopped; /* a process that is waited for, and does not answer; 0: none */
	char failure[512];
	const char *outcome; /* NULL: it is waited for */
	int code;
};

struct waiting {
	enum awaited what;
	double timeout_ms;       /* 0: none */
	double begin_ms, end_ms; /* clock_ms() */
	bool json, past;         /* what the journals say now was before */
	struct target *targets;
	size_t n;
	struct journals journals;
	struct pollfd fds[1 + POLL_JOBS]; /* inotify's, and those of processes */
	int nfds;
	bool blind; /* a job's end or its journal cannot be watched */
};

static bool is_same_process(const struct job *a, const struct job *b)
{
	if (a->seen && b->seen)
		return a->process.pid == b->process.pid && a->process.start == b->process.start;
	return a->seen == b->seen && a->own_pid == b->own_pid &&
	       !strcmp(a->directory->path, b->directory->path);
}

static bool is_part(const struct target *target, const struct job *job)
{
	char id[RUNDIR_ID_SIZE];

	/* One that does not answer may not tell its id. */
	if (!target->whole || is_same_process(&target->process, job))
		return is_same_process(&target->process, job);
	targets_id(job, id);
	return job->directory->owner == target->owner && !strcmp(id, target->id);
}

static bool is_whole(const struct job_list *list, const char *id, uid_t owner)
{
	for (size_t i = 0; i < list->n; i++)
		if (!list->jobs[i].selected && list->jobs[i].directory->owner == owner &&
		    !strcmp(list->jobs[i].status.id, id))
			return false;
	return *id;
}

static bool has_target(const struct waiting *w, const struct job *job)
{
	for (size_t i = 0; i < w->n; i++)
		if (is_part(&w->targets[i], job))
			return true;
	return false;
}

/* Returns 0 or -ENOMEM. */
static int take_targets(struct waiting *w, const struct job_list *list)
{
	w->targets = calloc(list->n + 1, sizeof(*w->targets));
	if (!w->targets)
		return -ENOMEM;
	for (size_t i = 0; i < list->n; i++) {
		const struct job *job = &list->jobs[i];
		struct target *target = &w->targets[w->n];

		if (!job->selected || has_target(w, job))
			continue;
		targets_id(job, target->id);
		snprintf(target->name, sizeof(target->name), "%s", job->status.name);
		target->owner = job->directory->owner;
		target->process = *job;
		/* A snapshot has one process. */
		target->whole = w->what != SAVED && is_whole(list, target->id, target->owner);
		w->n++;
	}
	return 0;
}

/* Also of a directory that was removed and made again. */
static void add_journals(struct waiting *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct job_directory *directory = w->targets[i].process.directory;

		if (directory->inside ||
		    journals_add(&w->journals, directory->path, directory->owner))
			w->blind = true;
	}
}

/* Another process had its PID and CUDAW_JOB before it, as in a container that is started again. */
static bool is_older(const struct journal_seen *seen, const struct process *process)
{
	return seen->unix_ms + process_age_ms(process) < clock_unix_ms();
}

struct told {
	const struct job *job;
	enum journal_kind last;
};

static void take_told(void *arg, const struct journal_seen *seen)
{
	struct told *told = arg;

	if (seen->pid != told->job->own_pid || is_older(seen, &told->job->process))
		return;
	if (seen->kind == JOURNAL_PAUSED || seen->kind == JOURNAL_FREED ||
	    seen->kind == JOURNAL_RESUME || seen->kind == JOURNAL_RUNNING)
		told->last = seen->kind;
}

/* A job that is stopped cannot answer, and is what it was when it wrote last. */
static bool has_told(const struct waiting *w, const struct job *job)
{
	struct told told = {job, JOURNAL_KINDS};
	struct journals journals;

	if (!job->seen || job->directory->inside)
		return false;
	journals_init(&journals, false);
	journals_add(&journals, job->directory->path, job->directory->owner);
	journals_read(&journals, take_told, &told);
	journals_free(&journals);
	return told.last == JOURNAL_FREED || (w->what == PAUSED && told.last == JOURNAL_PAUSED);
}

static bool is_reached(const struct waiting *w, const struct job *job)
{
	if (job->error == -JOB_STOPPED)
		return has_told(w, job);
	return job->described && job_is_in(job, STATE_PAUSED) &&
	       (w->what == PAUSED || job->status.released);
}

/* A process that cannot be watched is looked at from time to time. */
static void watch_end(struct waiting *w, const struct job *job)
{
	int fd = job->seen && w->nfds < 1 + POLL_JOBS ? process_open(&job->process) : -ENOSYS;

	if (fd >= 0)
		w->fds[w->nfds++] = (struct pollfd){.fd = fd, .events = POLLIN};
	else if (fd != -ESRCH)
		w->blind = true;
}

static void forget_ends(struct waiting *w)
{
	while (w->nfds > 1)
		close(w->fds[--w->nfds].fd);
}

/* A pause of a job whose journal is not seen: it failed after the wait had begun. @asked_ms: when the job was asked. */
static void take_failure(const struct waiting *w, struct target *target, const struct job *job,
			 double asked_ms)
{
	const struct job_status *status = &job->status;

	if (job->directory->inside && status->failed &&
	    status->failed_ms < asked_ms - w->begin_ms && job_is_in(job, STATE_RUNNING))
		format_copy(target->failure, sizeof(target->failure), status->reason);
}

static void look_at_target(struct waiting *w, struct target *target, const struct job_list *list,
			   double asked_ms)
{
	target->is_there = false;
	target->reached = true;
	target->stopped = 0;
	for (size_t i = 0; i < list->n; i++) {
		const struct job *job = &list->jobs[i];

		if (!is_part(target, job) || job_is_gone(job))
			continue;
		target->is_there = true;
		take_failure(w, target, job, asked_ms);
		if (!is_reached(w, job)) {
			target->reached = false;
			target->stopped = job->error == -JOB_STOPPED ? job->pid : target->stopped;
		}
		watch_end(w, job);
	}
}

/* A process that is being saved must have no connections: only its end is looked at. */
static void look_at_process(struct waiting *w, struct target *target)
{
	const struct job *job = &target->process;

	target->is_there = !job->seen || process_is_there(&job->process);
	target->stopped = !target->saved && job_is_stopped(job) ? job->pid : 0;
	watch_end(w, job);
}

/* Returns 0 or an exit code. */
static int look(struct waiting *w)
{
	struct job_list list = {0};
	int code = w->what == SAVED ? 0 : jobs_find(&list);
	double asked_ms = clock_ms();

	forget_ends(w);
	w->blind = false;
	add_journals(w);
	if (code)
		return code;
	if (jobs_describe_all(&list)) {
		jobs_free(&list);
		return EXIT_FAILED;
	}
	for (size_t k = 0; k < w->n; k++)
		if (w->what == SAVED)
			look_at_process(w, &w->targets[k]);
		else
			look_at_target(w, &w->targets[k], &list, asked_ms);
	jobs_free(&list);
	return 0;
}

/* A failed snapshot may have needed a pause. */
static bool is_of(const struct waiting *w, const char *operation)
{
	return !strcmp(operation, "pause") || (w->what == SAVED && !strcmp(operation, "snapshot"));
}

static void take_seen(void *arg, const struct journal_seen *seen)
{
	struct waiting *w = arg;

	for (size_t i = 0; i < w->n; i++) {
		struct target *target = &w->targets[i];

		if (seen->uid != target->owner ||
		    (*target->id && strcmp(seen->id, target->id) != 0) ||
		    (!target->whole && seen->pid != target->process.own_pid))
			continue;
		if (w->past && target->process.seen && is_older(seen, &target->process.process))
			continue;
		if (seen->kind == JOURNAL_SAVED && !(seen->ran && w->past))
			target->saved = true;
		else if (seen->kind == JOURNAL_RUNNING && w->past)
			target->saved = false;
		else if (seen->kind == JOURNAL_FAILED && !w->past && is_of(w, seen->operation))
			format_copy(target->failure, sizeof(target->failure), seen->text);
	}
}

/* Of one that is stopped only the environment may tell the id, or nothing. */
static const char *label(const struct target *target, char buf[16])
{
	snprintf(buf, 16, "%d", target->process.pid);
	return *target->name ? target->name : *target->id ? target->id : buf;
}

static void end(struct target *target, const char *outcome, int code, const char *why)
{
	char buf[16];

	target->outcome = outcome;
	target->code = code;
	if (why)
		complain("wait %s: %s", label(target, buf), why);
	if (why && why != target->failure)
		snprintf(target->failure, sizeof(target->failure), "%s", why);
}

static void judge(const struct waiting *w, struct target *target, bool late)
{
	bool reached = w->what == SAVED ? target->saved : target->is_there && target->reached;

	if (target->outcome && !target->code && !reached)
		target->outcome =
			NULL; /* it was paused, and runs again while others are waited for */
	if (target->outcome)
		return;
	if (reached)
		end(target, "done", EXIT_DONE, NULL);
	else if (!target->is_there)
		end(target, "ended", EXIT_NO_JOB, "it has ended");
	else if (*target->failure)
		end(target, "failed", EXIT_FAILED, target->failure);
	else if (late)
		end(target, "timeout", EXIT_TIMEOUT, "the time is over");
}

/* True if there is nothing more to wait for. */
static bool judge_all(struct waiting *w, bool late)
{
	bool all = true;

	for (size_t i = 0; i < w->n; i++) {
		struct target *target = &w->targets[i];

		judge(w, target, late);
		all &= target->outcome != NULL;
		if (target->code)
			return true;
	}
	return all;
}

/* A process that is stopped when the wait begins may stay so for long. */
static void say_stopped(const struct waiting *w)
{
	char buf[16];

	for (size_t i = 0; i < w->n; i++)
		if (w->targets[i].stopped)
			complain(
				"wait %s: its process %d is stopped; the command waits until it goes on",
				label(&w->targets[i], buf), w->targets[i].stopped);
}

static double patience_ms(const struct waiting *w)
{
	double ms = w->blind || !journals_are_watched(&w->journals) ? BLIND_MS : LOOKS_MS;

	if (w->timeout_ms && w->end_ms - clock_ms() < ms)
		ms = w->end_ms - clock_ms();
	return ms > 0 ? ms : 0;
}

/* Returns when there may be something new, or the time is over. */
static void rest(struct waiting *w)
{
	w->fds[0] = (struct pollfd){.fd = w->journals.inotify, .events = POLLIN};
	while (poll(w->fds, w->nfds, clock_poll(patience_ms(w))) > 0)
		if (!w->fds[0].revents || journals_drain(&w->journals))
			return;
}

/* Until the outcome of all, or of one that fails, is known. Returns 0 or an exit code. */
static int wait_for_all(struct waiting *w)
{
	int code;

	add_journals(w);
	w->past = true;
	journals_read(&w->journals, take_seen, w);
	w->past = false;
	for (bool first = true;; first = false) {
		bool late = w->timeout_ms && clock_ms() >= w->end_ms;

		code = look(w);
		/* What has ended may have been saved before. */
		journals_read(&w->journals, take_seen, w);
		if (first)
			say_stopped(w);
		if (code || judge_all(w, late))
			return code;
		rest(w);
	}
}

static json_t *row(const struct waiting *w, const struct target *target)
{
	return json_pack("{s:s, s:o, s:o, s:o, s:s, s:i, s:o}", "for", words[w->what], "id",
			 output_text_or_null(target->id), "name", output_text_or_null(target->name),
			 "pid", target->whole ? json_null() : json_integer(target->process.pid),
			 "outcome", target->outcome ? target->outcome : "waiting", "code",
			 target->code, "message", output_text_or_null(target->failure));
}

static int report(const struct waiting *w)
{
	json_t *rows = json_array();
	int code = EXIT_DONE;

	for (size_t i = 0; i < w->n; i++) {
		json_array_append_new(rows, row(w, &w->targets[i]));
		code = code ? code : w->targets[i].code;
	}
	if (w->json)
		output_json(rows);
	json_decref(rows);
	return code;
}

/* What is saved, only the journal tells. Returns 0, or an exit code after a message. */
static int refuse_unseen(const struct waiting *w)
{
	char buf[16];

	for (size_t i = 0; i < w->n && w->what == SAVED; i++) {
		const struct job_directory *directory = w->targets[i].process.directory;

		if (!directory->inside)
			continue;
		complain(
			"wait %s: only its journal says when it is saved, and cannot be seen from here; call "
			"this command in its container, or with CUDAW_RUNTIME_DIR=%s",
			label(&w->targets[i], buf), directory->path);
		return EXIT_UNSUPPORTED;
	}
	return 0;
}

static int run(struct waiting *w, int n, char **jobs)
{
	struct targets targets = {
		.verb = "wait", .words = jobs, .nwords = n, .bears_stopped = true};
	int code;

	w->begin_ms = clock_ms();
	w->end_ms = w->begin_ms + w->timeout_ms;
	w->nfds = 1;
	code = targets_find(&targets);
	if (!code)
		code = targets.code;
	/* A PID names a process; that its job has others, only their ids say. */
	if (!code && (jobs_describe_all(&targets.list) || take_targets(w, &targets.list)))
		code = EXIT_FAILED;
	if (!code && !w->n)
		code = EXIT_NO_JOB;
	if (!code)
		code = refuse_unseen(w);
	if (!code)
		code = wait_for_all(w);
	if (!code)
		code = report(w);
	forget_ends(w);
	free(w->targets);
	jobs_free(&targets.list);
	return code;
}

static bool take_state(const char *text, enum awaited *what)
{
	for (int i = 0; i < AWAITED; i++)
		if (!strcmp(text, words[i])) {
			*what = i;
			return true;
		}
	complain("--for %s: expected paused, freed or saved", text);
	return false;
}

int cmd_wait(int argc, char **argv)
{
	static const struct option options[] = {
		{"for", required_argument, NULL, 'f'},
		{"timeout", required_argument, NULL, 't'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct waiting w = {.what = AWAITED};
	int opt, code;

	while ((opt = getopt_long(argc, argv, "t:jh", options, NULL)) != -1) {
		switch (opt) {
		case 'f':
			if (!take_state(optarg, &w.what))
				return usage_error("wait");
			break;
		case 't':
			if (!seconds_given("--timeout", optarg, &w.timeout_ms))
				return usage_error("wait");
			break;
		case 'j':
			w.json = true;
			break;
		case 'h':
			fputs(help_wait, stdout);
			return EXIT_DONE;
		default:
			return usage_error("wait");
		}
	}
	if (w.what == AWAITED) {
		complain("expected --for paused, freed or saved");
		return usage_error("wait");
	}
	if (!names_given(argc, argv, "job", false))
		return usage_error("wait");
	report_by_code();
	journals_init(&w.journals, true);
	code = run(&w, argc - optind, argv + optind);
	journals_free(&w.journals);
	return code;
}
