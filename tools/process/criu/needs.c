/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/needs.h"

#include "common/find/buildid.h"
#include "common/gpu/nvml.h"
#include "common/text.h"
#include "common/processes/proc.h"
#include "tools/process/criu/links.h"
#include "tools/report/report.h"
#include "common/find/find.h"
#include "common/gpu/gpu.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOT_CHOSEN (-1)
#define KIND_SIZE  192
#define WHY_SIZE   (PATH_MAX + 100)

static int check_file(const struct snapshot *s, const json_t *file)
{
	char path[PATH_MAX], expected[BUILDID_TEXT_SIZE], found[BUILDID_TEXT_SIZE] = "none";
	json_int_t size = json_integer_value(json_object_get(file, "size"));
	off_t have = 0;
	int ret;

	snapshot_manifest_bytes(file, "path", path, sizeof(path));
	if (!*snapshot_manifest_text(file, "build_id", expected, sizeof(expected)))
		return EXIT_DONE;
	ret = buildid_of_file(path, found, &have);
	if (ret && ret != -ENODATA) {
		complain("%s: the job needs %s: %s", s->path, path, strerror(-ret));
		return EXIT_FAILED;
	}
	if (strcmp(found, expected)) {
		complain("%s: the job needs %s with build-id %s, found %s", s->path, path, expected,
			 found);
		return EXIT_FAILED;
	}
	if (have != size) {
		complain("%s: the job needs %s of %" JSON_INTEGER_FORMAT " bytes, found %jd",
			 s->path, path, size, (intmax_t)have);
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

int needs_files(const struct snapshot *s)
{
	const json_t *file, *files = json_object_get(s->manifest.root, "files");
	size_t i;
	int ret = EXIT_DONE;

	json_array_foreach(files, i, file) {
		int one = check_file(s, file);

		if (!ret)
			ret = one;
	}
	return ret;
}

/*
 * What CRIU will find at @path. The user of a job that root restores may have put links there, to
 * what only root may open. 0, or a negative errno and @why.
 */
static int look_at(const struct snapshot *s, const char *path, struct stat *st, char why[WHY_SIZE])
{
	const json_t *process = json_object_get(s->manifest.root, "process");
	bool of_user = json_integer_value(json_object_get(process, "uid")) != 0;
	char link[PATH_MAX] = "";
	int ret;

	if (geteuid() == 0 && of_user)
		ret = links_stat(path, st, link);
	else
		ret = stat(path, st) ? -errno : 0;
	if (*link)
		snprintf(why, WHY_SIZE,
			 "expected no symbolic link that users other than root can make, found %s",
			 link);
	else
		snprintf(why, WHY_SIZE, "%s", strerror(-ret));
	return ret;
}

/* Whether the file is as CRIU requires it; of a socket, whether its directory can be made. */
static int check_opened(const struct snapshot *s, const struct criu_file *file)
{
	char path[PATH_MAX], why[WHY_SIZE];
	struct stat st;
	int ret;

	snprintf(path, sizeof(path), "%s", file->path);
	ret = look_at(s, file->socket ? dirname(path) : path, &st, why);
	if (ret == -ENOENT && file->socket)
		ret = look_at(s, dirname(path), &st, why);
	if (ret) {
		complain("%s: the job has %s open: %s", s->path, file->path, why);
		return EXIT_FAILED;
	}
	if (file->mode && file->mode != st.st_mode) {
		complain("%s: the job has %s open: expected type and mode %06o, found %06o",
			 s->path, file->path, file->mode, st.st_mode);
		return EXIT_FAILED;
	}
	if (file->sized && S_ISREG(st.st_mode) && file->size != (uint64_t)st.st_size) {
		complain("%s: the job has %s open: expected %" PRIu64 " bytes, found %jd%s",
			 s->path, file->path, file->size, (intmax_t)st.st_size,
			 file->written && file->size < (uint64_t)st.st_size
				 ? " ('truncate -s' can cut it off)"
				 : "");
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

static int check_cwd(const struct snapshot *s)
{
	const json_t *process = json_object_get(s->manifest.root, "process");
	char path[PATH_MAX], why[WHY_SIZE];
	struct stat st;

	snapshot_manifest_bytes(process, "cwd", path, sizeof(path));
	if (!*path || !look_at(s, path, &st, why))
		return EXIT_DONE;
	complain("%s: the job's working directory %s: %s", s->path, path, why);
	return EXIT_FAILED;
}

int needs_opened(const struct snapshot *s, const struct criu_files *files)
{
	int ret = check_cwd(s);

	for (size_t i = 0; i < files->n; i++) {
		int one = check_opened(s, &files->list[i]);

		if (!ret)
			ret = one;
	}
	if (files->terminal && !isatty(STDIN_FILENO)) {
		complain("%s: the job has a terminal: expected one as standard input, found none",
			 s->path);
		ret = ret ? ret : EXIT_FAILED;
	}
	return ret;
}

static int check_driver(const struct snapshot *s, const struct probe *probe)
{
	const struct snapshot_manifest *m = &s->manifest;
	char version[64];

	if (*probe->failure) {
		complain("the driver of this machine: %s", probe->failure);
		return EXIT_UNSUPPORTED;
	}
	if (host_read_line("/sys/module/nvidia/version", version, sizeof(version)))
		*version = '\0';
	if (*version && *m->driver && strcmp(version, m->driver)) {
		complain("%s: expected driver %s, found %s", s->path, m->driver, version);
		return EXIT_UNSUPPORTED;
	}
	if (probe->version != m->cuda) {
		complain("%s: expected a driver of CUDA %d.%d, found %d.%d", s->path,
			 m->cuda / 1000, m->cuda % 1000 / 10, probe->version / 1000,
			 probe->version % 1000 / 10);
		return EXIT_UNSUPPORTED;
	}
	if (probe->ndevices < (int)m->ndevices) {
		complain("%s: expected %zu GPU%s, found %d", s->path, m->ndevices,
			 m->ndevices == 1 ? "" : "s", probe->ndevices);
		return EXIT_UNSUPPORTED;
	}
	return EXIT_DONE;
}

/* The driver's restore counts all GPUs of the machine, not only those that the job saw. */
static int check_machine(const struct snapshot *s)
{
	unsigned int found;

	if (nvml_device_count(&found) || found >= s->manifest.gpus)
		return EXIT_DONE;
	complain("%s: expected a machine with %u GPUs, found %u; the driver restores only with as "
		 "many, whichever of them the job used",
		 s->path, s->manifest.gpus, found);
	return EXIT_UNSUPPORTED;
}

static bool same_kind(const struct gpu *a, const struct probe_device *b)
{
	return !strcmp(a->name, b->name) && a->memory == b->memory && a->major == b->major &&
	       a->minor == b->minor;
}

/* A GPU by index or UUID; -1: there is none. */
static int find_gpu(const char *text, size_t len, const char *(*uuid)(const void *list, int i),
		    const void *list, int count)
{
	for (int i = 0; i < count; i++) {
		char index[16];

		snprintf(index, sizeof(index), "%d", i);
		if ((strlen(index) == len && !strncmp(text, index, len)) ||
		    (strlen(uuid(list, i)) == len && !strncmp(text, uuid(list, i), len)))
			return i;
	}
	return -1;
}

static const char *old_uuid(const void *list, int i)
{
	return ((const struct snapshot_manifest *)list)->devices[i].uuid;
}

static const char *new_uuid(const void *list, int i)
{
	return ((const struct probe *)list)->devices[i].uuid;
}

/* "NVIDIA H200 (9.0, 150 bytes)" */
static const char *kind_text(const char *name, int major, int minor, size_t memory, char *buf,
			     size_t size)
{
	snprintf(buf, size, "%s (%d.%d, %zu bytes)", name, major, minor, memory);
	return buf;
}

static const char *old_kind(const struct gpu *d, char *buf, size_t size)
{
	return kind_text(d->name, d->major, d->minor, d->memory, buf, size);
}

static const char *new_kind(const struct probe_device *d, char *buf, size_t size)
{
	return kind_text(d->name, d->major, d->minor, d->memory, buf, size);
}

static int choose(const struct snapshot *s, const char *choice, struct needs *needs, bool *taken)
{
	const struct snapshot_manifest *m = &s->manifest;
	size_t len = strcspn(choice, "=");
	const char *text = choice[len] ? choice + len + 1 : choice;
	int from = choice[len] ? find_gpu(choice, len, old_uuid, m, m->ndevices) : 0;
	int to = find_gpu(text, strlen(text), new_uuid, &needs->probe, needs->probe.ndevices);
	char a[KIND_SIZE], b[KIND_SIZE];

	if (!choice[len] && m->ndevices != 1) {
		complain("--gpu %s: expected OLD=NEW, as the job has %zu GPUs", choice,
			 m->ndevices);
		return EXIT_USAGE;
	}
	if (from < 0 || to < 0) {
		complain("--gpu %s: there is no such GPU %s", choice,
			 from < 0 ? "in the snapshot" : "on this machine");
		return EXIT_USAGE;
	}
	if (taken[to] || needs->map[from] != NOT_CHOSEN) {
		complain("--gpu %s: that GPU is given twice", choice);
		return EXIT_USAGE;
	}
	if (!same_kind(&m->devices[from], &needs->probe.devices[to])) {
		complain("--gpu %s: expected %s, found %s", choice,
			 old_kind(&m->devices[from], a, sizeof(a)),
			 new_kind(&needs->probe.devices[to], b, sizeof(b)));
		return EXIT_UNSUPPORTED;
	}
	needs->map[from] = to;
	taken[to] = true;
	return EXIT_DONE;
}

/* The same GPU if @same, else any of its kind; -1: none is free. */
static int find_free(const struct gpu *device, const struct probe *probe, const bool *taken,
		     bool same)
{
	for (int i = 0; i < probe->ndevices; i++)
		if (!taken[i] && same_kind(device, &probe->devices[i]) &&
		    (!same || !strcmp(device->uuid, probe->devices[i].uuid)))
			return i;
	return -1;
}

/* No free GPU is like the @index-th of the snapshot; name another one that is free. */
static int refuse_kind(const struct snapshot *s, size_t index, const struct probe *probe,
		       const bool *taken)
{
	char expected[KIND_SIZE], found[KIND_SIZE] = "none";

	for (int i = probe->ndevices; i-- > 0;)
		if (!taken[i])
			new_kind(&probe->devices[i], found, sizeof(found));
	complain("%s: expected a free GPU like GPU %zu of the snapshot, %s; found %s", s->path,
		 index, old_kind(&s->manifest.devices[index], expected, sizeof(expected)), found);
	return EXIT_UNSUPPORTED;
}

static int map_rest(const struct snapshot *s, struct needs *needs, bool *taken)
{
	const struct snapshot_manifest *m = &s->manifest;

	for (int same = 1; same >= 0; same--)
		for (size_t i = 0; i < m->ndevices; i++) {
			int to = needs->map[i] == NOT_CHOSEN
					 ? find_free(&m->devices[i], &needs->probe, taken, same)
					 : -1;

			if (to < 0)
				continue;
			needs->map[i] = to;
			taken[to] = true;
		}
	for (size_t i = 0; i < m->ndevices; i++) {
		if (needs->map[i] == NOT_CHOSEN)
			return refuse_kind(s, i, &needs->probe, taken);
		needs->moved |=
			strcmp(m->devices[i].uuid, needs->probe.devices[needs->map[i]].uuid) != 0;
	}
	return EXIT_DONE;
}

/* Both are shorter than NVML_UUID_SIZE. */
static bool add_pair(struct needs *needs, const char *from, const char *to)
{
	struct needs_pair *pair = &needs->pairs[needs->npairs];

	if (needs->npairs == GPU_MAX)
		return false;
	needs->npairs++;
	memcpy(pair->from, from, strlen(from) + 1);
	memcpy(pair->to, to, strlen(to) + 1);
	return true;
}

static bool is_paired(const struct needs *needs, const char *uuid, bool from)
{
	for (size_t i = 0; i < needs->npairs; i++)
		if (!strcmp(from ? needs->pairs[i].from : needs->pairs[i].to, uuid))
			return true;
	return false;
}

/* Let @from stay where it is, if that is free and @same; else let it go to any that is free. False: there is none. */
static bool pair_unseen(struct needs *needs, const char *from, unsigned int here, bool same)
{
	char to[NVML_UUID_SIZE];

	for (unsigned int i = 0; i < here; i++)
		if (!nvml_device_uuid(i, to) && !is_paired(needs, to, false) &&
		    (!same || !strcmp(from, to)))
			return add_pair(needs, from, to);
	return false;
}

/* The machine's GPUs that no process saw: the driver takes a map only if it has them, too [H200, driver 580.159]. */
static void pair_all(const struct snapshot *s, struct needs *needs)
{
	const struct snapshot_manifest *m = &s->manifest;
	const json_t *machine = json_object_get(m->root, "machine");
	unsigned int here;
	bool paired = m->gpus && json_array_size(machine) == m->gpus && !nvml_device_count(&here);

	for (size_t i = 0; i < m->ndevices && paired; i++)
		paired = add_pair(needs, m->devices[i].uuid,
				  needs->probe.devices[needs->map[i]].uuid);
	for (int same = 1; same >= 0 && paired; same--)
		for (size_t i = 0; i < m->gpus && paired; i++) {
			const char *from = json_string_value(json_array_get(machine, i));
			CUuuid uuid;

			paired = from && nvml_uuid_parse(from, &uuid) &&
				 (is_paired(needs, from, true) ||
				  pair_unseen(needs, from, here, same) || same);
		}
	if (!paired)
		needs->npairs = 0;
}

int needs_ask(struct needs *needs)
{
	char path[PATH_MAX], why[512];

	memset(needs, 0, sizeof(*needs));
	if (find_real_driver(path, sizeof(path))) {
		find_explain(FIND_DRIVER, why, sizeof(why));
		complain("no driver: %s", why);
		return EXIT_UNSUPPORTED;
	}
	probe_begin(&needs->probing, path);
	return EXIT_DONE;
}

int needs_gpus(const struct snapshot *s, char **choices, size_t count, struct needs *needs)
{
	bool taken[PROBE_DEVICES] = {false};
	int ret;

	for (size_t i = 0; i < GPU_MAX; i++)
		needs->map[i] = NOT_CHOSEN;
	probe_end(&needs->probing, &needs->probe);
	ret = check_driver(s, &needs->probe);
	if (!ret)
		ret = check_machine(s);
	for (size_t i = 0; i < count && !ret; i++)
		ret = choose(s, choices[i], needs, taken);
	if (!ret)
		ret = map_rest(s, needs, taken);
	if (!ret && needs->moved)
		pair_all(s, needs);
	return ret;
}

int needs_memory(const struct snapshot *s, const struct needs *needs)
{
	const struct snapshot_manifest *m = &s->manifest;
	char expected[FORMAT_SIZE], contexts[FORMAT_SIZE], found[FORMAT_SIZE];

	for (size_t i = 0; i < m->ndevices; i++) {
		const char *uuid = needs->probe.devices[needs->map[i]].uuid;
		size_t bytes = m->held[i], room;

		for (size_t r = 0; r < m->nregions; r++)
			bytes += m->regions[r].device == (int)i ? m->regions[r].size : 0;
		if (nvml_free_memory(uuid, &room) || room >= bytes)
			continue;
		complain("%s: expected %s free on GPU %d (%s), %s of it for contexts, found %s; "
			 "with --paused the job waits for a 'cudaw resume'",
			 s->path, format_bytes(expected, bytes), needs->map[i], uuid,
			 format_bytes(contexts, m->held[i]), format_bytes(found, room));
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}
