/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw events: what was asked of jobs, what came of it, and what cudawd did about their turns. */
#include "tools/command/tools.h"

#include "common/clock.h"
#include "common/text.h"
#include "tools/command/list/table.h"
#include "tools/command/output.h"
#include "tools/job/journals.h"
#include "tools/process/cudawd.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char help_events[] =
	"Usage: cudaw events [--follow] [--json]\n"
	"\n"
	"Print the last events of your jobs (of all users' jobs for root), the oldest first: the\n"
	"time, the process and its name, and what happened:\n"
	"  pause, resume, snapshot  somebody asked for it: the user, the process and its command\n"
	"  paused          its GPU memory is in host memory, or on disk\n"
	"  freed           nothing of it is left on the GPU\n"
	"  saved           a snapshot of it is complete\n"
	"  running         it was paused, and runs\n"
	"  failed          a request failed, and why\n"
	"Events of jobs that take turns ('cudaw run --turns') come from cudawd:\n"
	"  joined, left    it takes turns from now on; it or its connection has ended\n"
	"  gives, gave     it was told to give memory; how much it gave, and how long that took\n"
	"  runs            it has all of its memory back\n"
	"  failed          it could not give its memory, or not get it back, and why\n"
	"  grows, refused  an allocation waits for memory; it fails, since there is none\n"
	"  asked           'cudaw yield' asked it to give its turn\n"
	"  ends            a signal ends it, and it takes its memory back for that\n"
	"  silent          it did not answer, and is left alone\n"
	"  rescued         Slurm had stopped it with its memory: it runs until it has given that\n"
	"  released, kept  its context is out, too, so that another job fits; it stays, and why\n"
	"  unfit           it needs more memory than others leave, and gets no turn until they do\n"
	"  dropped         it could not follow the other processes of its job, or NVML does not know\n"
	"                  its GPU: it is left alone\n"
	"  limited         its user may not have the class or weight that it asked for: it got less\n"
	"  set, rejected   cudawd has new settings; its file is wrong, and the settings stay\n"
	"  drained, undrained  no turns are given on the GPU any more; they are again\n"
	"\n"
	"  -f, --follow  go on with new events as they come, until interrupted\n"
	"  -j, --json    a JSON object for each event, on a line of its own\n"
	"  -h, --help    this text\n"
	"\n"
	"Exit codes: 0 done; 1 the runtime directory cannot be used, or nobody reads any more;\n"
	"2 wrong usage; 4 not permitted; 5 no answer of cudawd in time.\n";

#define AGAIN_MS 5000 /* until a missing daemon is looked for again */
#define BLIND_MS 1000 /* where a directory cannot be watched */

struct watching {
	bool json;
	json_t *gathered; /* what is to be sorted first; NULL: each event is printed when it comes */
	struct journals journals;
	int daemon;     /* -1: none */
	double look_ms; /* clock_ms(): it is not looked for before */
	uint64_t heard; /* the number of its last event */
	struct lines lines;
};

/* "-" in a line of the daemon's stands for nothing. */
static json_t *text_or_null(const char *text)
{
	return output_text_or_null(strcmp(text, "-") != 0 ? text : "");
}

static void print_event(const json_t *event)
{
	uint64_t unix_ms = json_integer_value(json_object_get(event, "unix_ms"));
	const char *name = json_string_value(json_object_get(event, "name"));
	const char *text = json_string_value(json_object_get(event, "text"));
	time_t seconds = (time_t)(unix_ms / 1000);
	char when[32] = "-";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%F %T", &tm);
	printf("%s.%03u  %d%s%s%s  %s%s%s\n", when, (unsigned int)(unix_ms % 1000),
	       (int)json_integer_value(json_object_get(event, "pid")), name ? " (" : "",
	       name ? name : "", name ? ")" : "",
	       json_string_value(json_object_get(event, "event")), text ? ": " : "",
	       text ? text : "");
}

