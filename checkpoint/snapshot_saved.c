/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot_saved.h"
#include "checkpoint/claims.h"
#include "checkpoint/gate.h"
#include "checkpoint/hostmem.h"
#include "checkpoint/hostpool.h"
#include "checkpoint/snapshot_dir.h"
#include "checkpoint/snapshot_read.h"
#include "checkpoint/spill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SNAPSHOT_CHUNK == VMEM_GRANULE, "a chunk is a granule");

#define BLOCK_SLOTS (HOSTPOOL_BLOCK / VMEM_GRANULE)

/* Where the slot is in host memory; NULL: in the spill file, at *@offset. */
static char *slot_memory(const struct saved *s, uint32_t slot, uint64_t *offset)
{
	if (slot < s->pool_slots)
		return hostpool_block(slot / BLOCK_SLOTS)->start +
		       slot % BLOCK_SLOTS * VMEM_GRANULE;
	*offset = (slot - s->pool_slots) * VMEM_GRANULE;
	return NULL;
}

/* What the snapshot is to know of a granule: nothing where it holds nothing, or zeros. */
static struct hash128 digest_of(const struct saved *s, size_t granule)
{
	const struct digest *digest = &s->digests[granule];

	if (s->slots[granule] >= SLOT_MAX)
		return (struct hash128){0};
	return (struct hash128){.low = digest->sum, .high = digest->mix};
}

/* The lists of a source, made of @saved. */
struct lists {
	struct snapshot_region *regions;
	struct snapshot_run *runs;
	struct hash128 *digests;
	struct snapshot_source source;
};

static void lists_free(struct lists *lists)
{
	free(lists->regions);
	free(lists->runs);
	free(lists->digests);
}

static int list_source(const struct saved *s, const struct snapshot_writer *w, struct lists *lists)
{
	struct snapshot_source *source = &lists->source;

	lists->regions = calloc(s->nregions + 1, sizeof(*lists->regions));
	lists->runs = calloc(s->ngranules + 1, sizeof(*lists->runs));
	lists->digests = s->digests ? calloc(s->ngranules + 1, sizeof(*lists->digests)) : NULL;
	if (!lists->regions || !lists->runs || (s->digests && !lists->digests))
		return -ENOMEM;
	for (size_t i = 0; i < s->nregions; i++)
		lists->regions[i] = (struct snapshot_region){s->regions[i].start,
							     s->regions[i].size, s->regions[i].dev};
	*source = (struct snapshot_source){.regions = lists->regions,
					   .nregions = s->nregions,
					   .runs = lists->runs,
					   .read = spill_read,
					   .digests = lists->digests};
	for (const struct transfer_piece *p = s->pieces; p < s->pieces + s->npieces; p++)
		for (size_t i = 0; i < p->count; i++) {
			size_t granule = p->first + i;
			struct snapshot_run *run = &lists->runs[source->nruns];

			if (lists->digests)
				lists->digests[granule] = digest_of(s, granule);
			if (s->slots[granule] >= SLOT_MAX)
				continue;
			run->address = p->dev + i * VMEM_GRANULE;
			run->size = VMEM_GRANULE;
			run->host = slot_memory(s, s->slots[granule], &run->offset);
			/* What the GPU says is as it was is not even looked at. */
			source->nruns += !lists->digests ||
					 !snapshot_has(w, run->address, lists->digests[granule]);
		}
	return 0;
}

int snapshot_saved_write(const struct saved *s, const struct snapshot_order *order,
			 struct snapshot_facts *facts, struct snapshot_place *place,
			 struct snapshot_totals *totals, size_t *done, const bool *cancel,
			 struct snapshot_error *error)
{
	struct snapshot_writer *w;
	struct lists lists = {0};
	double start = gate_now_ms();
	int ret = snapshot_begin(order->path, order->incremental, s->used_slots * VMEM_GRANULE, &w,
				 error);

	if (ret)
		return ret;
	if (list_source(s, w, &lists))
		ret = snapshot_fail(error, -ENOMEM, "out of memory");
	if (!ret)
		ret = snapshot_write(w, &lists.source, done, cancel, error);
	if (facts->nphases < MANIFEST_PHASES)
		facts->phases[facts->nphases++] =
			(struct snapshot_phase){"write", gate_now_ms() - start};
	if (!ret)
		ret = snapshot_finish(w, facts, order->image, error);
	if (!ret) {
		*totals = *snapshot_totals(w);
		place->index = snapshot_number(w);
		memcpy(place->id, snapshot_id(w), sizeof(place->id));
	}
	snapshot_end(w);
	lists_free(&lists);
	if (ret)
		return ret;
	snapshot_place_unlock(place);
	memcpy(place->path, order->path, sizeof(place->path));
	return order->image ? 0 : snapshot_place_move(place, order->path, error);
}

int snapshot_place_move(struct snapshot_place *place, const char *path,
			struct snapshot_error *error)
{
	int dir;

	if (strlen(path) >= sizeof(place->path))
		return snapshot_fail(error, -ENAMETOOLONG, "its path is too long");
	dir = snapshot_dir_open(path, error);
	if (dir < 0)
		return dir;
	snapshot_place_unlock(place);
	memmove(place->path, path, strlen(path) + 1);
	place->dir = dir;
	return 0;
}

void snapshot_place_unlock(struct snapshot_place *place)
{
	if (place->dir >= 0)
		snapshot_dir_close(place->dir);
	place->dir = -1;
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
		return snapshot_fail(error, -EBADMSG, "0x%" PRIx64 " is not this job's",
				     chunk->address);
	slot = s->slots[p->first + (chunk->address - p->dev) / VMEM_GRANULE];
	if (slot >= SLOT_MAX)
		return 0;
	if (!data)
		data = zeros;
	to = slot_memory(s, slot, &offset);
	if (!to) {
		ret = spill_write(data, VMEM_GRANULE, offset);
		return ret ? snapshot_fail(error, ret, "the spill file: %s", strerror(-ret)) : 0;
	}
	ret = hostmem_populate(to, VMEM_GRANULE);
	if (ret)
		return snapshot_fail(error, ret, "host memory ran out: %s", strerror(-ret));
	if (!hostpool_block(slot / BLOCK_SLOTS)->present)
		claims_take(VMEM_GRANULE);
	memcpy(to, data, VMEM_GRANULE);
	return 0;
}

int snapshot_saved_fetch(const struct saved *s, const struct snapshot_place *place, size_t *done,
			 const bool *cancel, struct snapshot_error *error)
{
	struct snapshot_read what = {.take = put_chunk, .arg = (void *)s, .done = done};
	struct snapshot_index index;
	int ret;

	what.cancel = cancel;
	what.index = &index;
	what.dir = place->dir >= 0 ? place->dir : snapshot_dir_open(place->path, error);
	if (what.dir < 0)
		return what.dir;
	ret = snapshot_index_load(what.dir, place->index, &index, error);
	if (ret)
		goto out;
	if (memcmp(index.header.id, place->id, sizeof(place->id)))
		ret = snapshot_fail(error, -EBADMSG, "it is not the snapshot that this job is in");
	else if (index.nchunks != s->ngranules)
		ret = snapshot_fail(error, -EBADMSG, "expected %zu chunks, found %zu", s->ngranules,
				    index.nchunks);
	else
		ret = snapshot_read(&what, error);
	snapshot_index_free(&index);
out:
	if (what.dir != place->dir)
		snapshot_dir_close(what.dir);
	return ret;
}
