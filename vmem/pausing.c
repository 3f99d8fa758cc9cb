/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"
#include "common/size.h"
#include "vmem/objects/objects_internal.h"

#include <stdlib.h>

/*
 * Slabs that are neighbours are one region to the pause engine, up to a multiple of SLAB_MAX. This
 * depends on nothing that a pause changes.
 */
static bool continues(const struct region *last, const struct region *r)
{
	return last && last->slab && r->slab && last->start + last->size == r->start &&
	       last->ctx == r->ctx && last->dev == r->dev && r->start % SLAB_MAX;
}

/* The size of the piece of @r that begins at @offset: a mapping of its own. */
static size_t piece_size(const struct region *r, size_t offset)
{
	size_t piece = vm.devices[r->dev].caps.piece, left = r->size - offset;

	return size_min(left, piece);
}

/* Add the pieces of @r to the @n regions, of which there is room for @max. Returns their number. */
static size_t add_pieces(struct vmem_region *regions, size_t n, size_t max, const struct region *r)
{
	size_t size;

	for (size_t at = 0; at < r->size; at += size, n++) {
		size = piece_size(r, at);
		if (n < max)
			regions[n] = (struct vmem_region){.start = r->start + at,
							  .size = size,
							  .ctx = r->ctx,
							  .dev = r->dev,
							  .mapped = r->mapped >= at + size};
	}
	return n;
}

static int compare_starts(const void *a, const void *b)
{
	const struct vmem_region *x = a, *y = b;

	return x->start < y->start ? -1 : 1;
}

/* Those of vmem's own addresses. */
static size_t own_regions(struct vmem_region *regions, size_t max)
{
	const struct region *r, *last = NULL;
	CUdeviceptr pos = VMEM_BASE;
	size_t n = 0;

	while ((r = region_next_locked(&pos))) {
		if (!r->idle || !r->left) {
			if (!continues(last, r)) {
				n = add_pieces(regions, n, max, r);
			} else if (n <= max) {
				regions[n - 1].size += r->size;
				regions[n - 1].mapped &= region_is_mapped(r);
			}
			last = r;
		}
		region_unlock(r);
	}
	return n;
}

size_t vmem_regions(struct vmem_region *regions, size_t max)
{
	size_t n = own_regions(regions, max);
	size_t added = objects_regions(regions + n, n < max ? max - n : 0);

	if (added && n + added <= max)
		qsort(regions, n + added, sizeof(*regions), compare_starts);
	return n + added;
}

bool vmem_has_left(void)
{
	CUdeviceptr pos = VMEM_BASE;
	const struct region *r;
	bool found = false;

	while (!found && (r = region_next_locked(&pos))) {
		found = r->left && !r->idle;
		region_unlock(r);
	}
	return found || objects_have_left();
}

bool vmem_granule_live(CUdeviceptr granule)
{
	const struct region *r = space_find(&vm.space, granule);
	const struct slab *slab = r ? REGION_READ(r, slab) : NULL;

	if (!space_contains(&vm.space, granule))
		return true;
	if (!slab)
		return r && REGION_READ(r, asked);
	return slab_overlaps(slab, granule - REGION_READ(r, start), VMEM_GRANULE);
}

/* The slabs that are one region from @start on. */
static CUresult slabs_change(struct region *first, CUresult (*change)(CUdeviceptr, size_t))
{
	const struct region *r, *last = first;
	CUdeviceptr end = first->start + first->size;

	while ((r = space_find(&vm.space, end)) && continues(last, r)) {
		end += r->size;
		last = r;
	}
	return change(first->start, end - first->start);
}

static CUresult unmap_at(struct region *r, size_t offset)
{
	if (!offset && r->slab)
		return slabs_change(r, regions_unmap);
	if (r->mapped > offset + piece_size(r, offset))
		return CUDA_ERROR_INVALID_VALUE;
	return region_shrink(r, offset);
}

static CUresult map_at(struct region *r, size_t offset)
{
	size_t size = piece_size(r, offset);

	/* Slabs are mapped in runs, and an idle region returns to the cache. */
	if (!offset && size == r->size)
		return slabs_change(r, regions_map);
	return r->mapped < offset ? CUDA_ERROR_INVALID_VALUE : region_extend(r, offset + size);
}

static CUresult region_change(CUdeviceptr start, CUresult (*change)(struct region *, size_t))
{
	struct region *r = space_find(&vm.space, start);
	struct device *d;
	size_t offset;
	CUresult rc = CUDA_ERROR_INVALID_VALUE;

	if (!r)
		return rc;
	d = &vm.devices[r->dev];
	pthread_mutex_lock(&d->lock);
	offset = start - r->start;
	if (!offset || (!r->slab && offset % d->caps.piece == 0))
		rc = change(r, offset);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

CUresult vmem_region_unmap(CUdeviceptr start)
{
	if (!space_contains(&vm.space, start))
		return objects_region_unmap(start);
	return region_change(start, unmap_at);
}

CUresult vmem_region_map(CUdeviceptr start)
{
	if (!space_contains(&vm.space, start))
		return objects_region_map(start);
	return region_change(start, map_at);
}
