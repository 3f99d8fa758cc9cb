/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"

size_t vmem_regions(struct vmem_region *regions, size_t max)
{
	CUdeviceptr pos = VMEM_BASE;
	const struct region *r;
	size_t n = 0;

	pthread_mutex_lock(&vm.lock);
	while ((r = region_next(&pos))) {
		if (r->idle && r->left)
			continue;
		if (n < max)
			regions[n] = (struct vmem_region){
				.start = r->start,
				.size = r->size,
				.ctx = r->ctx,
				.dev = r->dev,
				.mapped = r->mapped,
			};
		n++;
	}
	pthread_mutex_unlock(&vm.lock);
	return n;
}

bool vmem_has_left(void)
{
	CUdeviceptr pos = VMEM_BASE;
	const struct region *r;
	bool found = false;

	pthread_mutex_lock(&vm.lock);
	while (!found && (r = region_next(&pos)))
		found = r->left && !r->idle;
	pthread_mutex_unlock(&vm.lock);
	return found;
}

bool vmem_granule_live(CUdeviceptr granule)
{
	const struct region *r = space_find(&vm.space, granule);
	const struct slab *slab = r ? r->slab : NULL;

	if (!slab)
		return r && r->asked;
	return slab_overlaps(slab, granule - r->start, VMEM_GRANULE);
}

static CUresult region_change(CUdeviceptr start, bool mapped)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct region *r;

	pthread_mutex_lock(&vm.lock);
	r = space_find(&vm.space, start);
	if (r && r->start == start) {
		if (!mapped)
			rc = region_unmap(r);
		else
			rc = r->mapped ? CUDA_SUCCESS : region_map(r);
	}
	pthread_mutex_unlock(&vm.lock);
	return rc;
}

CUresult vmem_region_unmap(CUdeviceptr start)
{
	return region_change(start, false);
}

CUresult vmem_region_map(CUdeviceptr start)
{
	return region_change(start, true);
}
