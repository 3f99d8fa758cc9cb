/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"

#include <stdlib.h>
#include <utlist.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

void region_set_mapped(struct region *r, bool mapped)
{
	struct vmem_stats *st = &vm.devices[r->dev].stats;
	size_t delta = mapped ? r->size : -r->size;

	if (r->mapped == mapped)
		return;
	r->mapped = mapped;
	st->mapped += delta;
	if (r->idle)
		st->cached += delta;
}

void region_set_idle(struct region *r, bool idle)
{
	if (r->idle == idle)
		return;
	r->idle = idle;
	mapping_use_changes(r->start, r->size);
	if (r->mapped)
		vm.devices[r->dev].stats.cached += idle ? r->size : -r->size;
}

static struct region *region_get(void)
{
	const size_t batch = 64;
	struct region *r = vm.regions;

	if (!r) {
		r = calloc(batch, sizeof(*r));
		for (size_t i = 0; r && i < batch; i++)
			LL_PREPEND(vm.regions, &r[i]);
		r = vm.regions;
	}
	if (r)
		LL_DELETE(vm.regions, r);
	return r;
}

void cache_add(struct region *r)
{
	struct device *d = &vm.devices[r->dev];

	DL_APPEND(d->cache, r);
	d->cache_size += r->size;
	r->cached = true;
}

void cache_remove(struct region *r)
{
	struct device *d = &vm.devices[r->dev];

	DL_DELETE(d->cache, r);
	d->cache_size -= r->size;
	r->cached = false;
}

CUresult device_probe(CUdevice dev)
{
	struct device *d = &vm.devices[dev];
	CUresult rc;

	if (d->probed)
		return CUDA_SUCCESS;
	rc = mapping_probe(vm.drv, dev, &d->caps);
	d->probed = rc == CUDA_SUCCESS;
	return rc;
}

/* Unmap the rest of a failed region_map(). */
static CUresult unmap_left(struct region *r)
{
	CUresult rc = CUDA_SUCCESS;

	if (r->left)
		rc = mapping_unmap(vm.drv, r->start, r->left);
	if (rc == CUDA_SUCCESS)
		r->left = 0;
	return rc;
}

CUresult region_map(struct region *r)
{
	const struct device *d = &vm.devices[r->dev];
	CUresult rc = unmap_left(r);

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = mapping_map(vm.drv, r->dev, &d->caps, d->users | 1UL << r->dev, r->start, r->size,
			 &r->left);
	if (rc == CUDA_SUCCESS)
		region_set_mapped(r, true);
	return rc;
}

CUresult region_unmap(struct region *r)
{
	CUresult rc;

	if (!r->mapped)
		return unmap_left(r);
	rc = mapping_unmap(vm.drv, r->start, r->size);
	if (rc == CUDA_SUCCESS)
		region_set_mapped(r, false);
	return rc;
}

CUresult region_release(struct region *r)
{
	CUresult rc = region_unmap(r);

	if (rc != CUDA_SUCCESS) {
		pr_debug("cannot unmap %zu bytes at %#llx: driver error %d", r->size,
			 (unsigned long long)r->start, rc);
		return rc;
	}
	if (r->cached)
		cache_remove(r);
	if (r->slab) {
		struct slab *slab = r->slab;

		r->slab = NULL;
		r->heap->size -= r->size;
		if (r->heap->spare == r)
			r->heap->spare = NULL;
		suballoc_remove(&r->heap->sa, slab);
	}
	space_free(&vm.space, r->start, r->size + vm.gap);
	LL_PREPEND(vm.regions, r);
	return CUDA_SUCCESS;
}

CUresult region_new(CUcontext ctx, CUdevice dev, size_t size, struct region **region)
{
	struct region *r = region_get();
	CUdeviceptr start;
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;

	if (!r)
		return rc;
	if (size > SPACE_SIZE)
		goto err_put;
	rc = space_alloc(&vm.space, vm.drv, size + vm.gap, r, &start);
	if (rc != CUDA_SUCCESS)
		goto err_put;
	r->start = start;
	r->size = size;
	r->ctx = ctx;
	r->dev = dev;
	r->idle = false;
	r->left = 0;
	rc = region_map(r);
	if (r->left) {
		/* The addresses are taken until regions_trim() has undone it. */
		region_set_idle(r, true);
		return rc;
	}
	if (rc != CUDA_SUCCESS)
		goto err_free;
	*region = r;
	return CUDA_SUCCESS;

err_free:
	space_free(&vm.space, start, size + vm.gap);
err_put:
	LL_PREPEND(vm.regions, r);
	return rc;
}

struct region *region_next(CUdeviceptr *pos)
{
	struct region *r = space_next(&vm.space, *pos);

	if (r)
		*pos = r->start + r->size + vm.gap;
	return r;
}

size_t regions_trim(CUdevice dev)
{
	CUdeviceptr pos = VMEM_BASE;
	size_t released = 0;
	struct region *r;

	while ((r = region_next(&pos))) {
		size_t size = r->size;

		if (r->idle && (dev < 0 || r->dev == dev) && region_release(r) == CUDA_SUCCESS)
			released += size;
	}
	return released;
}

CUresult region_new_or_trim(CUcontext ctx, CUdevice dev, size_t size, struct region **region)
{
	CUresult rc = region_new(ctx, dev, size, region);

	if (rc == CUDA_ERROR_OUT_OF_MEMORY && regions_trim(dev))
		rc = region_new(ctx, dev, size, region);
	return rc;
}

struct region *cache_find(CUcontext ctx, CUdevice dev, size_t size)
{
	struct region *r;

	DL_FOREACH(vm.devices[dev].cache, r)
	if (r->size == size && r->ctx == ctx)
		return r;
	return NULL;
}

void device_forget(CUdevice dev, size_t n, size_t size)
{
	vm.devices[dev].stats.nalloc -= n;
	vm.devices[dev].stats.carried -= size;
}
