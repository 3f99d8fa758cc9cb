/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/open.h"

#include "checkpoint/snapshot/files/dir.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Check that the chunks are exactly those of the regions: none is missing, and none is extra. */
static int check_regions(const struct snapshot_manifest *m, const struct snapshot_index *index,
			 struct snapshot_error *error)
{
	size_t next = 0;

	for (size_t i = 0; i < m->nregions; i++) {
		const struct snapshot_region *r = &m->regions[i];

		for (size_t at = 0; at < r->size; at += SNAPSHOT_CHUNK, next++) {
			if (next < index->nchunks && index->chunks[next].address == r->address + at)
				continue;
			return snapshot_fail(error, -EBADMSG,
					     "index-%u: the memory at 0x%" PRIx64 " is missing",
					     m->index, r->address + at);
		}
	}
	if (next == index->nchunks)
		return 0;
	return snapshot_fail(error, -EBADMSG, "index-%u: 0x%" PRIx64 " lies in no region", m->index,
			     index->chunks[next].address);
}

static int compare_numbers(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = ((const struct snapshot_data *)b)->number;

	return x < y ? -1 : x > y;
}

static int check_places(const struct snapshot_manifest *m, const struct snapshot_index *index,
			struct snapshot_error *error)
{
	for (size_t i = 0; i < index->norder; i++) {
		const struct snapshot_chunk *c = &index->chunks[index->order[i]];
		const struct snapshot_data *data =
			bsearch(&c->file, m->data, m->ndata, sizeof(*data), compare_numbers);

		if (!data)
			return snapshot_fail(error, -EBADMSG,
					     "index-%u: 0x%" PRIx64 " is in data-%u, which the "
					     "manifest does not have",
					     m->index, c->address, c->file);
		if (c->offset > data->size || c->stored > data->size - c->offset)
			return snapshot_fail(error, -EBADMSG,
					     "index-%u: 0x%" PRIx64 " ends at %" PRIu64
					     " of data-%u, which has %zu bytes",
					     m->index, c->address, c->offset + c->stored, c->file,
					     data->size);
	}
	return 0;
}

static int check_data(int dir, const struct snapshot_manifest *m, struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	struct stat st;

	for (size_t i = 0; i < m->ndata; i++) {
		snapshot_name(SNAPSHOT_DATA, m->data[i].number, name);
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
			return snapshot_fail(error, -errno, "%s: %s", name, error_text(errno));
		if (!S_ISREG(st.st_mode))
			return snapshot_fail(error, -EBADMSG, "%s: it is not a regular file", name);
		if ((size_t)st.st_size != m->data[i].size)
			return snapshot_fail(error, -EBADMSG, "%s: expected %zu bytes, found %zu",
					     name, m->data[i].size, (size_t)st.st_size);
	}
	return 0;
}

int snapshot_open_index(int dir, const struct snapshot_manifest *m, struct snapshot_index *index,
			struct snapshot_error *error)
{
	struct snapshot_index loaded;
	int ret = check_data(dir, m, error);

	if (!ret)
		ret = snapshot_index_load(dir, m->index, &loaded, error);
	if (ret)
		return ret;
	if (!hash_equal(loaded.file_hash, m->index_hash) ||
	    memcmp(loaded.header.id, m->id, sizeof(m->id)))
		ret = snapshot_fail(error, -EBADMSG,
				    "index-%u: it is not the one that the manifest was made for",
				    m->index);
	if (!ret)
		ret = check_regions(m, &loaded, error);
	if (!ret)
		ret = check_places(m, &loaded, error);
	if (ret)
		snapshot_index_free(&loaded);
	else
		*index = loaded;
	return ret;
}

size_t snapshot_memory_bytes(const struct snapshot *s)
{
	size_t bytes = sizeof(s->index.header) + s->index.nchunks * sizeof(*s->index.chunks);

	for (size_t i = 0; i < s->manifest.ndata; i++)
		bytes += s->manifest.data[i].size;
	return bytes;
}

int snapshot_open(const char *path, int dir, struct snapshot *s, struct snapshot_error *error)
{
	int ret;

	*s = (struct snapshot){.path = path, .dir = dir};
	ret = snapshot_manifest_load(s->dir, SNAPSHOT_MANIFEST, &s->manifest, error);
	if (!ret) {
		ret = snapshot_open_index(s->dir, &s->manifest, &s->index, error);
		if (ret)
			snapshot_manifest_free(&s->manifest);
	}
	if (ret)
		snapshot_dir_close(s->dir);
	return ret;
}

void snapshot_close(struct snapshot *s)
{
	snapshot_index_free(&s->index);
	snapshot_manifest_free(&s->manifest);
	snapshot_dir_close(s->dir);
}
