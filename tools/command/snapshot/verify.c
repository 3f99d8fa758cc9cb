/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw verify: whether a snapshot is intact. */
#include "tools/command/tools.h"
#include "tools/command/snapshot/opened.h"
#include "tools/command/snapshot/reading.h"
#include "tools/command/output.h"

#include "common/text.h"
#include "checkpoint/snapshot/host_image.h"
#include "tools/job/jobs.h"
#include "common/clock.h"

#include <getopt.h>
#include <stdio.h>

const char help_verify[] =
	"Usage: cudaw verify [--json] DIR...\n"
	"\n"
	"Read snapshots completely and compare all bytes with their checksums. Changes nothing and\n"
	"needs no GPU.\n"
	"\n"
	"  -j, --json  the result for each directory, as a JSON array\n"
	"  -h, --help  this text\n"
	"\n"
	"Exit codes: 0 intact; 1 no snapshot, or a damaged one; 2 wrong usage; 6 it is newer than\n"
	"this cudaw. Of several failures, the first decides.\n";

/* What verify() found. */
struct verified {
	int code;     /* the exit code for this directory alone */
	size_t bytes; /* that were read, of memory and of the process image */
	double ms;
};

/* The memory of one part. An exit code. */
static int verify_part(const struct opened_part *part)
{
	struct reading reading;
	int bad;

	reading_begin(&reading, &part->snapshot, false, 0);
	bad = reading_end(&reading, part->path);
	return bad ? opened_refuse(part->path, bad, &reading.error) : EXIT_DONE;
}

static struct verified verify(const char *path)
{
	struct verified found = {0};
	struct snapshot_error error;
	struct opened all;
	const struct snapshot *first;
	size_t image = 0;
	double begin = clock_ms();

	found.code = opened_open(path, &all);
	for (size_t i = 0; i < all.n && !found.code; i++) {
		found.code = verify_part(&all.parts[i]);
		found.bytes += snapshot_memory_bytes(&all.parts[i].snapshot);
	}
	first = &all.parts[0].snapshot;
	if (!found.code && first->manifest.image) {
		int bad = host_image_check(first->dir, first->manifest.index, NULL, &image, &error);

		if (bad)
			found.code = opened_refuse(path, bad, &error);
	}
	found.bytes += image;
	found.ms = clock_ms() - begin;
	opened_close(&all);
	return found;
}

static void print_text(const char *path, const struct verified *found)
{
	char bytes[FORMAT_SIZE], took[FORMAT_SIZE], rate[FORMAT_SIZE];

	if (!found->code)
		printf("%s is intact: %s read in %s, %s\n", path, format_bytes(bytes, found->bytes),
		       format_duration(took, found->ms),
		       format_rate(rate, found->bytes, found->ms));
}

static json_t *verified_json(const char *path, const struct verified *found)
{
	return json_pack("{s:o, s:b, s:i, s:I, s:o, s:f}", "path", output_text(path), "intact",
			 !found->code, "code", found->code, "bytes", (json_int_t)found->bytes, "ms",
			 output_ms(found->ms), "gbps", rate_gbps(found->bytes, found->ms));
}

static int verify_all(char **paths, int n, bool json)
{
	json_t *rows = json_array();
	int ret = EXIT_DONE;

	for (int i = 0; i < n; i++) {
		struct verified found = verify(paths[i]);

		if (!ret)
			ret = found.code;
		if (!json)
			print_text(paths[i], &found);
		json_array_append_new(rows, verified_json(paths[i], &found));
	}
	if (json)
		output_json(rows);
	json_decref(rows);
	return ret;
}

int cmd_verify(int argc, char **argv)
{
	bool json = false;
	int code = json_option(argc, argv, "verify", help_verify, &json);

	if (code >= 0)
		return code;
	if (!names_given(argc, argv, "directory", false))
		return usage_error("verify");
	return verify_all(argv + optind, argc - optind, json);
}
