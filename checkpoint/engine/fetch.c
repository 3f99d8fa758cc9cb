/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/fetch.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/saved.h"
#include "checkpoint/host/claims.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/host/spill.h"
#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/read.h"
#include "common/protocol/pact.h"
#include "common/system/hostmem.h"
#include "common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SNAPSHOT_CHUNK == VMEM_GRANULE, "a chunk is a granule");
_Static_assert(SNAPSHOT_BLOCK == HOSTPOOL_BLOCK,
	       "memory that is handed over has blocks of the pool");

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

static char zeros[VMEM_GRANULE] __attribute__((aligned(SNAPSHOT_ALIGN)));

/* What is read, and for whom. */
struct fetch {
	const struct saved *saved;
	const struct pact *pact; /* its end ends the reading; or NULL */
};

static int put_chunk(void *arg, const struct snapshot_chunk *chunk, const void *data,
		     struct snapshot_error *error)
{
	const struct fetch *fetch = arg;
	const struct saved *s = fetch->saved;
	size_t granule = saved_granule_at(s, chunk->address);
	uint64_t offset = 0;
	uint32_t slot;
	char *to;
	int ret;

	if (fetch->pact && pact_is_ended(fetch->pact))
		return snapshot_fail(error, -ECANCELED, "cancelled");
	if (granule == SIZE_MAX)
		return snapshot_fail(error, -EBADMSG, "0x%" PRIx64 " is in no region of this job",
				     chunk->address);
	slot = s->slots[granule];
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

/* Load the index, which must have the granules of this job. 0 or a negative errno. */
static int load_own_index(const struct saved *s, const struct fetch_place *place,
			  struct snapshot_index *index, struct snapshot_error *error)
{
	int ret = load_index(place, ownfd_get(&place->dir), index, error);

	if (ret || index->nchunks == s->ngranules)
		return ret;
	ret = snapshot_fail(error, -EBADMSG, "expected %zu chunks, found %zu", s->ngranules,
			    index->nchunks);
	snapshot_index_free(index);
	return ret;
}

int fetch_saved(const struct saved *s, const struct fetch_place *place,
		struct engine_progress *progress, struct snapshot_error *error)
{
	struct fetch fetch = {s, progress->pact};
	struct snapshot_read what = {.take = put_chunk,
				     .arg = &fetch,
				     .done = &progress->done,
				     .cancel = &progress->cancel};
	struct snapshot_index index;
	int ret;

	what.index = &index;
	what.dir = ownfd_get(&place->dir);
	ret = load_own_index(s, place, &index, error);
	if (ret)
		return ret;
	ret = snapshot_read(&what, error);
	snapshot_index_free(&index);
	return ret;
}

static bool has_all_granules(const struct saved *s, const struct snapshot_index *index)
{
	for (size_t i = 0; i < index->nchunks; i++)
		if (saved_granule_at(s, index->chunks[i].address) == SIZE_MAX)
			return false;
	return true;
}

/* Give the granules the slots of the places in @index; those without an allocation need none. */
static void set_slots(struct saved *s, const struct snapshot_index *index)
{
	for (size_t i = 0; i < s->ngranules; i++)
		if (s->slots[i] != SLOT_NONE)
			s->slots[i] = SLOT_ZERO;
	for (size_t place = 0; place < index->nplaces; place++)
		for (uint32_t i = index->places[place]; i < index->places[place + 1]; i++) {
			size_t granule =
				saved_granule_at(s, index->chunks[index->order[i]].address);

			if (s->slots[granule] != SLOT_NONE)
				s->slots[granule] = place;
		}
	s->used_slots = s->pool_slots = index->nplaces;
}

int fetch_filled(struct saved *s, const struct fetch_place *place, int fd,
		 struct snapshot_error *error)
{
	struct snapshot_index index;
	int ret = load_own_index(s, place, &index, error);

	if (ret)
		return ret;
	if (!has_all_granules(s, &index))
		ret = snapshot_fail(error, -EBADMSG, "it has other memory than this job");
	if (!ret)
		ret = hostpool_take(fd, (index.nplaces * SNAPSHOT_CHUNK + HOSTPOOL_BLOCK - 1) /
						HOSTPOOL_BLOCK);
	if (!ret)
		set_slots(s, &index);
	snapshot_index_free(&index);
	return ret ? snapshot_fail(error, ret, "the memory that came with it: %s", error_text(-ret))
		   : 0;
}
