/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"
#include "common/protocol/quota.h"
#include "common/reused.h"

#include <stdlib.h>
#include <utlist.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

#define RUNS 1024 /* of slabs that a resume maps, at least, before the runs become longer */

/* Part of a run of slabs that were mapped at once, and so go back at once. */
static bool is_joined(const struct region *r)
{
	return r->run_size > r->size;
}

bool region_is_mapped(const struct region *r)
{
	return r->mapped == r->size;
}

/* What vmem_trim() would give back with @r. */
static size_t spare_bytes(const struct region *r)
{
	return r->idle && !is_joined(r) ? r->mapped : 0;
}

static void set_mapped(struct region *r, size_t mapped, CUdeviceptr run, size_t run_size)
{
	struct vmem_stats *st = &vm.devices[r->dev].stats;

	if (mapped < r->mapped)
		vmem_note_given_back();
	st->cached -= spare_bytes(r);
	st->mapped += mapped - r->mapped;
	r->mapped = mapped;
	r->run = run;
	r->run_size = run_size;
	st->cached += spare_bytes(r);
}

/*
 * @r is in no mapping with others any more. A run that is shared stays one: other processes have
 * mapped it as a whole, and map it so again.
 */
static void set_alone(struct region *r, size_t mapped)
{
	set_mapped(r, mapped, r->shared ? r->run : r->start, r->shared ? r->run_size : r->size);
}

void region_set_idle(struct region *r, bool idle)
{
	struct vmem_stats *st = &vm.devices[r->dev].stats;

	if (r->idle == idle)
		return;
	st->cached -= spare_bytes(r);
	r->idle = idle;
	st->cached += spare_bytes(r);
	mapping_use_changes(r->start, r->size);
}

static struct region *region_at(CUdeviceptr at)
{
	return space_find(&vm.space, at);
}

/* The run of @r has no live allocation. */
static bool run_is_idle(const struct region *r)
{
	CUdeviceptr end = r->run + r->run_size;

	for (CUdeviceptr at = r->run; at < end; at += r->size)
		if (!region_at(at)->idle)
			return false;
	return true;
}

static void cache_add(struct region *r)
{
	struct device *d = &vm.devices[r->dev];

	DL_APPEND(d->cache, r);
	d->cache_size += r->size;
	r->cached = true;
}

static void cache_remove(struct region *r)
{
	struct device *d = &vm.devices[r->dev];

	DL_DELETE(d->cache, r);
	d->cache_size -= r->size;
	r->cached = false;
}

static struct region *cache_find(CUcontext ctx, CUdevice dev, size_t size)
{
	struct region *r;

