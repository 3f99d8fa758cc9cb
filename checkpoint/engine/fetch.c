/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/fetch.h"
#include "checkpoint/engine/saved.h"
#include "checkpoint/host/claims.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/host/spill.h"
#include "checkpoint/snapshot/dir.h"
#include "checkpoint/snapshot/read.h"
#include "common/system/hostmem.h"
#include "common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SNAPSHOT_CHUNK == VMEM_GRANULE, "a chunk is a granule");

int fetch_place_lock(struct fetch_place *place, struct snapshot_error *error)
{
	int dir = snapshot_dir_open(place->path, error);

	if (dir < 0)
		return dir;
	fetch_place_unlock(place);
	ownfd_set(&place->dir, dir);
	return 0;
}

/*
 * Load the index that @place names from the directory @dir, and check that it is the same snapshot.
 */
static int load_index(const struct fetch_place *place, int dir, struct snapshot_index *index,
		      struct snapshot_error *error)
{
	int ret = snapshot_index_load(dir, place->index, index, error);

	if (ret || !memcmp(index->header.id, place->id, sizeof(place->id)))
		return ret;
	snapshot_index_free(index);
	return snapshot_fail(error, -ESTALE,
			     "it holds another snapshot, not the one that this job is in");
}

int fetch_place_move(struct fetch_place *place, const char *path, struct snapshot_error *error)
{
	struct snapshot_index index;
	int dir, ret;

	if (strlen(path) >= sizeof(place->path))
		return snapshot_fail(error, -ENAMETOOLONG, "its path is too long");
	dir = snapshot_dir_open(path, error);
	if (dir < 0)
		return dir;
	ret = load_index(place, dir, &index, error);
	if (ret) {
		snapshot_dir_close(dir);
		return ret;
	}
	snapshot_index_free(&index);
	fetch_place_unlock(place);
	strcpy(place->path, path);
	ownfd_set(&place->dir, dir);
	return 0;
}

void fetch_place_unlock(struct fetch_place *place)
{
	int dir = ownfd_get(&place->dir);

	if (dir >= 0)
		snapshot_dir_close(dir);
	ownfd_set(&place->dir, -1);
}

static int compare_pieces(const void *a, const void *b)
{
	uint64_t address = *(const uint64_t *)a;
	const struct transfer_piece *p = b;

	if (address < p->dev)
		return -1;
	return address >= p->dev + p->count * VMEM_GRANULE;
}

static char zeros[VMEM_GRANULE] __attribute__((aligned(SNAPSHOT_ALIGN)));

static int put_chunk(void *arg, const struct snapshot_chunk *chunk, const void *data,
		     struct snapshot_error *error)
{
	const struct saved *s = arg;
	const struct transfer_piece *p =
		bsearch(&chunk->address, s->pieces, s->npieces, sizeof(*p), compare_pieces);
	uint64_t offset = 0;
	uint32_t slot;
	char *to;
	int ret;

	if (!p)
		return snapshot_fail(error, -EBADMSG, "0x%" PRIx64 " is in no region of this job",
				     chunk->address);
	slot = s->slots[p->first + (chunk->address - p->dev) / VMEM_GRANULE];
	if (slot >= SLOT_MAX)
		return 0;
	if (!data)
		data = zeros;
	to = saved_slot(s, slot, &offset);
	if (!to) {
		ret = spill_write(data, VMEM_GRANULE, offset);
		return ret ? snapshot_fail(error, ret, "the spill file: %s", error_text(-ret)) : 0;
	}
	ret = hostmem_populate(to, VMEM_GRANULE);
	if (ret)
		return snapshot_fail(error, ret, "host memory ran out: %s", error_text(-ret));
	if (!hostpool_block(slot * VMEM_GRANULE / HOSTPOOL_BLOCK)->present)
		claims_take(VMEM_GRANULE);
	memcpy(to, data, VMEM_GRANULE);
	return 0;
}

int fetch_saved(const struct saved *s, const struct fetch_place *place, size_t *done,
		const bool *cancel, struct snapshot_error *error)
{
	struct snapshot_read what = {.take = put_chunk, .arg = (void *)s, .done = done};
	struct snapshot_index index;
	int ret;

	what.cancel = cancel;
	what.index = &index;
	what.dir = ownfd_get(&place->dir);
	ret = load_index(place, what.dir, &index, error);
	if (ret)
		return ret;
	if (index.nchunks != s->ngranules)
		ret = snapshot_fail(error, -EBADMSG, "expected %zu chunks, found %zu", s->ngranules,
				    index.nchunks);
	else
		ret = snapshot_read(&what, error);
	snapshot_index_free(&index);
	return ret;
}
