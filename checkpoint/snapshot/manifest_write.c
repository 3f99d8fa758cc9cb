/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/manifest_write.h"
#include "common/conf_file.h"
#include "common/find/buildid.h"
#include "common/json_out.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "common/processes/maps.h"
#include "common/version.h"
#include "common/gpu/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COMMAND_MAX 131072 /* bytes of a command line; the rest is cut */

static void put_link(struct json_out *out, const char *key, const char *link)
{
	char path[PATH_MAX];
	ssize_t len = readlink(link, path, sizeof(path));

	if (len < 0)
		json_text(out, key, NULL);
	else
		json_bytes(out, key, path, len);
}

/* The arguments, each ended by a zero. */
static void put_command(struct json_out *out)
{
	char *text = malloc(COMMAND_MAX);
	int fd = open("/proc/thread-self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t size = 0, n = 1, len;

	while (text && fd >= 0 && n > 0 && size < COMMAND_MAX) {
		n = read(fd, text + size, COMMAND_MAX - size);
		size += n > 0 ? n : 0;
	}
	json_open(out, "command", '[');
	for (ssize_t at = 0; at < size; at += len + 1) {
		len = strnlen(text + at, size - at);
		json_bytes(out, NULL, text + at, len);
	}
	json_close(out, ']');
	if (fd >= 0)
		close(fd);
	free(text);
}

/* The directory of the process's socket. It must exist where the process goes on. */
static void put_runtime_dir(struct json_out *out)
{
	char path[PATH_MAX];
	const char *why;

	json_text(out, "runtime_dir",
		  rundir_path(geteuid(), path, sizeof(path), &why) ? NULL : path);
}

static void put_process(struct json_out *out)
{
	char id[RUNDIR_ID_SIZE];

	rundir_job_id(id);
	json_open(out, "process", '{');
	json_number(out, "pid", getpid());
	json_number(out, "uid", geteuid());
	json_text(out, "job", id);
	json_text(out, "name", setting_text(SETTING_NAME));
	put_command(out);
	json_bool(out, "turns", conf_file_daemon() != NULL);
	put_runtime_dir(out);
	put_link(out, "exe", "/proc/thread-self/exe");
	put_link(out, "cwd", "/proc/thread-self/cwd");
	json_close(out, '}');
}

/* The kernel driver's version. It must be the same where the job goes on. */
static void put_driver(struct json_out *out)
{
	FILE *file = fopen("/sys/module/nvidia/version", "re");
	char version[64];
	bool known = file && fgets(version, sizeof(version), file);

	if (known)
		version[strcspn(version, "\n")] = '\0';
	json_text(out, "driver", known ? version : NULL);
	if (file)
		fclose(file);
}

static void put_gpu(struct json_out *out, const struct snapshot_facts *facts)
{
	put_driver(out);
	json_number(out, "cuda", facts->cuda);
	if (facts->gpus)
		json_number(out, "gpus", facts->gpus);
	if (facts->gpus && facts->uuids) {
		json_open(out, "machine", '[');
		for (size_t i = 0; i < facts->gpus && i < GPU_MAX && *facts->uuids[i]; i++)
			json_text(out, NULL, facts->uuids[i]);
		json_close(out, ']');
	}
	json_open(out, "devices", '[');
	for (size_t i = 0; i < facts->ndevices; i++) {
		const struct gpu *device = &facts->devices[i];

		json_open(out, NULL, '{');
		json_text(out, "uuid", device->uuid);
		json_text(out, "name", device->name);
		json_number(out, "memory", device->memory);
		json_number(out, "major", device->major);
		json_number(out, "minor", device->minor);
		if (facts->held)
			json_number(out, "held", facts->held[i]);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_open(out, "contexts", '[');
	for (size_t i = 0; i < facts->ncontexts; i++) {
		json_open(out, NULL, '{');
		json_number(out, "device", facts->contexts[i].device);
		json_bool(out, "primary", facts->contexts[i].primary);
		json_close(out, '}');
	}
	json_close(out, ']');
}

static void put_memory(struct json_out *out, const struct snapshot_manifest_parts *parts)
{
	const struct snapshot_source *source = parts->source;
	const struct snapshot_totals *totals = parts->totals;
	char hash[HASH_TEXT_SIZE];

	json_open(out, "regions", '[');
	for (size_t i = 0; i < source->nregions; i++) {
		json_open(out, NULL, '{');
		json_number(out, "address", source->regions[i].address);
		json_number(out, "size", source->regions[i].size);
		json_number(out, "device", source->regions[i].device);
		json_close(out, '}');
	}
	json_close(out, ']');
	hash_text(parts->index_hash, hash);
	json_open(out, "index", '{');
	json_number(out, "number", parts->index);
	json_text(out, "hash", hash);
	json_close(out, '}');
	json_bool(out, "image", parts->image);
	json_open(out, "data", '[');
	for (size_t i = 0; i < parts->nfiles; i++) {
		json_open(out, NULL, '{');
		json_number(out, "number", parts->files[i]);
		json_number(out, "size", parts->file_sizes[i]);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_open(out, "totals", '{');
	json_number(out, "bytes", totals->bytes);
	json_number(out, "zero", totals->zero);
	json_number(out, "duplicate", totals->duplicate);
	json_number(out, "unchanged", totals->unchanged);
	json_number(out, "written", totals->written);
	json_number(out, "stored", totals->stored);
	json_close(out, '}');
}

static void put_objects(struct json_out *out, const struct snapshot_facts *facts)
{
	json_open(out, "objects", '[');
	for (size_t i = 0; i < facts->nobjects; i++) {
		const struct snapshot_object *object = &facts->objects[i];

		json_open(out, NULL, '{');
		json_number(out, "address", object->address);
		json_open(out, "mappings", '[');
		for (size_t m = 0; m < object->nmappings; m++) {
			json_open(out, NULL, '{');
			json_number(out, "address", object->mappings[m].address);
			json_number(out, "size", object->mappings[m].size);
			json_number(out, "offset", object->mappings[m].offset);
			json_close(out, '}');
		}
		json_close(out, ']');
		json_close(out, '}');
	}
	json_close(out, ']');
}

static void put_phases(struct json_out *out, const struct snapshot_facts *facts)
{
	json_open(out, "phases", '[');
	for (size_t i = 0; i < facts->nphases; i++) {
		json_open(out, NULL, '{');
		json_text(out, "name", facts->phases[i].name);
		json_decimal(out, "ms", facts->phases[i].ms);
		json_close(out, '}');
	}
	json_close(out, ']');
}

static void put_file(struct json_out *out, const char *path)
{
	char id[BUILDID_TEXT_SIZE];
	off_t size = 0;
	int ret = buildid_of_file(path, id, &size);

	json_open(out, NULL, '{');
	json_text(out, "path", path);
	json_number(out, "size", size);
	json_text(out, "build_id", ret ? NULL : id);
	json_close(out, '}');
}

struct paths {
	char **list;
	size_t n;
};

/* True if @path is new. A process may map very many files; each is looked up here. */
static bool add_path(struct paths *paths, const char *path)
{
	char **list;

	for (size_t i = paths->n; i-- > 0;)
		if (!strcmp(paths->list[i], path))
			return false;
	list = realloc(paths->list, (paths->n + 1) * sizeof(*list));
	if (!list)
		return true;
	paths->list = list;
	list[paths->n] = strdup(path);
	paths->n += list[paths->n] != NULL;
	return true;
}

/* The kernel writes a line break in a path in this form, and a backslash unchanged. */
static void unescape(char *path)
{
	static const char line_break[] = "\\012";
	size_t len = strlen(line_break);
	struct stat st;

	if (!strstr(path, line_break) || !stat(path, &st))
		return;
	while ((path = strstr(path, line_break))) {
		*path++ = '\n';
		memmove(path, path + len - 1, strlen(path + len - 1) + 1);
	}
}

/*
 * The files that are mapped as code. Where the job goes on in a new process, they must be the same
 * builds. Data files are left out for two reasons. They may change until the process is stopped for
 * its image, which has its own demands on all files. And closing a file drops all record locks
 * (fcntl) that the program has on it; databases map files that they lock.
 */
static void put_mapped(struct json_out *out, struct maps *maps, struct paths *paths)
{
	while (maps_next(maps)) {
		char *path = maps->rights[2] == 'x' ? maps->path : NULL;

		/* The process image handles devices and files that are really memory. */
		if (!path || !strncmp(path, "/dev/", 5) || !strncmp(path, "/memfd:", 7) ||
		    !strncmp(path, "/SYSV", 5) || strstr(path, MAPS_FORMER))
			continue;
		unescape(path);
		if (add_path(paths, path))
			put_file(out, path);
	}
}

static void put_parts(struct json_out *out, const struct snapshot_facts *facts)
{
	json_open(out, "parts", '[');
	for (size_t i = 0; i < facts->nparts; i++)
		json_number(out, NULL, facts->parts[i]);
	json_close(out, ']');
}

/* 0 or errno. */
static int put_files(struct json_out *out)
{
	struct paths paths = {0};
	struct maps maps;
	int error;

	json_open(out, "files", '[');
	maps_open(&maps, 0);
	put_mapped(out, &maps, &paths);
	error = -maps_close(&maps);
	json_close(out, ']');
	for (size_t i = 0; i < paths.n; i++)
		free(paths.list[i]);
	free(paths.list);
	return error;
}

/* 0 or errno. */
static int put_all(struct json_out *out, const struct snapshot_manifest_parts *parts,
		   const struct snapshot_facts *facts)
{
	char id[2 * sizeof(parts->id) + 1];
	int version = facts->nparts     ? SNAPSHOT_VERSION
		      : parts->image    ? SNAPSHOT_IMAGE
		      : facts->nobjects ? SNAPSHOT_OBJECTS
					: SNAPSHOT_PLAIN;

	for (size_t i = 0; i < sizeof(parts->id); i++)
		sprintf(id + 2 * i, "%02x", parts->id[i]);
	json_open(out, NULL, '{');
	json_text(out, "format", SNAPSHOT_FORMAT);
	json_number(out, "version", version);
	json_text(out, "id", id);
	json_text(out, "cudaw", cudaw_version);
	json_number(out, "created", time(NULL));
	put_process(out);
	if (facts->nparts)
		put_parts(out, facts);
	put_gpu(out, facts);
	put_memory(out, parts);
	if (version >= SNAPSHOT_OBJECTS)
		put_objects(out, facts);
	put_phases(out, facts);
	return put_files(out);
}

char *snapshot_manifest_make(const struct snapshot_manifest_parts *parts,
			     const struct snapshot_facts *facts, size_t *size)
{
	char seal[SNAPSHOT_SEAL_SIZE + 1], *text = NULL;
	struct json_out out = {.file = open_memstream(&text, size)};
	int error;

	if (!out.file)
		return NULL;
	error = put_all(&out, parts, facts);
	if (!error && !fflush(out.file)) {
		snapshot_seal(text, *size, seal);
		fputs(seal, out.file);
	}
	if (!error && ferror(out.file))
		error = ENOMEM;
	if (fclose(out.file) && !error)
		error = ENOMEM;
	if (!error)
		return text;
	free(text);
	errno = error;
	return NULL;
}
