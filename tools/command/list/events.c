/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw events: what the daemon has done lately. */
#include "tools/command/tools.h"

#include "common/text.h"
#include "tools/command/output.h"
#include "tools/process/cudawd.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const char help_events[] =
	"Usage: cudaw events [--follow] [--json]\n"
	"\n"
	"Print the last events of jobs that take turns ('cudaw run --turns'), the oldest first:\n"
	"the time, the process and its name, and\n"
	"  joined, left    it takes turns from now on; it has ended, or its connection has\n"
	"  gives, gave     it was told to give memory; how much it gave, and how long that took\n"
	"  runs            it has all of its memory back\n"
	"  failed          it could not give its memory, or not get it back, and why\n"
	"  grows, refused  an allocation of it waits for memory; and fails for lack of it\n"
	"  asked           'cudaw yield' asked it to give its turn\n"
	"  ends            a signal ends it, and it takes its memory back for that\n"
	"  silent          it did not answer, and is left alone\n"
	"  rescued         Slurm had stopped it with its memory: it goes on until it has given that\n"
	"  released, kept  its context is out as well, so that another job fits; it stays, and why\n"
	"  unfit           it needs more than others leave on the GPU, and gets no turn till then\n"
	"  dropped         it could not follow the other processes of its job, or NVML does not know\n"
	"                  its GPU, and it is left alone\n"
	"  limited         its user may not claim the class or weight that it claims\n"
	"  set, rejected   cudawd's settings have changed; its file is wrong, and nothing has\n"
	"  drained, undrained  nobody gets a turn on the GPU; they do again\n"
	"\n"
	"  -f, --follow  go on with new events as they come, until interrupted\n"
	"  -j, --json    a JSON object for each event, on a line of its own\n"
	"  -h, --help    this text\n"
	"\n"
	"Exit codes: 0 done; 1 no cudawd answers, or it has ended; 2 wrong usage; 4 not permitted;\n"
	"5 no answer in time.\n";

struct shown_event {
	uint64_t number, unix_ms;
	int pid;
	unsigned int uid;
	const char *kind, *id, *name;
	const char *text; /* "": none */
};

/* "-" in a line stands for nothing. */
static const char *or_empty(const char *text)
{
	return strcmp(text, "-") != 0 ? text : "";
}

static void print_event(const struct shown_event *event)
{
	time_t seconds = (time_t)(event->unix_ms / 1000);
	char when[32], text[256], name[65];
	struct tm tm;

	localtime_r(&seconds, &tm);
	strftime(when, sizeof(when), "%F %T", &tm);
	format_copy(text, sizeof(text), event->text);
	format_copy(name, sizeof(name), or_empty(event->name));
	printf("%s.%03u  %d%s%s%s  %s%s%s\n", when, (unsigned int)(event->unix_ms % 1000),
	       event->pid, *name ? " (" : "", name, *name ? ")" : "", event->kind,
	       *text ? ": " : "", text);
}

static void print_json(const struct shown_event *event)
{
	json_t *object = json_pack("{s:I, s:I, s:s, s:i, s:i, s:o, s:o, s:o}", "number",
				   (json_int_t)event->number, "unix_ms", (json_int_t)event->unix_ms,
				   "event", event->kind, "pid", event->pid, "uid", (int)event->uid,
				   "id", output_text_or_null(or_empty(event->id)), "name",
				   output_text_or_null(or_empty(event->name)), "text",
				   output_text_or_null(event->text));

	output_stamp(object);
	json_dumpf(object, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
	json_decref(object);
}

/* If nobody reads any more, there is no use in following. */
static int take_line(void *arg, const struct line *line)
{
	const bool *json = arg;
	const struct shown_event event = {.number = line->number[0],
					  .unix_ms = line->number[1],
					  .kind = line->word[0],
					  .pid = (int)line->number[2],
					  .uid = (unsigned int)line->number[3],
					  .id = line->word[1],
					  .name = line->word[2],
					  .text = or_empty(line->text)};

	if (line->id != LISTED_EVENT)
		return 0;
	if (*json)
		print_json(&event);
	else
		print_event(&event);
	return fflush(stdout) ? -EIO : 0;
}

int cmd_events(int argc, char **argv)
{
	static const struct option options[] = {
		{"follow", no_argument, NULL, 'f'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool json = false, follow = false;
	char where[PATH_MAX] = "";
	int opt, err;

	while ((opt = getopt_long(argc, argv, "fjh", options, NULL)) != -1) {
		switch (opt) {
		case 'f':
			follow = true;
			break;
		case 'j':
			json = true;
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
	err = cudawd_ask(follow ? "events follow" : "events", follow ? -1 : CUDAWD_MS, take_line,
			 &json, where);
	return err ? cudawd_explain(err, where) : EXIT_DONE;
}
