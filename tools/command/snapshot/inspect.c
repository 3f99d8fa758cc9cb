/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw inspect: a description of a snapshot. */
#include "tools/command/tools.h"

#include "tools/process/criu/criu_files.h"
#include "common/text.h"
#include "checkpoint/snapshot/host_image.h"
#include "tools/job/jobs.h"
#include "tools/command/output.h"
#include "tools/command/snapshot/opened.h"
#include "checkpoint/snapshot/manifest_read.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE 256 /* longer texts are cut off */

const char help_inspect[] =
	"Usage: cudaw inspect [--json] DIR\n"
	"\n"
	"Describe the snapshot in DIR: its program, age and size, and the needs of a restore. The\n"
	"manifest, the index and the sizes of the files are checked; 'cudaw verify' checks the\n"
	"rest.\n"
	"\n"
	"  -j, --json  the manifest as a JSON object, with the added keys 'path', 'disk' (bytes of\n"
	"              all files), 'age' (seconds) and, if it has a readable process image,\n"
	"              'image_bytes' (its part of 'disk'), 'opened' (paths that the processes have\n"
	"              open, and need), 'terminal' (whether they need one), 'processes' and 'ports'\n"
	"  -h, --help  this text\n"
	"\n"
	"Exit codes: 0 done; 1 no snapshot, or a damaged one; 2 wrong usage; 6 it is newer than\n"
	"this cudaw.\n";

/* The disk usage of a snapshot, and the contents of its process image. */
struct found {
	size_t files, bytes;             /* all files of the snapshot */
	size_t image_files, image_bytes; /* those of the process image among them */
	int image;                       /* 0 or a negative errno, with error */
	struct snapshot_error error;
	struct criu_files opened; /* open files of its processes */
	json_t *facts;            /* host.json */
};

static int find_image(const struct snapshot *s, struct found *found)
{
	uint32_t number = s->manifest.index;
	int directory, ret = host_image_size(s->dir, number, &found->image_files,
					     &found->image_bytes, &found->error);

	if (!ret)
		ret = host_image_facts(s->dir, number, &found->facts, &found->error);
	if (ret)
		return ret;
	directory = host_image_open(s->dir, number, &found->error);
	if (directory < 0)
		return directory;
	ret = criu_files_read(directory, &found->opened);
	close(directory);
	return ret ? snapshot_fail(&found->error, ret, "host-%u: files.img: %s", number,
				   strerror(-ret))
		   : 0;
}

/* The caller frees found->opened with criu_files_free(). */
static void find_all(const struct opened *all, struct found *found)
{
	const struct snapshot *s = &all->parts[0].snapshot;
	struct stat st = {0};

	*found = (struct found){.files = s->manifest.ndata + 2};
	if (s->manifest.image)
		found->image = find_image(s, found);
	fstatat(s->dir, SNAPSHOT_MANIFEST, &st, AT_SYMLINK_NOFOLLOW);
	found->files += found->image_files;
	found->bytes = st.st_size + snapshot_memory_bytes(s) + found->image_bytes;
	for (size_t i = 1; i < all->n; i++) {
		found->files += all->parts[i].snapshot.manifest.ndata + 2;
		found->bytes += snapshot_memory_bytes(&all->parts[i].snapshot);
	}
}

static json_t *opened_json(const struct criu_files *opened)
{
	json_t *list = json_array();

	for (size_t i = 0; i < opened->n; i++)
		json_array_append_new(list, output_text(opened->list[i].path));
	return list;
}

/* A list of host.json; early writers had none. */
static void set_list(json_t *root, const json_t *facts, const char *key)
{
	json_t *list = json_object_get(facts, key);

	json_object_set(root, key, json_is_array(list) ? list : json_null());
}