	DL_FOREACH(vm.devices[dev].cache, r)
		if (r->size == size && r->ctx == ctx)
			return r;
	return NULL;
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

/* Unmap the rest of a failed map. */
static CUresult unmap_left(struct region *r)
{
	struct mapping_caps *caps = &vm.devices[r->dev].caps;
	CUdeviceptr start = r->run, end = r->run + r->run_size;
	CUresult rc;

	if (!r->left)
		return CUDA_SUCCESS;
	rc = mapping_unmap(vm.drv, caps, start + r->mapped, r->left);
	for (CUdeviceptr at = start; at < end && rc == CUDA_SUCCESS; at += r->size) {
		struct region *each = region_at(at);

		each->left = 0;
		set_alone(each, each->mapped);
	}
	return rc;
}

CUresult regions_unmap(CUdeviceptr start, size_t size)
{
	struct mapping_caps *caps = &vm.devices[region_at(start)->dev].caps;
	CUdeviceptr at = start, end = start + size;
	CUresult rc = CUDA_SUCCESS;

	while (at < end && rc == CUDA_SUCCESS) {
		struct region *r = region_at(at);
		CUdeviceptr first = at;

		/* All mappings that follow each other, by one call. */
		for (; at < end && region_is_mapped(region_at(at)); at += region_at(at)->size)
			;
		if (at == first) {
			at += r->size;
			rc = region_shrink(r, 0);
			continue;
		}
		rc = mapping_unmap(vm.drv, caps, first, at - first);
		while (first < at && rc == CUDA_SUCCESS) {
			r = region_at(first);
			first += r->size;
			set_alone(r, 0);
		}
	}
	return rc;
}

CUresult region_shrink(struct region *r, size_t keep)
{
	CUresult rc = unmap_left(r);

	if (rc != CUDA_SUCCESS || r->mapped <= keep)
		return rc;
	rc = mapping_unmap(vm.drv, &vm.devices[r->dev].caps, r->start + keep, r->mapped - keep);
	if (rc == CUDA_SUCCESS)
		set_mapped(r, keep, r->start, r->size);
	return rc;
}

CUresult region_extend(struct region *r, size_t size)
{
	struct device *d = &vm.devices[r->dev];
	CUresult rc = unmap_left(r);

	if (rc != CUDA_SUCCESS || r->mapped >= size)
		return rc;
	rc = mapping_map(vm.drv, r->dev, &d->caps, d->users | 1UL << r->dev, r->start + r->mapped,
			 size - r->mapped, &r->left);
	if (rc == CUDA_SUCCESS)
		set_mapped(r, size, r->start, r->size);
	return rc;
}

/* Map the regions in [@start, @start + @size) as one run, none of which is mapped. */
static CUresult map_run(CUdeviceptr start, size_t size)
{
	struct region *r = region_at(start);
	struct device *d = &vm.devices[r->dev];
	size_t left;
	CUresult rc =
		mapping_map(vm.drv, r->dev, &d->caps, d->users | 1UL << r->dev, start, size, &left);

	if (rc != CUDA_SUCCESS && !left)
		return rc;
	for (CUdeviceptr at = start; at < start + size; at += r->size) {
		r = region_at(at);
		r->left = left;
		set_mapped(r, rc == CUDA_SUCCESS ? r->size : 0, start, size);
	}
	return rc;
}

/*
 * How much is mapped at once. A mapping of 2 MiB takes 33 us, and one of 32 MiB no more [H200], but
 * it goes back only as a whole. So there are RUNS mappings, which take 34 ms, before they become larger.
 */
static size_t run_bytes(const struct device *d)
{
	size_t size = SLAB_MIN;

	while (size < SLAB_MAX && size * RUNS < d->slabs)
		size *= 2;
	return size;
}

/* A slab that a resume may map together with its neighbours. */
static bool can_join(const struct region *r)
{
	return r && r->slab && !r->mapped && !r->idle && !r->shared;
}

CUresult regions_map(CUdeviceptr start, size_t size)
{
	CUdeviceptr end = start + size, next;
	size_t most = run_bytes(&vm.devices[region_at(start)->dev]);
	CUresult rc = CUDA_SUCCESS;

	for (CUdeviceptr at = start; at < end && rc == CUDA_SUCCESS; at += region_at(at)->size)
		rc = unmap_left(region_at(at));
	for (CUdeviceptr at = start; at < end && rc == CUDA_SUCCESS; at = next) {
		struct region *r = region_at(at);

		next = r->shared ? r->run + r->run_size : at + r->size;
		if (region_is_mapped(r))
			continue;
		while (can_join(r) && next < end && next - at < most && can_join(region_at(next)))
			next += r->size;
		rc = map_run(at, next - at);
		if (rc == CUDA_SUCCESS && r->idle && !r->cached && !r->shared)
			cache_add(r);
	}
	if (rc != CUDA_SUCCESS)
		regions_unmap(start, size);
	return rc;
}

void region_drop_slab(struct region *r)
{
	struct slab *slab = r->slab;

	if (!slab)
		return;
	REGION_WRITE(r, slab, NULL);
	r->heap->size -= r->size;
	vm.devices[r->dev].slabs -= r->size;
	suballoc_remove(&r->heap->sa, slab);
}

/* Objects are never returned to the system; the list keeps them in sight of leak checkers. */
struct batch {
	struct batch *next;
	struct region regions[64];
};
static struct batch *batches; /* under vm.lock */

static void add_batch(void)
{
	struct batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return;
	LL_PREPEND(batches, batch);
	for (size_t i = 0; i < sizeof(batch->regions) / sizeof(*batch->regions); i++)
		LL_PREPEND(vm.regions, &batch->regions[i]);
}

/* An object with @size bytes of addresses and of the quota, not mapped. */
static CUresult region_take(CUcontext ctx, CUdevice dev, size_t size, struct region **region)
{
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
	CUdeviceptr start;
	struct region *r;

	if (!quota_take(dev, size))
		return rc;
	pthread_mutex_lock(&vm.lock);
	if (!vm.regions)
		add_batch();
	r = vm.regions;
	if (r && size <= SPACE_SIZE)
		rc = space_alloc(&vm.space, vm.drv, size + vm.gap, r, &start);
	if (rc == CUDA_SUCCESS) {
		LL_DELETE(vm.regions, r);
		reused_begins(&r->size, &r->next);
		REGION_WRITE(r, start, start);
		r->size = size;
		r->run = start;
		r->run_size = size;
		REGION_WRITE(r, ctx, ctx);
		REGION_WRITE(r, dev, dev);
		*region = r;
	}
	pthread_mutex_unlock(&vm.lock);
	if (rc != CUDA_SUCCESS)
		quota_give(dev, size);
	return rc;
}

/* Forget @r, which is unmapped. */
static void forget(struct region *r)
{
	quota_give(r->dev, r->size);
	if (r->cached)
		cache_remove(r);
	region_drop_slab(r);
	pthread_mutex_lock(&vm.lock);
	space_free(&vm.space, r->start, r->size + vm.gap);
	reused_rests(&r->size, &r->next);
	LL_PREPEND(vm.regions, r);
	pthread_mutex_unlock(&vm.lock);
}

CUresult region_release(struct region *r)
{
	CUdeviceptr start = r->run, end = r->run + r->run_size;
	size_t size = r->size;
	CUresult rc;

	if (!run_is_idle(r))
		return CUDA_ERROR_NOT_PERMITTED;
	rc = regions_unmap(start, end - start);
	if (rc != CUDA_SUCCESS) {
		pr_debug("cannot unmap %llu bytes at %#llx: driver error %d", end - start, start,
			 rc);
		return rc;
	}
	for (CUdeviceptr at = start; at < end; at += size)
		forget(region_at(at));
	return CUDA_SUCCESS;
}

void region_context_gone(struct region *r)
{
	if (r->mapped && mapping_is_gone(r->start, r->size))
		set_mapped(r, 0, r->start, r->size);
}

void region_use(struct region *r)
{
	if (r->cached)
		cache_remove(r);
	region_set_idle(r, false);
}

void region_put(struct region *r)
{
	struct device *d = &vm.devices[r->dev];

	region_set_idle(r, true);
	/*
	 * The memory of a run serves nothing but small allocations: it goes back as soon as it can.
	 * Memory that others have serves no other allocation: they go on to use it.
	 */
	if (is_joined(r) || !r->mapped || r->shared || r->outside) {
		region_release(r);
		return;
	}
	cache_add(r);
	while (d->cache_size > VMEM_CACHE)
		if (region_release(d->cache) != CUDA_SUCCESS)
			break;
}

CUresult region_new(CUcontext ctx, CUdevice dev, size_t size, struct region **region)
{
	struct region *r;
	CUresult rc = region_take(ctx, dev, size, &r);

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = map_run(r->start, size);
	if (rc == CUDA_SUCCESS)
		*region = r;
	else if (r->left) /* the addresses are taken until regions_trim() has undone it */
		region_set_idle(r, true);
	else
		forget(r);
	return rc;
}

CUresult region_get(CUcontext ctx, CUdevice dev, size_t size, struct region **region)
{
	struct region *r = cache_find(ctx, dev, size);
	CUresult rc;

	if (r) {
		region_drop_slab(r);
		region_use(r);
		*region = r;
		return CUDA_SUCCESS;
	}
	rc = region_new(ctx, dev, size, region);
	if (rc == CUDA_ERROR_OUT_OF_MEMORY && regions_trim(dev))
		rc = region_new(ctx, dev, size, region);
	return rc;
}

struct region *region_next(CUdevice dev, CUdeviceptr *pos)
{
	struct region *r;

