/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"
#include "vmem/objects_internal.h"

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

static void add_region(struct vmem_region *v, const struct region *r, bool continued)
{
	if (!continued)
		*v = (struct vmem_region){
			.start = r->start, .ctx = r->ctx, .dev = r->dev, .mapped = true};
	v->size += r->size;
	v->mapped &= r->mapped;
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

	while ((r = region_next(-1, &pos))) {
		struct device *d = &vm.devices[r->dev];

		pthread_mutex_lock(&d->lock);
		if (!r->idle || !r->left) {
			n += !continues(last, r);
			if (n <= max)
				add_region(&regions[n - 1], r, continues(last, r));
			last = r;
		}
		pthread_mutex_unlock(&d->lock);
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

	while (!found && (r = region_next(-1, &pos))) {
		struct device *d = &vm.devices[r->dev];

		pthread_mutex_lock(&d->lock);
		found = r->left && !r->idle;
		pthread_mutex_unlock(&d->lock);
	}
	return found || objects_have_left();
}

bool vmem_granule_live(CUdeviceptr granule)
{
	const struct region *r = space_find(&vm.space, granule);
	const struct slab *slab = r ? r->slab : NULL;

	if (!space_contains(&vm.space, granule))
		return true;
	if (!slab)
		return r && r->asked;
	return slab_overlaps(slab, granule - r->start, VMEM_GRANULE);
}

static CUresult region_change(CUdeviceptr start, CUresult (*change)(CUdeviceptr, size_t))
{
	const struct region *r, *last = space_find(&vm.space, start);
	CUdeviceptr end;
	struct device *d;
	CUresult rc;

	if (!last || last->start != start)
		return CUDA_ERROR_INVALID_VALUE;
	d = &vm.devices[last->dev];
	pthread_mutex_lock(&d->lock);
	end = start + last->size;
	while ((r = space_find(&vm.space, end)) && continues(last, r)) {
		end += r->size;
		last = r;
	}
	rc = change(start, end - start);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

CUresult vmem_region_unmap(CUdeviceptr start)
{
	if (!space_contains(&vm.space, start))
		return objects_region_unmap(start);
	return region_change(start, regions_unmap);
}

CUresult vmem_region_map(CUdeviceptr start)
{
	if (!space_contains(&vm.space, start))
		return objects_region_map(start);
	return region_change(start, regions_map);
}