/* Of the further processes that use CUDA: what a manifest says of each. */
static json_t *parts_json(const struct opened *all)
{
	static const char *const keys[] = {"process", "devices", "totals"};
	json_t *list = json_array();

	for (size_t i = 1; i < all->n; i++) {
		const json_t *root = all->parts[i].snapshot.manifest.root;
		json_t *part = json_object();

		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
			json_object_set(part, keys[k], json_object_get(root, keys[k]));
		json_array_append_new(list, part);
	}
	return list;
}

static void print_json(const struct opened *all, const struct found *found)
{
	const struct snapshot *s = &all->parts[0].snapshot;
	json_t *root = s->manifest.root;

	json_object_set_new(root, "path", output_text(s->path));
	json_object_set_new(root, "disk", json_integer(found->bytes));
	json_object_set_new(root, "age", json_integer(time(NULL) - s->manifest.created));
	if (all->n > 1)
		json_object_set_new(root, "further", parts_json(all));
	if (s->manifest.image && !found->image) {
		json_object_set_new(root, "image_bytes", json_integer(found->image_bytes));
		json_object_set_new(root, "opened", opened_json(&found->opened));
		json_object_set_new(root, "terminal", json_boolean(found->opened.terminal));
		set_list(root, found->facts, "processes");
		set_list(root, found->facts, "ports");
	}
	output_json(root);
}

static void print_process(const struct snapshot *s)
{
	const json_t *process = json_object_get(s->manifest.root, "process");
	const json_t *argument, *command = json_object_get(process, "command");
	char text[LINE], age[FORMAT_SIZE], date[32];
	int64_t seconds = time(NULL) - s->manifest.created;
	struct tm tm;
	size_t i;

	printf("process   %d", s->manifest.pid);
	if (*snapshot_manifest_text(process, "name", text, sizeof(text)))
		printf(" (%s)", text);
	fputs(":", stdout);
	json_array_foreach(command, i, argument)
		printf(" %s", snapshot_manifest_text(argument, NULL, text, sizeof(text)));
	printf("\nin        %s\n", snapshot_manifest_text(process, "cwd", text, sizeof(text)));
	strftime(date, sizeof(date), "%F %T", localtime_r(&s->manifest.created, &tm));
	printf("made      %s, %s ago, by cudaw %s\n", date,
	       format_duration(age, seconds > 0 ? seconds * 1000 : 0), s->manifest.cudaw);
}

static void print_parts(const struct opened *all)
{
	char bytes[FORMAT_SIZE];

	for (size_t i = 1; i < all->n; i++) {
		const struct snapshot_manifest *m = &all->parts[i].snapshot.manifest;

		printf("process   %d, too, uses CUDA: %s on %zu GPU%s\n", m->pid,
		       format_bytes(bytes, m->totals.bytes), m->ndevices,
		       m->ndevices == 1 ? "" : "s");
	}
}

/* Early writers noted neither. */
static void print_job(const struct found *found)
{
	const json_t *processes = json_object_get(found->facts, "processes");
	const json_t *port, *ports = json_object_get(found->facts, "ports");
	const char *between = "ports     ";
	char text[LINE];
	size_t i;

	if (json_array_size(processes) > 1)
		printf("job       %zu processes, the first one %d\n", json_array_size(processes),
		       (int)json_integer_value(json_object_get(found->facts, "root")));
	json_array_foreach(ports, i, port) {
		if (!json_is_null(json_object_get(port, "remote")))
			continue;
		printf("%s%s", between, snapshot_manifest_text(port, "local", text, sizeof(text)));
		between = ", ";
	}
	if (strcmp(between, ", ") == 0)
		putchar('\n');
}

static void print_devices(const struct snapshot *s)
{
	const struct snapshot_manifest *m = &s->manifest;
	char used[FORMAT_SIZE], memory[FORMAT_SIZE];

	printf("driver    %s, CUDA %d.%d\n", *m->driver ? m->driver : "version unknown",
	       m->cuda / 1000, m->cuda % 1000 / 10);
	for (size_t i = 0; i < m->ndevices; i++) {
		size_t bytes = 0;

		for (size_t r = 0; r < m->nregions; r++)
			bytes += m->regions[r].device == (int)i ? m->regions[r].size : 0;
		printf("gpu %-5zu %s, compute capability %d.%d, %s: %s used\n          %s\n", i,
		       m->devices[i].name, m->devices[i].major, m->devices[i].minor,
		       format_bytes(memory, m->devices[i].memory), format_bytes(used, bytes),
		       m->devices[i].uuid);
	}
}

