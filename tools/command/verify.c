/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw verify: whether a snapshot is intact. */
#include "tools/command/verify.h"
#include "tools/command/tools.h"
#include "tools/command/opened.h"

#include "common/text.h"
#include "checkpoint/snapshot/host_image.h"
#include "checkpoint/snapshot/read.h"
#include "tools/job/jobs.h"
#include "tools/report/progress.h"
#include "common/clock.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define TICK_MS 100

const char help_verify[] =
	"Usage: cudaw verify DIR...\n"
	"\n"
	"Read snapshots completely and compare all bytes with their checksums. Changes nothing and\n"
	"needs no GPU.\n"
	"\n"
	"  -h, --help  this text\n"
	"\n"
	"Exit codes: 0 intact; 1 no snapshot, or a damaged one; 2 wrong usage; 6 it is newer than\n"
	"this cudaw. Of several failures, the first decides.\n";

/* A thread that reads, so that the main thread can show the progress. */
struct reading {
	struct snapshot_read what;
	struct snapshot_error *error;
	size_t done;
	int result;
};

static void *reading_main(void *arg)
{
	struct reading *reading = arg;

	reading->result = snapshot_read(&reading->what, reading->error);
	return NULL;
}

/* Join @thread; an error if it has not ended within @ms. */
static int join_for(pthread_t thread, int ms)
{
	struct timespec until;

	/* CLOCK_REALTIME, as TSan does not know pthread_clockjoin_np(). */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += ms * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return pthread_timedjoin_np(thread, NULL, &until);
}

int verify_memory(const struct snapshot *s, const char *path, struct snapshot_error *error)
{
	struct reading reading = {.what = {.dir = s->dir, .index = &s->index}, .error = error};
	pthread_t thread;

	reading.what.done = &reading.done;
	progress_begin("verifying");
	if (pthread_create(&thread, NULL, reading_main, &reading)) {
		reading_main(&reading);
	} else {
		while (join_for(thread, TICK_MS))
			progress_bytes(path, __atomic_load_n(&reading.done, __ATOMIC_RELAXED),
				       s->manifest.totals.bytes);
	}
	progress_end();
	return reading.result;
}

static int verify(const char *path)
{
	char bytes[FORMAT_SIZE], took[FORMAT_SIZE], rate[FORMAT_SIZE];
	struct snapshot_error error;
	size_t size, image = 0;
	struct snapshot s;
	double begin = clock_ms();
	int ret = opened_open(path, &s), bad;

	if (ret)
		return ret;
	bad = verify_memory(&s, path, &error);
	if (!bad && s.manifest.image)
		bad = host_image_check(s.dir, s.manifest.index, NULL, &image, &error);
	size = snapshot_memory_bytes(&s) + image;
	if (bad)
		ret = opened_refuse(path, bad, &error);
	else
		printf("%s is intact: %s read in %s, %s\n", path, format_bytes(bytes, size),
		       format_duration(took, clock_ms() - begin),
		       format_rate(rate, size, clock_ms() - begin));
	snapshot_close(&s);
	return ret;
}

int cmd_verify(int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int opt, ret = EXIT_DONE;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt != 'h')
			return usage_error("verify");
		fputs(help_verify, stdout);
		return EXIT_DONE;
	}
	if (!names_given(argc, argv, "directory", false))
		return usage_error("verify");
	for (int i = optind; i < argc; i++) {
		int one = verify(argv[i]);

		if (!ret)
			ret = one;
	}
	return ret;
}
