/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/progress.h"
#include "tools/report/terminal.h"

#include "common/text.h"
#include "common/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define QUIET_MS 1000 /* shorter operations show no progress */
#define MIN_NAME 10   /* characters of a path that is cut off */

static struct {
	const char *doing;
	double begin, last; /* clock_ms() */
	volatile sig_atomic_t shown;
	const char *volatile said[2]; /* by an interrupt */
} watch;

static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return; /* it cannot be said */
}

/* Let the shell start on a new line. The signal kills us when it is unblocked. */
static void on_interrupt(int signal)
{
	if (watch.shown)
		say("\n");
	watch.shown = 0;
	for (size_t i = 0; i < 2; i++)
		if (watch.said[i]) {
			say("cudaw: interrupted: ");
			say(watch.said[i]);
			say("\n");
		}
	raise(signal);
}

/* Ctrl-C ends the progress line, says what goes on, and then ends the command as usual. */
static void expect_interrupt(void)
{
	struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND}, old;

	if (!sigaction(SIGINT, NULL, &old) && old.sa_handler == SIG_DFL)
		sigaction(SIGINT, &action, NULL);
}

void progress_begin(const char *doing)
{
	watch.doing = doing;
	watch.begin = clock_ms();
	watch.shown = false;
	expect_interrupt();
}

void progress_on_interrupt(const char *first, const char *second)
{
	watch.said[0] = first;
	watch.said[1] = second;
}

static void describe_bytes(char *buf, size_t size, uint64_t done, uint64_t total, double rate)
{
	char have[FORMAT_SIZE], all[FORMAT_SIZE], left[FORMAT_SIZE];
	int len = snprintf(buf, size, " %s of %s", format_bytes(have, done),
			   format_bytes(all, total));

	/* @rate is in bytes per millisecond. */
	if (rate > 0 && done <= total)
		snprintf(buf + len, size - len, ", %.1f GB/s, %s left", rate / 1e6,
			 format_duration(left, (total - done) / rate));
}

bool progress_is_due(void)
{
	double now = clock_ms();

	if (now - watch.begin < QUIET_MS || now - watch.last < PROGRESS_MS ||
	    !terminal_can_rewrite(STDERR_FILENO))
		return false;
	watch.last = now;
	return true;
}

static void show(const char *who, const char *what)
{
	char line[512];
	int width, room;

	/* A wrapped line cannot be rewritten. The end of a long path is shown. */
	width = terminal_width(STDERR_FILENO) - 1;
	room = width - (int)(strlen(watch.doing) + strlen(": ") + strlen(what));
	if (room < (int)strlen(who) && room > MIN_NAME)
		snprintf(line, sizeof(line), "%s ...%s:%s", watch.doing,
			 who + strlen(who) - (room - strlen("...")), what);
	else
		snprintf(line, sizeof(line), "%s %s:%s", watch.doing, who, what);
	watch.shown = true; /* before: an interrupt may come as soon as the line is there */
	fprintf(stderr, "\r%.*s\033[K", width, line);
}

void progress_phase(const char *who, const char *phase, uint64_t done, uint64_t total, double rate)
{
	char what[256], took[FORMAT_SIZE];
	int len = *phase ? snprintf(what, sizeof(what), " %s", phase) : 0;

	if (total)
		describe_bytes(what + len, sizeof(what) - len, done, total, rate);
	else
		snprintf(what + len, sizeof(what) - len, " %s",
			 format_duration(took, clock_ms() - watch.begin));
	show(who, what);
}

void progress_text(const char *who, const char *text)
{
	char what[512];

	snprintf(what, sizeof(what), " %s", text);
	show(who, what);
}

void progress_bytes(const char *what, uint64_t done, uint64_t total)
{
	char bytes[256];

	if (!progress_is_due())
		return;
	describe_bytes(bytes, sizeof(bytes), done, total,
		       (double)done / (clock_ms() - watch.begin));
	show(what, bytes);
}

void progress_time(const char *what)
{
	char took[FORMAT_SIZE], text[FORMAT_SIZE + 1];

	if (!progress_is_due())
		return;
	snprintf(text, sizeof(text), " %s", format_duration(took, clock_ms() - watch.begin));
	show(what, text);
}

void progress_end(void)
{
	progress_on_interrupt(NULL, NULL);
	if (watch.shown)
		fputs("\r\033[K", stderr);
}