/* The needs of 'cudaw restore'. */
static void print_needs(const struct snapshot *s, const struct found *found)
{
	fputs("needs     ", stdout);
	if (s->manifest.gpus)
		printf("a machine of %u GPU%s, ", s->manifest.gpus,
		       s->manifest.gpus == 1 ? "" : "s");
	printf("%zu mapped files", json_array_size(json_object_get(s->manifest.root, "files")));
	if (s->manifest.image && !found->image)
		printf("; of its process image %zu files and directories%s", found->opened.n,
		       found->opened.terminal ? ", and a terminal" : "");
	puts(s->manifest.image ? "" : "; it has no process image: 'cudaw restore' cannot use it");
}

static void print_sizes(const struct snapshot *s, const struct found *found)
{
	const struct snapshot_totals *totals = &s->manifest.totals;
	const json_t *phase, *phases = json_object_get(s->manifest.root, "phases");
	char a[FORMAT_SIZE], b[FORMAT_SIZE], c[FORMAT_SIZE], d[FORMAT_SIZE], name[32];
	char why[sizeof(found->error.text)];
	size_t i;

	printf("memory    %s of the GPUs in %zu mapping%s: %s zeros, %s equal to other parts, %s "
	       "as in the snapshot before\n",
	       format_bytes(a, totals->bytes), s->manifest.nregions,
	       s->manifest.nregions == 1 ? "" : "s", format_bytes(b, totals->zero),
	       format_bytes(c, totals->duplicate), format_bytes(d, totals->unchanged));
	printf("disk      %s in %zu files, %s of it written by this snapshot, for %s of memory\n",
	       format_bytes(a, found->bytes), found->files, format_bytes(b, totals->stored),
	       format_bytes(c, totals->written));
	if (found->image) {
		format_copy(why, sizeof(why), found->error.text);
		printf("image     %s\n", why);
	} else if (s->manifest.image) {
		printf("image     %s of that in %zu files: the processes\n",
		       format_bytes(a, found->image_bytes), found->image_files);
	}
	json_array_foreach(phases, i, phase) {
		double ms = json_number_value(json_object_get(phase, "ms"));

		printf("%s%s %s", i ? ", " : "took      ",
		       snapshot_manifest_text(phase, "name", name, sizeof(name)),
		       format_duration(a, ms > 0 && ms < 1e12 ? ms : 0));
	}
	if (i)
		putchar('\n');
	print_needs(s, found);
}

int cmd_inspect(int argc, char **argv)
{
	struct opened all;
	const struct snapshot *s;
	struct snapshot whole = {0};
	struct found found;
	int devices[SNAPSHOT_PARTS_MAX][GPU_MAX];
	bool json = false;
	int code, ret;

	code = json_option(argc, argv, "inspect", help_inspect, &json);
	if (code >= 0)
		return code;
	if (!names_given(argc, argv, "directory", true))
		return usage_error("inspect");
	ret = opened_open(argv[optind], &all);
	if (!ret)
		ret = opened_unite(&all, &whole, devices);
	if (ret) {
		opened_close(&all);
		return ret;
	}
	s = &all.parts[0].snapshot;
	find_all(&all, &found);
	if (json) {
		print_json(&all, &found);
	} else {
		print_process(s);
		print_parts(&all);
		print_job(&found);
		print_devices(&whole);
		print_sizes(&whole, &found);
	}
	if (found.image)
		ret = opened_refuse(argv[optind], found.image, &found.error);
	criu_files_free(&found.opened);
	json_decref(found.facts);
	free(whole.manifest.devices);
	free(whole.manifest.regions);
	opened_close(&all);
	return ret;
}
