/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/saved.h"
#include "checkpoint/host/claims.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/host/spill.h"
#include "common/system/hostmem.h"
#include "common/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * A region's place in the stack: it ends at this part of its GPU's memory. So what goes out with a part of the stack is
 * that part of each GPU, and at most one more region of each.
 */
struct place {
	double part;
	size_t region;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return x->region < y->region ? -1 : 1;
}

/* Put @regions, in address order, into the order of the stack. */
static void order_regions(struct saved *s, const struct vmem_region *regions, struct place *places)
{
	double all[GPU_MAX] = {0}, to[GPU_MAX] = {0};

	for (size_t i = 0; i < s->nregions; i++)
		all[regions[i].dev] += (double)regions[i].size;
	for (size_t i = 0; i < s->nregions; i++) {
		CUdevice dev = regions[i].dev;

		to[dev] += (double)regions[i].size;
		places[i] = (struct place){to[dev] / all[dev], i};
	}
	qsort(places, s->nregions, sizeof(*places), compare_places);
	for (size_t i = 0; i < s->nregions; i++) {
		s->regions[i] = regions[places[i].region];
		s->by_address[places[i].region] = i;
	}
	for (size_t i = 0; i < s->nregions; i++) {
		s->first_granule[s->by_address[i]] = s->ngranules;
		s->ngranules += regions[i].size / VMEM_GRANULE;
	}
}

static int get_regions(struct saved *s)
{
	size_t n = vmem_regions(NULL, 0);
	struct vmem_region *regions = calloc(n + 1, sizeof(*regions));
	struct place *places = calloc(n + 1, sizeof(*places));
	int ret = -ENOMEM;

	s->nregions = s->in = s->copied = n;
	s->regions = calloc(n + 1, sizeof(*s->regions));
	s->by_address = calloc(n + 1, sizeof(*s->by_address));
	s->first_granule = calloc(n + 1, sizeof(*s->first_granule));
	if (regions && places && s->regions && s->by_address && s->first_granule) {
		vmem_regions(regions, n);
		order_regions(s, regions, places);
		ret = 0;
	}
	free(regions);
	free(places);
	return ret;
}

static size_t end_granule(const struct saved *s, size_t region)
{
	return s->first_granule[region] + s->regions[region].size / VMEM_GRANULE;
}

/* A piece lies in one region. Small jobs get small pieces, so that all workers have some. */
static int cut_pieces(struct saved *s)
{
	size_t limit = s->ngranules / (2 * TRANSFER_WORKERS) + 1, size;

	limit = size_min(limit, TRANSFER_PIECE / VMEM_GRANULE);
	s->pieces = calloc(s->ngranules / limit + s->nregions + 1, sizeof(*s->pieces));
	s->first_piece = calloc(s->nregions + 1, sizeof(*s->first_piece));
	s->left = calloc(s->nregions + 1, sizeof(*s->left));
	if (!s->pieces || !s->first_piece || !s->left)
		return -ENOMEM;
	for (size_t i = 0; i < s->nregions; i++) {
		const struct vmem_region *r = &s->regions[i];
		size_t left = r->size / VMEM_GRANULE, first = s->first_granule[i];

		s->first_piece[i] = s->npieces;
		for (CUdeviceptr dev = r->start; left; left -= size, dev += size * VMEM_GRANULE) {
			size = size_min(left, limit);
			s->pieces[s->npieces++] = (struct transfer_piece){.ctx = r->ctx,
									  .gpu = r->dev,
									  .dev = dev,
									  .first = first,
									  .count = size};
			first += size;
		}
	}
	s->first_piece[s->nregions] = s->npieces;
	return 0;
}

static int find_live(struct saved *s)
{
	s->slots = calloc(s->ngranules + 1, sizeof(*s->slots));
	if (!s->slots)
		return -ENOMEM;
	for (size_t i = 0; i < s->nregions; i++) {
		const struct vmem_region *r = &s->regions[i];
		size_t granule = s->first_granule[i];

		for (size_t at = 0; at < r->size; at += VMEM_GRANULE, granule++) {
			bool live = vmem_granule_live(r->start + at);

			s->slots[granule] = live ? 0 : SLOT_NONE;
			s->nlive += live;
		}
	}
	return 0;
}

int saved_list(struct saved *s)
{
	int error = get_regions(s);

	if (!error)
		error = cut_pieces(s);
	return error ? error : find_live(s);
}

bool saved_is_listed(const struct saved *s)
{
	return s->slots;
}

void saved_forget(struct saved *s)
{
	free(s->regions);
	free(s->by_address);
	free(s->first_granule);
	free(s->pieces);
	free(s->first_piece);
	free(s->left);
	free(s->slots);
	free(s->digests);
	free(s->kernels);
	contexts_free(&s->contexts);
	memset(s, 0, sizeof(*s));
}

