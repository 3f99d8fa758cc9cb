/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/opened.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/host_image.h"
#include "tools/report/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int opened_refuse(const char *path, int code, const struct snapshot_error *error)
{
	complain("%s: %s", path, error->text);
	return code == -ENOTSUP ? EXIT_UNSUPPORTED : EXIT_FAILED;
}

/* The next part, whose path is known. An exit code. */
static int open_next(struct opened *opened)
{
	struct opened_part *part = &opened->parts[opened->n];
	const struct snapshot *first = &opened->parts[0].snapshot;
	struct snapshot_error error;
	int dir = opened->n ? snapshot_dir_open_part(first->dir, first->manifest.index,
						     first->manifest.parts[opened->n], &error)
			    : snapshot_dir_open(part->path, &error);
	int ret = dir < 0 ? dir : snapshot_open(part->path, dir, &part->snapshot, &error);

	if (ret)
		return opened_refuse(part->path, ret, &error);
	opened->n++;
	return EXIT_DONE;
}

/* What host.json says of the part @pid; NULL: nothing. */
static const char *id_of(const json_t *facts, int pid)
{
	json_t *part;
	size_t i;

	json_array_foreach(json_object_get(facts, "parts"), i, part)
		if (json_integer_value(json_object_get(part, "pid")) == pid)
			return json_string_value(json_object_get(part, "id"));
	return NULL;
}

static json_int_t uid_of(const struct snapshot_manifest *m)
{
	return json_integer_value(json_object_get(json_object_get(m->root, "process"), "uid"));
}

/* Whether @m is of the part @i of the snapshot whose first part has @first. */
static bool belongs(const struct opened *opened, size_t i, const struct snapshot_manifest *first,
		    const struct snapshot_manifest *m)
{
	const struct opened_part *part = &opened->parts[i];
	const char *expected = id_of(opened->facts, first->parts[i]);
	struct stat st, first_st;
	char id[64];

	/* Of one user, as all processes of a job: whether it is the right one is looked at in the first. */
	if (fstat(part->snapshot.dir, &st) || fstat(opened->parts[0].snapshot.dir, &first_st) ||
	    st.st_uid != first_st.st_uid || uid_of(m) != uid_of(first))
		return false;

	snapshot_manifest_text(m->root, "id", id, sizeof(id));
	return expected && !strcmp(id, expected) && m->pid == first->parts[i] &&
	       m->nparts == first->nparts &&
	       !memcmp(m->parts, first->parts, m->nparts * sizeof(*m->parts));
}

static int open_part(struct opened *opened, size_t i)
{
	const struct snapshot_manifest *first = &opened->parts[0].snapshot.manifest;
	struct opened_part *part = &opened->parts[i];
	char name[SNAPSHOT_PART_SIZE];
	int ret;

	snapshot_part_name(first->index, first->parts[i], name);
	snprintf(part->path, sizeof(part->path), "%.*s/%s", PATH_MAX, opened->parts[0].path, name);
	ret = open_next(opened);
	if (ret || belongs(opened, i, first, &part->snapshot.manifest))
		return ret;
	complain("%s: it is not of the snapshot in %s", part->path, opened->parts[0].path);
	return EXIT_FAILED;
}

int opened_open(const char *path, struct opened *opened)
{
	const struct snapshot_manifest *m;
	struct snapshot_error error;
	int ret;

	*opened = (struct opened){.parts = calloc(SNAPSHOT_PARTS_MAX, sizeof(*opened->parts))};
	if (!opened->parts) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	snprintf(opened->parts[0].path, PATH_MAX, "%s", path);
	ret = open_next(opened);
	if (ret)
		return ret;
	m = &opened->parts[0].snapshot.manifest;
	if (!m->nparts)
		return EXIT_DONE;
	if (m->parts[0] != m->pid) {
		complain("%s: it is a part of the snapshot two directories above it", path);
		return EXIT_FAILED;
	}
	ret = host_image_facts(opened->parts[0].snapshot.dir, m->index, &opened->facts, &error);
	if (ret)
		return opened_refuse(path, ret, &error);
	for (size_t i = 1; i < m->nparts && !ret; i++)
		ret = open_part(opened, i);
	return ret;
}

/* Its place among the devices of @all, of which the first @earlier are other parts'; it is added. -1: there are too many. */
static int add_device(struct snapshot_manifest *all, size_t earlier,
		      const struct snapshot_manifest *m, size_t device)
{
	size_t i = 0;

	while (i < earlier && strcmp(all->devices[i].uuid, m->devices[device].uuid) != 0)
		i++;
	if (i == earlier)
		i = all->ndevices;
	if (i == GPU_MAX)
		return -1;
	if (i == all->ndevices)
		all->devices[all->ndevices++] = m->devices[device];
	all->held[i] += m->held[device];
	return i;
}

static void add_totals(struct snapshot_totals *all, const struct snapshot_totals *m)
{
	all->bytes += m->bytes;
	all->zero += m->zero;
	all->duplicate += m->duplicate;
	all->unchanged += m->unchanged;
	all->written += m->written;
	all->stored += m->stored;
}

/* Add what the part with @m needs. Returns an exit code. */
static int add_part(struct snapshot *whole, const struct snapshot_manifest *m, int devices[GPU_MAX])
{
	struct snapshot_manifest *all = &whole->manifest;
	size_t earlier = all->ndevices;

	all->gpus = m->gpus > all->gpus ? m->gpus : all->gpus;
	add_totals(&all->totals, &m->totals);
	for (size_t i = 0; i < m->ndevices; i++) {
		devices[i] = add_device(all, earlier, m, i);
		if (devices[i] >= 0)
			continue;
		complain("%s: expected at most %d GPUs", whole->path, GPU_MAX);
		return EXIT_UNSUPPORTED;
	}
	for (size_t i = 0; i < m->nregions; i++) {
		struct snapshot_region *region = &all->regions[all->nregions++];

		*region = m->regions[i];
		region->device = devices[region->device];
	}
	return EXIT_DONE;
}

int opened_unite(const struct opened *opened, struct snapshot *whole, int devices[][GPU_MAX])
{
	const struct snapshot_manifest *first = &opened->parts[0].snapshot.manifest;
	struct snapshot_manifest *all = &whole->manifest;
	size_t nregions = 0;
	int ret = EXIT_DONE;

	*whole = (struct snapshot){.path = opened->parts[0].path};
	*all = (struct snapshot_manifest){
		.root = first->root, .cuda = first->cuda, .image = first->image};
	strcpy(all->driver, first->driver);
	for (size_t i = 0; i < opened->n; i++)
		nregions += opened->parts[i].snapshot.manifest.nregions;
	all->devices = calloc(GPU_MAX, sizeof(*all->devices));
	all->regions = calloc(nregions + 1, sizeof(*all->regions));
	if (!all->devices || !all->regions) {
		complain("out of memory");
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < opened->n && !ret; i++)
		ret = add_part(whole, &opened->parts[i].snapshot.manifest, devices[i]);
	return ret;
}

void opened_close(struct opened *opened)
{
	for (size_t i = 0; i < opened->n; i++)
		snapshot_close(&opened->parts[i].snapshot);
	free(opened->parts);
	json_decref(opened->facts);
}

size_t opened_bytes(const struct opened *opened)
{
	size_t bytes = 0;

	for (size_t i = 0; i < opened->n; i++)
		bytes += opened->parts[i].snapshot.manifest.totals.bytes;
	return bytes;
}
