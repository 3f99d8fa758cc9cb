/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/progress.h"

#include "common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define QUIET_MS 1000 /* what is over sooner needs no progress */
#define MIN_NAME 10   /* characters of a path that is cut */

static struct {
	const char *doing;
	int64_t begin, last;
	volatile sig_atomic_t shown;
} watch;

/* What the shell says next begins a line of its own. The signal ends us when it is unblocked. */
static void end_line(int signal)
{
	if (watch.shown && write(STDERR_FILENO, "\n", 1) == 1)
		watch.shown = 0;
	raise(signal);
}

/* Ctrl-C ends the line of the progress, and then the command as ever. */
static void expect_interrupt(void)
{
	struct sigaction action = {.sa_handler = end_line, .sa_flags = SA_RESETHAND}, old;

	if (!sigaction(SIGINT, NULL, &old) && old.sa_handler == SIG_DFL)
		sigaction(SIGINT, &action, NULL);
}

void progress_begin(const char *doing)
{
	watch.doing = doing;
	watch.begin = now_ms();
	watch.shown = false;
	expect_interrupt();
}

int progress_take(struct job *job, const char *value)
{
	struct job_progress *progress = &job->progress;
	char phase[sizeof(progress->phase)], clean[sizeof(progress->phase)];
	uint64_t done, total;

	if (sscanf(value, "%31s %" SCNu64 " %" SCNu64, phase, &done, &total) != 3)
		return -EBADMSG;
	format_copy(clean, sizeof(clean), phase);
	/* Each phase moves bytes at a rate of its own. */
	if (!progress->any || strcmp(clean, progress->phase) != 0) {
		strcpy(progress->phase, clean);
		progress->first_done = done;
		progress->first_ms = now_ms();
		progress->any = true;
	}
	progress->done = done;
	progress->total = total;
	return 0;
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

/* What all jobs together are at: the phase of the first that is not done, and the sum of bytes. */
static void describe(char *buf, size_t size, struct job **jobs, size_t n)
{
	const struct job *first = NULL;
	uint64_t done = 0, total = 0;
	double rate = 0;
	char took[FORMAT_SIZE];
	int64_t now = now_ms();
	int len = 0;

	for (size_t i = 0; i < n; i++) {
		const struct job_progress *progress = &jobs[i]->progress;

		done += progress->done;
		total += progress->total;
		if (jobs[i]->fd < 0)
			continue;
		if (!first)
			first = jobs[i];
		if (progress->done > progress->first_done && now > progress->first_ms)
			rate += (double)(progress->done - progress->first_done) /
				(now - progress->first_ms);
	}
	if (first && first->progress.any)
		len = snprintf(buf, size, " %s", first->progress.phase);
	if (total)
		describe_bytes(buf + len, size - len, done, total, rate);
	else
		snprintf(buf + len, size - len, " %s", format_duration(took, now - watch.begin));
}

/* A terminal that lines can be rewritten on. */
static bool can_rewrite(void)
{
	const char *term = getenv("TERM");

	return isatty(STDERR_FILENO) && (!term || strcmp(term, "dumb") != 0);
}

/* Whether it is time to write the line anew. */
static bool is_due(void)
{
	int64_t now = now_ms();

	if (now - watch.begin < QUIET_MS || now - watch.last < PROGRESS_MS || !can_rewrite())
		return false;
	watch.last = now;
	return true;
}

static void show(const char *who, const char *what)
{
	struct winsize win = {0};
	char line[512];
	int width, room;

	/* A line that wraps could not be rewritten. Of a long path the end is shown. */
	width = ioctl(STDERR_FILENO, TIOCGWINSZ, &win) == 0 && win.ws_col ? win.ws_col - 1 : 79;
	room = width - (int)(strlen(watch.doing) + strlen(": ") + strlen(what));
	if (room < (int)strlen(who) && room > MIN_NAME)
		snprintf(line, sizeof(line), "%s ...%s:%s", watch.doing,
			 who + strlen(who) - (room - strlen("...")), what);
	else
		snprintf(line, sizeof(line), "%s %s:%s", watch.doing, who, what);
	fprintf(stderr, "\r%.*s\033[K", width, line);
	watch.shown = true;
}

int progress_tick(struct job **jobs, size_t n)
{
	char what[256] = "", who[64];

	if (!is_due())
		return PROGRESS_MS;
	if (n > 1)
		snprintf(who, sizeof(who), "%zu processes", n);
	else
		snprintf(who, sizeof(who), "%d", jobs[0]->pid);
	describe(what, sizeof(what), jobs, n);
	show(who, what);
	return PROGRESS_MS;
}

void progress_bytes(const char *what, uint64_t done, uint64_t total)
{
	char bytes[256];

	if (!is_due())
		return;
	describe_bytes(bytes, sizeof(bytes), done, total, (double)done / (now_ms() - watch.begin));
	show(what, bytes);
}

void progress_time(const char *what)
{
	char took[FORMAT_SIZE], text[FORMAT_SIZE + 1];

	if (!is_due())
		return;
	snprintf(text, sizeof(text), " %s", format_duration(took, now_ms() - watch.begin));
	show(what, text);
}

void progress_end(void)
{
	if (watch.shown)
		fputs("\r\033[K", stderr);
}