CUresult saved_load_kernels(struct saved *s, const struct cuda_driver *drv)
{
	CUresult error = CUDA_SUCCESS;
	bool fresh = !s->digests;
	size_t loaded = 0;

	if (fresh)
		s->digests = calloc(s->ngranules + 1, sizeof(*s->digests));
	s->kernels = calloc(s->contexts.count + 1, sizeof(*s->kernels));
	if (!s->digests || !s->kernels)
		error = CUDA_ERROR_OUT_OF_MEMORY;
	while (loaded < s->contexts.count && !error) {
		error = drv->cuCtxSetCurrent(s->contexts.items[loaded].ctx);
		if (!error)
			error = digest_load(drv, s->contexts.items[loaded].ctx,
					    &s->kernels[loaded]);
		loaded += !error;
	}
	drv->cuCtxSetCurrent(NULL);
	if (error) {
		saved_unload_kernels(s, drv);
		/* No digests were taken. Those of the pause stay for the next attempt. */
		if (fresh)
			saved_drop_digests(s);
	}
	return error;
}

void saved_unload_kernels(struct saved *s, const struct cuda_driver *drv)
{
	for (size_t i = 0; s->kernels && i < s->contexts.count && s->kernels[i].ctx; i++)
		if (!drv->cuCtxSetCurrent(s->kernels[i].ctx))
			digest_unload(drv, &s->kernels[i]);
	drv->cuCtxSetCurrent(NULL);
	free(s->kernels);
	s->kernels = NULL;
}

void saved_drop_digests(struct saved *s)
{
	free(s->digests);
	s->digests = NULL;
}

static size_t used_spill(const struct saved *s)
{
	return s->used_slots > s->pool_slots ? s->used_slots - s->pool_slots : 0;
}

size_t saved_room(const struct saved *s, size_t slots, size_t apart, size_t *pool_slots,
		  size_t *spill_slots)
{
	size_t needed = HOSTMEM_RESERVE + apart, wanted = slots * VMEM_GRANULE;
	size_t held = saved_blocks(s) * HOSTPOOL_BLOCK + hostpool_held(saved_blocks(s));
	size_t fresh = wanted > held ? wanted - held : 0;
	size_t available = claims_make(fresh + apart, HOSTMEM_RESERVE);

	*spill_slots = spill_space() / VMEM_GRANULE + used_spill(s);
	if (available < needed) {
		/* Giving back memory of the pool would help, but is not worth the code. */
		*pool_slots = held / VMEM_GRANULE;
	} else {
		available -= needed;
		*pool_slots =
			available > SIZE_MAX - held ? SLOT_MAX : (available + held) / VMEM_GRANULE;
		apart = 0;
	}
	/* What follows slots in the spill file is there, too. */
	if (used_spill(s))
		*pool_slots = s->pool_slots;
	return apart ? needed - available : 0;
}

int saved_place(struct saved *s, size_t slots, size_t pool_slots, bool surely)
{
	size_t block = HOSTPOOL_BLOCK / VMEM_GRANULE;

	s->pool_slots = size_min(slots, pool_slots);
	if (slots > s->pool_slots) {
		int error = spill_open((slots - s->pool_slots) * VMEM_GRANULE, surely);

		if (error)
			return error;
	}
	return hostpool_grow((s->pool_slots + block - 1) / block);
}

struct transfer saved_transfer(struct saved *s, const struct cuda_driver *drv,
			       enum transfer_direction direction, size_t from, size_t to,
			       size_t *done)
{
	for (size_t i = from; i < to; i++)
		s->left[i] = s->first_piece[i + 1] - s->first_piece[i];
	return (struct transfer){
		.drv = drv,
		.direction = direction,
		.pieces = s->pieces + s->first_piece[from],
		.count = s->first_piece[to] - s->first_piece[from],
		.bytes = saved_region_bytes(s, from, to),
		.slots = s->slots,
		.pool_slots = s->pool_slots,
		.digests = s->kernels ? s->digests : NULL,
		.kernels = s->kernels,
		.done = done,
		.next_slot = s->used_slots,
	};
}

/* The slots up to the last one of the regions from @from to @to, exclusive; at least @used. */
static size_t used_slots(const struct saved *s, size_t from, size_t to, size_t used)
{
	for (; from < to; from++)
		for (size_t i = s->first_granule[from]; i < end_granule(s, from); i++)
			if (s->slots[i] < SLOT_MAX && s->slots[i] >= used)
				used = s->slots[i] + 1;
	return used;
}

/* A transfer that failed has given slots to other regions, too: these are free again. */
void saved_settle(struct saved *s, size_t copied)
{
	s->used_slots = used_slots(s, copied, s->copied, s->used_slots);
	s->copied = copied;
}