	pthread_mutex_lock(&vm.lock);
	do {
		r = space_next(&vm.space, *pos);
		if (r)
			*pos = r->start + r->size + vm.gap;
	} while (r && dev >= 0 && r->dev != dev);
	pthread_mutex_unlock(&vm.lock);
	return r;
}

struct device *device_lock_at(CUdeviceptr ptr)
{
	const struct region *r = region_at(ptr);
	struct device *d;

	if (!r)
		return NULL;
	d = &vm.devices[REGION_READ(r, dev)];
	pthread_mutex_lock(&d->lock);
	/* If the memory was freed meanwhile, the region may be another device's now. */
	if (region_at(ptr) == r && d == &vm.devices[REGION_READ(r, dev)])
		return d;
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

struct region *region_next_locked(CUdeviceptr *pos)
{
	while (region_next(-1, pos))
		if (device_lock_at(*pos - 1))
			return region_at(*pos - 1);
	return NULL;
}

void region_unlock(const struct region *r)
{
	pthread_mutex_unlock(&vm.devices[r->dev].lock);
}

size_t regions_trim(CUdevice dev)
{
	CUdeviceptr pos = VMEM_BASE;
	size_t released = 0;
	struct region *r;

	while ((r = region_next(dev, &pos))) {
		size_t size = r->run_size;

		if (r->idle && region_release(r) == CUDA_SUCCESS)
			released += size;
	}
	return released;
}

void device_forget(CUdevice dev, size_t n, size_t size)
{
	vm.devices[dev].stats.nalloc -= n;
	vm.devices[dev].stats.carried -= size;
}