static void print(const struct watching *w, json_t *event)
{
	if (!w->json) {
		print_event(event);
		return;
	}
	output_stamp(event);
	json_dumpf(event, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
}

/* Takes @event over. If nobody reads any more, there is no use in following. */
static int take_event(struct watching *w, json_t *event)
{
	if (w->gathered)
		return json_array_append_new(w->gathered, event) ? -ENOMEM : 0;
	print(w, event);
	json_decref(event);
	return fflush(stdout) ? -EIO : 0;
}

static int take_line(void *arg, const struct line *line)
{
	struct watching *w = arg;

	if (line->id != LISTED_EVENT || line->number[0] <= w->heard)
		return 0;
	w->heard = line->number[0];
	return take_event(w, json_pack("{s:I, s:I, s:s, s:i, s:I, s:o, s:o, s:o, s:n, s:n, s:n}",
				       "number", (json_int_t)line->number[0], "unix_ms",
				       (json_int_t)line->number[1], "event", line->word[0], "pid",
				       (int)line->number[2], "uid", (json_int_t)line->number[3],
				       "id", text_or_null(line->word[1]), "name",
				       text_or_null(line->word[2]), "text",
				       text_or_null(line->text), "operation", "bytes", "by"));
}

/* What people read of it. */
static void describe(const struct journal_seen *seen, char *text, size_t size)
{
	char user[TABLE_CELL], bytes[FORMAT_SIZE], process[32] = "a process";

	if (seen->by_pid)
		snprintf(process, sizeof(process), "process %d", seen->by_pid);
	if (seen->asked)
		snprintf(text, size, "asked by %s, %s%s%s%s%s", table_user(seen->by_uid, user),
			 process, *seen->by_command ? ": " : "", seen->by_command,
			 *seen->text ? "; " : "", seen->text);
	else if (seen->kind == JOURNAL_PAUSED)
		snprintf(text, size, "%s of GPU memory", format_bytes(bytes, seen->bytes));
	else
		snprintf(text, size, "%s%s%s", seen->operation, *seen->operation ? ": " : "",
			 seen->text);
}

static json_t *by_whom(const struct journal_seen *seen)
{
	if (!seen->asked)
		return json_null();
	return json_pack("{s:I, s:o, s:o}", "uid", (json_int_t)seen->by_uid, "pid",
			 seen->by_pid ? json_integer(seen->by_pid) : json_null(), "command",
			 output_text_or_null(seen->by_command));
}

static void take_seen(void *arg, const struct journal_seen *seen)
{
	struct watching *w = arg;
	char text[JOURNAL_LINE];

	describe(seen, text, sizeof(text));
	take_event(w,
		   json_pack("{s:n, s:I, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "number",
			     "unix_ms", (json_int_t)seen->unix_ms, "event",
			     journal_words[seen->kind], "pid", (int)seen->pid, "uid",
			     (json_int_t)seen->uid, "id", output_text_or_null(seen->id), "name",
			     output_text_or_null(seen->name), "text",
			     output_text_or_null(w->json ? seen->text : text), "operation",
			     output_text_or_null(seen->operation), "bytes",
			     seen->kind == JOURNAL_PAUSED ? json_integer(seen->bytes) : json_null(),
			     "by", by_whom(seen)));
}

struct placed {
	json_t *event;
	json_int_t unix_ms;
	size_t place;
};

static int by_time(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	if (x->unix_ms != y->unix_ms)
		return x->unix_ms < y->unix_ms ? -1 : 1;
	return x->place < y->place ? -1 : 1;
}

/* Print what was gathered, in the order of time. 0 or a negative errno. */
static int print_gathered(struct watching *w)
{
	size_t n = json_array_size(w->gathered);
	struct placed *placed = calloc(n + 1, sizeof(*placed));

	if (!placed)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		json_t *event = json_array_get(w->gathered, i);

		placed[i] = (struct placed){
			event, json_integer_value(json_object_get(event, "unix_ms")), i};
	}
	qsort(placed, n, sizeof(*placed), by_time);
	for (size_t i = 0; i < n; i++)
		print(w, placed[i].event);
	free(placed);
	json_decref(w->gathered);
	w->gathered = NULL;
	return fflush(stdout) ? -EIO : 0;
}

/* The daemon may have been started, or have come back. Its numbers begin again then. */
static void look_for_daemon(struct watching *w)
{
	char where[PATH_MAX];

	if (w->daemon >= 0 || clock_ms() < w->look_ms)
		return;
	w->look_ms = clock_ms() + AGAIN_MS;
	w->lines = (struct lines){0};
	w->daemon = cudawd_open("events follow", where);
}

/* 0, or a negative errno: nobody reads. */
static int hear_daemon(struct watching *w)
{
	int err = cudawd_hear(w->daemon, &w->lines, take_line, w);

	if (err == -EAGAIN || err == -EIO)
		return err == -EIO ? err : 0;
	close(w->daemon);
	w->daemon = -1;
	w->heard = 0;
	return 0;
}

static int follow(struct watching *w)
{
	struct pollfd fds[2];
	const char *why;
	double patience_ms;
	int err = 0;

	while (!err) {
		look_for_daemon(w);
		fds[0] = (struct pollfd){.fd = w->journals.inotify, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = w->daemon, .events = POLLIN};
		patience_ms = w->daemon < 0 ? AGAIN_MS : -1;
		if (!journals_are_watched(&w->journals))
			patience_ms = BLIND_MS;
		if (poll(fds, 2, clock_poll(patience_ms)) < 0 && errno != EINTR)
			return -errno;
		if (fds[1].revents)
			err = hear_daemon(w);
		if (fds[0].revents && !journals_drain(&w->journals))
			continue;
		if (fds[0].revents)
			w->look_ms = 0;
		if (!fds[1].revents)
			journals_add_all(&w->journals, &why);
		journals_read(&w->journals, take_seen, w);
		if (ferror(stdout))
			err = -EIO;
	}
	return err;
}

static int show(struct watching *w, bool follows)
{
	char where[PATH_MAX] = "";
	const char *why;
	int code = EXIT_DONE, err;

	if (journals_add_all(&w->journals, &why)) {
		complain("events: the runtime directory cannot be used: %s", why);
		return EXIT_FAILED;
	}
	journals_read(&w->journals, take_seen, w);
	err = cudawd_ask("events", CUDAWD_MS, take_line, w, where);
	if (err && err != -ECONNREFUSED)
		code = cudawd_explain(err, where);
	err = print_gathered(w);
	if (!err && !code && follows)
		err = follow(w);
	if (err && !ferror(stdout)) /* of which main() speaks */
		complain("events: %s", strerror(-err));
	return err ? EXIT_FAILED : code;
}

int cmd_events(int argc, char **argv)
{
	static const struct option options[] = {
		{"follow", no_argument, NULL, 'f'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct watching w = {.gathered = json_array(), .daemon = -1};
	bool follows = false;
	int opt, code;

	while ((opt = getopt_long(argc, argv, "fjh", options, NULL)) != -1) {
		switch (opt) {
		case 'f':
			follows = true;
			break;
		case 'j':
			w.json = true;
			break;
		case 'h':
			fputs(help_events, stdout);
			return EXIT_DONE;
		default:
			return usage_error("events");
		}
	}
	if (optind < argc) {
		complain("events takes no argument: '%s'", argv[optind]);
		return usage_error("events");
	}
	journals_init(&w.journals, follows);
	code = show(&w, follows);
	journals_free(&w.journals);
	return code;
}