size_t saved_region_bytes(const struct saved *s, size_t from, size_t to)
{
	size_t bytes = 0;

	for (; from < to; from++)
		bytes += s->regions[from].size;
	return bytes;
}

size_t saved_mapped_bytes(const struct saved *s)
{
	size_t bytes = 0;

	for (size_t i = 0; i < s->nregions; i++)
		bytes += s->regions[i].mapped ? s->regions[i].size : 0;
	return bytes;
}

size_t saved_granule_at(const struct saved *s, CUdeviceptr address)
{
	size_t low = 0, high = s->nregions;
	const struct vmem_region *r;

	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (s->regions[s->by_address[mid]].start <= address)
			low = mid;
		else
			high = mid;
	}
	r = &s->regions[s->by_address[low]];
	if (address < r->start || address - r->start >= r->size)
		return SIZE_MAX;
	return s->first_granule[s->by_address[low]] + (address - r->start) / VMEM_GRANULE;
}

size_t saved_region_of(const struct saved *s, size_t from, size_t piece)
{
	size_t low = from, high = s->nregions;

	piece += s->first_piece[from];
	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (s->first_piece[mid] <= piece)
			low = mid;
		else
			high = mid;
	}
	return low;
}

bool saved_piece_arrived(struct saved *s, size_t from, size_t piece)
{
	size_t region = saved_region_of(s, from, piece);

	return !__atomic_sub_fetch(&s->left[region], 1, __ATOMIC_ACQ_REL);
}

bool saved_has_arrived(const struct saved *s, size_t region)
{
	return !__atomic_load_n(&s->left[region], __ATOMIC_ACQUIRE);
}

bool saved_is_copied(const struct saved *s, size_t region)
{
	return region >= s->copied || saved_has_arrived(s, region);
}

static size_t lowest_slot(const struct saved *s, size_t region)
{
	uint32_t lowest = SLOT_MAX;

	for (size_t i = s->first_granule[region]; i < end_granule(s, region); i++)
		lowest = s->slots[i] < lowest ? s->slots[i] : lowest;
	return lowest;
}

bool saved_let_go_begin(struct saved *s)
{
	if (used_spill(s))
		return false;
	s->used_from = calloc(s->nregions + 1, sizeof(*s->used_from));
	if (!s->used_from)
		return false;
	for (size_t i = s->nregions; i-- > s->copied;)
		s->used_from[i] = used_slots(s, i, i + 1, s->used_from[i + 1]);
	s->kept = s->back = s->copied;
	s->lowest = SLOT_MAX;
	saved_let_go(s);
	return true;
}

static bool is_back(const struct saved *s, size_t region)
{
	return region < s->in || saved_has_arrived(s, region);
}

static size_t blocks_of(size_t slots)
{
	return (slots * VMEM_GRANULE + HOSTPOOL_BLOCK - 1) / HOSTPOOL_BLOCK;
}

void saved_let_go(struct saved *s)
{
	while (s->back + 1 < s->nregions && is_back(s, s->back)) {
		s->lowest = size_min(s->lowest, lowest_slot(s, s->back++));
		/* Some of those that are still out are above it, or beside it. */
		if (s->lowest < s->used_from[s->back])
			continue;
		for (size_t i = blocks_of(s->used_from[s->kept]);
		     i-- > blocks_of(s->used_from[s->back]);)
			hostpool_empty(i);
		s->kept = s->back;
	}
}

void saved_let_go_end(struct saved *s)
{
	saved_let_go(s);
	s->copied = s->kept;
	s->used_slots = s->used_from[s->kept];
	free(s->used_from);
	s->used_from = NULL;
}

size_t saved_live(const struct saved *s, size_t from, size_t to)
{
	size_t live = 0;

	for (; from < to; from++)
		for (size_t i = s->first_granule[from]; i < end_granule(s, from); i++)
			live += s->slots[i] != SLOT_NONE;
	return live;
}

char *saved_slot(const struct saved *s, uint32_t slot, uint64_t *offset)
{
	size_t at = slot * VMEM_GRANULE;

	if (slot < s->pool_slots)
		return hostpool_block(at / HOSTPOOL_BLOCK)->start + at % HOSTPOOL_BLOCK;
	*offset = at - s->pool_slots * VMEM_GRANULE;
	return NULL;
}

size_t saved_bytes(const struct saved *s)
{
	return s->nlive * VMEM_GRANULE;
}

size_t saved_host_bytes(const struct saved *s)
{
	return size_min(s->used_slots, s->pool_slots) * VMEM_GRANULE;
}

size_t saved_spilled_bytes(const struct saved *s)
{
	return s->used_slots * VMEM_GRANULE - saved_host_bytes(s);
}

size_t saved_blocks(const struct saved *s)
{
	return blocks_of(size_min(s->used_slots, s->pool_slots));
}
